"""What a run tells beside its iterates: what it prints, writes and starts.

The process of a side has a home, a folder for temporary files and a working directory
of its own, so that what one run leaves there, and a later one reads, is of its own
side's data: it shows in what the later one does. What a run prints, the files that it
leaves and the commands that it starts are compared between the sides like its iterates.

Not compared is what differs between two runs of one side: the time, a process's number,
a random name. A difference counts if it is the same in further runs of both sides, in
other processes, the first of which begins when the runs compared have ended: a clock
that has not moved by then was equal in them, too. Nor are files in folders of caches
compared, or what a run reads again after it has written it, below its own folders:
that is its memory, which counts where a later run looks at it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gzip
import hashlib
import io
import os
import re
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from dp_erm_bench.cached import RUN
from dp_erm_bench.machine_code import VARIABLE
from dp_erm_bench.paths import cache_dir

Told = list[tuple[str, str]]
"""What a run told: ``prints`` and a text, ``leaves in FILE`` and what is new there."""

Fact = tuple[Any, ...]
LARGEST, END = 1 << 20, 1 << 10
"""Bytes of a text that are compared; of its end, by which a longer one is known."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CACHES = (".cache", "__pycache__")
STARTING = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
CALLS = "calls"
CALLING = ("socket.connect", "socket.sendto", "socket.sendmsg")
PLACING = {"os.rename": 1, "os.link": 1, "os.symlink": 1, "sqlite3.connect": 0}
QUIET = (
    *(DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning),
)
"""Warnings that Python does not show."""

BETWEEN = r"\s()\[\]{}<>'\"`,;=|"
WORD = re.compile(rf"[^{BETWEEN}]*\d[^{BETWEEN}]*|\bnan\b|\binf\b")
ADDRESS = re.compile(r"\b0x[0-9a-f]+")
OWN = "dp-erm-bench: "
WIDTH = 60
CLOSE = 1e-5
"""Difference of numbers that are computed from minimisers, solved to a tolerance."""


class SideFolders:
    """The folders of a side's process, and what its runs tell there.

    Parameters
    ----------
    root : Path
        An empty folder, which is for this process alone.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._printed = tempfile.TemporaryFile()
        self._ours = _settled(root)
        self._ends: dict[str, tuple[int, bytes]] = {}
        self._stamps: dict[str, tuple[int, int]] = {}
        self._listens = False
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for descriptor in (1, 2):
            os.dup2(self._printed.fileno(), descriptor)
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def heard(self) -> Iterator[Told]:
        """Yield a list that holds, at the end, what was told within."""
        told: Told = []
        self._taken()
        self._before: dict[str, int | None] = {}
        self._written, self._memory = set[str](), set[str]()
        self._made: list[str] = []
        self._started: list[str] = []
        self._called: list[str] = []
        with warnings.catch_warnings():
            # Else Python shows a warning once, in whichever run is the first.
            warnings.simplefilter("always")
            for kind in QUIET:
                warnings.simplefilter("ignore", kind)
            self._listens = True
            try:
                yield told
            finally:
                self._listens = False
        told += [("prints", text)] if (text := self._taken()) else []
        told += [("starts", text) for text in self._started]
        told += [(CALLS, text) for text in self._called]
        told += [(f"leaves in {file}", text) for file, text in self._left()]
        told[:] = [(self._named(how), self._named(text)) for how, text in told]

    def _named(self, text: str) -> str:
        """Return a text with the own folders by their usual names."""
        for folder, name in (("home", "~"), ("tmp", "$TMPDIR"), ("work", ".")):
            text = text.replace(f"{self.root}/{folder}", name)
        return text

    def _taken(self) -> str:
        """Return what was printed since, and forget it."""
        for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
            with contextlib.suppress(Exception):  # a solver may have closed it
                assert stream is not None
                stream.flush()
        return _text(_emptied(self._printed.fileno()))

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Note the files that are opened and the commands that are started."""
        if not self._listens:
            return
        with contextlib.suppress(Exception):
            if event == "open" and not isinstance(args[0], int):
                path, flags = os.path.abspath(os.fsdecode(args[0])), args[2]
                if flags & WRITING:
                    self._note(path)
                elif path in self._written:
                    self._memory.add(path)
            elif event == "mmap.__new__" and args[0] >= 0:
                self._memory.add(os.readlink(f"/proc/self/fd/{args[0]}"))
            elif event in PLACING:
                self._note(os.path.abspath(os.fsdecode(args[PLACING[event]])))
            elif event == "os.mkdir":
                path = os.path.abspath(os.fsdecode(args[0]))
                self._made += [] if path.startswith(self.root) else [path]
            elif event in STARTING:
                self._started.append(repr(args[1] if len(args) > 1 else args[0]))
            elif event in CALLING:
                self._called.append(f"a connection to {args[1]}")

    def _note(self, path: str) -> None:
        """Note a file that is about to be written."""
        self._written.add(path)
        if path not in self._before and not path.startswith((self.root, *self._ours)):
            self._before[path] = os.path.getsize(path) if os.path.exists(path) else None

    def _left(self) -> Iterator[tuple[str, str]]:
        """Yield the files that a run left or changed, and what is new in them.

        Those of its folders stay for later runs. Elsewhere a file that was made is
        removed, as it would be there for the other side.
        """
        for path in sorted(self._own()):
            new = self._new(path)
            if path not in self._memory:
                yield path, _text(new)
        for path, size in sorted(self._before.items()):
            if os.path.isfile(path) and not any(c in path.split("/") for c in CACHES):
                yield path, _text(_read(path, size or 0) or _read(path))
            if size is None and os.path.isfile(path):
                with contextlib.suppress(OSError):
                    os.unlink(path)
        for path in reversed(self._made):
            with contextlib.suppress(OSError):
                os.rmdir(path)

    def _new(self, path: str) -> bytes:
        """Return what was appended to a file since it was read, or all of it."""
        size, end = self._ends.get(path, (0, b""))
        now = os.path.getsize(path)
        appended = now > size and _read(path, size - len(end), len(end)) == end
        start = max(0, now - END)
        self._ends[path] = (now, _read(path, start, now - start))
        return _read(path, size if appended else 0)

    def _own(self) -> Iterator[str]:
        """Yield the files below the own folders that are new or changed."""
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if name not in CACHES]
            paths = (os.path.join(folder, name) for name in files)
            for path in filter(os.path.isfile, paths):
                with contextlib.suppress(OSError):
                    status = os.lstat(path)
                    stamp = status.st_mtime_ns, status.st_size
                    if self._stamps.get(path) != stamp:
                        self._stamps[path] = stamp
                        yield path


