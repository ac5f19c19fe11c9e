"""The store of a results folder: the records, the plan, and the points of searches.

**records.jsonl** contains the records. All processes of all runs append lines to it,
under the file's lock. A *mark*, ``{"begin":[keys],"batch":...,"run":...,"time":...}``,
marks the start of a batch. It shows which trials a process was running when it died,
and which trials ran together. A record starts with ``key`` and ``status``, so that
records are found by key without parsing them. Its ``batch`` is that of the mark, a
digest of the keys. Its ``run`` is the run that computed it.

**plan.jsonl** assigns each trial to a line of a panel. Several runs may use one folder
at once. Each keeps its lines in a temporary file without a name, which vanishes with
the process, and publishes them under the folder's lock. The plan of an experiment is
replaced by the plan of the run that wrote last; a sweep adds to the existing plan. The
last line contains, before its ``crc``, the number of ``lines`` and the checksum ``sum``
of the lines before it. Missing and repeated lines are thus noticed.

**asked.jsonl** contains the points that searches tried, so that a resumed run tries the
same points. The points depend on the random numbers of a library, and another version
could give other points in the middle of a run. A line names a case, one of its rounds,
and the points.

Each line ends with ``crc``, the checksum of all bytes before it. A torn or damaged line
is dropped with a message, and its trial runs again.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from hashlib import blake2b, sha256
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dp_erm_bench import paths
from dp_erm_bench.errors import real_number
from dp_erm_bench.paths import open_inside, write_atomic
from dp_erm_bench.registry import QUANTITIES
from dp_erm_bench.results import files
from dp_erm_bench.results.files import RECORDS

FINISHED = ("ok", "skipped", "diverged")
FAILED = ("error", "timeout", "killed")
STATUSES = (*FINISHED, *FAILED)
BEGIN = b'{"begin":'
BATCH = b'"batch":"'
MIDDLE = b'","status":"'
KEY = slice(len(files.START), len(files.START) + 64)
STATUS = slice(KEY.stop, KEY.stop + len(MIDDLE))
CODES = {status.encode(): code for code, status in enumerate(STATUSES)}
BITS = 3
"""Number of bits that an index entry has for the code of the status."""

LARGEST = 1 << 40
"""Largest size of a file of records, in bytes."""

NAMED = 16
"""Number of digits of a digest that is used as a name within a folder."""

SHOWN = 5
"""Largest number of damaged lines that a message lists."""


class RecordWriter:
    """Appends the marks and the records of a run to a results folder.

    Parameters
    ----------
    folder : Path
        The results folder, which must exist.
    run : str
        Id of the run.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.path, self.run = folder / RECORDS, run

    def begin(self, keys: Sequence[str]) -> None:
        """Mark the trials of a batch as begun.

        Raises
        ------
        UsageError
            If the folder is gone, or the file cannot be written. `append` raises this
            error, too.
        """
        mark = {"begin": list(keys), "batch": batch_name(keys), "run": self.run}
        line = files.compact_json({**mark, "time": round(time.time(), 3)})
        files.append_lines(self.path, files.add_checksum(line))

    def append(self, records: Iterable[Mapping[str, Any]], cost: float = 0.0) -> None:
        """Write the records of a batch at once; `cost` is in seconds per trial."""
        lines = [encode_record(record, cost, self.run) for record in records]
        files.append_lines(self.path, b"".join(lines))

    def copy(self, lines: bytes) -> None:
        """Append whole lines that a process of the run wrote on another host."""
        files.append_lines(self.path, lines)


def failed_record(key: str, status: str, message: str) -> dict[str, Any]:
    """Return the record of a trial that has no trajectory.

    Parameters
    ----------
    key : str
        Key of the trial.
    status : str
        One of `STATUSES`.
    message : str
        Reason, for the user.
    """
    reason = {"key": key, "status": status, "message": message}
    return {**reason, "facts": {}, "trajectory": {}}


