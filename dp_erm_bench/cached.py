"""Cache values on disk as JSON, and decide whether a cached value may be trusted.

A damaged value is not used. Some values can be proved again (a calibration, an
optimum). The proof is skipped if a process of the same run wrote the value. The
processes of a run share a secret that is never written to disk.
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
"""Largest size in bytes of a cached value that is read."""
ENDING = re.compile(rb'"digest": "([0-9a-f]{64})", "seal": "([0-9a-f]{64})"}\Z')
UNSEALED = "0" * 64
RUN = "DP_ERM_BENCH_RUN"
"""Environment variable that tells workers the folder of their run (`run_folder`)."""

DAMAGED, UNKEPT = "damaged", "unkept"
_run: dict[str, bytes] = {}
_said_here: set[str] = set()


class Cached(NamedTuple):
    """A value read from the cache.

    Attributes
    ----------
    value : dict
        The value as it was written, unless someone forged its digest.
    vouched : bool
        Whether a process of the same run wrote the value (see `vouch_for_cache`).
    """

    value: dict[str, Any]
    vouched: bool


def vouch_for_cache(secret: str) -> None:
    """Seal the values that this process caches, and trust values with the same secret.

    A run gives its secret to all of its workers, so a proof by one worker is used by
    the other workers. The secret is never written to disk, so only these processes can
    seal values. With an empty secret, values are no longer sealed.
    """
    _run.clear()
    if secret:
        _run["secret"] = secret.encode()


def is_sealing() -> bool:
    """Return whether this process seals the values that it caches."""
    return bool(_run)


def load_json(kind: str, key: str) -> Cached | None:
    """Return the cached value of a key; None if missing, damaged or unreadable."""
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
    """Write a JSON object to the cache atomically; ignore errors such as a full disk.

    Parameters
    ----------
    kind : str
        Subfolder of the cache.
    key : str
        Name of the file in the subfolder, without its suffix.
    value : dict
        The object to write.
    """
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
    """Warn once that the cache cannot be written, and name the variable to set.

    Parameters
    ----------
    why : str
        The folder that cannot be written, and the reason.
    variable : str
        Environment variable that can name another folder.
    """
    say_once(
        UNKEPT,
        f"{why}; every process compiles the kernels anew and prepares its data anew: "
        f"{variable} names another folder",
    )


def say_once(kind: str, sentence: str) -> None:
    """Print a line on stderr, once for this process and all its workers.

    `kind` is `DAMAGED` or `UNKEPT`; each kind is printed once.
    """
    if kind in _said_here:
        return
    _said_here.add(kind)
    try:
        (run_folder() / f"said-{kind}").touch(exist_ok=False)
    except FileExistsError:
        return
    except OSError:
        pass  # Without a shared folder, each process prints it.
    # A solver may have closed stderr.
    with contextlib.suppress(Exception):
        print(f"dp-erm-bench: {sentence}", file=sys.stderr, flush=True)


@functools.cache
def run_folder() -> Path:
    """Return a folder shared with the workers; it is removed when this process ends.

    Raises
    ------
    OSError
        If the folder cannot be created.
    """
    return Path(os.environ.get(RUN) or scratch_folder())