def _settled(root: Path) -> list[str]:
    """Move this process into folders of its own; return those of the package.

    The caches of the package stay where they are: a side uses machine code as it lies
    there.
    """
    ours = {"DP_ERM_BENCH_CACHE": cache_dir()}
    for name in (VARIABLE, RUN, "DP_ERM_BENCH_DATA"):
        if name in os.environ:
            ours[name] = Path(os.environ[name]).expanduser()
    ours = {name: folder.absolute() for name, folder in ours.items()}
    os.environ.update({name: str(folder) for name, folder in ours.items()})
    sys.path[:] = [os.path.abspath(place) for place in sys.path]
    for name in [name for name in os.environ if name.startswith("XDG_")]:
        del os.environ[name]
    homes, files, work = (root / name for name in ("home", "tmp", "work"))
    for folder in (homes, files, work):
        folder.mkdir()
    os.environ["HOME"] = str(homes)
    for name in ("TMPDIR", "TEMP", "TMP"):
        os.environ[name] = str(files)
    tempfile.tempdir = str(files)
    os.chdir(work)
    os.environ["PWD"] = str(work)
    return [*map(str, ours.values()), "/dev/", "/proc/"]


_place: SideFolders | None = None


def settle(root: Path) -> None:
    """Have this process listen to its runs, from folders of its own below one."""
    global _place
    _place = SideFolders(root)


@contextlib.contextmanager
def heard() -> Iterator[Told]:
    """Yield a list of what is told within, empty where nobody listens."""
    if _place is None:
        yield []
        return
    with _place.heard() as told:
        yield told


def _read(path: str, start: int = 0, count: int = LARGEST) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(start)
        return file.read(count)
    return b""


def _text(content: bytes) -> str:
    """Return a text as it is, and of anything else the digest.

    Of archives, which hold the time, that of each member's content.
    """
    with contextlib.suppress(UnicodeDecodeError):
        if b"\0" not in content:
            return content.decode()
    with contextlib.suppress(Exception), zipfile.ZipFile(io.BytesIO(content)) as parts:
        members = parts.infolist()
        return "\n".join(f"{one.filename} {one.CRC:08x}" for one in members)
    with contextlib.suppress(Exception):
        content = gzip.decompress(content)
    return f"{len(content)} bytes {hashlib.sha256(content).hexdigest()}"


def _lines(told: Told) -> Iterator[tuple[str, int, list[str], str, str]]:
    """Yield the lines of what was told: frame, turn, words, how, and as it is.

    A line's words with digits are taken out of its frame; its turn is the number of
    lines before it that have the same frame.
    """
    turns: Counter[str] = Counter()
    for how, text in told:
        for line in text.splitlines():
            kept = ADDRESS.sub("at", f"{how}: {line}")
            frame = re.sub(r"\s", "", WORD.sub("#", kept))  # columns are aligned
            yield frame, turns[frame], WORD.findall(kept), how, line
            turns[frame] += 1


