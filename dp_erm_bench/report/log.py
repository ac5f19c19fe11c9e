"""The figures' log: which numbers were drawn, what did not run, grid edges."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dp_erm_bench.paths import write_atomic
from dp_erm_bench.report.authors import decoded, source
from dp_erm_bench.report.caption import commit, proof, runs_of, setting
from dp_erm_bench.report.curves import Curves
from dp_erm_bench.report.panels import PanelRuns
from dp_erm_bench.results.runs import read_noted


def write(folder: Path, paper: str, drawn: Sequence[PanelRuns], profile: str) -> Path:
    """Write log.txt beside the figures.

    Parameters
    ----------
    folder : Path
        The figures' folder; choices.csv is read from its parent.
    paper : str
        Name of the experiment.
    drawn : sequence of PanelRuns
        What the table had, panel by panel.
    profile : str
        The profile that was run.
    """
    text = [f"{paper}, profile {profile}", ""]
    for panel in drawn:
        text += [
            *(_panel(panel) if panel.lines else _not_run(panel, paper, profile)),
            "",
        ]
    text += ["Values at an edge of a tuning grid", *edges(folder.parent), ""]
    text += ["Runs", *_runs(drawn, folder.parent), ""]
    if any(panel.panel.authors for panel in drawn):
        text += [f"Dashed curves: {source()}"]
    path = folder / "log.txt"
    content = "\n".join(text) + "\n"
    write_atomic(path, lambda file: file.write(content.encode()))
    return path


def _runs(drawn: Sequence[PanelRuns], folder: Path) -> list[str]:
    """Return the manifests of all that is drawn."""
    names = runs_of(run for panel in drawn for run in panel.curves)
    lines = [f"  runs/{name}.json: {commit(folder, name)}" for name in names]
    return lines or ["  unknown: the records name none"]


def _not_run(drawn: PanelRuns, paper: str, profile: str) -> list[str]:
    """Say why a panel is not drawn and how to get it."""
    reasons = dict.fromkeys(drawn.missing.values())
    command = f"dp-erm-bench experiment={paper} profile={profile}"
    return [
        f"{drawn.panel.name}: not run ({'; '.join(reasons)}); then: {command}",
    ]


def _panel(drawn: PanelRuns) -> list[str]:
    """Return the final errors and settings of a panel's lines."""
    panel = drawn.panel
    lines = [f"{panel.name}: final errors, relative"]
    lines += [_numbers(line, run) for line, run in drawn.lines.items()]
    for line, runs in drawn.over_epsilon.items():
        lines += [_numbers(f"{line}, epsilon = {e:g}", run) for e, run in runs]
    lines += [f"  not drawn: {name} ({why})" for name, why in drawn.missing.items()]
    unused = decoded(panel.name).keys() - set(panel.authors.values())
    lines += [f"  decoded, not drawn: {name}" for name in sorted(unused)]
    return lines


def _numbers(name: str, run: Curves) -> str:
    values = (run.median[-1], run.mean[-1], run.low[-1], run.high[-1])
    numbers = ", ".join(
        f"{word} {value:.4g}"
        for word, value in zip(("median", "mean", "min", "max"), values, strict=True)
    )
    return (
        f"  {name}: {numbers}; {run.n_seeds} seeds, {run.passes[-1]:g} passes; "
        f"certified epsilon {proof(run)}; {setting(run)}"
    )


def edges(folder: Path) -> list[str]:
    """Return the chosen values that lie on an edge of their grid.

    Parameters
    ----------
    folder : Path
        Folder with the runner's choices.csv.
    """
    import pandas as pd

    try:
        text = read_noted(folder, "choices.csv")
        if text is None:
            return ["  unknown: there is no choices.csv"]
        table = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
        return list(_edge_lines(table.to_dict("records"))) or ["  none"]
    except (ValueError, KeyError):
        return ["  unknown: choices.csv is damaged"]


def _edge_lines(rows: Iterable[Mapping[Any, Any]]) -> Iterator[str]:
    return (
        f"  {row['panel']} / {row['line']}, epsilon = {row['epsilon']}: "
        f"{row['edges']} in {row['chosen']}"
        for row in rows
        if row["edges"]
    )
