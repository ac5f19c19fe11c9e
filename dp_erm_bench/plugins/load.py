"""Load the solver class of a file, from the very sources that its pin stands for."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import label
from dp_erm_bench.plugins.sources import broken, digest, sources

CHECK = "dp_erm_bench.solvers.declared"
"""The module that tells what a solver's class lacks; imported where it is needed."""

MACHINE_CODE = "dp_erm_bench.kernels.machine_code"
"""The module that knows where machine code is kept; imported by what compiles."""


@functools.cache
def load(pin: str) -> Any:
    """Return the solver class of a pinned file.

    Raises
    ------
    UsageError
        If the file has changed since, cannot be imported, or does not hold exactly
        one complete solver.
    """
    path, _, content = pin.partition("#")
    files = sources(path) if os.path.isfile(path) else {}
    if not files or digest(files) != content:
        raise UsageError(
            f"algorithm={path}: was changed after the run had begun; start it again"
        )
    module = _executed(path, f"{label(path)}_{content[:12]}", files)
    found = importlib.import_module(CHECK).solvers_in(module)
    if len(found) != 1:
        names = ", ".join(cls.__name__ for cls in found) or "none"
        raise UsageError(
            f"algorithm={path}: must define exactly one subclass of Solver, has {names}"
        )
    check_class(path, found[0])
    return found[0]


def check_class(name: str, solver: Any) -> None:
    """Raise UsageError with what a solver's class lacks."""
    lacking = importlib.import_module(CHECK).complaint(solver)
    if lacking:
        raise UsageError(f"algorithm={name}: {lacking}")


def _executed(path: str, name: str, files: dict[str, Path]) -> ModuleType:
    helpers = {k: file for k, file in files.items() if k != label(path)}
    for helper in helpers:
        sys.modules.pop(helper, None)
    finder = _Beside(helpers)
    spec = importlib.util.spec_from_file_location(
        name, path, loader=_Source(name, path)
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.meta_path.insert(0, finder)
    try:
        with _machine_code(path, files):
            spec.loader.exec_module(module)
            # One that is imported in a function would be gone then.
            for helper in helpers:
                importlib.import_module(helper)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise broken(path, error) from None
    finally:
        sys.meta_path.remove(finder)
    return module


def _machine_code(path: str, files: dict[str, Path]) -> AbstractContextManager[Any]:
    """Return a context in which numba keeps code by the digest of all these files."""
    if any(b"numba" in file.read_bytes() for file in files.values()):
        context: AbstractContextManager[Any] = importlib.import_module(
            MACHINE_CODE
        ).machine_code_of(path)
        return context
    return nullcontext()


class _Source(importlib.machinery.SourceFileLoader):
    """Compiles the source itself: stamps of bytecode do not see quick changes."""

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)


class _Beside(importlib.abc.MetaPathFinder):
    """Finds the modules beside a solver."""

    def __init__(self, files: dict[str, Path]) -> None:
        self.files = files

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self.files.get(name)
        if file is None:
            return None
        loader = _Source(name, str(file))
        inside = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, str(file), loader=loader, submodule_search_locations=inside
        )
