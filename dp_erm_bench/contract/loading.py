"""Load the modules of a solver a second time, next to those in use."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.plugins.names import source_files

Rewrite = Callable[[ModuleType, str], ast.Module]
"""A function of a module and its source that returns the syntax tree to run instead."""


def modules_of(candidate: Candidate) -> dict[str, ModuleType]:
    """Return a solver's module and the modules next to its file, by their names.

    The result is empty if the solver has no file of its own.
    """
    solver = candidate.solver
    own = sys.modules.get(solver.__module__)
    is_there = getattr(own, solver.__name__, None) is solver  # not made in a function
    if own is None or not getattr(own, "__file__", None) or not is_there:
        return {}
    # Leave out modules loaded from an earlier version of the same file.
    paths = {*map(str, source_files(inspect.getfile(solver)).values())} - {own.__file__}
    found = {
        name: module
        for name, module in list(sys.modules.items())
        if getattr(module, "__file__", None) in paths
    }
    return {solver.__module__: own, **found}


@contextlib.contextmanager
def load_again(
    candidate: Candidate, rewrite: Rewrite | None = None
) -> Iterator[tuple[Candidate, dict[str, ModuleType]]]:
    """Yield a candidate with newly loaded modules, and these modules by name.

    The new modules share no state with the old ones, which other code continues to
    import. A candidate without a file of its own is yielded as it is.

    Parameters
    ----------
    candidate : Candidate
        The candidate whose modules are loaded.
    rewrite : callable, optional
        Takes a module and its source; returns the syntax tree to run instead.
    """
    plain = modules_of(candidate)
    if not plain:
        yield candidate, {}
        return
    finder = _finder(plain, rewrite)
    for name in plain:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        modules = {name: importlib.import_module(name) for name in plain}
    finally:
        sys.meta_path.remove(finder)
        sys.modules.update(plain)
    for name, module in modules.items() if rewrite is None else ():
        _share_kernels(module, plain[name])
    solver = getattr(modules[candidate.solver.__module__], candidate.solver.__name__)
    yield type(candidate)(candidate.name, solver, candidate.preset), modules


def _share_kernels(module: ModuleType, plain: ModuleType) -> None:
    """Let a newly loaded module use the kernels that its first copy has compiled."""
    for name, found in vars(plain).items():
        if hasattr(found, "py_func") and hasattr(vars(module).get(name), "py_func"):
            vars(module)[name] = found


def _finder(modules: dict[str, ModuleType], rewrite: Rewrite | None) -> Any:
    """Return an import finder that compiles the sources of the given modules itself."""

    def find_spec(name: str, *_: Any) -> ModuleSpec | None:
        if name not in modules:
            return None
        file = str(modules[name].__file__)
        loader: Any = SourceFileLoader(name, file)
        loader.get_code = lambda _: _code_of(modules[name], rewrite)
        return importlib.util.spec_from_file_location(name, file, loader=loader)

    return SimpleNamespace(find_spec=find_spec)


def source_of_module(module: ModuleType) -> str:
    """Return the source of a module's file."""
    return importlib.util.decode_source(Path(str(module.__file__)).read_bytes())


def _code_of(module: ModuleType, rewrite: Rewrite | None) -> Any:
    """Return the compiled code of a module, after the rewrite if there is one."""
    source = source_of_module(module)
    tree = rewrite(module, source) if rewrite else ast.parse(source)
    return compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")
