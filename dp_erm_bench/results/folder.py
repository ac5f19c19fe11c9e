"""A results folder as a place on disk: its lock, and what goes wrong in it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import hold

LOCK = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: plan, table and manifest change under it only.

    Segments need none, each has one writer. The kernel lets go of the lock when its
    holder dies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "ab", opener=_lock) as file:
        # Some network file systems have no locks: there one run at a time.
        with contextlib.suppress(OSError):
            hold(file)
        yield


def _lock(path: str, flags: int) -> int:
    """Open a lock, and no link or pipe that somebody put in its place."""
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError(errno.EINVAL, f"{LOCK} must be a regular file; remove it")
    careful = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    return os.open(path, flags | careful, 0o666)


@contextlib.contextmanager
def telling(folder: Path) -> Iterator[None]:
    """Turn what the operating system refuses in a folder into one sentence.

    Raises
    ------
    UsageError
        In place of an OSError.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"{shown(folder)}: {reason}; what is recorded stays; "
            "make it writable with room to spare, then run the same command again"
        ) from None


def removed(folder: Path) -> UsageError:
    """Return what to say of a folder that was removed from under a run."""
    return UsageError(
        f"{shown(folder)}: was removed or replaced while the run went on, and what was "
        "recorded with it; run the same command again"
    )


def check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written to, and leave no trace of the check.

    Raises
    ------
    UsageError
        If it, or the nearest folder above it that exists, takes no file.
    """
    with telling(folder):
        above = folder
        while not above.exists():
            above = above.parent
        # Asking for permission is not enough: root has it on a read-only disk.
        with tempfile.TemporaryFile(dir=above) as file:
            file.write(b"\0")


def shown(folder: Path) -> str:
    """Return a folder's path as a user in the working directory would type it."""
    here = Path.cwd()
    inside = folder.is_relative_to(here) and folder != here
    return os.path.relpath(folder, here) if inside else str(folder)


def plural(count: int, noun: str) -> str:
    """Return a count with its noun."""
    return f"{count} {noun}{'s' * (count != 1)}"
