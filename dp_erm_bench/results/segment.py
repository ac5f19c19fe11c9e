"""Segments, the write side: each process appends to a file of its own.

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
import json
import math
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from dp_erm_bench.results.folder import removed, telling

FORMAT = 3
"""Raised when results of earlier versions should be made anew, see CHANGELOG."""
NAMED = 16
"""Digits of a digest that names something within a folder."""
CRC = b',"crc":"%08x"}\n'
# `json.dumps` makes an encoder at each call, which costs as much as a short line.
ENCODED = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


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
        self._write(line({"begin": list(keys), "time": round(time.time(), 3)}))

    def append(self, records: Iterable[Mapping[str, Any]], cost: float = 0.0) -> None:
        """Write the records of a batch at once; `cost` is in seconds a trial."""
        self._write(b"".join(encoded(record, cost) for record in records))

    def close(self) -> None:
        """Close the file; what comes later goes to a new one."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _write(self, data: bytes) -> None:
        """Write whole lines; after a failure nothing may follow a torn one."""
        with telling(self.folder):
            try:
                if not self._is_open():
                    self._handle = _new_file(self.folder / "segments", self.run)
                    self._file = _identity(os.fstat(self._handle))
                    data = _header(self.run) + data
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
            found = os.fstat(self._handle)
        except OSError:
            return False
        if _identity(found) != self._file:
            return False
        if found.st_nlink == 0:
            raise removed(self.folder)
        return True


def failed(key: str, status: str, message: str) -> dict[str, Any]:
    """Return the record of a trial that has no trajectory."""
    return {
        "key": key,
        "status": status,
        "message": message,
        "facts": {},
        "trajectory": {},
    }


def batch_name(keys: Iterable[str]) -> str:
    """Return what records say of their batch: a digest of its keys, in order."""
    return sha256(" ".join(keys).encode()).hexdigest()[:NAMED]


def encoded(record: Mapping[str, Any], cost: float = 0.0) -> bytes:
    """Return the line of a record: key, status and cost first, the checksum last."""
    first = {"key": record["key"], "status": record["status"], "cost": round(cost, 6)}
    return sealed(line({**first, **record}))


def line(value: Any) -> bytes:
    """Return a value as a line of compact JSON; NaN and infinity become null."""
    try:
        text = ENCODED(value)
    except ValueError:
        text = ENCODED(_finite(value))
    return text.encode() + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _header(run: str) -> bytes:
    # By name: the top package names the upper layers in its annotations.
    version = importlib.import_module("dp_erm_bench").__version__
    return sealed(line({"segment": FORMAT, "run": run, "version": version}))


def sealed(text: bytes) -> bytes:
    """Return a line with the checksum of all before it as its last key."""
    body = text.removesuffix(b"}\n")
    return body + CRC % zlib.crc32(body)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _new_file(folder: Path, run: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{run}-{os.getpid()}-{time.time_ns()}.jsonl"
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666)