def batch_name(keys: Iterable[str]) -> str:
    """Return the name of a batch in its records, a digest of its keys in order."""
    return sha256(" ".join(keys).encode()).hexdigest()[:NAMED]


def encode_record(record: Mapping[str, Any], cost: float = 0.0, run: str = "") -> bytes:
    """Return a record as a line of the file, with key, status, cost and run first.

    Parameters
    ----------
    record : mapping
        The record of a trial.
    cost : float
        Seconds that the trial took.
    run : str
        Id of the run, unless the record names one.
    """
    first = {"key": record["key"], "status": record["status"], "cost": round(cost, 6)}
    return files.add_checksum(files.compact_json({**first, "run": run, **record}))


class Traces(NamedTuple):
    """The trials that a process began, and those that it recorded.

    Attributes
    ----------
    begun : dict of str to float
        The time at which each trial began, in seconds since 1970.
    records : dict of str to dict
        The records that were written completely.
    """

    begun: dict[str, float]
    records: dict[str, dict[str, Any]]


def traces_of(folder: Path, offset: int, run: str, keys: set[str]) -> Traces:
    """Return the marks and records that a run has written for some trials.

    Other processes may have written much in between, so only lines of these trials are
    parsed.

    Parameters
    ----------
    folder : Path
        A results folder.
    offset : int
        Position in the file of records at which to start, in bytes.
    run : str
        Id of the run.
    keys : set of str
        Keys of the trials.
    """
    traces = Traces({}, {})
    for text in _lines_from(folder, offset):
        if (
            not text.startswith(BEGIN)
            and text[KEY].decode(errors="replace") not in keys
        ):
            continue
        content = files.parse_object(text) if files.is_sealed(text) else None
        if content is None or content.get("run") != run:
            continue
        if content.get("key") in keys:
            traces.records[content["key"]] = content
        for key in keys.intersection(content.get("begin", ())):
            traces.begun[key] = content["time"]
    return traces


def _lines_from(folder: Path, offset: int) -> Iterator[bytes]:
    """Yield the complete lines of a folder's records after a position in the file."""
    with contextlib.suppress(FileNotFoundError), (folder / RECORDS).open("rb") as file:
        file.seek(offset)
        yield from (line for line in files.lines_of(file) if line.endswith(b"\n"))


def take_lines(folder: Path) -> bytes:
    """Return all complete lines of a folder's file of records, and remove the file."""
    lines = b"".join(_lines_from(folder, 0))
    (folder / RECORDS).unlink(missing_ok=True)
    return lines


