"""Cache folder, atomic writes and content digests."""

import dataclasses
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def cache_dir() -> Path:
    """Return the cache folder: ``DP_ERM_BENCH_CACHE``, else the user's cache."""
    named = os.environ.get("DP_ERM_BENCH_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "dp_erm_bench"


def write_atomic(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that a reader sees the old or the new one, never a part.

    Parameters
    ----------
    path : Path
        Target; its folder is made if need be.
    write : callable
        Writes the content into the binary file that it is given.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with part.open("xb") as file:
            write(file)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def load_json(kind: str, key: str) -> Any | None:
    """Return the cached value of a key, or None if absent or unreadable."""
    try:
        return json.loads((cache_dir() / kind / f"{key}.json").read_text())
    except (OSError, ValueError):
        return None


def save_json(kind: str, key: str, value: Any) -> None:
    """Cache a JSON value under a key, atomically; a full disk is no error."""
    text = json.dumps(value).encode()
    try:
        write_atomic(cache_dir() / kind / f"{key}.json", lambda file: file.write(text))
    except OSError:
        return


def digest(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of a value.

    Infinity, which JSON cannot spell, is written as the string ``inf``.
    """
    text = json.dumps(
        spelled(value), sort_keys=True, separators=(",", ":"), allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def spelled(value: Any) -> Any:
    """Return a copy of a value in which infinities are strings, tuples lists."""
    if isinstance(value, dict):
        return {str(k): spelled(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [spelled(v) for v in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


LATER = "later"
"""In the metadata of a field: it was added after results had been published."""


def fields_of(made: Any) -> dict[str, Any]:
    """Return the fields of a dataclass's object by name."""
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}


def later_defaults(made: Any) -> dict[str, Any]:
    """Return the defaults of those fields of a dataclass that came `LATER`.

    A field that holds its later default enters no digest: what was published before
    there was such a field keeps its name.
    """
    marked = (f for f in dataclasses.fields(made) if f.metadata.get(LATER))
    return {field.name: field.default for field in marked}


def entering(values: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return the values that enter a digest: not those at their later default."""
    return {k: v for k, v in values.items() if k not in later or v != later[k]}
