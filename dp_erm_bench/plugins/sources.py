"""The sources of a solver's file: itself, and the modules beside it."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.machinery
import keyword
import os
import secrets
import sys
import traceback
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import absolute, label

EXTEND = "dp_erm_bench.extend"
"""Exports what files of one's own need; imported where one has missed it."""

_pins: set[str] = set()


def pinned(name: str, group: str) -> str:
    """Return the absolute path of a file with the digest of its content.

    Raises
    ------
    UsageError
        If there is no such file, its name cannot be that of an algorithm, or it is
        no Python.
    """
    if "#" in name:
        return name
    path = absolute(name)
    stem = label(path)
    if not stem.isidentifier() or keyword.iskeyword(stem):
        raise UsageError(
            f"{group}={name}: the file's name names the {group} and must be a word "
            f"of letters, digits and _, as in my_{group}.py"
        )
    if not os.path.isfile(path):
        raise UsageError(f"{group}={name}: no such file")
    pin = f"{path}#{digest(sources(path, group))}"
    _pins.add(pin)
    return pin


def is_pinned(pin: str) -> bool:
    """Return whether a file was pinned here: a user named its path, and it held that.

    A pin that stands in a results folder may be anybody's.
    """
    return pin in _pins


def sources(path: str, group: str = "algorithm") -> dict[str, Path]:
    """Return a file and the modules beside it that it imports, at any depth.

    A module that is found elsewhere too (the standard library, an installed package)
    is that one: files beside a solver replace none.
    """
    file = Path(path)
    found, todo = {file.stem: file}, [file.stem]
    while todo:
        name = todo.pop()
        for imported in sorted(_beside(name, found[name], file.parent, group)):
            if imported not in found:
                found[imported] = _module_file(file.parent, imported) or file
                todo.append(imported)
    return found


def package_imports(name: str, package: str) -> set[str]:
    """Return the modules of a package that a file, or one beside it, imports."""
    files = sources(name.partition("#")[0])
    names = {i for module, file in files.items() for i in _imports(module, file)}
    return {name for name in names if name.partition(".")[0] == package}


def _beside(module: str, file: Path, folder: Path, group: str) -> Iterator[str]:
    for name in _imports(module, file, group):
        parts = name.split(".")
        if _elsewhere(parts[0], str(folder)):
            continue
        for depth in range(1, len(parts) + 1):
            if _module_file(folder, ".".join(parts[:depth])):
                yield ".".join(parts[:depth])


def _imports(module: str, file: Path, group: str = "algorithm") -> set[str]:
    """Return every dotted name that a file may import, also inside functions."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise broken(str(file), error, group) from None
    inside = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = inside.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return {name.strip(".") for name in found} - {""}


def _elsewhere(top: str, folder: str) -> bool:
    if top in sys.stdlib_module_names:
        return True
    others = [p for p in sys.path if os.path.abspath(p or os.getcwd()) != folder]
    return importlib.machinery.PathFinder.find_spec(top, others) is not None


def _module_file(folder: Path, module: str) -> Path | None:
    base = folder.joinpath(*module.split("."))
    for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def digest(files: dict[str, Path]) -> str:
    """Return the digest of modules by name: of what they hold, not where they are."""
    parts = [f"{n} {sha256(files[n].read_bytes()).hexdigest()}" for n in sorted(files)]
    return sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def origin(cls: type) -> str:
    """Return what tells a class from outside the package from others of its name.

    Returns
    -------
    str
        Empty for the package's own. The digest of its file and the modules beside it;
        of a class that no file holds as a whole (a notebook's), a word of this
        process alone.
    """
    if cls.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return ""
    file = getattr(sys.modules[cls.__module__], "__file__", None)
    if file and "<locals>" not in cls.__qualname__:
        return digest(sources(file))
    return secrets.token_hex(8)


def broken(path: str, error: BaseException, group: str) -> UsageError:
    """Return the sentence about a file that cannot be imported."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__)]
    line = error.lineno if isinstance(error, SyntaxError) else (lines or [0])[-1]
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    told = " ".join(message.split())
    if isinstance(error, ImportError) and (moved := _moved(path, error.name or "")):
        return UsageError(f"{group}={path}: {moved}")
    return UsageError(
        f"{group}={path}: cannot be imported, {type(error).__name__} in line {line}: "
        f"{told}"
    )


def _moved(path: str, missing: str) -> str:
    """Return how to import what a file looked for at a place of ours that is gone."""
    if missing == EXTEND or missing.partition(".")[0] != __name__.partition(".")[0]:
        return ""
    trees = [ast.parse(file.read_bytes()) for file in sources(path).values()]
    imports = [
        (node.module or "", alias.name)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    gone = [(module, name) for module, name in imports if module.startswith(missing)]
    places = ", ".join(dict.fromkeys(module for module, _ in gone)) or missing
    offered = importlib.import_module(EXTEND).__all__
    names = ", ".join(sorted({name for _, name in gone} & set(offered))) or "..."
    return (
        f"imports from {places} what is not there; files of one's own write from "
        f"{EXTEND} import {names}"
    )
