"""What each tuned line of a results folder chose, and how its choice did."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.results.columns import is_better_higher
from dp_erm_bench.results.runs import read_noted
from dp_erm_bench.results.settings import final_rows, worst_if_lost
from dp_erm_bench.results.statistics import central, quantile, resampled_medians
from dp_erm_bench.results.table import load_results

if TYPE_CHECKING:
    import pandas as pd

CHOICES = "choices.csv"
ERROR, OBJECTIVE = "relative_error", "objective"
PROBLEM = ["panel", "epsilon"]


def tuned(folder: str | Path) -> pd.DataFrame:
    """Return the choices of a results folder, best first on each problem.

    Parameters
    ----------
    folder : str or Path
        Of `dp-erm-bench tune`, or of an experiment that tunes.

    Returns
    -------
    DataFrame
        One row per tuned line: `panel`, `epsilon`, `line`, `algorithm`; `chosen`, a
        dict of all its parameters but defaults; `quantity`, the column that it is
        judged by: what chose, or the relative error in place of the objective where
        there is one; `median` over the `runs` on report seeds with its 95 % bootstrap
        interval `ci_low`, `ci_high`; `open`, why a better setting may lie beyond, and
        `uncharged`. Runs that were lost count as the worst;
        lines whose algorithm refuses the problem are left out.

    Raises
    ------
    UsageError
        If nothing in the folder was tuned.
    """
    import pandas as pd

    folder = Path(folder)
    text = read_noted(folder, CHOICES)
    choices = [*csv.DictReader(io.StringIO(text or "", newline=""))]
    if not choices:
        raise UsageError(f"{folder}: holds no choices; dp-erm-bench tune makes some")
    ends = final_rows(load_results(folder))
    ends = ends[(ends["phase"] == "report") & (ends["status"] != "skipped")]
    found = []
    for choice in choices:
        same = ends["panel"].eq(choice["panel"]) & ends["line"].eq(choice["line"])
        own = ends[same & ends["epsilon"].eq(float(choice["epsilon"]))]
        if len(own):
            found.append({**_told(choice), **_judged(own, choice["quantity"])})
    if not found:
        raise UsageError(f"{folder}: has no runs that report yet")
    table = pd.DataFrame(found)
    ways = table["quantity"].map(is_better_higher)
    order = table["median"].where(~ways, -table["median"])
    places = table.groupby(PROBLEM, sort=False).ngroup()
    ranked = table.assign(_place=places, _order=order)
    ranked = ranked.sort_values(["_place", "_order"], kind="stable", ignore_index=True)
    return ranked.drop(columns=["_place", "_order"])


def _told(choice: dict[str, str]) -> dict[str, Any]:
    params = {**json.loads(choice["params"]), **json.loads(choice["chosen"])}
    labels = {key: choice[key] for key in ("panel", "line", "algorithm", "open")}
    return {**labels, "epsilon": float(choice["epsilon"]), "chosen": params}


def _judged(rows: pd.DataFrame, chosen_by: str) -> dict[str, Any]:
    """Return the median of a line's reports with its interval, and how many."""
    certified = chosen_by == OBJECTIVE and rows[ERROR].notna().any()
    y = ERROR if certified else chosen_by
    values = np.asarray(worst_if_lost(rows, y), dtype=np.float64)
    if is_better_higher(y):
        values = np.where(values == math.inf, 0.0, values)
    low, high = central(resampled_medians(values), 0.95)
    return {
        "quantity": y,
        "median": float(quantile(values, 0.5)),
        "ci_low": low,
        "ci_high": high,
        "runs": len(values),
        "uncharged": str(rows["uncharged"].iloc[0]),
    }
