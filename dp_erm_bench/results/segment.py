"""Segments: what each process appends to a file of its own, and what a line of it says.

A segment is a file of lines. The first says who writes: ``{"segment":2,"run":...,
"version":...}``. ``{"begin":[keys],"time":...}`` stands before the records of a batch
that was begun; a begun key without a record tells what a process was at when it died.
A record starts with ``key`` and ``status``. Its ``batch`` names the trials that ran
with it: a digest of their keys, which the mark lists. It and the first line end with
``crc``, the checksum of all bytes before it. A segment is never edited and never
continued by another process, so a torn last line costs that one record and nothing
else.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.results import files

FORMAT = 3
"""Raised when results of earlier versions should be made anew, see CHANGELOG."""
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
    for segment in sorted((folder / "segments").glob(f"{run}-{pid}-*.jsonl")):
        for text, content in _contents(segment):
            if "begin" in content:
                traces.begun.update(dict.fromkeys(content["begin"], content["time"]))
            elif "key" in content and files.is_sealed(text):
                traces.records[content["key"]] = content
    return traces


def _contents(segment: Path, word: str = "") -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the lines of a segment that hold a word, with the objects in them."""
    if segment.is_file():
        with segment.open("rb") as file:
            for text in file:
                if word.encode() in text:
                    yield text, files.parsed(text) or {}


def mates_of(key: str, batch: str, segment: Path, run: str) -> list[str]:
    """Return the keys of the trials of a recorded batch, in the order of the batch.

    Parameters
    ----------
    key : str
        Of one of them.
    batch : str
        The name of its batch (`batch_name`).
    segment : Path
        The segment that holds the record.
    run : str
        The run that wrote it.

    Returns
    -------
    list of str
        The key alone if nothing ran with it; empty if the mark of the batch is gone
        or damaged, in all segments of the run.
    """
    if batch == batch_name([key]):
        return [key]
    # A segment that was closed under its process goes on in another one.
    others = sorted(set(segment.parent.glob(f"{run}-*.jsonl")))
    for path in (segment, *others):
        for _, content in _contents(path, key):
            keys = content.get("begin")
            if isinstance(keys, list) and batch == batch_name(map(str, keys)):
                return [str(one) for one in keys]
    return []
