"""Machine code: who compiles it, where it is kept, and what of that is believed.

In the last bits of what it computes, machine code depends on whether the kernels that
it calls were compiled beside it or loaded. So every kernel is compiled in a child
process that loads those that it calls, and every process loads what children compiled:
numbers do not depend on who compiled what, or in which order.

numba's own index is not used. Its names hold the path and line of a source, so that it
does not survive a clone; it looks at the bytes of the file that defines a function,
not at those of the functions that it calls; and it is unpickled unseen. Here there is
one file for each kernel and signature. Its name is the digest of what determines the
code: definitions (`definitions.digest_of`), signature, options, processor, versions.
Before what numba has made of it stands a seal by the user's key (`cached.user_seal`)
over name and content, and nothing is unpickled before that is verified.

A process that has run code from outside the package reads these files and writes none.
What it compiles lies in a folder of its run, for those who have run the same code, and
ends with the run.
"""

import contextlib
import functools
import hashlib
import hmac
import os
import pickle
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import numba
from numba.core import caching, sigutils
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.serialize import dumps

from dp_erm_bench.cached import (
    DAMAGED,
    outside,
    run_folder,
    say_once,
    unkept,
    user_folder,
    user_seal,
)
from dp_erm_bench.definitions import PACKAGE, digest_of
from dp_erm_bench.paths import (
    cache_dir,
    content_of,
    make_private,
    remove_parts,
    write_atomic,
)

VARIABLE = "DP_ERM_BENCH_MACHINE_CODE"
"""The variable that names the folder of machine code, if that is not in the cache."""

ENTRY = re.compile(r"/[0-9a-f]{16}/[0-9a-f]{64}\Z")
SEAL_BYTES = 32
LARGEST = 1 << 28
DAY = 86400.0
KEPT_DAYS = 30.0
"""Days after which files that nobody has used are removed."""

KEPT_BYTES = 2 << 30
"""Bytes of a folder of machine code; beyond that what was used last stays."""

F = TypeVar("F", bound=Callable[..., Any])
_begun = time.time()
_own: dict[str, bytes] = {}
"""What this process has compiled, or had compiled, and not written into a file."""

_is_child = False


def compiled(function: F, **options: Any) -> F:
    """Return a function that is compiled for the types that it is called with.

    Parameters
    ----------
    function : callable
    **options
        Of ``numba.njit``; they are part of the names of the machine code.

    Raises
    ------
    RuntimeError
        If numba lacks what its machine code is kept by.
    """
    made = cast(Any, numba.njit)(function, **options)
    if not isinstance(made, Dispatcher):
        return function  # NUMBA_DISABLE_JIT
    dispatcher: Any = made
    if type(getattr(dispatcher, "_cache", None)) is not caching.NullCache:
        raise RuntimeError(_changed("its dispatchers have no cache to be replaced"))
    spelt = {k: sorted(v) if isinstance(v, set) else v for k, v in options.items()}
    dispatcher._cache = cache = _Cache(function, repr(sorted(spelt.items())))
    dispatcher.compile = functools.partial(_once, dispatcher, dispatcher.compile, cache)
    return cast(F, dispatcher)


def _changed(what: str) -> str:
    return (
        f"numba {numba.__version__}: {what}, so that nothing verifies machine code; "
        "install a version of numba that dp_erm_bench allows"
    )


def _once(dispatcher: Any, compile_: Any, cache: "_Cache", signature: Any) -> Any:
    """Load the machine code of a signature, compiled before that in a child.

    numba's lock is held, so that it is free in the child whatever threads there are.
    """
    with global_compiler_lock:
        arguments, _ = sigutils.normalize_signature(signature)
        if tuple(arguments) in dispatcher.overloads:
            return compile_(signature)
        name = cache.name(signature, dispatcher.targetctx)
        content = name and (_found(name) or _made(name, lambda: compile_(signature)))
        cache.waiting, cache.asked = content or None, False
        entry = compile_(signature)
        if not cache.asked:
            raise RuntimeError(_changed("it does not ask our cache"))
        return entry


