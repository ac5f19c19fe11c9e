"""The choices of a results folder, as far as reports tell of them: which are open."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.files import as_it_was
from dp_erm_bench.results.runs import read_noted

CHOICES = "choices.csv"
NEEDED = ("panel", "line", "epsilon", "chosen", "open")

Row = Mapping[str, str]


def read_choices(folder: Path) -> list[Row] | None:
    """Return the rows of a folder's choices.csv, None if there is none.

    Raises
    ------
    UsageError
        If it is damaged.
    """
    text = read_noted(folder, CHOICES)
    if text is None:
        return None
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows: list[Row] = [
            {k: as_it_was(v) if isinstance(v, str) else v for k, v in row.items()}
            for row in reader
        ]
    except csv.Error:
        raise UsageError(f"{CHOICES}: is damaged") from None
    names = set(reader.fieldnames or ())
    if "edges" in names:  # of an earlier version, which told of edges of grids
        rows, names = [{**row, "open": row["edges"]} for row in rows], {*names, "open"}
    cells = [row.get(key) for row in rows for key in NEEDED]
    known = set(NEEDED) <= names
    if not known or not all(isinstance(cell, str) for cell in cells):
        raise UsageError(f"{CHOICES}: is damaged")
    return rows


def listed(rows: Sequence[Row] | None) -> list[str]:
    """Return a line of a log for each choice that is open."""
    if rows is None:
        return [f"  unknown: there is no {CHOICES}"]
    lines = [
        f"  {row['panel']} / {row['line']}, epsilon = {row['epsilon']}: "
        f"{row['open']} in {row['chosen']}"
        for row in rows
        if row["open"]
    ]
    return lines or ["  none"]


def open_of(
    rows: Iterable[Row] | None, panels: Collection[str], lines: Collection[str]
) -> str:
    """Return which lines of some panels have open choices, and why.

    Parameters
    ----------
    rows : iterable of mapping or None
        Of `read_choices`; None if they are damaged.
    panels, lines : collection of str
    """
    if rows is None:
        return "unknown"
    reasons: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["panel"] in panels and row["line"] in lines and row["open"]:
            reasons.setdefault(row["line"], {}).update(
                dict.fromkeys(row["open"].split("; "))
            )
    return "; ".join(f"{line}: {', '.join(why)}" for line, why in reasons.items())
