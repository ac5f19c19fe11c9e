"""The one place of what is recorded: segments, their index, the plan, the asked points.

**segments/*.jsonl**: what each process appends to a file of its own. The first line
says who writes: ``{"segment":2,"run":..., "version":...}``. ``{"begin":[keys],
"time":...}`` stands before the records of a batch that was begun; a begun key without a
record tells what a process was at when it died. A record starts with ``key`` and
``status``; so the index finds records by key without parsing them. Its ``batch`` names
the trials that ran with it: a digest of their keys, which the mark lists. It and the
first line end with ``crc``, the checksum of all bytes before it. A segment is never
edited and never continued by another process, so a torn last line costs that one record
and nothing else.

**plan.jsonl**: which trial belongs to which line of which panel. Several runs may use
one folder at once. Each keeps its lines in a file without a name, which dies with it,
and publishes them under the folder's lock: the plan of an experiment becomes that of
the run that wrote last, a sweep adds to what is there. A line ends with ``crc``, as a
record does. Before it the last one has ``lines``, how many there are, and ``sum``, the
checksum of those before it: a line that is gone, or there twice, is noticed, too.

**asked.jsonl**: the points that searches asked for, so that a resumed run asks again.
They rest on random numbers of a library: another version of it could ask for others in
the middle of a run. A line names a case, one of its rounds, and the points.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import re
import sys
import tempfile
import time
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dp_erm_bench import paths
from dp_erm_bench.datasets.spec import identifying
from dp_erm_bench.errors import UsageError, number, shown
from dp_erm_bench.paths import opened, write_atomic
from dp_erm_bench.registry import QUANTITIES
from dp_erm_bench.results import files

FINISHED = ("ok", "skipped", "diverged")
FAILED = ("error", "timeout", "killed")
STATUSES = (*FINISHED, *FAILED)


class Entry(NamedTuple):
    """The place of a record, with its most used fields.

    Attributes
    ----------
    status : str
        Status of its trial.
    segment : Path
        File that holds it.
    offset, length : int
        Its place there, in bytes.
    cost : float
        Seconds that its trial took; nan if that is not recorded.
    run : str
        The run that computed it; empty if that is not recorded.
    """

    status: str
    segment: Path
    offset: int
    length: int
    cost: float = math.nan
    run: str = ""


class Index(Mapping[str, Entry]):
    """The entries of records by the keys of their trials.

    There may be 10^6 of them: each takes about 200 bytes, less than half of what a
    dictionary of entries takes. An entry is put together when it is asked for.
    """

    def __init__(self) -> None:
        self._rows: dict[bytes, int] = {}
        self._statuses = array("b")
        self._offsets, self._lengths = array("q"), array("q")
        self._costs = array("d")
        self._origins = array("l")
        self._segments: list[tuple[Path, str]] = []

    def put(self, key: str, entry: Entry) -> None:
        """Take an entry in place of an earlier one of its key, if there is one.

        An unfinished trial's does not replace a finished one's.
        """
        status = STATUSES.index(entry.status)
        row = self._rows.setdefault(_packed(key), len(self._costs))
        if row == len(self._costs):
            self._statuses.append(status)
            self._offsets.append(entry.offset)
            self._lengths.append(entry.length)
            self._costs.append(entry.cost)
            self._origins.append(self._origin(entry))
        elif self._statuses[row] >= len(FINISHED) or status < len(FINISHED):
            self._statuses[row] = status
            self._offsets[row], self._lengths[row] = entry.offset, entry.length
            self._costs[row], self._origins[row] = entry.cost, self._origin(entry)

    def status(self, key: str) -> str | None:
        """Return the status of a trial, None if it has no record."""
        row = self._rows.get(_packed(key))
        return None if row is None else STATUSES[self._statuses[row]]

    def __getitem__(self, key: str) -> Entry:
        """Return the entry of a key."""
        row = self._rows[_packed(key)]
        segment, run = self._segments[self._origins[row]]
        place = segment, self._offsets[row], self._lengths[row]
        return Entry(STATUSES[self._statuses[row]], *place, self._costs[row], run)

    def __contains__(self, key: object) -> bool:
        """Return whether a key has a record."""
        return isinstance(key, str) and _packed(key) in self._rows

    def __iter__(self) -> Iterator[str]:
        """Yield the keys, those that were recorded first before the others."""
        return map(_unpacked, self._rows)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._rows)

    def _origin(self, entry: Entry) -> int:
        """Return the number of an entry's segment; entries come segment by segment."""
        origin = entry.segment, entry.run
        if not self._segments or self._segments[-1] != origin:
            self._segments.append(origin)
        return len(self._segments) - 1


