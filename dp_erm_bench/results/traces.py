"""What a process has left beside its records: which trials it began, and together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.results.index import BEGIN, Entry, is_sealed, parsed
from dp_erm_bench.results.segment import batch_name


class Traces(NamedTuple):
    """The traces of one process.

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
        with segment.open("rb") as file:
            for line in file:
                content = parsed(line) or {}
                if "begin" in content:
                    traces.begun.update(
                        dict.fromkeys(content["begin"], content["time"])
                    )
                elif "key" in content and is_sealed(line):
                    traces.records[content["key"]] = content
    return traces


def mates_of(key: str, batch: str, entry: Entry) -> list[str]:
    """Return the keys of the trials of a recorded batch, in the order of the batch.

    Parameters
    ----------
    key : str
        Of one of them.
    batch : str
        What its record says of the batch (`segment.batch_name`).
    entry : Entry
        Where the record stands.

    Returns
    -------
    list of str
        The key alone if nothing ran with it; empty if the mark of the batch is gone
        or damaged, in all segments of the run.
    """
    if batch == batch_name([key]):
        return [key]
    # A segment that was closed under its process goes on in another one.
    others = sorted(set(entry.segment.parent.glob(f"{entry.run}-*.jsonl")))
    for segment in (entry.segment, *others):
        for keys in _begun(segment, key):
            if batch == batch_name(keys):
                return keys
    return []


def _begun(segment: Path, key: str) -> Iterator[list[str]]:
    """Yield the batches of a segment that a trial was begun in."""
    if not segment.is_file():
        return
    with segment.open("rb") as file:
        for line in file:
            if line.startswith(BEGIN) and key.encode() in line:
                keys = (parsed(line) or {}).get("begin")
                if isinstance(keys, list) and key in keys:
                    yield [str(one) for one in keys]
