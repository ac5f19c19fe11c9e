"""Load the class in a user's file, from exactly the sources of a pin.

A pin is the path of the file with a digest of its content.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from dp_erm_bench.code_identity import digest_of_files
from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import (
    broken_file_sentence,
    content_digest,
    label_of,
    source_files,
)

CHECKS = {
    "algorithm": ("Solver", "dp_erm_bench.solvers.bounds", "complaint_of_solver"),
    "loss": ("Loss", "dp_erm_bench.losses.base", "complaint_of_loss"),
}
"""The class of each group, its module, and its function that finds what is missing.

The module is imported when it is needed.
"""

MACHINE_CODE = "dp_erm_bench.machine_code"
"""The module that loads numba; imported if a file compiles code."""


@functools.cache
def load_class(pin: str, group: str = "algorithm") -> Any:
    """Return the solver class or the loss class in the file of a pin.

    Raises
    ------
    UsageError
        If the file has changed since the pin was made, cannot be imported, or does not
        hold exactly one complete class of the group.
    """
    path = path_of_pin(pin, group)
    if path is None:
        named = f"{group}={pin.partition('#')[0]}"
        raise UsageError(
            f"{named}: was changed after the run had begun; start it again"
        )
    files = source_files(path, group)
    module = _execute_file(
        path, f"{label_of(path)}_{content_digest(pin)[:12]}", files, group
    )
    kind, check, _ = CHECKS[group]
    base = getattr(importlib.import_module(check), kind)
    types = [value for value in vars(module).values() if isinstance(value, type)]
    # Imported classes are left out.
    own = [cls for cls in types if cls.__module__ == module.__name__]
    classes: list[Any] = [cls for cls in own if issubclass(cls, base)]
    if len(classes) != 1:
        names = ", ".join(cls.__name__ for cls in classes) or "none"
        raise UsageError(
            f"{group}={path}: must define exactly one subclass of {kind}, has {names}"
        )
    check_class(path, classes[0], group)
    if group == "loss":
        classes[0].name, classes[0].pin = label_of(pin), pin
    return classes[0]


def path_of_pin(pin: str, group: str = "algorithm") -> str | None:
    """Return the path of a pin, or None if the file has another content."""
    path = pin.partition("#")[0]
    with contextlib.suppress(UsageError, OSError):
        if os.path.isfile(path) and digest_of_files(
            source_files(path, group)
        ) == content_digest(pin):
            return path
    return None


def check_class(name: str, cls: Any, group: str) -> None:
    """Raise UsageError if the class of a solver or a loss is incomplete.

    Parameters
    ----------
    name : str
        Name or path of the class, for messages.
    cls : type
        The class.
    group : str
        ``algorithm`` or ``loss``.
    """
    _, module, check = CHECKS[group]
    if lacking := getattr(importlib.import_module(module), check)(cls):
        raise UsageError(f"{group}={name}: {lacking}")


def _execute_file(
    path: str, name: str, files: dict[str, Path], group: str
) -> ModuleType:
    """Run a file and return its module; its imports find the modules next to it."""
    helpers = {k: file for k, file in files.items() if k != label_of(path)}
    for helper in helpers:
        sys.modules.pop(helper, None)
    finder, loader = _Beside(helpers), _Source(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    numba = any(b"numba" in file.read_bytes() for file in files.values())
    caches = importlib.import_module(MACHINE_CODE).numba_caches if numba else None
    sys.meta_path.insert(0, finder)
    try:
        with caches() if caches else contextlib.nullcontext():
            loader.exec_module(module)
            # An import inside a function would come too late to find them.
            for helper in helpers:
                importlib.import_module(helper)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise broken_file_sentence(path, error, group) from None
    finally:
        sys.meta_path.remove(finder)
    return module


class _Source(importlib.machinery.SourceFileLoader):
    """Loads a module by compiling its source.

    Bytecode is not used, because its time stamps miss quick changes.
    """

    by_path = True
    """Tells `code_identity` that the module cannot be found by its name."""

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Beside(importlib.abc.MetaPathFinder):
    """Import finder for the modules next to a solver's file."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module among the files; None for any other.

        Parameters
        ----------
        name : str
            Name of the module.
        path : sequence of str or None
            Not used.
        target : module or None
            Not used.
        """
        file = self.files.get(name)
        if file is None:
            return None
        loader = _Source(name, str(file))
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, str(file), loader=loader, submodule_search_locations=inside
        )