def _packed(key: str) -> bytes:
    """Return the 32 bytes of a key; what is no key of ours is spelled out."""
    try:
        packed = bytes.fromhex(key)
    except ValueError:
        packed = b""
    same = len(packed) == 32 and packed.hex() == key
    return packed if same else key.encode(errors="surrogatepass")


def _unpacked(packed: bytes) -> str:
    return packed.hex() if len(packed) == 32 else packed.decode(errors="surrogatepass")


FORMAT = 3
"""Of segments; one of another format is refused."""
NAMED = 16
"""Digits of a digest that names something within a folder."""


class Segment:
    """The segment that this process appends to; opened when there is something to say.

    Parameters
    ----------
    folder : Path
        The results folder.
    run : str
        The run that this process works for.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder = folder
        self.run = run
        self._handle: int | None = None
        self._file: tuple[int, int] | None = None

    def begin(self, keys: Sequence[str]) -> None:
        """Mark the trials of a batch as begun."""
        self._write(files.line({"begin": list(keys), "time": round(time.time(), 3)}))

    def append(self, records: Iterable[Mapping[str, Any]], cost: float = 0.0) -> None:
        """Write the records of a batch at once; `cost` is in seconds a trial."""
        self._write(b"".join(encoded(record, cost) for record in records))

    def copy(self, lines: bytes) -> None:
        """Append whole marks and records that another process wrote."""
        self._write(lines)

    def close(self) -> None:
        """Close the file; what comes later goes to a new one."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _write(self, data: bytes) -> None:
        """Write whole lines; after a failure nothing may follow a torn one."""
        with files.telling(self.folder):
            try:
                if not self._is_open():
                    data = self._open() + data
                assert self._handle is not None
                while data:
                    data = data[os.write(self._handle, data) :]
            except OSError:
                self.close()
                raise

    def _is_open(self) -> bool:
        """Return whether the handle is still the segment's: a solver may close it.

        Raises
        ------
        UsageError
            If the segment was removed, and its records with it.
        """
        if self._handle is None:
            return False
        try:
            status = os.fstat(self._handle)
        except OSError:
            return False
        if (status.st_dev, status.st_ino) != self._file:
            return False
        if status.st_nlink == 0:
            raise files.removed(self.folder)
        return True

    def _open(self) -> bytes:
        """Open a new file and return its first line."""
        name = f"{self.run}-{os.getpid()}-{time.time_ns()}.jsonl"
        path = self.folder / "segments" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._handle = os.open(path, flags, 0o666)
        status = os.fstat(self._handle)
        self._file = status.st_dev, status.st_ino
        # By name: the top package names the upper layers in its annotations.
        version = importlib.import_module("dp_erm_bench").__version__
        first = {"segment": FORMAT, "run": self.run, "version": version}
        return files.sealed(files.line(first))


def failed(key: str, status: str, message: str) -> dict[str, Any]:
    """Return the record of a trial that has no trajectory."""
    reason = {"key": key, "status": status, "message": message}
    return {**reason, "facts": {}, "trajectory": {}}


def batch_name(keys: Iterable[str]) -> str:
    """Return the name of a batch in its records: a digest of its keys, in order."""
    return sha256(" ".join(keys).encode()).hexdigest()[:NAMED]


def encoded(record: Mapping[str, Any], cost: float = 0.0) -> bytes:
    """Return the line of a record: key, status and cost first, the checksum last."""
    first = {"key": record["key"], "status": record["status"], "cost": round(cost, 6)}
    return files.sealed(files.line({**first, **record}))


class Traces(NamedTuple):
    """The trials that a process began, and the records that it wrote.

    Attributes
    ----------
    begun : dict of str to float
        When it began each trial, in seconds since 1970.
    records : dict of str to dict
        The records that it finished writing.
    """

    begun: dict[str, float]
    records: dict[str, dict[str, Any]]


