"""What is made of a results folder: its table, figures and claims."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.plugins.names import is_file
from dp_erm_bench.report.make import CLAIMS, draw_and_judge, drawn_last, of_today
from dp_erm_bench.results.runs import note_ended, read_manifest, read_noted

SHOWN = {"figure": 3, "statement": 7, "measured": 5, "threshold": 2, "value": 2}
"""Columns of the claims on the terminal and their share of its width."""

PLAIN_WIDTH = 140
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
    note_ended(folder)
    config = _config(folder)
    if config.get("figures"):
        _draw_again(folder, config)
        report(folder)
    print(f"results: {folder / 'results.parquet'}", file=sys.stderr)


def _draw_again(folder: Path, config: Mapping[str, Any]) -> None:
    """Draw and judge as a manifest says, which may be anyone's.

    Nothing is imported that is not part of the package: the command that made the
    folder names its own modules.
    """
    figures = of_today(config)["figures"]
    entries = figures if isinstance(figures, list) else [{"kind": ".py"}]
    if any(isinstance(entry, dict) and is_file(entry.get("kind")) for entry in entries):
        print(
            f"{folder}: the manifest names a file or a module of figures that is none "
            "of the package's; it is not imported, the command of the run draws again",
            file=sys.stderr,
        )
        return
    from dp_erm_bench.results.table import UNREADABLE

    try:
        draw_and_judge(folder, config)
    except (*UNREADABLE, MemoryError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{folder}: its manifest or its records do not fit its figures "
            f"({type(error).__name__}): it cannot be drawn"
        ) from error


def report(folder: Path) -> None:
    """Print the claims of a folder and where the figures drawn last are."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=PLAIN_WIDTH)
    claims, drawn = read_noted(folder, CLAIMS), drawn_last(folder)
    if claims is not None and CLAIMS in drawn:
        try:
            console.print(_claims_table(folder.name, claims))
        except (ValueError, LookupError, AttributeError, csv.Error):
            again = f"dp-erm-bench collect {folder} makes it again"
            raise UsageError(f"{folder / CLAIMS}: is damaged; {again}") from None
    for name in drawn:
        if name != CLAIMS:
            print(f"figure: {(folder / name).with_suffix('.pdf')} and .png")
    if not drawn:
        print(f"{folder}: no claims and no figures")


def _claims_table(name: str, claims: str) -> Any:
    """Return the claims as a table for the terminal, with the counts as its title."""
    from rich import box
    from rich.table import Table

    rows = list(csv.DictReader(io.StringIO(claims, newline="")))
    verdicts = [row["verdict"].partition(" (") for row in rows]
    found = [verdict for verdict, _, _ in verdicts]
    counts = ", ".join(f"{found.count(v)} {v}" for v in dict.fromkeys(found))
    profiles = ", ".join(sorted({row.get("profile") or "" for row in rows} - {""}))
    about = profiles if profiles.startswith("changed") else f"profile {profiles}"
    heading = f"{name} ({about})" if profiles else name
    table = Table(
        title=f"{heading}: {counts or 'no claims'}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column, share in SHOWN.items():
        table.add_column(column, ratio=share)
    table.add_column("verdict", no_wrap=True)
    for row, (verdict, _, reason) in zip(rows, verdicts, strict=True):
        if reason:
            row["measured"] = reason.removesuffix(")")
        cells = [_cell(row.get(column, "")) for column in SHOWN]
        table.add_row(*cells, verdict, style=COLOUR.get(verdict, ""))
    return table


def _cell(text: str) -> str:
    from rich.markup import escape

    try:
        return f"{float(text):.4g}"
    except ValueError:
        return escape(text)


def _config(folder: Path) -> dict[str, Any]:
    """Return the configuration of the folder's last run, empty if it is lost."""
    config = read_manifest(folder).get("config")
    return config if isinstance(config, dict) else {}
