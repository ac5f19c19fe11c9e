"""What came of a folder's trials: results with what is certified, and failures."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dp_erm_bench.report.html.parts import Room, Table, cell, table
from dp_erm_bench.report.view import FIRST
from dp_erm_bench.results.settings import final_rows
from dp_erm_bench.results.statistics import quantile

if TYPE_CHECKING:
    import pandas as pd

RAN = ("ok", "diverged")
"""Statuses of trials that have a result."""

TUNE = "tune"
GROUP = ["panel", "line", "epsilon"]
SAME = ("delta", "adjacency", "calibration", "accountant")
"""Columns that are alike in all runs of a line, as a rule."""


def results(rows: pd.DataFrame, room: Room) -> Table:
    """Return the ends of the runs that judge, and what is certified of them.

    Parameters
    ----------
    rows : DataFrame
        What `load_results` returns.
    room : Room
        Of the page.

    Returns
    -------
    Table
        Per panel, line and epsilon: the median of the first of `FIRST` that there is,
        the largest certified epsilon, and all uses of the data that nobody charged.
    """
    ends = final_rows(rows[rows["status"].isin(RAN) & rows["phase"].ne(TUNE)])
    y = next((name for name in FIRST if name in ends and ends[name].notna().any()), "")
    found = []
    for key, own in ends.groupby(GROUP, sort=False, dropna=False):
        values = own[y].dropna() if y else ()
        median = float(quantile(values, 0.5)) if len(values) else ""
        proved = own["epsilon_certified"]
        nominal = float(own["epsilon"].iloc[0])
        known = bool(proved.notna().all())
        within = known and bool(proved.max() <= nominal * (1 + 1e-6))
        uses = {use for text in own["uncharged"].dropna() for use in text.split(",")}
        shown = [cell(value) for value in (*key, len(own), median)]
        largest = proved.max() if known else "unknown"
        shown += [cell(largest, "" if within else "open")]
        shown += [cell(", ".join(sorted(uses - {""})) or "nothing")]
        alike = (own[name].dropna().unique() for name in SAME)
        found.append([*shown, *(cell(", ".join(map(_text, one))) for one in alike)])
    head = [*GROUP, "runs", f"median {y}".strip(), "certified epsilon", "not charged"]
    return table([*head, *SAME], found, room)


def failures(rows: pd.DataFrame, room: Room) -> Table:
    """Return how many trials have no result, by status and reason."""
    failed = final_rows(rows[rows["status"].ne("ok")])
    reasons = [str(text).partition("\n")[0] for text in failed["message"].fillna("")]
    counts = Counter(zip(failed["status"], reasons, strict=True)).most_common()
    lines = ((cell(count), *map(cell, key)) for key, count in counts)
    return table(["trials", "status", "reason"], lines, room)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
