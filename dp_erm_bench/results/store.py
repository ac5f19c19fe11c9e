"""The records of a results folder, indexed by key without parsing them.

A folder holds ``segments/*.jsonl`` (one file per writing process, one line per
trial), ``plan.jsonl`` (which trial belongs to which line of which panel) and what is
derived from both.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from dp_erm_bench import paths
from dp_erm_bench.errors import UsageError, number
from dp_erm_bench.registry import QUANTITIES
from dp_erm_bench.results import files
from dp_erm_bench.results.index import STATUSES, Entry, Index
from dp_erm_bench.results.segment import FORMAT

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
        If a newer version of the package wrote into it.
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

    def sizes(self) -> dict[str, int]:
        """Return the length of each segment when it was read."""
        return {path.name: read.size for path, read in self._segments.items()}

    def damage(self) -> dict[str, int | str]:
        """Return the damaged lines of segments, or why one cannot be read, by name."""
        damage = {p.name: r.refused or r.damaged for p, r in self._segments.items()}
        return {name: what for name, what in damage.items() if what}

    def tell(self, manifest: Mapping[str, Any], follows: str) -> None:
        """Print the earlier formats and the damage that a manifest does not name.

        `follows` says how trials without a record go on.
        """
        where, damage, listed = files.typed(self.folder), self.damage(), {}
        if isinstance(manifest.get("damaged"), dict):
            listed = {k: v for k, v in manifest["damaged"].items() if k != files.PLAN}
        lines = []
        known_format = manifest.get("format") == FORMAT
        if not known_format and any(read.older for read in self._segments.values()):
            lines.append(
                "has results of an earlier version; CHANGELOG.md says which to run "
                "again: the command of a run does so, all of them"
            )
        counts = [number for number in damage.values() if isinstance(number, int)]
        if damage != listed and counts:
            damaged = files.plural(sum(counts), "damaged line")
            segments = files.plural(len(counts), "segment")
            lines.append(f"{damaged} in {segments}: trials without a record {follows}")
        if damage != listed:
            refused = {k: v for k, v in damage.items() if isinstance(v, str)}
            lines += [f"segments/{k} cannot be read: {v}" for k, v in refused.items()]
        for line in lines:
            print(f"{where}: {line}", file=sys.stderr)


def segments_of(folder: Path) -> list[Path]:
    """Return the segments of a results folder, oldest first."""
    return paths.listed(folder / "segments", ".jsonl")


def finals_of(record: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the last values of a trial by quantity, as numbers to be minimised.

    Accuracy and AUC are negated. Those of `QUANTITIES` that the trajectory lacks are
    left out, all of them where the trial failed or diverged.
    """
    if record is None or record.get("status") != "ok":
        return {}
    trajectory = record.get("trajectory")
    columns = trajectory if isinstance(trajectory, dict) else {}
    lists = {k: v for k in QUANTITIES if isinstance(v := columns.get(k), list) and v}
    last = {name: number(column[-1]) for name, column in lists.items()}
    return {k: QUANTITIES[k] * v for k, v in last.items() if not math.isnan(v)}


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
    that are neither a record nor a mark, `refused` why it cannot be read, `older`
    whether an earlier format has records in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.damaged = 0
        self.refused = ""
        self.older = False
        self._offset = 0
        self._run, self._format = "", FORMAT

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
            self._run, self._format = _origin(self.path, first)
        file.seek(self._offset)
        for line in files.lines_of(file):
            good = files.is_sealed(line) if self._format > 1 else files.parsed(line)
            if good and line.startswith(files.START) and line[STATUS] == MIDDLE:
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
        self.older |= self._format < FORMAT
        key = line[KEY].decode(errors="replace")
        yield key, Entry(status, *place, cost, self._run)


def _origin(path: Path, first: bytes) -> tuple[str, int]:
    """Return the run that wrote a segment, and its format.

    Segments of the first format have neither run nor checksums. A damaged header makes
    none of them: the file's name tells as well.
    """
    # All formats from 2 on spell and seal it alike.
    header = files.parsed(first) if files.is_sealed(first) else None
    if header is None or type(header.get("segment")) is not int:
        named = RUN.match(path.name)
        return (named[1], FORMAT) if named else ("", 1)
    if header["segment"] > FORMAT:
        raise UsageError(
            f"{path}: is of format {header['segment']}, written by version "
            f"{header.get('version', '?')}; this version reads formats up to "
            f"{FORMAT}"
        )
    return str(header.get("run", "")), header["segment"]
