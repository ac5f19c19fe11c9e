"""Values that are cached on disk as JSON, and whether what is read may be believed.

A value that can be proved again (a calibration, an optimum) is believed where a process
of the same run wrote it: they share a secret that is never written. What cannot be
proved (machine code, prepared data) is sealed by a key of the user's, which lies in the
state folder: damage is noticed, and what others have put into a cache folder is not
used. Code that the user runs can read that key.
"""

import contextlib
import errno
import functools
import hashlib
import hmac
import json
import os
import re
import secrets
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.paths import cache_dir, content_of, scratch, state_dir, write_atomic

SEAL_BYTES = 32
LARGEST = 1 << 28
"""Bytes of a cached value that is read."""
ENDING = re.compile(rb'"digest": "([0-9a-f]{64})", "seal": "([0-9a-f]{64})"}\Z')
UNSEALED = "0" * 64
KEY = "key"
KEY_BYTES = 32
RUN = "DP_ERM_BENCH_RUN"
"""Variable in the environment of workers: the folder of the run, see `run_folder`."""

DAMAGED, UNKEPT = "damaged", "unkept"
_run: dict[str, bytes] = {}
_outside: set[str] = set()
_said_here: set[str] = set()


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


def mark_outside(name: str) -> None:
    """Note that this process runs code from outside the package, called by a name.

    What it compiles from then on is for those alone who have run the same.
    """
    _outside.add(name)


def outside() -> str:
    """Return a digest of the code from outside that has run here, empty if none has."""
    names = "\n".join(sorted(_outside))
    return hashlib.sha256(names.encode()).hexdigest() if names else ""


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
        path = cache_dir() / kind / f"{key}.json"
        write_atomic(path, lambda file: file.write(body + end), private=True)
    except OSError:
        return


def _checksum(kind: str, key: str, body: bytes) -> str:
    return hashlib.sha256(f"{kind} {key} ".encode() + body).hexdigest()


def _seal(checksum: str) -> str:
    if not _run:
        return UNSEALED
    return hmac.new(_run["secret"], checksum.encode(), "sha256").hexdigest()


def user_folder(folder: Path) -> Path | None:
    """Return where below a folder lies what this user's key seals; None without a key.

    It is called by the key's fingerprint: users who share the folder do not overwrite
    what is the others'.
    """
    key = _user_key()
    if key is None:
        return None
    return folder / hmac.new(key, b"fingerprint", "sha256").hexdigest()[:16]


def user_seal(name: str, content: bytes) -> bytes | None:
    """Return what seals a content under a name, 32 bytes; None without a key."""
    key = _user_key()
    if key is None:
        return None
    seal = hmac.new(key, f"{name}\n".encode(), "sha256")
    seal.update(content)
    return seal.digest()


def load_sealed(kind: str, key: str) -> bytes | None:
    """Return the content kept under a key of the cache, None without a valid seal."""
    folder, raw = user_folder(cache_dir() / kind), b""
    if folder is not None:
        with contextlib.suppress(OSError, ValueError):
            raw = content_of(folder / key, folder, LARGEST)
    seal = user_seal(f"{kind} {key}", raw[SEAL_BYTES:]) if raw else None
    whole = seal is not None and hmac.compare_digest(raw[:SEAL_BYTES], seal)
    return raw[SEAL_BYTES:] if whole else None


def save_sealed(kind: str, key: str, content: bytes) -> None:
    """Keep a content under a key of the cache, sealed; a full disk is no error."""
    folder, seal = user_folder(cache_dir() / kind), user_seal(f"{kind} {key}", content)
    if folder is not None and seal is not None:
        with contextlib.suppress(OSError):
            write_atomic(folder / key, lambda f: f.write(seal + content), private=True)


def _user_key() -> bytes | None:
    try:
        return _key(state_dir())
    except RuntimeError as error:  # nobody knows where the user's home is
        unkept(str(error).rstrip("."), "DP_ERM_BENCH_STATE")
        return None


@functools.cache
def _key(folder: Path) -> bytes | None:
    path = folder / KEY
    try:
        return _read_key(path) or _made_key(path)
    except OSError as error:
        reason = error.strerror or str(error)
        unkept(f"{path}: {reason}", "DP_ERM_BENCH_STATE")
        return None


def _read_key(path: Path) -> bytes | None:
    """Return the key of a file, None if there is none; OSError if it is not safe."""
    try:
        careful = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
        with open(os.open(path, careful), "rb") as file:
            status = os.fstat(file.fileno())
            mine = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
            key = file.read(KEY_BYTES + 1) if mine else b""
    except FileNotFoundError:
        return None
    if not mine or status.st_mode & 0o077 or len(key) != KEY_BYTES:
        raise PermissionError(
            errno.EPERM,
            f"must be a file of your own with {KEY_BYTES} bytes and mode 600 (where "
            "there is none, one is made)",
        )
    return key


def _made_key(path: Path) -> bytes | None:
    """Make the key; of processes that do so at once one wins, and all use its key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{KEY}.") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
        # A link replaces nothing, and is there with its whole content.
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)
    return _read_key(path)


def unkept(why: str, variable: str) -> None:
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
    return Path(os.environ.get(RUN) or scratch())
