"""How the final excess risk of a line changes with n, p or epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.report.curves import Array, Bands, report_runs, runs_in, why
from dp_erm_bench.report.missing import Missing
from dp_erm_bench.results.settings import unchecked_in
from dp_erm_bench.results.statistics import quantile

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Scaling(Bands):
    """Final values of the report runs of one line along an axis.

    Attributes
    ----------
    x : ndarray of shape (k,)
        Values of the axis, increasing.
    ends : tuple of k ndarrays
        Final values of all runs at each of them; inf where a run diverged.
    start : ndarray of shape (k,)
        Mean value at w = 0, beyond which no algorithm need ever be; empty if unknown.
    runs : tuple of str
        The runs of the folder that computed them.
    skipped : mapping of float to str
        Values of the axis that the algorithm cannot serve, and why.
    excess : float
        Largest certified epsilon over the nominal one; infinite where none is proved,
        not a number where it was not asked for.
    unchecked : tuple of str
        Algorithms from outside the package that have not passed `check`.
    """

    x: Array
    ends: tuple[Array, ...]
    start: Array = field(default_factory=lambda: np.empty(0))
    runs: tuple[str, ...] = ()
    skipped: Mapping[float, str] = field(default_factory=dict)
    excess: float = math.nan
    unchecked: tuple[str, ...] = ()

    @property
    def mean(self) -> Array:
        """Return the mean over the runs, shape (k,)."""
        return np.array([runs.mean() for runs in self.ends])

    @property
    def slope(self) -> float:
        """Return the least-squares slope of log mean against log x.

        Not a number with fewer than two points or a mean that is not positive.
        """
        return slope(self.x, self.mean)

    def quantile(self, q: float) -> Array:
        """Return a quantile over the runs, shape (k,)."""
        return np.array([quantile(runs, q) for runs in self.ends])


def slope(x: Array, values: Array) -> float:
    """Return the least-squares slope on log-log scales.

    Parameters
    ----------
    x, values : ndarray of shape (k,)
        Not a number is returned unless all are positive and finite and k >= 2.
    """
    usable = np.isfinite(values).all() and (values > 0).all()
    if len(x) < 2 or not usable:
        return float("nan")
    across, up = np.log(x), np.log(values)
    across = across - across.mean()
    return float(across @ (up - up.mean()) / (across @ across))


def scaling(table: pd.DataFrame, panel: str, line: str, axis: str) -> Scaling:
    """Return the final excess risks F(w) - F* of a line along an axis.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    panel, line : str
        Labels of the experiment's block.
    axis : str
        The column that varies: `n`, `p` or `epsilon`.

    Returns
    -------
    Scaling
        Without the values at which every run was skipped.

    Raises
    ------
    Missing
        If nothing ran, a run failed or no optimum is certified.
    """
    rows, skipped = _served(table, panel, line)
    first, last = (
        rows.loc[end].sort_values("trial")
        for end in (
            rows.groupby("trial")["iteration"].idxmin(),
            rows.groupby("trial")["iteration"].idxmax(),
        )
    )
    along = last[axis].to_numpy(float)
    x, ends = np.unique(along), _excess(last)
    starts = _excess(first)
    return Scaling(
        x,
        tuple(ends[along == value] for value in x),
        np.array([starts[along == value].mean() for value in x]),
        runs_in(rows),
        _unserved(skipped, axis),
        _proved(rows),
        unchecked_in(rows),
    )


def _served(
    table: pd.DataFrame, panel: str, line: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the report runs of a line that have an end, and those skipped."""
    rows = report_runs(table, panel)
    rows = rows[rows["line"] == line]
    if rows.empty:
        tried = table[(table["panel"] == panel) & (table["line"] == line)]
        raise Missing(why(tried, f"{line} has no report runs"))
    skipped = rows[rows["status"] == "skipped"]
    rows = rows[rows["status"] != "skipped"]
    failed = rows[~rows["status"].isin(["ok", "diverged"])]
    if rows.empty or not failed.empty:
        raise Missing(why(skipped if rows.empty else failed, f"{line} failed"))
    if rows["optimum"].isna().any():
        raise Missing(f"{line} has no certified optimum to compare with")
    return rows, skipped


def _unserved(skipped: pd.DataFrame, axis: str) -> dict[float, str]:
    """Return the values of an axis at which runs were skipped, and why."""
    along = skipped[axis].to_numpy(float)
    places = np.unique(along[~np.isnan(along)])
    return {float(at): why(skipped[along == at], "skipped") for at in places}


def _proved(rows: pd.DataFrame) -> float:
    """Return the largest certified epsilon over the nominal one."""
    quotients = (rows["epsilon_certified"] / rows["epsilon"]).to_numpy(float)
    return math.inf if np.isnan(quotients).any() else float(quotients.max())


def _excess(rows: pd.DataFrame) -> Array:
    """Return F(w) - F*, infinite where F(w) is not a number."""
    excess = (rows["objective"] - rows["optimum"]).to_numpy(float)
    return np.where(np.isnan(excess), np.inf, excess)


def facts(table: pd.DataFrame, panel: str) -> dict[str, Any]:
    """Return one report row of a panel, for captions; `Missing` if there is none."""
    rows = report_runs(table, panel)
    ran = rows[rows["status"].isin(["ok", "diverged"])]
    first = (rows if ran.empty else ran).iloc[0]
    return {str(name): value for name, value in first.items()}
