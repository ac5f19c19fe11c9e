"""The fingerprint of the code that computes a trial's numbers.

A record must not be served after the code behind it changed, and must survive a
change elsewhere (report, command line, scheduling).
"""

import ast
import functools
import importlib.util
from hashlib import sha256
from importlib import metadata
from pathlib import Path

from dp_erm_bench.plugins.names import content, is_file, package_imports

PACKAGE = "dp_erm_bench"
NUMERIC = (
    "kernels",
    "datasets",
    "losses",
    "norms",
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
    file = is_file(target)
    used = package_imports(target, PACKAGE) if file else [target.rpartition(".")[0]]
    modules = numeric_modules().union(*map(_closure, (EXECUTE, *used)))
    parts = [content(target)] if file else []
    parts += [f"{name} {_source_digest(name)}" for name in sorted(modules)]
    parts += [f"{name} {_minor(name)}" for name in LIBRARIES]
    return sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def numeric_modules() -> frozenset[str]:
    """Return the names of all modules of the layers below the solvers."""
    root = Path(__file__).resolve().parents[1]
    paths = (path for layer in NUMERIC for path in (root / layer).rglob("*.py"))
    parts = (path.relative_to(root.parent).with_suffix("").parts for path in paths)
    return frozenset(".".join(one).removesuffix(".__init__") for one in parts)


def _closure(module: str) -> set[str]:
    """Return a module and what it imports, at any depth.

    The layers below the solvers are not read for their imports: they import each
    other only, and all of them count anyway.
    """
    closure: set[str] = set()
    todo = [module]
    while todo:
        name = todo.pop()
        if name not in closure and not _inert(name) and _file(name) is not None:
            closure.add(name)
            todo += () if name in numeric_modules() else _imports(name)
    return closure


def _inert(name: str) -> bool:
    return any(name == i or (i != PACKAGE and name.startswith(f"{i}.")) for i in INERT)


@functools.cache
def _imports(module: str) -> tuple[str, ...]:
    """Return the imports of a module from this package and from its own, sorted."""
    file = _file(module)
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes() if file else b"")):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.update(
                (node.module, *(f"{node.module}.{a.name}" for a in node.names))
            )
    tops = (PACKAGE, module.partition(".")[0])
    return tuple(sorted(name for name in names if name.partition(".")[0] in tops))


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
