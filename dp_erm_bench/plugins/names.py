"""How an algorithm from outside the package is called: a file, or an entry point.

A file is named by its path, and *pinned* as ``path#content``: the content is a digest
of the file and of the modules beside it that it imports, so that whoever holds the
pin either gets the code that it stands for or is told that it has changed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

GROUP = "dp_erm_bench.algorithms"
"""Entry points of this group are algorithms: ``name = "module:Class"``."""


def is_file(name: Any) -> bool:
    """Return whether a name is the path of a file, pinned or not."""
    return isinstance(name, str) and name.partition("#")[0].endswith(".py")


def label(name: str) -> str:
    """Return what an algorithm is called: the stem of a file, else its name."""
    return Path(name.partition("#")[0]).stem if is_file(name) else name


def content(name: str) -> str:
    """Return the digest in a pin, empty for anything else."""
    return name.partition("#")[2] if is_file(name) else ""


def shipped(name: str) -> dict[str, str]:
    """Return what the spec of a trial says of a pinned file, nothing of a name."""
    path, _, digest = name.partition("#")
    return {"file": path, "content": digest} if is_file(name) else {}


def identity(name: str) -> str:
    """Return what tells an algorithm's draws from others': never where a file is."""
    return f"{label(name)}:{content(name)}" if is_file(name) else name


def named_in(algorithm: Mapping[str, Any]) -> str:
    """Return the name or the pin in the `algorithm` of a trial's spec."""
    if "file" in algorithm:
        return f"{algorithm['file']}#{algorithm['content']}"
    return str(algorithm["name"])


def absolute(name: str) -> str:
    """Return the absolute path of a file, pinned or not; ``~`` is the user's home."""
    return os.path.abspath(os.path.expanduser(name.partition("#")[0]))


@functools.cache
def entry_points() -> dict[str, str]:
    """Return the dotted names of the classes that installed packages offer, by name."""
    from importlib import metadata  # 15 ms, and few commands ask

    found = metadata.entry_points(group=GROUP)
    return {point.name: point.value.replace(":", ".") for point in found}
