"""Names and sources of code from outside the package.

A file is named by its path, and *pinned* as ``path#content``: the content is a digest
of what it and the modules beside it define, so that whoever holds the pin either gets
the code that it stands for or is told that it has changed; comments may. An installed
package offers algorithms as entry points.
"""

from __future__ import annotations

import ast
import functools
import importlib
import keyword
import os
import secrets
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.code_identity import digest_of_files, files_beside, is_ours
from dp_erm_bench.errors import UsageError

GROUP = "dp_erm_bench.algorithms"
"""Entry points of this group are algorithms: ``name = "module:Class"``."""

EXTEND = "dp_erm_bench.extend"
"""Exports what files of one's own need; imported where one has missed it."""

_pins: set[str] = set()


def is_file(name: Any) -> bool:
    """Return whether a name is the path of a file, pinned or not."""
    return isinstance(name, str) and name.partition("#")[0].endswith(".py")


def label_of(name: str) -> str:
    """Return the label of an algorithm: the stem of a file, else its name."""
    return Path(name.partition("#")[0]).stem if is_file(name) else name


def content_digest(name: str) -> str:
    """Return the digest in a pin, empty for anything else."""
    return name.partition("#")[2] if is_file(name) else ""


def entries_of_pin(name: str) -> dict[str, str]:
    """Return the entries of a pinned file in a trial's spec, {} for a name."""
    path = name.partition("#")[0]
    return {"file": path, "content": content_digest(name)} if is_file(name) else {}


def identity_of(name: str) -> str:
    """Return the name that seeds an algorithm's draws, without a file's place."""
    return f"{label_of(name)}:{content_digest(name)}" if is_file(name) else name


def named_in(algorithm: Mapping[str, Any]) -> str:
    """Return the name or the pin in the `algorithm` of a trial's spec."""
    if "file" in algorithm:
        return f"{algorithm['file']}#{algorithm['content']}"
    return str(algorithm["name"])


def absolute_path(name: str) -> str:
    """Return the absolute path of a file, pinned or not; ``~`` is the user's home."""
    return os.path.abspath(os.path.expanduser(name.partition("#")[0]))


@functools.cache
def entry_points() -> dict[str, str]:
    """Return the dotted names of the classes that installed packages offer, by name."""
    from importlib import metadata  # 15 ms, and few commands ask

    points = metadata.entry_points(group=GROUP)
    return {point.name: point.value.replace(":", ".") for point in points}


def pin_file(name: str, group: str) -> str:
    """Return the absolute path of a file with the digest of its content.

    Raises
    ------
    UsageError
        If there is no such file, its name cannot be that of an algorithm, or it is
        no Python.
    """
    if "#" in name:
        return name
    path = absolute_path(name)
    stem = label_of(path)
    if not stem.isidentifier() or keyword.iskeyword(stem):
        raise UsageError(
            f"{group}={name}: the file's name names the {group} and must be a word "
            f"of letters, digits and _, as in my_{group}.py"
        )
    if not os.path.isfile(path):
        raise UsageError(f"{group}={name}: no such file")
    pin = f"{path}#{digest_of_files(source_files(path, group))}"
    _pins.add(pin)
    return pin


def is_pinned(pin: str) -> bool:
    """Return whether a file was pinned here: a user named its path, and it held that.

    A pin that stands in a results folder may be anybody's.
    """
    return pin in _pins


def source_files(path: str, group: str = "algorithm") -> dict[str, Path]:
    """Return a file and the modules beside it that it imports, by `files_beside`.

    Raises
    ------
    UsageError
        If one of them is no Python.
    """
    try:
        return files_beside(path)
    except SyntaxError as error:
        raise broken_file_sentence(error.filename or path, error, group) from None
    except (ValueError, RecursionError, MemoryError) as error:
        # The parser of Python 3.11 says of what is nested too deeply: no memory.
        raise broken_file_sentence(path, error, group) from None


@functools.cache
def origin_digest(cls: type) -> str:
    """Return the digest that tells a class from outside the package from namesakes.

    Returns
    -------
    str
        Empty for the package's own. The digest of its file and the modules beside it;
        of a class that no file holds as a whole (a notebook's), a word of this
        process alone.
    """
    if is_ours(cls):
        return ""
    file = getattr(sys.modules[cls.__module__], "__file__", None)
    if file and "<locals>" not in cls.__qualname__:
        return digest_of_files(source_files(file))
    return secrets.token_hex(8)


def broken_file_sentence(path: str, error: BaseException, group: str) -> UsageError:
    """Return the sentence about a file that cannot be imported."""
    if isinstance(error, ImportError) and (
        moved := _moved_names_sentence(path, error.name or "")
    ):
        return UsageError(f"{group}={path}: {moved}")
    if isinstance(error, SyntaxError):
        line, message = error.lineno, error.msg
    else:
        frames = traceback.extract_tb(error.__traceback__)
        line, message = frames[-1].lineno if frames else 0, str(error)
    return UsageError(
        f"{group}={path}: cannot be imported, {type(error).__name__} in line {line}: "
        f"{' '.join(message.split())}"
    )


def _moved_names_sentence(path: str, missing: str) -> str:
    """Return a sentence on how to import names that have left their module."""
    if missing == EXTEND or missing.partition(".")[0] != __name__.partition(".")[0]:
        return ""
    gone = [
        (node.module, alias.name)
        for file in source_files(path).values()
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.startswith(missing)
        for alias in node.names
    ]
    places = ", ".join(dict.fromkeys(module for module, _ in gone)) or missing
    offered = importlib.import_module(EXTEND).__all__
    names = ", ".join(sorted({name for _, name in gone} & set(offered))) or "..."
    return (
        f"imports from {places} what is not there; files of one's own write from "
        f"{EXTEND} import {names}"
    )
