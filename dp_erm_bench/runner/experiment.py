"""Run the blocks of an experiment or of an ad-hoc sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench.runner.options import RunOptions


def run_experiment(
    blocks: Sequence[Mapping[str, Any]],
    name: str,
    folder: Path,
    options: RunOptions,
) -> int:
    """Run every block of an experiment and leave its table in a folder.

    Parameters
    ----------
    blocks : sequence of mapping
        Plain resolved blocks. Keys: `panel` and `line` (labels), `dataset` (a name
        or a mapping with `name` and overrides of its yaml), `loss`, `penalty`,
        `constraint` ("auto", a name, or a mapping with `name` and parameters),
        `algorithm` (a name or a mapping with `name` and parameters), `budget`
        (`epsilon`, `delta`, `adjacency`), `calibration`, and either `seed` (a sweep)
        or `tune`. A list is an axis; seeds are integers or lists of integers. Where
        a parameter is a list by nature, a list of lists is the axis.
    name : str
        Column `experiment` of the table.
    folder : Path
        Where segments, plan, table, choices and manifest are kept.
    options : RunOptions
        Workers, mode, retry and what the manifest should hold.

    Returns
    -------
    int
        0 if every trial is ok, skipped or diverged (now or earlier), else 1.

    Raises
    ------
    UsageError
        Before anything runs, for any value out of range or unknown name.
    """
    raise NotImplementedError
