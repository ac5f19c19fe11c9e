"""Cache folder, atomic writes and content digests."""

import dataclasses
import hashlib
import hmac
import json
import math
import os
import re
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

LARGEST = 1 << 28
"""Bytes of a cached value that is read."""
ENDING = re.compile(rb'"digest": "([0-9a-f]{64})", "seal": "([0-9a-f]{64})"}\Z')
UNSEALED = "0" * 64
_run: dict[str, bytes] = {}


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


class Cached(NamedTuple):
    """A cached value as it was read.

    Attributes
    ----------
    value : dict
        The one that was written, but for whoever can forge a digest.
    vouched : bool
        Whether a process of the same run wrote it, see :func:`vouch`.
    """

    value: dict[str, Any]
    vouched: bool


def vouch(secret: str) -> None:
    """Seal the values that this process caches, and know those of the same secret.

    A run gives its secret to all of its workers: what one of them has proved the others
    need not prove again. It is never written, so that nobody else can seal. An empty
    secret ends it.
    """
    _run.clear()
    if secret:
        _run["secret"] = secret.encode()


def is_sealing() -> bool:
    """Return whether this process seals what it caches."""
    return bool(_run)


def load_json(kind: str, key: str) -> Cached | None:
    """Return the cached value of a key, None if absent, damaged or unreadable."""
    raw = read_regular(cache_dir() / kind / f"{key}.json", LARGEST)
    end = ENDING.search(raw[-200:]) if raw else None
    if not raw or end is None:
        return None
    body = raw[: len(raw) - len(end[0])]
    said, seal = end[1].decode(), end[2].decode()
    if said != _checksum(kind, key, body):
        return None
    try:
        value = json.loads(body.rstrip(b", ") + b"}")
    except (ValueError, RecursionError, MemoryError):
        return None
    vouched = bool(_run) and hmac.compare_digest(seal, _seal(said))
    return Cached(value, vouched) if isinstance(value, dict) else None


def save_json(kind: str, key: str, value: dict[str, Any]) -> None:
    """Cache a JSON object under a key, atomically; a full disk is no error."""
    body = json.dumps(value)[:-1].encode() + (b", " if value else b"")
    said = _checksum(kind, key, body)
    end = f'"digest": "{said}", "seal": "{_seal(said)}"}}'.encode()
    try:
        write_atomic(cache_dir() / kind / f"{key}.json", lambda f: f.write(body + end))
    except OSError:
        return


def _checksum(kind: str, key: str, body: bytes) -> str:
    return hashlib.sha256(f"{kind} {key} ".encode() + body).hexdigest()


def _seal(said: str) -> str:
    if not _run:
        return UNSEALED
    return hmac.new(_run["secret"], said.encode(), "sha256").hexdigest()


def read_regular(path: Path, most: int) -> bytes | None:
    """Return the bytes of a regular file, None for anything else or a larger one.

    Links, pipes and devices are not followed, and not waited for.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > most:
            return None
        with open(handle, "rb", closefd=False) as file:
            return file.read(most)
    except OSError:
        return None
    finally:
        os.close(handle)


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