def traces_of(folder: Path, run: str, pid: int) -> Traces:
    """Return the traces of a process of a run, empty if it wrote nothing."""
    traces = Traces({}, {})
    for segment in _segments_by(folder, run, pid):
        for text, content in _contents(segment):
            if "begin" in content:
                traces.begun.update(dict.fromkeys(content["begin"], content["time"]))
            elif "key" in content and files.is_sealed(text):
                traces.records[content["key"]] = content
    return traces


def taken_lines(folder: Path, run: str, pid: int) -> bytes:
    """Return the marks and records that a process has written, and remove them there.

    It is idle, or dead, and appends to a file that is empty then.
    """
    taken: list[bytes] = []
    for segment in _segments_by(folder, run, pid):
        data = segment.read_bytes()
        os.truncate(segment, 0)
        # Who dies may leave half a line.
        lines = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        taken += (one for one in lines if one.startswith((files.BEGIN, files.START)))
    return b"".join(taken)


def _segments_by(folder: Path, run: str, pid: int) -> list[Path]:
    return sorted((folder / "segments").glob(f"{run}-{pid}-*.jsonl"))


def _contents(segment: Path, word: str = "") -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the lines of a segment that hold a word, with the objects in them."""
    if segment.is_file():
        with segment.open("rb") as file:
            for text in file:
                if word.encode() in text:
                    yield text, files.parsed(text) or {}


MIDDLE = b'","status":"'
COST = re.compile(rb',"cost":(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?),')
KEY = slice(len(files.START), len(files.START) + 64)
STATUS = slice(KEY.stop, KEY.stop + len(MIDDLE))
RUN = re.compile(r"(\d{20}-\w+-\d+)-")
OPEN_FILES = 100


class Store:
    """The records of a results folder, by key.

    Parameters
    ----------
    folder : Path
        The results folder; it need not exist yet.

    Raises
    ------
    UsageError
        If a version of the package wrote into it that has another format.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index = Index()
        self._segments: dict[Path, _Segment] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read what has been appended since the last time.

        Of several records of one key a finished one is kept, else the latest.
        """
        for path in segments_of(self.folder):
            for key, entry in self._segments.setdefault(path, _Segment(path)).new():
                self.index.put(key, entry)

    def record(self, key: str) -> dict[str, Any] | None:
        """Return a record, or None if there is none or it cannot be read."""
        return next(self.records([key]))

    def records(self, keys: Iterable[str]) -> Iterator[dict[str, Any] | None]:
        """Yield the records of keys in the order given, None where `record` would."""
        handles: dict[Path, BinaryIO] = {}
        with ExitStack() as stack:
            for key in keys:
                entry = self.index.get(key)
                yield None if entry is None else _read(key, entry, handles, stack)

    def mates(self, key: str, batch: str) -> list[str]:
        """Return the keys of the trials of a recorded batch, in the order of the batch.

        Parameters
        ----------
        key : str
            Of one of them; it has a record.
        batch : str
            The name of its batch (`batch_name`).

        Returns
        -------
        list of str
            The key alone if nothing ran with it; empty if the mark of the batch is gone
            or damaged, in all segments of the run that wrote the record.
        """
        if batch == batch_name([key]):
            return [key]
        entry = self.index[key]
        # A segment that was closed under its process goes on in another one.
        others = sorted(set(entry.segment.parent.glob(f"{entry.run}-*.jsonl")))
        for path in (entry.segment, *others):
            for _, content in _contents(path, key):
                keys = content.get("begin")
                if isinstance(keys, list) and batch == batch_name(map(str, keys)):
                    return [str(one) for one in keys]
        return []

    def sizes(self) -> dict[str, int]:
        """Return the length of each segment when it was read."""
        return {path.name: read.size for path, read in self._segments.items()}

    def damage(self) -> dict[str, int | str]:
        """Return the damaged lines of segments, or why one cannot be read, by name."""
        damage = {p.name: r.refused or r.damaged for p, r in self._segments.items()}
        return {name: what for name, what in damage.items() if what}

    def unnamed(self, manifest: Mapping[str, Any]) -> dict[str, int | str]:
        """Return the damage, none if it is what a manifest names: its run told it."""
        named = manifest.get("damaged")
        listed = dict(named) if isinstance(named, dict) else {}
        listed.pop(files.PLAN, None)
        damage = self.damage()
        return {} if damage == listed else damage

    def check(self, manifest: Mapping[str, Any], follows: str) -> dict[str, int | str]:
        """Return `damage`; print what a manifest has not of it.

        `follows` says how trials without a record go on.
        """
        where, damage, lines = files.typed(self.folder), self.unnamed(manifest), []
        counts = [number for number in damage.values() if isinstance(number, int)]
        if counts:
            damaged = files.plural(sum(counts), "damaged line")
            segments = files.plural(len(counts), "segment")
            lines.append(f"{damaged} in {segments}: trials without a record {follows}")
        refused = {k: v for k, v in damage.items() if isinstance(v, str)}
        lines += [f"segments/{k} cannot be read: {v}" for k, v in refused.items()]
        for line in lines:
            print(f"{where}: {line}", file=sys.stderr)
        return self.damage()


def segments_of(folder: Path) -> list[Path]:
    """Return the segments of a results folder, oldest first."""
    return paths.listed(folder / "segments", ".jsonl")


def copy_segments(
    folder: Path,
    into: Path,
    keys: Set[str],
    changed: Callable[[dict[str, Any]], dict[str, Any]],
    renamed: Callable[[str], str],
    hidden: Set[str] = frozenset(),
) -> None:
    """Copy the marks and the whole records of some trials into another folder.

    Parameters
    ----------
    folder, into : Path
        Results folders; the second has no segments yet.
    keys : set of str
        The trials.
    changed : callable
        Returns what to write in place of a record.
    renamed : callable
        Returns the new id of a run; no two runs may get the same.
    hidden : set of str
        Those of the trials whose keys may stand in no mark. Their records come last, in
        the order of their new keys: that of batches would tell what a search chose.
    """
    apart: dict[str, bytes] = {}
    last = ""

    def write(count: int, lines: Sequence[bytes]) -> None:
        first = {"segment": FORMAT, "run": last}
        target = into / "segments" / f"{last}-0-{count:020d}.jsonl"
        target.parent.mkdir(parents=True, exist_ok=True)
        text = b"".join([files.sealed(files.line(first)), *lines])
        write_atomic(target, lambda file: file.write(text))

    count = 0
    for path in segments_of(folder):
        with paths.opened(path, folder) as file:
            run = _origin(path, file.readline(paths.LARGEST_TEXT))
        lines = []
        for text, content in _contents(path):
            begun = content.get("begin")
            if isinstance(begun, list):
                of = {*map(str, begun)}
                if keys & of and not hidden & of:
                    lines.append(files.line(content))
            elif not {"key", "status"} <= content.keys():
                continue  # sealed, but of another file
            elif content["key"] in keys and files.is_sealed(text):
                content.pop("crc", None)
                cost = content.get("cost")
                seconds = float(cost) if isinstance(cost, int | float) else 0.0
                record = changed(content)
                if content["key"] in hidden:
                    apart[record["key"]] = encoded(record, seconds)
                else:
                    lines.append(encoded(record, seconds))
        last = renamed(run)
        if lines:
            write(count, lines)
            count += 1
    if apart:
        write(count, [apart[key] for key in sorted(apart)])


def finals_of(record: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the last values of a trial by quantity, as numbers to be minimised.

    Where higher is better they are negated. Those of `QUANTITIES` that the trajectory
    lacks are left out, all of them where the trial failed or diverged.
    """
    if record is None or record.get("status") != "ok":
        return {}
    trajectory = record.get("trajectory")
    columns = trajectory if isinstance(trajectory, dict) else {}
    lists = {k: v for k in QUANTITIES if isinstance(v := columns.get(k), list) and v}
    last = {name: number(column[-1]) for name, column in lists.items()}
    return {k: QUANTITIES[k] * v for k, v in last.items() if not math.isnan(v)}


