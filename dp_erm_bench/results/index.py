"""Where the records of a results folder are: an index in little memory."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

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
