"""Compile kernels reproducibly, and cache their machine code on disk.

The last bits of a kernel's results depend on whether the kernels that it calls were
compiled in the same process or loaded from disk. Every kernel is therefore compiled in
a child process, which loads the kernels that it calls from disk. Every other process
loads the compiled kernels. Results thus do not depend on the process or on the order in
which kernels were compiled.

Numba's own cache files are not used. If two processes compile at once, the index of
these files may refer to the code of another signature. A flipped bit of the code is not
detected. This cache has one file per kernel and signature. Its name is the digest of
all that determines the code: modules (`code_identity`), signature, options, processor,
versions. The file begins with the digest of its content.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba.core import caching, sigutils
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from dp_erm_bench.cached import DAMAGED, run_folder, say_once, warn_of_no_cache
from dp_erm_bench.code_identity import PACKAGE, digest_of, is_ours
from dp_erm_bench.paths import (
    cache_dir,
    lock_file,
    make_private,
    remove_parts,
    scratch_folder,
    write_atomic,
)

VARIABLE = "DP_ERM_BENCH_MACHINE_CODE"
"""Environment variable that names a folder of machine code outside the cache."""

DIGEST_BYTES = 32
ENTRY = re.compile("[0-9a-f]{64}")
"""Pattern of the files' names."""

KEPT_SECONDS = 90 * 86400.0
"""Age at which a file is removed, because its kernel may not exist any more."""

F = TypeVar("F", bound=Callable[..., Any])
_begun = time.time()
_is_child = False


def compile_cached(function: F, **options: Any) -> F:
    """Return a function that numba compiles at its first call, with a cache on disk.

    The function is compiled once for each combination of argument types.

    Parameters
    ----------
    function : callable
        The Python function.
    **options
        Options for ``numba.njit``; the names of the cache files depend on them.

    Raises
    ------
    RuntimeError
        If this version of numba lacks the internals that the cache needs.
    """
    made = cast(Any, numba.njit)(function, **options)
    if not isinstance(made, Dispatcher):
        return function  # NUMBA_DISABLE_JIT is set
    _keep_code_of(made, options)
    return cast(F, made)


def _keep_code_of(dispatcher: Any, options: Any) -> None:
    """Make a dispatcher load machine code that was compiled in a child process."""
    if type(getattr(dispatcher, "_cache", None)) is not caching.NullCache:
        raise RuntimeError(
            _changed_message("its dispatchers have no cache to be replaced")
        )
    spelt = {k: sorted(v) if isinstance(v, set) else v for k, v in options.items()}
    dispatcher._cache = cache = _Cache(dispatcher.py_func, repr(sorted(spelt.items())))
    dispatcher.compile = functools.partial(
        _load_once, dispatcher, dispatcher.compile, cache
    )


def _changed_message(what: str) -> str:
    return (
        f"numba {numba.__version__}: {what}, so that numbers would depend on what was "
        "compiled before; install a version of numba that dp_erm_bench allows"
    )


def _load_once(dispatcher: Any, compile_: Any, cache: "_Cache", signature: Any) -> Any:
    """Load the machine code of a signature, after a child process has compiled it.

    This function takes Numba's lock, so no other thread holds it when the child starts.
    """
    with global_compiler_lock:
        arguments, _ = sigutils.normalize_signature(signature)
        if tuple(arguments) in dispatcher.overloads:
            return compile_(signature)
        path = cache.path(signature, dispatcher.targetctx)
        content = _read_code(path) if path else None
        if path and content is None:
            with _compile_alone(path.parent):
                content = _read_code(path)  # another process may have just written it
                if content is None:
                    _in_child(lambda: compile_(signature))
                    content = _read_code(path)
        cache.waiting, cache.asked = content, False
        entry = compile_(signature)
        if not cache.asked:
            raise RuntimeError(_changed_message("it does not ask our cache"))
        return entry


class _Cache(caching._Cache):
    """The cache that numba asks for the machine code of a function.

    Attributes
    ----------
    waiting : bytes or None
        Content of the file to load when numba asks for code the next time.
    asked : bool
        Whether numba has asked for code.
    """

    def __init__(self, function: Any, options: str) -> None:
        self.waiting: bytes | None = None
        self.asked = False
        self._function, self._options = function, options
        self._ours = is_ours(function)
        if not self._ours:
            _ = (
                self._digest_of_modules
            )  # The file may have changed when the function is called.

    @functools.cached_property
    def _digest_of_modules(self) -> str | None:
        with contextlib.suppress(LookupError):
            return digest_of(self._function)
        return None

    def path(self, signature: Any, target: Any) -> Path | None:
        """Return the file of a signature's machine code.

        The result is None if the function cannot be distinguished from others of the
        same name. The function is then compiled in the process that calls it.
        """
        arguments, result = sigutils.normalize_signature(signature)
        types = [str(one) for one in (*arguments, result)]
        # The type of a function argument contains its address, which varies.
        if self._digest_of_modules is None or any(" at 0x" in one for one in types):
            return None
        settings = {k: v for k, v in os.environ.items() if k.startswith("NUMBA_")}
        for name in ("NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR"):
            settings.pop(name, None)
        parts = (
            *(self._digest_of_modules, *_code_of(self._function)),
            # The symbols in the machine code contain these names.
            f"{self._function.__module__}.{self._function.__qualname__}",
            *(self._options, *types, repr(target.codegen().magic_tuple())),
            *(sys.version, numba.__version__, llvmlite.__version__),
            repr(sorted(settings.items())),
        )
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        kept = self._ours and all(getattr(one, "kept", True) for one in arguments)
        folder = _code_folder(kept)
        return folder and folder / name

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled code from the file that `_load_once` has read."""
        self.asked = True
        content, self.waiting = self.waiting, None
        if content is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write the code that a child compiled, unless it contains memory addresses."""
        fixed = not data.library.has_dynamic_globals
        path = self.path(sig, data.target_context) if _is_child else None
        if path and fixed and all(lifted.can_cache for lifted in data.lifted):
            content = dumps(data._reduce())
            raw = hashlib.sha256(content).digest() + content
            write_atomic(path, lambda file: file.write(raw), private=True)
            _remove_old(path.parent)

    @property
    def cache_path(self) -> str:
        """Return the folder of the machine code; empty if no folder can be written."""
        return str(_code_folder(self._ours) or "")

    def enable(self) -> None:
        """Do nothing, because the cache is always enabled."""

    def disable(self) -> None:
        """Do nothing, because the cache cannot be disabled.

        Without the cache, the last bits of results would vary.
        """

    def flush(self) -> None:
        """Do nothing, because the name of a file determines its content."""


