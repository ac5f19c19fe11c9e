"""What is made of a results folder: its table, figures and claims."""

from __future__ import annotations

import csv
import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError

SHOWN = ("figure", "statement", "measured", "threshold", "value", "verdict")
COLOUR = {"holds": "green", "fails": "red"}


def collect(folder: Path) -> None:
    """Gather the records of a folder into its table, and draw and judge again.

    Parameters
    ----------
    folder : Path
        A results folder; its manifest says which figures and claims there are.

    Raises
    ------
    UsageError
        If the folder holds no plan of a run.
    """
    from dp_erm_bench.results.table import collect as gather

    if not (folder / "plan.jsonl").is_file():
        raise UsageError(f"{folder}: no results folder, it has no plan.jsonl")
    gather(folder)
    config = _config(folder)
    if config.get("figures"):
        draw_and_judge(folder, config)
        report(folder)
    print(f"results: {folder / 'results.parquet'}", file=sys.stderr)


def draw_and_judge(folder: Path, config: Mapping[str, Any]) -> None:
    """Evaluate the claims and draw the figures of an experiment.

    Parameters
    ----------
    folder : Path
        Its results folder, with the table.
    config : mapping
        The resolved configuration, with `figures` and `claims`.
    """
    from dp_erm_bench.claims import evaluate
    from dp_erm_bench.results.table import load_results

    table = load_results(folder)
    if config.get("claims"):
        evaluate(table, config).to_csv(folder / "claims.csv", index=False)
    if config.get("figures"):
        figures = folder / "figures"
        figures.mkdir(exist_ok=True)
        importlib.import_module(config["figures"]).draw(table, figures, config)


def report(folder: Path) -> None:
    """Print the claims of a folder and where its figures are."""
    from rich.console import Console

    console = Console(soft_wrap=False)
    claims = folder / "claims.csv"
    if claims.is_file():
        console.print(_claims_table(folder.name, claims))
    figures = sorted((folder / "figures").glob("*.png"))
    for figure in figures:
        print(f"figure: {figure.with_suffix('.pdf')} and .png")
    if not claims.is_file() and not figures:
        print(f"{folder}: no claims and no figures")


def _claims_table(name: str, claims: Path) -> Any:
    """Return the claims as a table for the terminal, with the counts as its title."""
    from rich.table import Table

    with claims.open(newline="") as file:
        rows = list(csv.DictReader(file))
    verdicts = [row["verdict"].partition(" (")[0] for row in rows]
    counts = ", ".join(
        f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)
    )
    table = Table(title=f"{name}: {counts or 'no claims'}", title_justify="left")
    for column in SHOWN:
        table.add_column(column, overflow="fold")
    for row, verdict in zip(rows, verdicts, strict=True):
        cells = [_cell(row.get(column, "")) for column in SHOWN]
        table.add_row(*cells, style=COLOUR.get(verdict, ""))
    return table


def _cell(text: str) -> str:
    from rich.markup import escape

    try:
        return f"{float(text):.4g}"
    except ValueError:
        return escape(text)


def _config(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except (OSError, ValueError):
        return {}
    return dict(manifest.get("config") or {})
