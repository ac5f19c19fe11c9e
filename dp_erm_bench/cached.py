"""Values that are cached on disk as JSON, and whether what is read may be believed.

A damaged value is not used. One that can be proved again (a calibration, an optimum)
is believed unproved where a process of the same run wrote it: these share a secret that
is never written.
"""

import contextlib
import functools
import hashlib
import hmac
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.paths import cache_dir, content_of, scratch_folder, write_atomic

LARGEST = 1 << 28
"""Bytes of a cached value that is read."""
ENDING = re.compile(rb'"digest": "([0-9a-f]{64})", "seal": "([0-9a-f]{64})"}\Z')
UNSEALED = "0" * 64
RUN = "DP_ERM_BENCH_RUN"
"""Variable in the environment of workers: the folder of the run, see `run_folder`."""

DAMAGED, UNKEPT = "damaged", "unkept"
_run: dict[str, bytes] = {}
_said_here: set[str] = set()


class Cached(NamedTuple):
    """A cached value as it was read.

    Attributes
    ----------
    value : dict
        The value as it was written, unless the digest was forged.
    vouched : bool
        Whether a process of the same run wrote it, see :func:`vouch_for_cache`.
    """

    value: dict[str, Any]
    vouched: bool


def vouch_for_cache(secret: str) -> None:
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
    if checksum != _checksum_of(kind, key, body):
        return None
    try:
        value = json.loads(body.rstrip(b", ") + b"}")
    except (ValueError, RecursionError, MemoryError):
        return None
    vouched = bool(_run) and hmac.compare_digest(seal, _seal_of(checksum))
    return Cached(value, vouched) if isinstance(value, dict) else None


def save_json(kind: str, key: str, value: dict[str, Any]) -> None:
    """Cache a JSON object under a key, atomically; a full disk is no error."""
    body = json.dumps(value)[:-1].encode() + (b", " if value else b"")
    checksum = _checksum_of(kind, key, body)
    end = f'"digest": "{checksum}", "seal": "{_seal_of(checksum)}"}}'.encode()
    try:
        path = cache_dir() / kind / f"{key}.json"
        write_atomic(path, lambda file: file.write(body + end), private=True)
    except OSError:
        return


def _checksum_of(kind: str, key: str, body: bytes) -> str:
    return hashlib.sha256(f"{kind} {key} ".encode() + body).hexdigest()


def _seal_of(checksum: str) -> str:
    if not _run:
        return UNSEALED
    return hmac.new(_run["secret"], checksum.encode(), "sha256").hexdigest()


def warn_of_no_cache(why: str, variable: str) -> None:
    """Say once why nothing can be kept, and which variable names another folder."""
    say_once(
        UNKEPT,
        f"{why}; every process compiles the kernels anew and prepares its data anew: "
        f"{variable} names another folder",
    )


def say_once(kind: str, sentence: str) -> None:
    """Print a line on stderr, once by this process and the workers that it starts.

    `kind` is `DAMAGED` or `UNKEPT`.
    """
    if kind in _said_here:
        return
    _said_here.add(kind)
    try:
        (run_folder() / f"said-{kind}").touch(exist_ok=False)
    except FileExistsError:
        return
    except OSError:
        pass  # Each process says it then.
    # A solver may have closed it.
    with contextlib.suppress(Exception):
        print(f"dp-erm-bench: {sentence}", file=sys.stderr, flush=True)


@functools.cache
def run_folder() -> Path:
    """Return a folder that this process and its workers share, and that ends with it.

    Raises
    ------
    OSError
        If none can be made.
    """
    return Path(os.environ.get(RUN) or scratch_folder())
