"""The compilation of kernels, and the files of their machine code.

In the last bits of what it computes, machine code depends on whether the kernels that
it calls were compiled beside it or loaded. So every kernel is compiled in a child
process that loads those that it calls, and every process loads what children compiled:
numbers do not depend on who compiled what, or in which order.

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
import inspect
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core.compiler_lock import global_compiler_lock
from numpy.typing import NDArray

from dp_erm_bench.paths import cache_dir
from dp_erm_bench.plugins.names import digest, sources

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Two = tuple[Array, Array]
Three = tuple[Array, Array, Array]
Seed = NDArray[np.uint32]
FAST = {"reassoc", "contract", "nsz", "arcp"}
KEPT = 16  # folders of machine code that stay although no process uses them

_PACKAGE = Path(__file__).parents[1]
_FOLDERS = tuple(_PACKAGE / name for name in ("kernels", "losses"))
_CONFIG: Any = numba.config
_ROOT = Path(_CONFIG.CACHE_DIR or cache_dir() / "machine_code").absolute()
_PREFIX = "dp_erm_bench-"
_TOKEN = secrets.token_hex(4)  # tells this process from others
_depth = 0
F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a kernel whose sums may be reordered.

    numba's default check for a division by zero stops the vectorisation of a
    loop, hence ``error_model='numpy'``. Not the whole of ``fastmath``: it would
    let the compiler assume that there are no NaN and no infinities.
    """
    return _compiled(function, FAST)


def exact(function: F) -> F:
    """Compile a kernel in which the order of the operations is kept."""
    return _compiled(function, {"contract"})


def unfused(function: F) -> F:
    """Compile an exact kernel in which a sum waits for additions alone."""
    return _compiled(function, set())


def _compiled(function: F, fastmath: set[str]) -> F:
    if _CONFIG.DISABLE_JIT:
        return function
    with machine_code_of(inspect.getfile(function)) as folder:
        options = {"error_model": "numpy", "fastmath": fastmath, "cache": bool(folder)}
        dispatcher = cast(Any, numba.njit)(function, **options)
    if folder:
        _compile_in_children(dispatcher, folder)
    return cast(F, dispatcher)


def _compile_in_children(dispatcher: Any, folder: str) -> None:
    """Have a kernel's machine code loaded, and compiled before that in a child.

    The names that are used here are no part of numba's interface.
    """
    compiled = dispatcher.compile

    def compile_once(signature: Any) -> Any:
        # Held here, numba's own lock is free in the child, whatever threads there are.
        with global_compiler_lock, _alone(folder):
            try:
                target = dispatcher.targetctx.codegen()
                key = dispatcher._cache._index_key(signature, target)
                kept = dispatcher._cache._cache_file.load(key) is not None
            except (AttributeError, OSError):
                kept = True  # Nobody can tell.
            if not kept:
                _in_child(lambda: compiled(signature))
            return compiled(signature)

    dispatcher.compile = compile_once
    # numba numbers the files of a function's signatures: of two processes that compile
    # two signatures at once, both would write number 1, and the index give the code of
    # one for the other.
    with contextlib.suppress(AttributeError):
        file = dispatcher._cache._cache_file
        pattern = file._data_name_pattern
        file._data_name_pattern = pattern.replace("{number", f"{_TOKEN}-{{number")


def _in_child(work: Callable[[], object]) -> None:
    """Do some work in a copy of this process and wait for its end."""
    if not hasattr(os, "fork"):
        return
    with warnings.catch_warnings():
        # The child compiles and ends: it waits for no thread that it does not have.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


@contextlib.contextmanager
def machine_code_of(file: str) -> Iterator[str]:
    """Yield the folder of a file's digest; numba keeps there what is decorated in it.

    Empty where none can be written, or the file is none (a notebook's cell): numba's
    own places would keep what is stale.
    """
    folder = _folder(_digest(file)) if os.path.isfile(file) else ""
    before, _CONFIG.CACHE_DIR = _CONFIG.CACHE_DIR, folder
    try:
        yield folder
    finally:
        _CONFIG.CACHE_DIR = before


def _digest(file: str) -> str:
    own = Path(file).parent in _FOLDERS
    return _of_kernels() if own else _sha256(_of_kernels(), digest(sources(file)))


@functools.cache
def _of_kernels() -> str:
    files = [path for folder in _FOLDERS for path in folder.glob("*.py")]
    return _sha256(
        digest({str(path.relative_to(_PACKAGE)): path for path in files}),
        numba.__version__,
        llvmlite.__version__,
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@functools.cache
def _folder(name: str) -> str:
    """Return the folder of a digest, which this process uses from now on."""
    folder = _ROOT / f"{_PREFIX}{name[:32]}"
    fresh = not folder.is_dir()
    try:
        _hold(folder)
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


def _hold(folder: Path) -> None:
    """Make a folder, or raise OSError, and keep others from removing it."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            held = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
            # Where a file system has no locks, nothing is removed.
            with contextlib.suppress(ImportError, OSError):
                _lock(held, shared=True)
            # What was removed while this waited is made again.
            if os.path.samestat(os.fstat(held), os.stat(folder / "lock")):
                return
            os.close(held)


def _lock(descriptor: int, *, shared: bool, wait: bool = False) -> None:
    """Lock a file: with others, or alone; at once, else BlockingIOError, or waiting."""
    import fcntl

    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, how if shared or wait else how | fcntl.LOCK_NB)


def _prune() -> None:
    """Remove all but the `KEPT` folders used last and those that are in use."""
    with contextlib.suppress(OSError):
        for folder in sorted(_ROOT.glob(f"{_PREFIX}*"), key=os.path.getmtime)[:-KEPT]:
            with contextlib.suppress(ImportError, OSError):
                _remove(folder)
        for left in _ROOT.glob(f".{_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)


def _remove(folder: Path) -> None:
    held = os.open(folder / "lock", os.O_RDWR)
    try:
        _lock(held, shared=False)
        gone = folder.with_name(f".{folder.name}-{_TOKEN}")
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    finally:
        os.close(held)


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """Hold the right to compile for a folder; kernels within kernels have it, too."""
    global _depth
    with contextlib.ExitStack() as stack:
        if _depth == 0:
            # Where there are no locks each process compiles for itself.
            with contextlib.suppress(ImportError, OSError):
                held = os.open(f"{folder}/compiling", os.O_RDWR | os.O_CREAT, 0o644)
                stack.callback(os.close, held)
                _lock(held, shared=False, wait=True)
        _depth += 1
        try:
            yield
        finally:
            _depth -= 1
