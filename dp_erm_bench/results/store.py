"""Records of trials in append-only segments, and the plan that names them.

A folder holds ``segments/*.jsonl`` (one file per writing process, one line per
trial), ``plan.jsonl`` (which trial belongs to which line of which panel) and what is
derived from both. A segment is never edited and never continued by another process,
so a torn last line costs that one record and nothing else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dp_erm_bench.paths import write_atomic
from dp_erm_bench.results.segment import line

FINISHED = ("ok", "skipped", "diverged")
FAILED = ("error", "timeout", "killed")
PLAN = "plan.jsonl"
START = b'{"key":"'
MIDDLE = b'","status":"'
KEY = slice(len(START), len(START) + 64)
AFTER_KEY = slice(KEY.stop, KEY.stop + len(MIDDLE))


class Entry(NamedTuple):
    """Where a record stands: its status, segment, offset and length in bytes."""

    status: str
    segment: Path
    offset: int
    length: int


class Store:
    """The records of a results folder, indexed by key without parsing them.

    Parameters
    ----------
    folder : Path
        The results folder; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.index: dict[str, Entry] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read all segments again.

        Of several records of one key a finished one is kept, else the latest.
        """
        self.index = {}
        for segment in segments_of(self.folder):
            for key, entry in _entries(segment):
                old = self.index.get(key)
                if old is None or not _better(old.status, entry.status):
                    self.index[key] = entry

    def statuses(self) -> dict[str, str]:
        """Return the status of every recorded trial by key."""
        return {key: entry.status for key, entry in self.index.items()}

    def record(self, key: str) -> dict[str, Any] | None:
        """Return a record, or None if there is none or it cannot be parsed."""
        return next(self.records([key]))

    def records(self, keys: Iterable[str]) -> Iterator[dict[str, Any] | None]:
        """Yield the records of keys in the order given, None where `record` would."""
        with ExitStack() as stack:
            files: dict[Path, BinaryIO] = {}
            for key in keys:
                entry = self.index.get(key)
                if entry is not None and entry.segment not in files:
                    opened = stack.enter_context(entry.segment.open("rb"))
                    files[entry.segment] = opened
                yield None if entry is None else _parsed(entry, files[entry.segment])

    @property
    def plan_file(self) -> Path:
        """Return the path of the plan."""
        return self.folder / PLAN

    def plan(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the plan; a torn last line is left out."""
        if self.plan_file.is_file():
            with self.plan_file.open("rb") as file:
                yield from (json.loads(row) for row in file if row.endswith(b"}\n"))

    def replace_plan(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Replace the plan, atomically."""
        text = map(line, lines)
        write_atomic(self.plan_file, lambda file: file.writelines(text))

    def append_plan(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Add lines to the plan that `replace_plan` has begun."""
        with self.plan_file.open("ab") as file:
            file.writelines(map(line, lines))


def segments_of(folder: Path) -> list[Path]:
    """Return the segments of a results folder, oldest first."""
    return sorted((folder / "segments").glob("*.jsonl"))


def final_objective(record: Mapping[str, Any] | None) -> float:
    """Return the last objective of a trial; infinity if it failed or diverged."""
    if record is None or record.get("status") != "ok":
        return math.inf
    objective = (record.get("trajectory") or {}).get("objective") or [None]
    return math.inf if objective[-1] is None else float(objective[-1])


def _entries(segment: Path) -> Iterator[tuple[str, Entry]]:
    offset = 0
    with segment.open("rb") as file:
        for line in file:
            whole = line.startswith(START) and line.endswith(b"}\n")
            if whole and line[AFTER_KEY] == MIDDLE:
                status = line[AFTER_KEY.stop : line.index(b'"', AFTER_KEY.stop)]
                entry = Entry(status.decode(), segment, offset, len(line))
                yield line[KEY].decode(), entry
            offset += len(line)


def _better(old: str, new: str) -> bool:
    return old in FINISHED and new not in FINISHED


def _parsed(entry: Entry, file: BinaryIO) -> dict[str, Any] | None:
    file.seek(entry.offset)
    try:
        record: dict[str, Any] = json.loads(file.read(entry.length))
    except ValueError:
        return None
    return record
