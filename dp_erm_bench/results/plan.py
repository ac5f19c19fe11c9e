"""plan.jsonl: which trial belongs to which line of which panel.

Several runs may use one folder at once. Each keeps its lines in a file without a name,
which dies with it, and publishes them under the folder's lock: the plan of an
experiment becomes that of the run that wrote last, a sweep adds to what is there.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from dp_erm_bench.paths import write_atomic
from dp_erm_bench.results.folder import locked, telling
from dp_erm_bench.results.scan import KEY, START, parsed
from dp_erm_bench.results.segment import line

NAME = "plan.jsonl"
LABELS = ("key", "experiment", "panel", "line", "phase", "tuned", "spec")
FLAGS, SPEC = b',"tuned":', b',"spec":'
FILE = re.compile(rb',"file":"(?:[^"\\]|\\.)*","content":"[0-9a-f]*"')
BLOCK = 1 << 20


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
        with telling(self.folder):
            if self._own is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._own = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115
            self._own.seek(0, 2)
            self._own.writelines(map(line, rows))
            with locked(self.folder):
                self._publish(self._own)

    def restore(self) -> None:
        """Publish again if another run has written since; call it under the lock."""
        if self._own is not None and checksum(self.folder) != self.published:
            self._publish(self._own)

    def _publish(self, own: BinaryIO) -> None:
        own.seek(0)
        if self.append:
            _merge(self.folder / NAME, own)
        else:
            write_atomic(
                self.folder / NAME, lambda file: shutil.copyfileobj(own, file, BLOCK)
            )
        self.published = checksum(self.folder)


def read_plan(folder: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the lines of a folder's plan, None for one that is damaged."""
    path = folder / NAME
    if path.is_file():
        with path.open("rb") as file:
            for raw in file:
                row = parsed(raw) if raw.startswith(START) else None
                yield row if row and all(label in row for label in LABELS) else None


def checksum(folder: Path) -> int:
    """Return the checksum of the plan as it stands, -1 if there is none."""
    path = folder / NAME
    if not path.is_file():
        return -1
    with path.open("rb") as file:
        found = 0
        while block := file.read(BLOCK):
            found = zlib.crc32(block, found)
    return found


def _merge(path: Path, own: BinaryIO) -> None:
    """Add a run's lines to the plan.

    A line of the same labels and spec but of another key is replaced: the code or the
    data behind it changed.
    """
    new = {_name(raw): raw[KEY] for raw in own}
    found = [(name, raw[KEY]) for raw in _lines(path) if (name := _name(raw)) in new]
    there = {name for name, key in found if new[name] == key}
    replaced = any(new[name] != key for name, key in found)
    if replaced or len(there) < len(new) or not path.is_file():
        kept = (r for r in _lines(path) if new.get(_name(r), r[KEY]) == r[KEY])
        own.seek(0)
        added = (raw for raw in own if _name(raw) not in there)
        write_atomic(path, lambda file: file.writelines(itertools.chain(kept, added)))


def _name(raw: bytes) -> bytes:
    """Return what identifies a line: its labels and spec, but neither key nor flags.

    A solver's file is code: where it lies and what it holds name no trial.
    """
    labels = raw.partition(FLAGS)[0][KEY.stop :]
    spec = FILE.sub(b"", raw.partition(SPEC)[2], count=1)
    return blake2b(labels + spec, digest_size=16).digest()


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a plan: a torn one is no longer anyone's."""
    if path.is_file():
        with path.open("rb") as file:
            yield from (
                raw for raw in file if raw.startswith(START) and raw[-2:] == b"}\n"
            )