class _Cache(caching._Cache):
    """What numba asks for the machine code of a function.

    Attributes
    ----------
    waiting : bytes or None
        Verified content that is loaded when numba asks.
    asked : bool
        Whether numba has asked.
    """

    def __init__(self, function: Any, options: str) -> None:
        self.waiting: bytes | None = None
        self.asked = False
        self._function, self._options = function, options
        if not function.__module__.startswith(f"{PACKAGE}."):
            _ = self._definition  # The file may be another one when it is called.

    @functools.cached_property
    def _definition(self) -> str | None:
        with contextlib.suppress(LookupError):
            return digest_of(self._function)
        return None

    def name(self, signature: Any, target: Any) -> str | None:
        """Return the name of a signature's machine code.

        None where nothing tells one function from its namesakes: it is compiled where
        it is called. What is for this process alone begins with a dash.
        """
        arguments, result = sigutils.normalize_signature(signature)
        types = [str(one) for one in (*arguments, result)]
        # A function as an argument: its place in memory is no name.
        if self._definition is None or any(" at 0x" in one for one in types):
            return None
        settings = {k: v for k, v in os.environ.items() if k.startswith("NUMBA_")}
        for name in ("NUMBA_NUM_THREADS", "NUMBA_CACHE_DIR"):
            settings.pop(name, None)
        parts = (
            *(self._definition, *_code_of(self._function)),
            # Symbols in the code are called by these.
            f"{self._function.__module__}.{self._function.__qualname__}",
            *(self._options, *types, repr(target.codegen().magic_tuple())),
            *(sys.version, numba.__version__, llvmlite.__version__),
            repr(sorted(settings.items())),
        )
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        kept = all(getattr(one, "kept", True) for one in arguments)
        return digest if kept else f"-{digest}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what was compiled, made of what `_once` has verified."""
        self.asked = True
        content, self.waiting = self.waiting, None
        if content is None:
            return None
        target_context.refresh()
        return CompileResult._rebuild(target_context, *pickle.loads(content))

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled, unless it holds addresses of this process."""
        fixed = not data.library.has_dynamic_globals
        name = self.name(sig, data.target_context)
        if name and fixed and all(lifted.can_cache for lifted in data.lifted):
            _keep({name: dumps(data._reduce())})

    @property
    def cache_path(self) -> str:
        """Return the folder of the machine code, empty if there is none."""
        return str(_place() or "")

    def enable(self) -> None:
        """Do nothing: it is."""

    def disable(self) -> None:
        """Do nothing: processes would differ in their numbers."""

    def flush(self) -> None:
        """Do nothing: what a name stands for does not change."""


def _shared() -> Path | None:
    """Return the folder that every process reads; None without a key."""
    named = os.environ.get(VARIABLE)
    folder = Path(named).expanduser() if named else cache_dir() / "machine_code"
    return user_folder(folder.absolute())


def _code_of(function: Any) -> Iterator[str]:
    """Yield what tells functions of one name and file apart: code, numbers it reads."""
    code, constants = function.__code__, (int, float, complex, bool)
    yield code.co_code.hex()
    yield repr([each for each in code.co_consts if isinstance(each, constants)])
    found = {name: function.__globals__.get(name) for name in code.co_names}
    yield repr({name: x for name, x in found.items() if isinstance(x, constants)})


def _place() -> Path | None:
    """Return the folder that this process writes into; None if there is none."""
    code = outside()
    if not code:
        return _shared()
    with contextlib.suppress(OSError):
        return user_folder(run_folder() / "machine_code" / code)
    return None


def _found(name: str) -> bytes | None:
    """Return the content of a name, if it is this process's own or its seal holds."""
    if name in _own or name.startswith("-"):
        return _own.get(name)
    for place in dict.fromkeys((_place(), _shared())):
        content = place and _read(place, name)
        if content:
            return content
    return None