def error_of(record: Mapping[str, Any] | None, quantity: str) -> float:
    """Return the last error of a trial, infinite where it failed or diverged.

    Parameters
    ----------
    record : mapping or None
    quantity : str
        One of `QUANTITIES`. Of the objective it is F / F* - 1 where F* is known; of
        what is better higher, and at most 1, what it lacks of 1.
    """
    value = finals_of(record).get(quantity, math.inf)
    if record is None or math.isinf(value):
        return math.inf
    optimum = number((record.get("facts") or {}).get("optimum"))
    if quantity == "objective" and optimum > 0.0:
        return value / optimum - 1.0
    return value if QUANTITIES[quantity] > 0 else 1.0 + value


def _read(
    key: str, entry: Entry, handles: dict[Path, BinaryIO], stack: ExitStack
) -> dict[str, Any] | None:
    try:
        if entry.segment not in handles:
            if len(handles) == OPEN_FILES:
                stack.close()
                handles.clear()
            file = paths.opened(entry.segment, entry.segment.parents[1])
            handles[entry.segment] = stack.enter_context(file)
        file = handles[entry.segment]
        file.seek(entry.offset)
        record = files.parsed(file.read(entry.length))
    except OSError:
        return None
    same = record and (record["key"], record["status"]) == (key, entry.status)
    return record if same else None