class Store:
    """The records of a results folder, by the keys of their trials.

    There may be 10^6 records, so only the key, status and place of each are kept in
    memory.

    Parameters
    ----------
    folder : Path
        The results folder; it need not exist yet.

    Attributes
    ----------
    size : int
        Size of the file in bytes when it was read; -1 if there was no file.
    damaged : list of int
        Numbers of the lines, starting at 1, that are neither a record nor a mark.
    refused : str
        Reason why the file cannot be read; empty if it can.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / RECORDS
        self.size, self.refused = -1, ""
        self.damaged: list[int] = []
        self._places: dict[str, int] = {}
        self._marks: dict[bytes, int] = {}
        self._offset = self._line = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the lines that were appended since the last call.

        If a key has several records, a finished record is kept, or else the latest. A
        last line without an end is torn or still being written; the next call reads it
        again.
        """
        try:
            self.size, self.refused = files.size_of(self.path), ""
            if self.size != self._offset and self.path.exists():
                with open_inside(self.path, self.folder, LARGEST) as file:
                    file.seek(self._offset)
                    for line in files.lines_of(file):
                        if line[-1:] != b"\n" and len(line) < paths.LARGEST_TEXT:
                            break  # the rest of the line may follow later
                        self._keep_line(line)
        except OSError as error:
            self.refused = error.strerror or str(error)

    def _keep_line(self, line: bytes) -> None:
        """Store the place of a line if it is a complete record."""
        self._line += 1
        end = line.find(b'"', STATUS.stop)
        code = CODES.get(line[STATUS.stop : end])
        if not files.is_sealed(line):
            self.damaged.append(self._line)
        elif (
            line.startswith(files.START) and line[STATUS] == MIDDLE and code is not None
        ):
            key = line[KEY].decode(errors="replace")
            old = self._places.get(key, ~0) & ((1 << BITS) - 1)
            if old >= len(FINISHED) or code < len(FINISHED):
                self._places[key] = self._offset << BITS | code
        elif not line.startswith(BEGIN):
            self.damaged.append(self._line)
        self._offset += len(line)

    def __contains__(self, key: object) -> bool:
        """Return whether a trial has a record."""
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        """Yield the keys in the order in which they were first recorded."""
        return iter(self._places)

    def __len__(self) -> int:
        """Return the number of trials that have a record."""
        return len(self._places)

    def status(self, key: str) -> str | None:
        """Return the status of a trial; None if it has no record."""
        place = self._places.get(key)
        return None if place is None else STATUSES[place & ((1 << BITS) - 1)]

    def record(self, key: str) -> dict[str, Any] | None:
        """Return the record of a trial; None if it is missing or cannot be read."""
        return next(self.records([key]))

    def records(self, keys: Iterable[str]) -> Iterator[dict[str, Any] | None]:
        """Yield the records of keys in the order given; None where `record` is None."""
        with contextlib.ExitStack() as stack:
            file = None
            for key in keys:
                if file is None and key in self:
                    with contextlib.suppress(OSError):
                        file = open_inside(self.path, self.folder, LARGEST)
                        stack.enter_context(file)
                yield self._read_record(key, file)

    def _read_record(self, key: str, file: BinaryIO | None) -> dict[str, Any] | None:
        if file is None or key not in self:
            return None
        file.seek(self._places[key] >> BITS)
        record = files.parse_object(file.readline(paths.LARGEST_TEXT))
        same = record and (record["key"], record["status"]) == (key, self.status(key))
        return record if same else None

    def keys_of_batch(self, key: str, batch: str) -> list[str]:
        """Return the keys of the trials of a recorded batch, in the order of the batch.

        Parameters
        ----------
        key : str
            Key of a trial of the batch that has a record.
        batch : str
            The name of the batch (`batch_name`).

        Returns
        -------
        list of str
            Only the given key if the trial ran alone. Empty if the mark of the batch is
            missing or damaged.
        """
        if batch == batch_name([key]):
            return [key]
        with (
            contextlib.suppress(OSError),
            open_inside(self.path, self.folder, LARGEST) as f,
        ):
            if not self._marks:
                self._marks = dict(_marks_in(f))
            f.seek(self._marks.get(batch.encode(), f.seek(0, 2)))
            mark = files.parse_object(f.readline(paths.LARGEST_TEXT)) or {}
            keys = [str(one) for one in mark.get("begin", ())]
            if batch == batch_name(keys):
                return keys
        return []

    def damage(self) -> str:
        """Return a phrase on damaged lines, or the reason why the file cannot be read.

        The phrase is empty if the whole file can be read.
        """
        if self.refused:
            return f"{RECORDS} cannot be read: {self.refused}"
        if not self.damaged:
            return ""
        named = ", ".join(map(str, self.damaged[:SHOWN]))
        more = len(self.damaged) - SHOWN
        rest = f" and {more} more" if more > 0 else ""
        return f"{RECORDS}: line{'s' * (len(self.damaged) > 1)} {named}{rest} damaged"


