"""Where the machine code of kernels is kept.

numba keeps a function's machine code for as long as the *file that defines it* does not
change. But that code has within it the code of every kernel that it calls, whichever
file these are in: edited there, the old numbers would stay. So the machine code lies in
a folder that is named by a digest of the sources of all kernels and losses (of another
file's functions: of that file and the modules beside it, too), the versions of numba
and llvmlite, and the processor's name and features.

The folders lie in ``NUMBA_CACHE_DIR`` where that is set, else in the cache folder.
The `KEPT` that were used last stay, and those that a process is using.
"""

import contextlib
import functools
import hashlib
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba

from dp_erm_bench.paths import cache_dir
from dp_erm_bench.plugins.sources import digest, sources

KEPT = 16
"""Folders of machine code that stay although no process uses them."""

TOKEN = secrets.token_hex(4)
"""What tells this process from others."""

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = tuple(_PACKAGE / name for name in ("kernels", "losses"))
_CONFIG: Any = numba.config
_ROOT = Path(_CONFIG.CACHE_DIR or cache_dir() / "machine_code").absolute()
_PREFIX = "dp_erm_bench-"


@contextlib.contextmanager
def machine_code_of(file: str) -> Iterator[str]:
    """Have numba keep what is decorated meanwhile in the folder of a file's digest.

    Yields
    ------
    str
        The folder; empty where none can be written, or the file is none (a notebook's
        cell): numba's own places would keep what is stale.
    """
    folder = _folder(_digest(file)) if os.path.isfile(file) else ""
    before, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, folder
    try:
        yield folder
    finally:
        _CONFIG.CACHE_DIR = before


def _digest(file: str) -> str:
    if Path(file).parent in _FOLDERS:
        return _of_kernels()
    parts = f"{_of_kernels()}\n{digest(sources(file))}"
    return hashlib.sha256(parts.encode()).hexdigest()


@functools.cache
def _of_kernels() -> str:
    files = [path for folder in _FOLDERS for path in folder.glob("*.py")]
    parts = [
        digest({str(path.relative_to(_PACKAGE)): path for path in files}),
        numba.__version__,
        llvmlite.__version__,
        llvmlite.binding.get_host_cpu_name(),
        llvmlite.binding.get_host_cpu_features().flatten(),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def _folder(name: str) -> str:
    """Return the folder of a digest, which this process uses from now on."""
    folder = _ROOT / f"{_PREFIX}{name[:32]}"
    fresh = not folder.is_dir()
    try:
        _held.append(_hold(folder))
        os.utime(folder)
    except OSError as error:
        warnings.warn(
            f"{folder}: cannot be written ({error.strerror}), every process compiles "
            "the kernels anew; DP_ERM_BENCH_CACHE names the cache folder",
            RuntimeWarning,
            stacklevel=2,
        )
        return ""
    if fresh:
        _prune()
    return str(folder)


_held: list[int] = []


def _hold(folder: Path) -> int:
    """Make a folder and return the descriptor by which nobody else removes it.

    Raises
    ------
    OSError
        If it cannot be made or written.
    """
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
            # Where a file system has no locks, nothing is removed.
            with contextlib.suppress(ImportError, OSError):
                _lock(held, shared=True)
            # What was removed while this waited is made again.
            if os.path.samestat(os.fstat(held), os.stat(folder / "lock")):
                return held
            os.close(held)
        except FileNotFoundError:
            continue


def _lock(descriptor: int, *, shared: bool, wait: bool = False) -> None:
    """Lock a file: with others, or alone; at once, else BlockingIOError, or waiting."""
    import fcntl

    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, how if shared or wait else how | fcntl.LOCK_NB)


def _prune() -> None:
    """Remove all but the `KEPT` folders used last and those that are in use."""
    with contextlib.suppress(OSError):
        found = {path: path.stat().st_mtime for path in _ROOT.glob(f"{_PREFIX}*")}
        for folder in sorted(found, key=found.__getitem__)[:-KEPT]:
            with contextlib.suppress(ImportError, OSError):
                _remove(folder)
        for left in _ROOT.glob(f".{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)


def _remove(folder: Path) -> None:
    alone = os.open(folder / "lock", os.O_RDWR)
    try:
        _lock(alone, shared=False)
        gone = folder.with_name(f".{folder.name}-{TOKEN}")
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    finally:
        os.close(alone)


_depth = 0


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """Hold the right to compile for a folder; kernels within kernels have it, too."""
    global _depth
    with contextlib.ExitStack() as stack:
        if _depth == 0:
            # Where there are no locks each process compiles for itself.
            with contextlib.suppress(ImportError, OSError):
                held = os.open(
                    Path(folder) / "compiling", os.O_RDWR | os.O_CREAT, 0o644
                )
                stack.callback(os.close, held)
                _lock(held, shared=False, wait=True)
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