class _Segment:
    """The places of the records of a segment, as far as it has been read.

    `size` is its length then (-1 of what is no file), `damaged` the number of lines
    that are neither a record nor a mark, `refused` why it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.damaged = 0
        self.refused = self._run = ""
        self._offset = 0

    def new(self) -> Iterator[tuple[str, Entry]]:
        """Yield key and entry of the records since the last call.

        A last line without its end is read again by the next call: it is torn, or
        still being written. Of a damaged line those parts count that are whole
        records: it has lost an end.
        """
        try:
            self.size = files.size_of(self.path)
            if self.size != self._offset:
                with paths.opened(self.path, self.path.parents[1]) as file:
                    yield from self._read(file)
            self.refused = ""
        except OSError as error:
            self.refused = error.strerror or str(error)

    def _read(self, file: BinaryIO) -> Iterator[tuple[str, Entry]]:
        if self._offset == 0:
            first = file.readline(paths.LARGEST_TEXT)
            self._run = _origin(self.path, first)
        file.seek(self._offset)
        for line in files.lines_of(file):
            if (
                files.is_sealed(line)
                and line.startswith(files.START)
                and line[STATUS] == MIDDLE
            ):
                yield from self._entry(line, 0)
            elif not line.startswith(files.NO_RECORD) or files.START in line:
                torn = line[-1:] != b"\n" and len(line) < paths.LARGEST_TEXT
                self.damaged += not torn
                for start, piece in files.pieces(line):
                    yield from self._entry(piece, start)
            if line[-1:] == b"\n" or len(line) == paths.LARGEST_TEXT:
                self._offset += len(line)

    def _entry(self, line: bytes, start: int) -> Iterator[tuple[str, Entry]]:
        """Yield the key and the entry of a record that stands in the current line."""
        end = line.find(b'"', STATUS.stop)
        status = line[STATUS.stop : end].decode(errors="replace")
        if line[STATUS] != MIDDLE or status not in STATUSES:
            self.damaged += 1
            return
        seconds = COST.match(line, end + 1)
        cost = float(seconds[1]) if seconds else math.nan
        place = (self.path, self._offset + start, len(line))
        key = line[KEY].decode(errors="replace")
        yield key, Entry(status, *place, cost, self._run)


def _origin(path: Path, first: bytes) -> str:
    """Return the run that wrote a segment; of a damaged header its name tells it."""
    header = files.parsed(first) if files.is_sealed(first) else None
    if header is None or "segment" not in header:
        named = RUN.match(path.name)
        return named[1] if named else ""
    if header["segment"] != FORMAT:
        raise UsageError(
            f"{path}: is of format {shown(header['segment'])}, written by version "
            f"{header.get('version', '?')}; this version reads format {FORMAT}"
        )
    return str(header.get("run", ""))


LABELS = {
    **dict.fromkeys(("key", "experiment", "panel", "line", "phase"), str),
    **{"tuned": bool, "spec": dict},
}
FLAGS = b',"tuned":'
SPEC = b',"spec":'
FILE = re.compile(rb',"file":"(?:[^"\\]|\\.)*","content":"[0-9a-f]*"')
SILENT = {
    **dict.fromkeys(("algorithm", "loss"), ("file",)),
    "dataset": ("_target_", "usual", "usual_standardised", "usual_regression", "path"),
}
"""Keys of a spec's parts that a trial's key does not depend on, their content given."""


class Plan:
    """The plan of one run, published into its folder.

    Parameters
    ----------
    folder : Path
        The results folder.
    append : bool
        Whether to keep what others planned.

    Attributes
    ----------
    published : int
        Checksum of the file as this run left it last, -1 if it never wrote one.
    """

    def __init__(self, folder: Path, append: bool) -> None:
        self.folder = folder
        self.append = append
        self._own: BinaryIO | None = None
        self.published = -1

    def __enter__(self) -> Plan:
        """Return the plan; nothing is written yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Drop the run's own copy; a full disk takes what is left in it no better."""
        if self._own is not None:
            with contextlib.suppress(OSError):
                self._own.close()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add lines and publish them together with those before."""
        with files.telling(self.folder):
            if self._own is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._own = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
            before = self._own.seek(0, 2)
            self._own.writelines(map(files.line, rows))
            new = self._own.tell() > before or self.published == -1
            with files.locked(self.folder):
                self.restore(new)

    def restore(self, new: bool = False) -> None:
        """Publish if lines are new, or another run has written since.

        Call it under the lock of the folder.
        """
        own, path = self._own, self.folder / files.PLAN
        if own is None or not (new or checksum(self.folder) != self.published):
            return
        own.seek(0)
        if self.append:
            _merge(path, own)
        else:
            _write(path, own)
        self.published = checksum(self.folder)


def read_plan(folder: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the lines of a folder's plan, None for each one that is damaged or gone.

    A line that is there twice is damage, and so are all lines of a key that stands for
    two specs: nothing says which of them is right.

    Raises
    ------
    UsageError
        If the plan is no file of the folder that can be read.
    """
    path = folder / files.PLAN
    with files.telling(folder):
        twofold = _twofold(path)
        for raw in files.checked_lines(path):
            row = None if raw is None or raw[KEY] in twofold else files.parsed(raw)
            good = row and all(isinstance(row.get(k), t) for k, t in LABELS.items())
            yield row if good else None


