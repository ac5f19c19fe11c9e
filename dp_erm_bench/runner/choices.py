"""choices.csv: what each tuned line chose, and whether a grid was too small."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.experiment.tune import Choice
from dp_erm_bench.paths import write_atomic
from dp_erm_bench.plugins.names import label
from dp_erm_bench.results.runs import note

NAME = "choices.csv"
COLUMNS = (
    "experiment",
    "panel",
    "line",
    "dataset",
    "standardise",
    "algorithm",
    "params",
    "epsilon",
    "delta",
    "adjacency",
    "calibration",
    "chosen",
    "mean_objective",
    "seeds",
    "settings",
    "edges",
    "extended",
)


def write_choices(folder: Path, experiment: str, choices: Iterable[Choice]) -> None:
    """Write one row per choice; parameters as JSON, edges as `clip top`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_row(experiment, choice) for choice in choices)
    content = text.getvalue().encode()
    write_atomic(folder / NAME, lambda file: file.write(content))
    note(folder, NAME, content)


def edge_lines(choices: Iterable[Choice], skipped: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence per line whose choice is none, or on the edge of a grid.

    `skipped` tells of each skipped trial why.
    """
    for choice in choices:
        where = f"{choice.case.panel} / {choice.case.line}"
        where += f" (epsilon {choice.case.budget['epsilon']})"
        reasons = [skipped.get(key) for key in choice.tried]
        if all(reasons):
            yield f"{where}: every setting was skipped: {reasons[0]}"
        elif choice.mean == float("inf"):
            yield f"{where}: no setting had a finite mean objective"
        elif choice.edges:
            yield f"{where}: best value on the edge of its grid: " + ", ".join(
                f"{edge} ({choice.values[edge.split()[0]]:.3g})"
                for edge in choice.edges
            )


def _row(experiment: str, choice: Choice) -> dict[str, Any]:
    case = choice.case
    dataset = case.problem.spec["dataset"]
    return {
        "experiment": experiment,
        "panel": case.panel,
        "line": case.line,
        "dataset": dataset["name"],
        "standardise": bool(dataset.get("standardise", False)),
        "algorithm": label(case.algorithm),
        "params": json.dumps(dict(case.params), sort_keys=True),
        **case.budget,
        "calibration": case.calibration,
        "chosen": json.dumps(choice.values, sort_keys=True),
        "mean_objective": choice.mean,
        "seeds": choice.n_seeds,
        "settings": choice.n_settings,
        "edges": "; ".join(choice.edges),
        "extended": "; ".join(choice.extended),
    }
