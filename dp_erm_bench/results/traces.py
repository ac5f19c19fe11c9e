"""What a process that died has left: the trials that it began, and its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from dp_erm_bench.results.scan import is_sealed, parsed


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
    found = Traces({}, {})
    for segment in sorted((folder / "segments").glob(f"{run}-{pid}-*.jsonl")):
        with segment.open("rb") as file:
            for line in file:
                content = parsed(line) or {}
                if "begin" in content:
                    found.begun.update(dict.fromkeys(content["begin"], content["time"]))
                elif "key" in content and is_sealed(line):
                    found.records[content["key"]] = content
    return found
