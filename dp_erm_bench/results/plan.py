"""plan.jsonl: which trial belongs to which line of which panel.

Several runs may use one folder at once. Each keeps its lines in a file without a name,
which dies with it, and publishes them under the folder's lock: the plan of an
experiment becomes that of the run that wrote last, a sweep adds to what is there.

A line ends with ``crc``, as a record does. Before it the last one has ``lines``, how
many there are, and ``sum``, the checksum of those before it: a line that is gone, or
there twice, is noticed, too. Plans of earlier versions have none of these.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

from dp_erm_bench.datasets.spec import identifying
from dp_erm_bench.paths import opened, write_atomic
from dp_erm_bench.results import files
from dp_erm_bench.results.store import KEY

NAME = files.PLAN
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
        own, path = self._own, self.folder / NAME
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
    path = folder / NAME
    with files.telling(folder):
        twofold = _twofold(path)
        for raw in files.checked_lines(path):
            row = None if raw is None or raw[KEY] in twofold else files.parsed(raw)
            good = row and all(isinstance(row.get(k), t) for k, t in LABELS.items())
            yield row if good else None


def damage(folder: Path) -> int:
    """Return the number of lines of a folder's plan that are damaged or gone."""
    return sum(row is None for row in read_plan(folder))


def checksum(folder: Path) -> int:
    """Return the checksum of the plan as it stands, -1 if there is none."""
    if not (folder / NAME).is_file():
        return -1
    with opened(folder / NAME, folder) as file:
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
    stale = not files.has_checksums(path)
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
