"""The fingerprint of the code that computes a trial's numbers.

A record must not be served after the code behind it changed, and must survive a
change elsewhere (report, command line, scheduling).
"""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterator
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from dp_erm_bench.plugins.names import content, is_file
from dp_erm_bench.plugins.sources import package_imports

PACKAGE = "dp_erm_bench"
NUMERIC = (
    "kernels",
    "datasets",
    "losses",
    "penalties",
    "constraints",
    "problems",
    "releases",
    "accounting",
)
LIBRARIES = ("numpy", "scipy", "numba")
EXECUTE = f"{PACKAGE}.runner.execute"
# They find, name and schedule trials; what they decide enters the key by itself.
INERT = (
    PACKAGE,
    *(f"{PACKAGE}.{name}" for name in ("cached", "errors", "paths", "plugins")),
    *(f"{PACKAGE}.{name}" for name in ("experiment", "registry", "results")),
)


@functools.cache
def code_fingerprint(target: str) -> str:
    """Return the digest of all sources that determine a solver's numbers.

    Parameters
    ----------
    target : str
        Dotted name of the solver class, or the pin of its file.

    Notes
    -----
    Covers every module of the layers below the solvers, the solver's module and
    `runner.execute` with the package modules that they import (at any depth), and
    major.minor of numpy, scipy and numba. Of a file: its content and that of the
    modules beside it, never its path.
    """
    modules = {*numeric_modules(), *_closure(EXECUTE)}
    if is_file(target):
        for name in package_imports(target, PACKAGE):
            modules |= _closure(name)
    else:
        modules |= _closure(target.rpartition(".")[0])
    parts = [content(target)] if is_file(target) else []
    parts += [f"{name} {_source_digest(name)}" for name in sorted(modules)]
    parts += [f"{name} {_minor(name)}" for name in LIBRARIES]
    return sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def numeric_modules() -> frozenset[str]:
    """Return the names of all modules of the layers below the solvers."""
    root = Path(__file__).resolve().parents[1]
    return frozenset(
        _dotted(path.relative_to(root.parent))
        for layer in NUMERIC
        for path in (root / layer).rglob("*.py")
    )


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _closure(module: str) -> set[str]:
    """Return a module and what it imports, at any depth.

    The layers below the solvers are not read for their imports: they import each
    other only, and all of them count anyway.
    """
    found: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in found and not _inert(name) and _file(name) is not None:
            found.add(name)
            todo += () if name in numeric_modules() else _imports(name)
    return found


def _inert(name: str) -> bool:
    return any(name == i or (i != PACKAGE and name.startswith(f"{i}.")) for i in INERT)


@functools.cache
def _imports(module: str) -> tuple[str, ...]:
    file = _file(module)
    tree = ast.parse(file.read_bytes()) if file else ast.Module([], [])
    return tuple(sorted(set(_imported(tree, module))))


def _imported(tree: ast.AST, module: str) -> Iterator[str]:
    tops = (PACKAGE, module.partition(".")[0])
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
        yield from (name for name in names if name.partition(".")[0] in tops)


@functools.cache
def _file(module: str) -> Path | None:
    """Find a module's source without importing the packages above it."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if spec.submodule_search_locations is None:
        return Path(spec.origin) if spec.origin and not rest else None
    for root in spec.submodule_search_locations:
        base = Path(root, *rest)
        for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


@functools.cache
def _source_digest(module: str) -> str:
    file = _file(module)
    return sha256(file.read_bytes() if file else b"").hexdigest()


def _minor(library: str) -> str:
    return ".".join(metadata.version(library).split(".")[:2])
