"""The lines of a plan: how they are sealed, and which of them count when read."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dp_erm_bench.paths import opened
from dp_erm_bench.results.index import (
    START,
    TAG,
    TAIL,
    is_sealed,
    lines_of,
    parsed,
    pieces,
)
from dp_erm_bench.results.segment import sealed

SPEC = b',"spec":'
SILENT = ("_target_", "usual", "usual_standardised", "usual_regression", "path")
"""Keys of a dataset that a trial's key does not depend on, its content given."""

COUNT = b',"lines":%d,"sum":"%08x"}\n'
COUNTED = re.compile(rb',"lines":(\d{1,18}),"sum":"([0-9a-f]{8})"$')
MARKS = (TAG, b',"sum":"')
"""What stands in a plan whose lines have checksums, and in no other."""
BLOCK = 1 << 16


def sealed_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines with their checksums, the last one with what it tells of all."""
    count = total = 0
    last = b""
    for raw in lines:
        if last:
            last = sealed(last)
            total = zlib.crc32(last[-TAIL:], total)
            yield last
        last, count = raw, count + 1
    if last:
        yield sealed(last.removesuffix(b"}\n") + COUNT % (count, total))


def checked_lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a plan without checksums, None for each that does not count.

    That is one that is damaged, there twice, or gone.
    """
    if not path.is_file():
        return
    read = _checked if has_checksums(path) else _unchecked
    seen: set[int] = set()
    with opened(path, path.parent) as file:
        for raw in read(file):
            known = raw is not None and hash(raw) in seen
            if raw is not None:
                seen.add(hash(raw))
            yield None if known else raw


def _unchecked(file: BinaryIO) -> Iterator[bytes | None]:
    for raw in lines_of(file):
        yield raw.rstrip() + b"\n" if raw.startswith(START) and parsed(raw) else None


def _checked(file: BinaryIO) -> Iterator[bytes | None]:
    lines = total = before = bad = 0
    told = None
    for raw in lines_of(file):
        lines, before, total = lines + 1, total, zlib.crc32(raw[-TAIL:], total)
        good = raw.startswith(START) and is_sealed(raw)
        if not good:
            bad += 1
            yield None
        for piece in (raw,) if good else (p + b"\n" for _, p in pieces(raw)):
            body = piece[:-TAIL]
            counted = COUNTED.search(body) if body.endswith(b'"') else None
            if counted:
                body, told = body[: counted.start()], counted.groups()
            yield body + b"}\n"
    if told == (b"%d" % lines, b"%08x" % before) and not bad:
        return
    missing = int(told[0]) - lines if told else 0
    # Those that are there twice are counted where they are met again.
    yield from [None] * (missing if missing > 0 else not bad and missing == 0)


def has_checksums(path: Path) -> bool:
    """Return whether a plan is of a version that wrote checksums."""
    with opened(path, path.parent) as file:
        text = file.read(BLOCK)
        file.seek(max(0, file.seek(0, 2) - BLOCK))
        text += file.read(BLOCK)
    return any(mark in text for mark in MARKS)


def agree(one: bytes, other: bytes) -> bool:
    """Return whether lines of one key say alike what the key depends on.

    A parameter at its default may be spelled or not.
    """
    if one.partition(SPEC)[2] == other.partition(SPEC)[2]:
        return True
    first, second = _fixed(one), _fixed(other)
    common = first[1].keys() & second[1].keys()
    same = all(first[1][name] == second[1][name] for name in common)
    return bool(same and first[0] == second[0])


def _fixed(raw: bytes) -> tuple[Any, dict[str, Any]]:
    """Return what a line's key depends on: all but the parameters, and these."""
    spec = (parsed(raw) or {}).get("spec")
    spec = dict(spec) if isinstance(spec, dict) else {}
    algorithm, dataset, loss = (
        dict(part) if isinstance(part := spec.get(name), dict) else {}
        for name in ("algorithm", "dataset", "loss")
    )
    params = algorithm.pop("params", None)
    algorithm.pop("file", None)
    loss.pop("file", None)
    told = {key: value for key, value in dataset.items() if key not in SILENT}
    rest = {**spec, "algorithm": algorithm, "dataset": told, "loss": loss}
    return rest, params if isinstance(params, dict) else {}
