"""The modules of a solver, loaded a second time beside those that are in use."""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.plugins.names import sources

Compile = Callable[[bytes, str], Any]
"""Makes code of the source of a file."""


def compile_source(source: bytes, file: str) -> Any:
    """Return the code of a source as it is."""
    return compile(source, file, "exec")


def modules_of(candidate: Candidate) -> dict[str, ModuleType]:
    """Return a solver's module and those beside it, by name; none without a file."""
    solver = candidate.solver
    own = sys.modules.get(solver.__module__)
    if own is None or getattr(own, "__file__", None) is None:
        return {}
    if getattr(own, solver.__name__, None) is not solver:  # made in a function
        return {}
    paths = {str(file) for file in sources(inspect.getfile(solver)).values()}
    found = {
        name: module
        for name, module in list(sys.modules.items())
        if getattr(module, "__file__", None) in paths
    }
    return {solver.__module__: own, **found}


@contextlib.contextmanager
def load_again(
    candidate: Candidate, compiling: Compile = compile_source
) -> Iterator[tuple[Candidate, dict[str, ModuleType]]]:
    """Yield a candidate of modules that are loaded again, and these modules.

    What they keep they keep for themselves. The modules that were loaded before stay
    what other code finds. Without a file of its own the candidate is yielded as it is.

    Parameters
    ----------
    candidate : Candidate
    compiling : callable
        Makes code of a source, (bytes, path).
    """
    plain = modules_of(candidate)
    if not plain:
        yield candidate, {}
        return
    finder = _Finder({name: str(m.__file__) for name, m in plain.items()}, compiling)
    for name in plain:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        modules = {name: importlib.import_module(name) for name in plain}
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(plain)
    for name, module in modules.items() if compiling is compile_source else ():
        _share_kernels(module, plain[name])
    solver = getattr(modules[candidate.solver.__module__], candidate.solver.__name__)
    made = type(candidate)(candidate.name, solver, candidate.preset)
    yield made, modules


def _share_kernels(module: ModuleType, plain: ModuleType) -> None:
    """Have a module call machine code that is compiled already."""
    for name, found in vars(plain).items():
        if hasattr(found, "py_func") and hasattr(vars(module).get(name), "py_func"):
            vars(module)[name] = found


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of a solver."""

    def __init__(self, files: dict[str, str], compiling: Compile) -> None:
        self.files, self.compiling = files, compiling

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self.files.get(name)
        if file is None:
            return None
        loader = _Loader(name, file)
        loader.compiling = self.compiling
        inside = [str(Path(file).parent)] if file.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, file, loader=loader, submodule_search_locations=inside
        )


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a source itself."""

    compiling: Compile

    def get_code(self, fullname: str) -> Any:
        return self.compiling(self.get_data(self.path), self.path)
