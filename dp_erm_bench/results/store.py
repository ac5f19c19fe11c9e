"""The records of a results folder, indexed by key.

A folder holds ``segments/*.jsonl`` (one file per writing process, one line per
trial), ``plan.jsonl`` (which trial belongs to which line of which panel) and what is
derived from both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from dp_erm_bench.paths import listed, opened
from dp_erm_bench.results.folder import plural, shown
from dp_erm_bench.results.index import FAILED, FINISHED, Entry, SegmentIndex, parsed
from dp_erm_bench.results.segment import FORMAT

__all__ = ["FAILED", "FINISHED", "Entry", "Store"]

OPEN_FILES = 100


class Store:
    """The records of a results folder, indexed by key without parsing them.

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
        self.index: dict[str, Entry] = {}
        self._segments: dict[Path, SegmentIndex] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read what has been appended since the last time.

        Of several records of one key a finished one is kept, else the latest.
        """
        for segment in segments_of(self.folder):
            read = self._segments.setdefault(segment, SegmentIndex(segment))
            for key, entry in read.new():
                old = self.index.get(key)
                if old is None or not _better(old.status, entry.status):
                    self.index[key] = entry

    def record(self, key: str) -> dict[str, Any] | None:
        """Return a record, or None if there is none or it cannot be read."""
        return next(self.records([key]))

    def records(self, keys: Iterable[str]) -> Iterator[dict[str, Any] | None]:
        """Yield the records of keys in the order given, None where `record` would."""
        files: dict[Path, BinaryIO] = {}
        with ExitStack() as stack:
            for key in keys:
                entry = self.index.get(key)
                yield None if entry is None else _read(key, entry, files, stack)

    def sizes(self) -> dict[str, int]:
        """Return the length of each segment when it was read."""
        return {path.name: read.size for path, read in self._segments.items()}

    def damage(self) -> dict[str, int | str]:
        """Return the damaged lines of segments, or why one cannot be read, by name."""
        found = {
            p.name: read.refused or read.damaged for p, read in self._segments.items()
        }
        return {name: damage for name, damage in found.items() if damage}

    def older_lines(self, manifest: Mapping[str, Any]) -> Iterator[str]:
        """Yield a sentence on records of an earlier format, unless a run told of it."""
        known = manifest.get("format") == FORMAT
        if not known and any(read.older for read in self._segments.values()):
            yield (
                f"{shown(self.folder)}: has results of an earlier version; CHANGELOG.md"
                " says which to run again: the command of a run does so, all of them"
            )

    def damage_lines(self, follows: str) -> Iterator[str]:
        """Yield a sentence on damaged lines and one on each unreadable segment.

        Parameters
        ----------
        follows : str
            What becomes of the trials that they held.
        """
        found, where = self.damage(), shown(self.folder)
        counts = [number for number in found.values() if isinstance(number, int)]
        if counts:
            lines = plural(sum(counts), "damaged line")
            segments = plural(len(counts), "segment")
            yield f"{where}: {lines} in {segments}: trials without a record {follows}"
        for name, reason in found.items():
            if isinstance(reason, str):
                yield f"{where}: segments/{name} cannot be read: {reason}"


def segments_of(folder: Path) -> list[Path]:
    """Return the segments of a results folder, oldest first."""
    return listed(folder / "segments", ".jsonl")


def final_objective(record: Mapping[str, Any] | None) -> float:
    """Return the last objective of a trial; infinity if it failed or diverged."""
    if record is None or record.get("status") != "ok":
        return math.inf
    objective = (record.get("trajectory") or {}).get("objective") or [None]
    return math.inf if objective[-1] is None else float(objective[-1])


def _better(old: str, new: str) -> bool:
    return old in FINISHED and new not in FINISHED


def _read(
    key: str, entry: Entry, files: dict[Path, BinaryIO], stack: ExitStack
) -> dict[str, Any] | None:
    try:
        if entry.segment not in files:
            if len(files) == OPEN_FILES:
                stack.close()
                files.clear()
            file = opened(entry.segment, entry.segment.parents[1])
            files[entry.segment] = stack.enter_context(file)
        file = files[entry.segment]
        file.seek(entry.offset)
        record = parsed(file.read(entry.length))
    except OSError:
        return None
    same = record and (record["key"], record["status"]) == (key, entry.status)
    return record if same else None
