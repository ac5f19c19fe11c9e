"""The cache folder, atomic writes, untrusted files, checksums and digests."""

import atexit
import contextlib
import dataclasses
import errno
import fcntl
import functools
import hashlib
import itertools
import json
import math
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Mapping
from hashlib import file_digest as hash_of
from pathlib import Path
from typing import Any, BinaryIO

from dp_erm_bench.errors import UsageError

LARGEST = 1 << 33
"""Largest size in bytes of a file that is read."""

LARGEST_TEXT = 1 << 26
"""Largest size in bytes of a file or line that is read into memory as a whole."""

MOST_FILES = 100_000
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Files in which the kernel states the memory limit of a container."""

SCRATCH = "dp-erm-bench-"
"""Prefix of the names of folders that are removed when their process ends."""

HELD = "held"
PART = re.compile(r"\..+\.[0-9a-f]{16}")
SEAL = b',\n  "crc": "%08x"\n}\n'


def cache_dir() -> Path:
    """Return the cache folder: ``DP_ERM_BENCH_CACHE``, or one in the user's cache."""
    named = os.environ.get("DP_ERM_BENCH_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "dp_erm_bench"


def write_atomic(
    path: Path, write: Callable[[BinaryIO], object], private: bool = False
) -> None:
    """Write a file atomically, so that a reader never sees a part of its content.

    Parameters
    ----------
    path : Path
        The file to write; its folder is created if needed.
    write : callable
        Function that writes the content into the open binary file, and may read it.
    private : bool
        Whether only this user may read the file, as for all files of the cache. If not,
        permissions follow the user's umask.
    """
    if private:
        make_private(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    mode = 0o600 if private else 0o666
    try:
        with open(part, "x+b", opener=functools.partial(os.open, mode=mode)) as file:
            with contextlib.suppress(OSError):
                lock_file(file)
            write(file)
            file.flush()
            part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def make_private(folder: Path) -> None:
    """Create a folder that only this user may enter, with its parents in the cache.

    Existing folders of this user lose wider permissions. Folders of other users are
    left unchanged.
    """
    root, folder = cache_dir().absolute(), folder.absolute()
    above = [one for one in reversed(folder.parents) if root in (one, *one.parents)]
    for one in (*above, folder):
        one.parent.mkdir(parents=True, exist_ok=True)
        one.mkdir(mode=0o700, exist_ok=True)
        status = one.stat()
        if status.st_uid == os.geteuid() and status.st_mode & 0o077:
            with contextlib.suppress(OSError):  # the folder cannot be written to
                one.chmod(stat.S_IMODE(status.st_mode) & ~0o077)


def remove_parts(folder: Path) -> None:
    """Remove partial files that were left by writers that died.

    Files of live writers are locked, and are kept.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if PART.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with contextlib.suppress(OSError), open(entry.path, "rb") as file:
                    lock_file(file, wait=False)
                    os.unlink(entry.path)


def lock_file(file: BinaryIO, wait: bool = True) -> None:
    """Lock a file until it is closed or its process dies.

    Raises
    ------
    OSError
        If the file system has no locks, or if another process holds the lock and `wait`
        is False.
    """
    fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def open_inside(path: Path, folder: Path, largest: int = LARGEST) -> BinaryIO:
    """Open a file for reading in a folder whose content is not trusted.

    Parameters
    ----------
    path : Path
        The file.
    folder : Path
        The folder that must contain it.
    largest : int
        Largest allowed size in bytes.

    Raises
    ------
    OSError
        If the path is not a regular file, lies outside the folder (possibly by a link),
        or is larger than `largest` bytes; `strerror` says which.
    """
    real, inside = os.path.realpath(path), os.path.realpath(folder)
    if os.path.commonpath([real, inside]) != inside:
        raise OSError(errno.EXDEV, "leads out of its folder", str(path))
    if not stat.S_ISREG(mode := os.stat(real).st_mode):
        why = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "is no regular file"
        raise OSError(errno.EISDIR, why, str(path))
    # The file may have been replaced since: do not block, and do not follow a link.
    file = os.fdopen(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb")
    if os.fstat(file.fileno()).st_size > largest:
        file.close()
        raise OSError(errno.EFBIG, f"has more than {largest:,} bytes", str(path))
    return file


def content_of(path: Path, folder: Path, largest: int = LARGEST_TEXT) -> bytes:
    """Return the bytes of a file in a folder whose content is not trusted.

    Parameters
    ----------
    path, folder
        As for `open_inside`, whose errors are raised.
    largest : int
        Largest allowed size in bytes.
    """
    with open_inside(path, folder, largest) as file:
        # Read the actual size, since reading `largest` bytes would reserve them.
        return file.read(os.fstat(file.fileno()).st_size)


def list_files(folder: Path, suffix: str) -> list[Path]:
    """Return the sorted files of a folder with a suffix; empty without the folder.

    Raises
    ------
    UsageError
        If the folder has more than `MOST_FILES` entries.
    """
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in itertools.islice(entries, MOST_FILES + 1)]
    if len(names) > MOST_FILES:
        raise UsageError(f"{folder}: must hold at most {MOST_FILES:,} files, has more")
    return sorted(folder / name for name in names if name.endswith(suffix))


@functools.cache
def scratch_folder() -> str:
    """Return a temporary folder of this process, and remove those of dead processes.

    A process holds the lock of its folder as long as it lives.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        with contextlib.suppress(OSError), _lock_of(left) as file:
            lock_file(file, wait=False)
            shutil.rmtree(left)
    folder = Path(tempfile.mkdtemp(prefix=SCRATCH))
    held = open(folder / HELD, "xb")
    lock_file(held)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # Keep the file open until the process ends, as the cache keeps only the path.
    atexit.register(held.close)
    return str(folder)


def _lock_of(folder: Path) -> BinaryIO:
    """Open the lock file of a folder of any user; do not wait if it is a pipe."""
    careful = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW
    return open(os.open(folder / HELD, careful), "rb")


def sealed_json(content: Mapping[str, Any]) -> bytes:
    """Return a mapping as JSON, whose last key `crc` is the checksum of the rest.

    Raises
    ------
    ValueError
        If the mapping is empty.
    """
    if not content:
        raise ValueError("an empty object has no place for a checksum")
    how: Any = {"indent": 2, "default": str, "allow_nan": False}
    try:
        text = json.dumps(content, **how)
    except ValueError:
        text = json.dumps(spell_infinities(dict(content)), **how)
    body = text.removesuffix("\n}").encode()
    return body + SEAL % zlib.crc32(body)


def unsealed_json(text: bytes) -> dict[str, Any] | None:
    """Return the object in a string made by `sealed_json`; None if damaged."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    body = text[: -len(SEAL % 0)]
    if not isinstance(content, dict) or text != body + SEAL % zlib.crc32(body):
        return None
    del content["crc"]
    return content


SETTLED = 2.0
"""Coarsest resolution of a file system's clock, in seconds."""

_digests: dict[tuple[int, ...], str] = {}


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, cached until the file may have changed.

    A cached digest is used for the same inode with equal size and times. The time of
    the last change (ctime) is set by the system, also if the modification time is set
    back. Two changes within one tick of the clock have the same time, so the digest of
    a file that has just changed is not cached. A second write into a memory-mapped file
    may not be detected.
    """
    now = time.time()
    with path.open("rb") as file:
        s = os.fstat(file.fileno())
        stamp = s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns
        found = _digests.get(stamp) or hash_of(file, "sha256").hexdigest()
    if max(s.st_mtime, s.st_ctime) + SETTLED < now:
        _digests[stamp] = found
    return found


def digests_in(value: Any) -> list[str]:
    """Return digests of the files of numbers (tables and arrays) that a value names.

    Parameters
    ----------
    value : object
        A value that JSON can represent. Strings in it that end with a suffix of
        `NUMBERS` count as paths.
    """
    if isinstance(value, Mapping | list | tuple):
        inside = value.values() if isinstance(value, Mapping) else value
        return [found for one in inside for found in digests_in(one)]
    if isinstance(value, str) and Path(value).suffix in NUMBERS:
        with contextlib.suppress(OSError):  # reported when the file is read
            return [file_digest(Path(value))]
    return []


NUMBERS = (".csv", ".npy")
"""Suffixes of files of numbers."""


def load_numbers(path: Path, key: str) -> Any:
    """Return the numbers in a .csv or .npy file; None if it has other content.

    Raises
    ------
    UsageError
        If the file cannot be read; the message names the key.
    """
    import numpy as np  # takes long to import

    if path.suffix not in NUMBERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy warns about files without rows
            if path.suffix == ".npy":
                return np.load(path, allow_pickle=False)
            return np.loadtxt(path, delimiter=",", ndmin=2)
    except OSError as error:
        reason = error.strerror or "it is damaged"
        raise UsageError(f"{key}={path}: cannot be read, {reason}") from None
    except (ValueError, EOFError):
        return None


def machine_memory() -> float:
    """Return the memory in bytes of this machine, or of this process's container.

    The result is infinite if the system does not state it.
    """
    sizes = [math.inf]
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sizes.append(float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")))
    for path in map(Path, LIMITS):
        if path.is_file() and (limit := path.read_text().strip()).isdecimal():
            sizes.append(float(limit))
    return min(sizes)


CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False
).encode


def digest_of_json(value: Any) -> str:
    """Return the SHA-256 of the canonical JSON of a value.

    Infinity, which JSON does not have, is written as the string ``inf``.
    """
    try:
        text = CANONICAL(value)
    except ValueError:
        text = CANONICAL(spell_infinities(value))
    return hashlib.sha256(text.encode()).hexdigest()


def spell_infinities(value: Any) -> Any:
    """Return a copy of a value with infinities as strings and tuples as lists."""
    if isinstance(value, dict):
        return {str(k): spell_infinities(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [spell_infinities(v) for v in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


LATER = "later"
"""Key in a field's metadata, for fields that were added after publishing results."""


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass object, or the public attributes of another."""
    if not dataclasses.is_dataclass(value):
        return {k: v for k, v in vars(value).items() if not k.startswith("_")}
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def later_defaults(value: Any) -> dict[str, Any]:
    """Return the defaults of the fields of a dataclass that are marked `LATER`.

    Such a field is not part of digests if its value is the default. Results published
    without the field thus keep their digests.
    """
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    marked = (field for field in fields if field.metadata.get(LATER))
    return {field.name: field.default for field in marked}


def values_entering(values: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are part of a digest: all that differ from `later`."""
    return {k: v for k, v in values.items() if k not in later or v != later[k]}