def facts(told: Told) -> dict[Fact, Any]:
    """Return the words with digits of what was told, and how often each line came.

    ``(frame, turn, k)`` is the k-th word of a line, ``(frame,)`` the number of lines
    of a frame, ``()`` the order of all frames.
    """
    lines = list(_lines(told))
    found: dict[Fact, Any] = {
        (frame, turn, k): word
        for frame, turn, words, _, _ in lines
        for k, word in enumerate(words)
    }
    order = tuple(frame for frame, *_ in lines)
    found |= {(frame,): count for frame, count in Counter(order).items()}
    return found | ({(): order} if order else {})


def paired(one: Told, other: Told) -> dict[Fact, tuple[Any, Any]]:
    """Return the facts of two runs, and both values of each."""
    a, b = facts(one), facts(other)
    return {fact: (a.get(fact), b.get(fact)) for fact in [*a, *b]}


def differing(one: Told, other: Told, near: bool = False) -> dict[Fact, Any]:
    """Return the facts in which two runs differ, and both values of each.

    Parameters
    ----------
    one, other : Told
    near : bool
        Whether numbers may differ by what solving to a tolerance leaves.
    """
    pairs = paired(one, other) if one != other else {}
    apart = {
        k: v for k, v in pairs.items() if v[0] != v[1] and not (near and _near(*v))
    }
    if any(apart):
        apart.pop((), None)  # other lines are in another order, too
    return apart


def lasting(
    differs: dict[Fact, Any], others: Iterable[dict[Fact, tuple[Any, Any]]]
) -> dict[Fact, Any]:
    """Return the facts that differ in the same way in further pairs of runs.

    A pair that lacks a fact says nothing of it, as some runs tell once what they tell;
    what no other pair has is a random word.

    Parameters
    ----------
    differs : dict
        The facts that differ in a pair, and both values of each.
    others : iterable of dict
        Of further pairs all facts, see `paired`.
    """
    pairs = list(others)
    return {
        fact: both
        for fact, both in differs.items()
        if {more[fact] for more in pairs if fact in more} == {both}
    }


def kind(fact: Fact) -> Fact:
    """Return what facts have in common that are of equal frames."""
    return (fact[0], *fact[2:]) if fact else ()


def sentence(one: Told, other: Told, apart: dict[Fact, Any]) -> str:
    """Return the sentence about facts that differ between the sides."""
    fact = max(apart, key=lambda fact: (None not in apart[fact], len(fact)))
    frame, turn = (*fact, 0)[:2] if fact else ("", 0)
    lines = [
        {(f, k): (how, " ".join(line.split())) for f, k, _, how, line in _lines(told)}
        for told in (one, other)
    ]
    how, line = (lines[0] | lines[1]).get((frame, turn), ("tells", ""))
    words = f"what it {how} depends on the data"
    if not fact:
        return f"{words}: the order of the lines"
    if len(fact) == 1:
        return f"{words}: how often `{line[:WIDTH]}` comes"
    texts = [side.get((frame, turn), ("", "nothing"))[1][:WIDTH] for side in lines]
    return f"{words}: `{texts[0]}` on D, `{texts[1]}` on D'"


def _near(one: Any, other: Any) -> bool:
    """Return whether two words are numbers that nearly agree, or no numbers."""
    try:
        a, b = float(one), float(other)
    except (TypeError, ValueError):
        return isinstance(one, str) and isinstance(other, str)
    digits = len(one.lower().partition(".")[2].partition("e")[0])
    last = 1.01 * 10.0**-digits if digits else 0.0
    return bool(np.isclose(a, b, rtol=CLOSE, atol=max(CLOSE, last)))


@contextlib.contextmanager
def silenced() -> Iterator[list[str]]:
    """Keep what is printed within off the terminal; yield the list of its lines.

    The list is filled at the end. Lines of the package itself are printed then.
    """
    lines: list[str] = []
    streams, sink = (sys.stdout, sys.stderr), _sink()
    for stream in streams:
        stream.flush()
    terminal = [os.dup(descriptor) for descriptor in (1, 2)]
    for descriptor in (1, 2):
        os.dup2(sink.fileno(), descriptor)
    sys.stdout = sys.stderr = sink
    try:
        yield lines
    finally:
        sys.stdout, sys.stderr = streams
        for stream in (sink, *streams):
            with contextlib.suppress(Exception):  # a solver may have closed it
                stream.flush()
        for descriptor, place in zip((1, 2), terminal, strict=True):
            os.dup2(place, descriptor)
            os.close(place)
        lines += _text(_emptied(sink.fileno())).splitlines()
        for line in lines:
            if line.startswith(OWN):
                print(line, file=sys.stderr, flush=True)


@functools.cache
def _sink() -> TextIO:
    """Return a stream into a file without a name.

    It stays open: handlers of logs hold on to the stream that they found.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        descriptor = os.dup(file.fileno())
    sink = open(descriptor, "w", buffering=1, errors="backslashreplace")
    atexit.register(sink.close)
    return sink


def _emptied(descriptor: int) -> bytes:
    """Return what an open file holds, at most `LARGEST` bytes, and empty it."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    content = os.read(descriptor, LARGEST)
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return content