def planned_lines(
    folder: Path, keys: Set[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a folder's plan, of some trials or of all."""
    for line in read_plan(folder):
        if line is not None and (keys is None or line["key"] in keys):
            yield line


def checksum(folder: Path) -> int:
    """Return the checksum of the plan as it stands, -1 if there is none."""
    if not (folder / files.PLAN).is_file():
        return -1
    with opened(folder / files.PLAN, folder) as file:
        total = 0
        while block := file.read(files.BLOCK):
            total = zlib.crc32(block, total)
    return total


def _write(path: Path, lines: Iterable[bytes]) -> None:
    write_atomic(path, lambda file: file.writelines(files.sealed_lines(lines)))


def _merge(path: Path, own: BinaryIO) -> None:
    """Add a run's lines to the plan.

    A line of the same labels and spec but of another key is replaced: the code or the
    data behind it changed. So is one of the same labels and key that spells its spec in
    another way. A damaged line goes, and one that contradicts this run's.
    """
    if not path.is_file():
        _write(path, own)
        return
    new: dict[bytes, bytes] = {}
    ours: dict[bytes, int] = {}
    heads: set[bytes] = set()
    place = 0
    for line in own:
        new[_name(line)] = line[KEY]
        heads.add(_head(line))
        ours[line[KEY]], place = place, place + len(line)
    there: set[bytes] = set()
    gone: set[bytes] = set()
    stale = False
    for raw in files.checked_lines(path):
        name = raw and _name(raw)
        if raw is None or name is None:
            stale = True
        elif name in new and new[name] == raw[KEY]:
            there.add(name)
        elif name in new or _head(raw) in heads:
            gone.add(raw)
        elif not _agree(raw, _line_at(own, ours.get(raw[KEY]), raw)):
            gone.add(raw)
    if stale or gone or len(there) < len(new):
        own.seek(0)
        kept = (raw for raw in files.checked_lines(path) if raw and raw not in gone)
        added = (raw for raw in own if _name(raw) not in there)
        _write(path, itertools.chain(kept, added))


def _line_at(own: BinaryIO, place: int | None, default: bytes) -> bytes:
    """Return the line at a place of a run's own lines."""
    if place is None:
        return default
    own.seek(place)
    return own.readline()


def _twofold(path: Path) -> set[bytes]:
    """Return the keys that stand for two specs."""
    seen: set[int] = set()
    twice: set[bytes] = set()
    if path.is_file():
        with opened(path, path.parent) as file:
            for raw in files.lines_of(file):
                # In little memory; what only seems to be there twice agrees below.
                name = hash(raw[KEY])
                if name in seen:
                    twice.add(raw[KEY])
                seen.add(name)
    alike: dict[bytes, list[bytes]] = defaultdict(list)
    for good in filter(None, files.checked_lines(path) if twice else ()):
        if good[KEY] in twice:
            alike[good[KEY]].append(good)
    return {k for k, raws in alike.items() if not all(_agree(raws[0], r) for r in raws)}


def _head(raw: bytes) -> bytes:
    """Return the digest of a line's key and labels."""
    return blake2b(raw.partition(FLAGS)[0], digest_size=16).digest()


def _name(raw: bytes) -> bytes:
    """Return the digest of a line's labels and spec, without its key and flags.

    A solver's file is code: where it lies and what it holds name no trial.
    """
    labels = raw.partition(FLAGS)[0][KEY.stop :]
    spec = FILE.sub(b"", raw.partition(SPEC)[2])
    return blake2b(labels + spec, digest_size=16).digest()


def _agree(one: bytes, other: bytes) -> bool:
    """Return whether lines of one key agree in all that the key depends on.

    A parameter at its default may be spelled or not.
    """
    if one.partition(SPEC)[2] == other.partition(SPEC)[2]:
        return True
    (rest, params), (other_rest, others) = map(_fixed, (one, other))
    same = all(params[name] == others[name] for name in params.keys() & others.keys())
    return bool(same and rest == other_rest)


def _fixed(raw: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parts of a line that its key depends on, and its parameters."""
    spec = _mapping((files.parsed(raw) or {}).get("spec"))
    parts = {part: _mapping(spec.get(part)) for part in SILENT}
    params = _mapping(parts["algorithm"].pop("params", None))
    parts["dataset"] = identifying(parts["dataset"])
    for part, silent in SILENT.items():
        for key in silent:
            parts[part].pop(key, None)
    return spec | parts, params


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


ASKED = "asked.jsonl"
KEYS = {"case": str, "round": int, "points": list}

Points = list[dict[str, Any]]


class Asked:
    """What searches have asked for in a results folder.

    Parameters
    ----------
    folder : Path
        The results folder.
    records : bool
        Whether new points are written; a plan writes none.
    """

    def __init__(self, folder: Path, records: bool) -> None:
        self.folder, self.records = folder, records
        self._known: dict[tuple[str, int], Points] = {}
        self._read()

    def _read(self) -> None:
        path = self.folder / ASKED
        if path.is_file():
            with files.telling(self.folder), opened(path, self.folder) as file:
                for raw in files.lines_of(file):
                    self._take(raw)

    def _take(self, raw: bytes) -> None:
        """Keep a line that is whole; of one that is torn the points are made anew."""
        row = files.parsed(raw) if files.is_sealed(raw) else None
        if row and all(isinstance(row.get(key), kind) for key, kind in KEYS.items()):
            points = [point for point in row["points"] if isinstance(point, dict)]
            self._known.setdefault((row["case"], row["round"]), points)

    def __call__(self, case: str, number: int, make: Callable[[], Points]) -> Points:
        """Return the points of a round: those that were asked for, else new ones.

        Parameters
        ----------
        case : str
            Digest of what the points depend on, the best setting so far too.
        number : int
            The round.
        make : callable
            Returns the points of a round that nobody has asked for before.
        """
        if (case, number) not in self._known:
            points = make()
            if self.records:
                self._write({"case": case, "round": number, "points": points})
            self._known.setdefault((case, number), points)
        return self._known[case, number]

    def _write(self, row: dict[str, Any]) -> None:
        line = files.sealed(files.line(row))
        with files.telling(self.folder), files.locked(self.folder):
            # Another run of the folder may have asked for them meanwhile.
            self._read()
            if (row["case"], row["round"]) in self._known:
                return
            with open(self.folder / ASKED, "a+b", opener=files.careful) as file:
                # A line of a run that was killed may lack its end.
                file.seek(max(file.tell() - 1, 0))
                file.write(b"\n" * (file.read(1) not in (b"", b"\n")) + line)