def _code_of(function: Any) -> Iterator[str]:
    """Yield the bytecode, constants and global numbers that identify a function."""
    numbers, todo = (int, float, complex, bool), [function.__code__]
    while todo:
        code = todo.pop()
        todo += [one for one in code.co_consts if isinstance(one, CodeType)]
        other = (CodeType, str)  # a docstring is among the constants
        constants = [one for one in code.co_consts if not isinstance(one, other)]
        yield repr((code.co_code, code.co_names, constants))
        read = {name: function.__globals__.get(name) for name in code.co_names}
        yield repr({name: x for name, x in read.items() if isinstance(x, numbers)})


def _code_folder(kept: bool) -> Path | None:
    """Return the folder of machine code; None if no folder can be written.

    If ``kept``, the folder remains after the run. This is possible for the package's
    own code only. Machine code of other modules contains their global numbers, which
    they may have read from a file. The folder must belong to this user, since its
    content is executed. If it does not, or if source files were edited, the folder is
    temporary.
    """
    named, edited = os.environ.get(VARIABLE), _is_edited(kept)
    shared = Path(named).expanduser() if named else cache_dir() / "machine_code"
    if kept and not edited and _is_own(shared.absolute()):
        return shared.absolute()
    with contextlib.suppress(OSError):
        return Path(scratch_folder() if edited else run_folder()) / "machine_code"
    return None


@functools.cache
def _is_own(folder: Path) -> bool:
    """Create a folder, and return whether it is writable and belongs to this user."""
    try:
        make_private(folder)
        status, why = folder.stat(), "it must be a folder of yours alone"
        own = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        if own and os.access(folder, os.W_OK):
            return True
    except OSError as error:
        why = str(error.strerror)
    warn_of_no_cache(f"{folder}: {why}", "DP_ERM_BENCH_CACHE")
    return False


def _is_edited(package: bool) -> bool:
    """Return whether an imported source file was edited since this process began.

    In this case the digest may be computed from the new source while the old code runs.
    If `package`, the modules of the package are examined, else all other modules that
    are not installed.
    """
    installed = (sys.prefix, sys.base_prefix)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        ours = name.partition(".")[0] == PACKAGE
        if ours if package else not file.startswith(installed):
            with contextlib.suppress(OSError):
                status = os.stat(file)
                # A file that is moved into the package keeps its modification time.
                edited = max(status.st_mtime, status.st_ctime * ours)
                if _begun < edited <= time.time():
                    return True
    return False


def _read_code(path: Path) -> bytes | None:
    """Return the content of a file of machine code; None if missing or damaged."""
    raw = b""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        pass
    content = raw[DIGEST_BYTES:]
    if raw and hashlib.sha256(content).digest() == raw[:DIGEST_BYTES]:
        return content
    say_once(DAMAGED, f"{path.parent}: machine code there is damaged, and made again")
    return None


@contextlib.contextmanager
def _compile_alone(folder: Path) -> Iterator[None]:
    """Hold the lock for compiling into a folder, which child processes share."""
    with contextlib.ExitStack() as stack:
        if not _is_child:
            # Without file locks, each process compiles for itself.
            with contextlib.suppress(OSError):
                make_private(folder)
                lock_file(stack.enter_context(open(folder / "compiling", "ab")))
        yield


def _in_child(work: Callable[[], object]) -> None:
    """Call a function in a forked copy of this process, and wait for its end.

    Errors are ignored, because this process then does the work itself.
    """
    global _is_child
    with warnings.catch_warnings():
        # Forking with threads is safe here, as the child does not wait for a thread.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            _is_child = True
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _remove_old(folder: Path) -> None:
    """Remove old files of machine code, and partial files of writers that died.

    Other files are kept, as the user may have named a folder with other files.
    """
    remove_parts(folder)
    for path in filter(lambda one: ENTRY.fullmatch(one.name), folder.iterdir()):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < time.time() - KEPT_SECONDS:
                path.unlink()


@contextlib.contextmanager
def numba_caches() -> Iterator[None]:
    """Use this cache for functions with ``numba.njit(cache=True)``, in this context.

    Numba's own cache is next to the file of a function, and misses edits of the modules
    that the function uses. Inside this context, Numba's other decorators do not cache.
    """
    caches: Any = caching.Cache
    dispatchers: Any = Dispatcher
    before = caches.__init__, dispatchers.enable_caching

    def nowhere(cache: Any, function: Any) -> None:
        cache._py_func, cache._name, cache._cache_path = function, repr(function), None
        cache._enabled = False

    if not hasattr(caches, "_load_overload"):
        raise RuntimeError(_changed_message("its own caches cannot be switched off"))
    caches.__init__ = nowhere
    dispatchers.enable_caching = lambda one: _keep_code_of(one, one.targetoptions)
    try:
        yield
    finally:
        caches.__init__, dispatchers.enable_caching = before