def _read(place: Path, name: str) -> bytes | None:
    path, raw = place / name, b""
    try:
        raw = content_of(path, place, LARGEST)
        with contextlib.suppress(OSError):
            # Used; once a day, so that it is not written by every process.
            if path.stat().st_mtime < time.time() - DAY:
                os.utime(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        pass
    content = raw[SEAL_BYTES:]
    seal = user_seal(f"machine_code {name}", content)
    if seal is not None and hmac.compare_digest(raw[:SEAL_BYTES], seal):
        return content
    say_once(DAMAGED, f"{place}: machine code there is damaged, and compiled again")
    return None


def _made(name: str, work: Callable[[], object]) -> bytes | None:
    """Have a child compile a name's machine code, which another may do just now."""
    with _alone():
        content = _found(name)
        if content is None:
            made = _in_child(work)
            _keep(made)
            content = made.get(name)
    return content


def _keep(made: dict[str, bytes]) -> None:
    """Write machine code into files; what is this process's alone stays in memory.

    A child hands it to its parent.
    """
    place, shared = _place(), {k: v for k, v in made.items() if not k.startswith("-")}
    if _is_child or place is None or _is_edited():
        shared = {}
    _own.update({k: v for k, v in made.items() if k not in shared})
    try:
        for name, content in shared.items():
            seal = user_seal(f"machine_code {name}", content)
            assert seal is not None and place is not None
            write = functools.partial(_write, seal, content)
            write_atomic(place / name, write, private=True)
    except OSError as error:
        unkept(f"{place}: {error.strerror}", "DP_ERM_BENCH_CACHE")
        _own.update(shared)
    if shared and place is not None and not outside():
        _prune(place)


def _write(seal: bytes, content: bytes, file: Any) -> None:
    file.write(seal)
    file.write(content)


def _is_edited() -> bool:
    """Return whether a source was edited since this process began.

    The digest of a definition may then be that of the new one, and the code the old.
    """
    package, installed = __name__.partition(".")[0], (sys.prefix, sys.base_prefix)
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name.partition(".")[0] == package or not file.startswith(installed):
            with contextlib.suppress(OSError):
                status = os.stat(file)
                # What is moved into the package keeps its time of modification.
                ours = name.partition(".")[0] == package
                edited = max(status.st_mtime, status.st_ctime * ours)
                if _begun < edited <= time.time():
                    return True
    return False


def _in_child(work: Callable[[], object]) -> dict[str, bytes]:
    """Do some work in a copy of this process; return the machine code it made."""
    global _is_child
    if not hasattr(os, "fork"):
        return {}
    with tempfile.TemporaryFile() as file, warnings.catch_warnings():
        # The child compiles and ends: it waits for no thread that it does not have.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            try:
                _is_child = True
                before = set(_own)
                work()
                made = {k: v for k, v in _own.items() if k not in before}
                # It has no name, and no other process has it open.
                pickle.dump(made, file)
                file.flush()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        file.seek(0)
        # What could not be compiled is compiled here, and raises.
        with contextlib.suppress(EOFError, pickle.UnpicklingError):
            return cast(dict[str, bytes], pickle.load(file))
    return {}


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the right to compile, if others could use it; children have it, too."""
    place = _place()
    with contextlib.ExitStack() as stack:
        if not _is_child and place is not None:
            # Where there are no locks each process compiles for itself.
            with contextlib.suppress(ImportError, OSError):
                import fcntl

                make_private(place)
                held = os.open(place / "compiling", os.O_RDWR | os.O_CREAT, 0o600)
                stack.callback(os.close, held)
                fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _prune(place: Path) -> None:
    """Once a day remove what was not used for long, or is too much, of all keys.

    Who has opened a file that is removed reads it to its end.
    """
    mark, now = place / "pruned", time.time()
    with contextlib.suppress(OSError):
        if mark.exists() and mark.stat().st_mtime > now - DAY:
            return
        mark.touch()
        remove_parts(place)
        used: list[tuple[float, int, Path]] = []
        for path in filter(_is_ours, place.parent.glob("*/*")):
            with contextlib.suppress(OSError):
                status = path.lstat()
                used.append((status.st_mtime, status.st_size, path))
        total = 0
        for when, size, path in sorted(used, reverse=True):
            total += size
            if total > KEPT_BYTES or when < now - KEPT_DAYS * DAY:
                with contextlib.suppress(OSError):
                    path.unlink()


def _is_ours(path: Path) -> bool:
    """Return whether a path is called as an entry is: the folder may be anybody's."""
    return bool(ENTRY.search(str(path)))


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Have what is decorated within ``numba.njit(cache=True)`` be kept nowhere.

    numba would keep it beside its file, and see no edit of the modules that it uses.
    """
    caches: Any = caching.Cache
    before = caches.__init__

    def nowhere(cache: Any, function: Any) -> None:
        cache._py_func, cache._name, cache._cache_path = function, repr(function), None
        cache._enabled = False

    if not hasattr(caches, "_load_overload"):
        raise RuntimeError(_changed("its own caches cannot be switched off"))
    caches.__init__ = nowhere
    try:
        yield
    finally:
        caches.__init__ = before