def _marks_in(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the names of batches and the positions of their marks in the file."""
    place = 0
    for line in files.lines_of(file):
        if line.startswith(BEGIN) and files.is_sealed(line):
            name = line.rfind(BATCH) + len(BATCH)
            yield line[name : name + NAMED], place
        place += len(line)


def finals_of(record: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the last values of a trial by quantity, as numbers to be minimised.

    Quantities for which higher is better are negated. Quantities of `QUANTITIES` that
    the trajectory lacks are left out. The result is empty if the trial failed or
    diverged.
    """
    if record is None or record.get("status") != "ok":
        return {}
    trajectory = record.get("trajectory")
    columns = trajectory if isinstance(trajectory, dict) else {}
    lists = {k: v for k in QUANTITIES if isinstance(v := columns.get(k), list) and v}
    last = {name: real_number(column[-1]) for name, column in lists.items()}
    return {k: QUANTITIES[k] * v for k, v in last.items() if not math.isnan(v)}


def error_of(record: Mapping[str, Any] | None, quantity: str) -> float:
    """Return the last error of a trial; infinite if it failed or diverged.

    Parameters
    ----------
    record : mapping or None
        The record of the trial, if it has one.
    quantity : str
        One of `QUANTITIES`. For the objective, the error is F / F* - 1 if F* is known.
        For quantities of at most 1 for which higher is better, it is 1 minus the value.
    """
    value = finals_of(record).get(quantity, math.inf)
    if record is None or math.isinf(value):
        return math.inf
    optimum = real_number((record.get("facts") or {}).get("optimum"))
    if quantity == "objective" and optimum > 0.0:
        return value / optimum - 1.0
    return value if QUANTITIES[quantity] > 0 else 1.0 + value


LABELS = {
    **dict.fromkeys(("key", "experiment", "panel", "line", "phase"), str),
    **{"tuned": bool, "spec": dict},
}
FLAGS = b',"tuned":'
SPEC = b',"spec":'
FILE = re.compile(rb',"file":"(?:[^"\\]|\\.)*","content":"[0-9a-f]*"')


class Plan:
    """The plan of one run, published into its folder.

    Parameters
    ----------
    folder : Path
        The results folder.
    append : bool
        Whether to keep the lines of other runs.

    Attributes
    ----------
    published : int
        Checksum of the file as this run last wrote it; -1 if it has not written it.
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
        """Delete the run's copy of its lines; ignore errors, such as a full disk."""
        if self._own is not None:
            with contextlib.suppress(OSError):
                self._own.close()

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add lines, and publish them together with the earlier ones."""
        with files.translate_os_errors(self.folder):
            if self._own is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._own = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
            before = self._own.seek(0, 2)
            self._own.writelines(map(files.compact_json, rows))
            new = self._own.tell() > before or self.published == -1
            with files.lock_folder(self.folder):
                self.restore(new)

    def restore(self, new: bool = False) -> None:
        """Publish the plan again if lines are new, or if another run has written since.

        The caller must hold the lock of the folder.
        """
        own, path = self._own, self.folder / files.PLAN
        if own is None or not (new or plan_checksum(self.folder) != self.published):
            return
        own.seek(0)
        if self.append:
            _merge_plan(path, own)
        else:
            _write_plan(path, own)
        self.published = plan_checksum(self.folder)


def read_plan(folder: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the lines of a folder's plan, with None for each damaged or missing one.

    Raises
    ------
    UsageError
        If the plan cannot be read, or is not a file inside the folder.
    """
    with files.translate_os_errors(folder):
        for raw in files.checked_lines(folder / files.PLAN):
            row = None if raw is None else files.parse_object(raw)
            good = row and all(isinstance(row.get(k), t) for k, t in LABELS.items())
            yield row if good else None


def planned_lines(
    folder: Path, keys: Set[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the intact lines of a folder's plan, for some trials or for all."""
    for line in read_plan(folder):
        if line is not None and (keys is None or line["key"] in keys):
            yield line


def plan_checksum(folder: Path) -> int:
    """Return the checksum of a folder's current plan; -1 if there is none."""
    if not (folder / files.PLAN).is_file():
        return -1
    with open_inside(folder / files.PLAN, folder) as file:
        return files.checksum_of(file)


def _write_plan(path: Path, lines: Iterable[bytes]) -> None:
    write_atomic(path, lambda file: file.writelines(files.sealed_lines(lines)))


def _merge_plan(path: Path, own: BinaryIO) -> None:
    """Add a run's lines to the plan.

    A new line replaces an old one with the same labels and spec but another key,
    because code or data have changed. It also replaces an old one with the same labels
    and key whose spec is written differently. Damaged lines are removed.
    """
    new = {_digest_of_name(line): line[KEY] for line in own}
    own.seek(0)
    heads = {_digest_of_head(line) for line in own}
    there: set[bytes] = set()
    gone: set[int] = set()
    for place, raw in enumerate(files.checked_lines(path)):
        if raw is not None and new.get(name := _digest_of_name(raw)) == raw[KEY]:
            there.add(name)
        elif raw is None or name in new or _digest_of_head(raw) in heads:
            gone.add(place)
    if gone or len(there) < len(new) or not path.is_file():
        own.seek(0)
        old = enumerate(files.checked_lines(path))
        kept = (raw for place, raw in old if raw and place not in gone)
        _write_plan(
            path, chain(kept, (raw for raw in own if _digest_of_name(raw) not in there))
        )


def _digest_of_head(raw: bytes) -> bytes:
    """Return the digest of a line's key and labels."""
    return blake2b(raw.partition(FLAGS)[0], digest_size=16).digest()


def _digest_of_name(raw: bytes) -> bytes:
    """Return the digest of a line's labels and spec, without its key and flags.

    The path and the content of a solver's file are ignored, as they are code.
    """
    labels = raw.partition(FLAGS)[0][KEY.stop :]
    spec = FILE.sub(b"", raw.partition(SPEC)[2])
    return blake2b(labels + spec, digest_size=16).digest()


ASKED = "asked.jsonl"
KEYS = {"case": str, "round": int, "points": list}

Points = list[dict[str, Any]]


class Asked:
    """The points that the searches of a results folder have tried.

    Parameters
    ----------
    folder : Path
        The results folder.
    records : bool
        Whether to write new points. A run that only plans does not write them.
    """

    def __init__(self, folder: Path, records: bool) -> None:
        self.folder, self.records = folder, records
        self._known: dict[tuple[str, int], Points] = {}
        self._read_lines()

    def _read_lines(self) -> None:
        path = self.folder / ASKED
        if path.is_file():
            with (
                files.translate_os_errors(self.folder),
                open_inside(path, self.folder) as file,
            ):
                for raw in files.lines_of(file):
                    self._keep_line(raw)

    def _keep_line(self, raw: bytes) -> None:
        """Store the points of a complete line, and ignore other lines."""
        row = files.parse_object(raw) if files.is_sealed(raw) else None
        if row and all(isinstance(row.get(key), kind) for key, kind in KEYS.items()):
            points = [point for point in row["points"] if isinstance(point, dict)]
            self._known.setdefault((row["case"], row["round"]), points)

    def __call__(self, case: str, number: int, make: Callable[[], Points]) -> Points:
        """Return the recorded points of a search's round, or else new points.

        Parameters
        ----------
        case : str
            Digest of all that the points depend on, including the best setting so far.
        number : int
            Number of the round.
        make : callable
            Returns new points, for a round that is not recorded.
        """
        if (case, number) not in self._known:
            points = make()
            if self.records:
                self._write_row({"case": case, "round": number, "points": points})
            self._known.setdefault((case, number), points)
        return self._known[case, number]

    def _write_row(self, row: dict[str, Any]) -> None:
        with files.translate_os_errors(self.folder), files.lock_folder(self.folder):
            # Another run of the folder may have written this round in the meantime.
            self._read_lines()
            if (row["case"], row["round"]) not in self._known:
                line = files.add_checksum(files.compact_json(row))
                files.append_lines(self.folder / ASKED, line)
