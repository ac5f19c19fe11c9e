"""Names and sources of code from outside the package.

A file is named by its path or by a *pin*, ``path#content``. The content is a digest of
what the file and the modules next to it define. So a pin leads either to the code for
which it was made, or to an error that the code has changed. Changes of comments do not
matter. An installed package offers algorithms as entry points.
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
"""The module with all names that users' files need; imported only for an error."""

_pins: set[str] = set()


def is_file(name: Any) -> bool:
    """Return whether a name is the path or the pin of a file."""
    return isinstance(name, str) and name.partition("#")[0].endswith(".py")


def label_of(name: str) -> str:
    """Return the label of an algorithm: the stem of a file, else its name."""
    return Path(name.partition("#")[0]).stem if is_file(name) else name


def content_digest(name: str) -> str:
    """Return the digest in a pin; empty if the name is not a pin."""
    return name.partition("#")[2] if is_file(name) else ""


def entries_of_pin(name: str) -> dict[str, str]:
    """Return the entries of a trial's spec for a pin; {} for other names."""
    path = name.partition("#")[0]
    return {"file": path, "content": content_digest(name)} if is_file(name) else {}


def identity_of(name: str) -> str:
    """Return the string that seeds an algorithm's noise.

    For a file, the string does not depend on the folder.
    """
    return f"{label_of(name)}:{content_digest(name)}" if is_file(name) else name


def named_in(algorithm: Mapping[str, Any]) -> str:
    """Return the name or the pin of the algorithm in a trial's spec."""
    if "file" in algorithm:
        return f"{algorithm['file']}#{algorithm['content']}"
    return str(algorithm["name"])


def absolute_path(name: str) -> str:
    """Return the absolute path of a file or of its pin; ``~`` is the user's home."""
    return os.path.abspath(os.path.expanduser(name.partition("#")[0]))


@functools.cache
def entry_points() -> dict[str, str]:
    """Return the dotted names of the classes that installed packages offer, by name."""
    from importlib import metadata  # takes 15 ms, and few commands need it

    points = metadata.entry_points(group=GROUP)
    return {point.name: point.value.replace(":", ".") for point in points}


def pin_file(name: str, group: str) -> str:
    """Return the pin of a file: its absolute path with the digest of its content.

    Raises
    ------
    UsageError
        If the file does not exist, its name cannot be that of an algorithm, or it is
        not Python.
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
    """Return whether this process made a pin.

    If so, a user named the file, and the file had this content. A pin in a results
    folder may come from anybody.
    """
    return pin in _pins


def source_files(path: str, group: str = "algorithm") -> dict[str, Path]:
    """Return a file and the modules next to it that it imports, see `files_beside`.

    Raises
    ------
    UsageError
        If one of them is not Python.
    """
    try:
        return files_beside(path)
    except SyntaxError as error:
        raise broken_file_sentence(error.filename or path, error, group) from None
    except (ValueError, RecursionError, MemoryError) as error:
        # The parser of Python 3.11 raises MemoryError if code is nested too deeply.
        raise broken_file_sentence(path, error, group) from None


@functools.cache
def origin_digest(cls: type) -> str:
    """Return a digest that distinguishes a class from others with the same name.

    Returns
    -------
    str
        Empty for the package's own classes, otherwise the digest of the class's file
        and of the modules next to it. If no file contains the whole class (as in a
        notebook), the result is a random string for this process alone.
    """
    if is_ours(cls):
        return ""
    file = getattr(sys.modules[cls.__module__], "__file__", None)
    if file and "<locals>" not in cls.__qualname__:
        return digest_of_files(source_files(file))
    return secrets.token_hex(8)


def broken_file_sentence(path: str, error: BaseException, group: str) -> UsageError:
    """Return the UsageError about a file that cannot be imported.

    Parameters
    ----------
    path : str
        Path of the file.
    error : BaseException
        The error of its import.
    group : str
        ``algorithm`` or ``loss``.
    """
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
    """Return a sentence on how to import names that have moved; empty if none have."""
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
