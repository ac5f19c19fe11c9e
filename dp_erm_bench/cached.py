"""Values that are cached on disk as JSON, and whether what is read may be believed."""

import contextlib
import hashlib
import hmac
import json
import re
from typing import Any, NamedTuple

from dp_erm_bench.paths import cache_dir, content_of, write_atomic

LARGEST = 1 << 28
"""Bytes of a cached value that is read."""
ENDING = re.compile(rb'"digest": "([0-9a-f]{64})", "seal": "([0-9a-f]{64})"}\Z')
UNSEALED = "0" * 64
_run: dict[str, bytes] = {}


class Cached(NamedTuple):
    """A cached value as it was read.

    Attributes
    ----------
    value : dict
        The value as it was written, unless the digest was forged.
    vouched : bool
        Whether a process of the same run wrote it, see :func:`vouch`.
    """

    value: dict[str, Any]
    vouched: bool


def vouch(secret: str) -> None:
    """Seal the values that this process caches; accept those of the same secret.

    A run gives its secret to all of its workers: a proof by one of them
    serves the others, too. It is never written, so that nobody else can seal. An empty
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
    path = cache_dir() / kind / f"{key}.json"
    raw = b""
    with contextlib.suppress(OSError, ValueError):
        raw = content_of(path, path.parent, LARGEST)
    end = ENDING.search(raw[-200:])
    if end is None:
        return None
    body = raw[: len(raw) - len(end[0])]
    checksum, seal = end[1].decode(), end[2].decode()
    if checksum != _checksum(kind, key, body):
        return None
    try:
        value = json.loads(body.rstrip(b", ") + b"}")
    except (ValueError, RecursionError, MemoryError):
        return None
    vouched = bool(_run) and hmac.compare_digest(seal, _seal(checksum))
    return Cached(value, vouched) if isinstance(value, dict) else None


def save_json(kind: str, key: str, value: dict[str, Any]) -> None:
    """Cache a JSON object under a key, atomically; a full disk is no error."""
    body = json.dumps(value)[:-1].encode() + (b", " if value else b"")
    checksum = _checksum(kind, key, body)
    end = f'"digest": "{checksum}", "seal": "{_seal(checksum)}"}}'.encode()
    try:
        write_atomic(cache_dir() / kind / f"{key}.json", lambda f: f.write(body + end))
    except OSError:
        return


def _checksum(kind: str, key: str, body: bytes) -> str:
    return hashlib.sha256(f"{kind} {key} ".encode() + body).hexdigest()


def _seal(checksum: str) -> str:
    if not _run:
        return UNSEALED
    return hmac.new(_run["secret"], checksum.encode(), "sha256").hexdigest()
