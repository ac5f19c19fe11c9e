"""Segments, the read side: where each good record stands, without parsing it."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import LARGEST_TEXT, opened
from dp_erm_bench.results.segment import CRC, FORMAT

FINISHED = ("ok", "skipped", "diverged")
FAILED = ("error", "timeout", "killed")
START = b'{"key":"'
MIDDLE = b'","status":"'
COST = b',"cost":'
HEADER = b'{"segment":'
BEGIN = b'{"begin":'
KEY = slice(len(START), len(START) + 64)
STATUS = slice(KEY.stop, KEY.stop + len(MIDDLE))
TAIL = len(CRC % 0)
TAG = CRC[: CRC.index(b"%")]
RECORD = re.compile(rb'\{"key":"[0-9a-f]{64}"')
RUN = re.compile(r"(\d{20}-\w+-\d+)-")


class Entry(NamedTuple):
    """Where a record stands, with what is asked of it most.

    Attributes
    ----------
    status : str
        How its trial ended.
    segment : Path
        File that holds it.
    offset, length : int
        Where, in bytes.
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


class SegmentIndex:
    """Where the records of a segment stand, as far as it has been read.

    Parameters
    ----------
    segment : Path
        The file.

    Attributes
    ----------
    size : int
        Its length when it was read last; -1 of what is no file.
    damaged : int
        Lines that are neither a record nor a mark.
    refused : str
        Why it cannot be read, if so.
    older : bool
        Whether an earlier format has records in it.
    """

    def __init__(self, segment: Path) -> None:
        self.segment = segment
        self.size = 0
        self.damaged = 0
        self.refused = ""
        self.older = False
        self._offset = 0
        self._format = FORMAT
        self._run = ""
        self._sealed = False

    def new(self) -> Iterator[tuple[str, Entry]]:
        """Yield key and entry of the records since the last call.

        A last line without its end is read again by the next call: it is torn, or
        still being written. Of a damaged line those parts count that are whole
        records: it has lost an end.

        Raises
        ------
        UsageError
            If a newer version of the package wrote the segment.
        """
        try:
            self.size = size_of(self.segment)
            if self.size != self._offset:
                yield from self._read()
            self.refused = ""
        except OSError as error:
            self.refused = error.strerror or str(error)

    def _read(self) -> Iterator[tuple[str, Entry]]:
        with opened(self.segment, self.segment.parents[1]) as file:
            if self._offset == 0:
                first = file.readline(LARGEST_TEXT)
                self._run, self._format = _origin(self.segment, first)
                self._sealed = self._format > 1
            file.seek(self._offset)
            for line in lines_of(file):
                good = is_sealed(line) if self._sealed else _is_record(line)
                if good and line.startswith(START) and line[STATUS] == MIDDLE:
                    yield from self._entry(line, 0)
                elif not line.startswith((BEGIN, HEADER)) or START in line:
                    torn = line[-1:] != b"\n" and len(line) < LARGEST_TEXT
                    self.damaged += not torn
                    for start, piece in pieces(line):
                        yield from self._entry(piece, start)
                if line[-1:] == b"\n" or len(line) == LARGEST_TEXT:
                    self._offset += len(line)

    def _entry(self, line: bytes, start: int) -> Iterator[tuple[str, Entry]]:
        """Yield the key and the entry of a record that stands in the current line."""
        end = line.find(b'"', STATUS.stop)
        status = line[STATUS.stop : end].decode(errors="replace")
        if line[STATUS] != MIDDLE or status not in (*FINISHED, *FAILED):
            self.damaged += 1
            return
        place = (self.segment, self._offset + start, len(line))
        entry = Entry(status, *place, _cost(line, end + 1), self._run)
        self.older |= self._format < FORMAT
        yield line[KEY].decode(errors="replace"), entry


def size_of(segment: Path) -> int:
    """Return the length of a segment, -1 if it is no file."""
    return segment.stat().st_size if segment.is_file() else -1


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; of one that is too long, its parts."""
    yield from iter(partial(file.readline, LARGEST_TEXT), b"")


def pieces(line: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield place and text of the whole records in a damaged line.

    Where a line has lost its end, the next one stands in it, too.
    """
    starts = [*(found.start() for found in RECORD.finditer(line)), len(line)]
    for start, stop in pairwise(starts):
        tag = line.find(TAG, start, stop)
        piece = line[start : tag + TAIL - 1]
        if tag >= 0 and is_sealed(piece + b"\n"):
            yield start, piece


def is_sealed(line: bytes) -> bool:
    """Return whether a line ends with the right checksum of all before it."""
    return line[-TAIL:] == CRC % zlib.crc32(line[:-TAIL])


def _origin(segment: Path, first: bytes) -> tuple[str, int]:
    """Return the run that wrote a segment, and its format.

    Segments of the first format have neither run nor checksums. A damaged header makes
    none of them: the file's name tells as well.
    """
    header, named = _header(first), RUN.match(segment.name)
    if header is None:
        return (named[1], FORMAT) if named else ("", 1)
    if header["segment"] > FORMAT:
        raise UsageError(
            f"{segment}: is of format {header['segment']}, written by version "
            f"{header.get('version', '?')}; this version reads formats up to {FORMAT}"
        )
    return str(header.get("run", "")), header["segment"]


def _header(line: bytes) -> dict[str, Any] | None:
    """Return a first line, which all formats from 2 on spell and seal alike."""
    content = parsed(line) if is_sealed(line) else None
    return content if content and type(content.get("segment")) is int else None


def parsed(line: bytes) -> dict[str, Any] | None:
    """Return the object that a line holds, None if it holds none."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _is_record(line: bytes) -> bool:
    content = parsed(line)
    return content is not None and content.get("status") in (*FINISHED, *FAILED)


def _cost(line: bytes, start: int) -> float:
    if line[start : start + len(COST)] != COST:
        return math.nan
    start += len(COST)
    try:
        return float(line[start : line.index(b",", start)])
    except ValueError:
        return math.nan
