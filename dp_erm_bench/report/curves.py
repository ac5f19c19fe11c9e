"""Look up the report runs of one line of a panel in the tidy table.

A *line* consists of the runs of one algorithm. *Report runs* are all runs except those
for tuning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dp_erm_bench.results.settings import RAN
from dp_erm_bench.results.statistics import ZERO, baseline_columns

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[np.float64]


class Missing(Exception):
    """Raised if a figure or claim needs a line that the table lacks; says why."""


class Finals(NamedTuple):
    """The values of all runs of a line at one point, and the data set of each run.

    Attributes
    ----------
    values : ndarray of shape (runs,)
        The values of the runs; infinite where a run diverged.
    sets : ndarray of shape (runs,)
        The seed of each run's data.
    """

    values: Array
    sets: Array

    def units(self, statistic: str = "mean") -> Array:
        """Return the values of all runs, or the average of each data set if several.

        Runs on the same data set are not independent, as they share its records and
        its choice of settings. Averages of different data sets are independent.

        Parameters
        ----------
        statistic : {'mean', 'median'}
            The average over the runs of a data set.
        """
        seeds = np.unique(self.sets)
        if len(seeds) < 2:
            return self.values
        own = [self.values[self.sets == seed] for seed in seeds]
        average = np.median if statistic == "median" else np.mean
        return np.array([average(one) for one in own])


@dataclass(frozen=True, eq=False)
class RunsAlong:
    """Values of the runs of a line along an axis.

    Attributes
    ----------
    x : ndarray of shape (k,)
        Points of the axis, increasing.
    beside : mapping of str to ndarray of shape (k,)
        The median over the runs of each known baseline, by its name (one of
        `BASELINES`).
    rows : DataFrame or None
        The rows of the table behind the values; None if no run was needed.
    """

    x: Array
    _: KW_ONLY
    beside: Mapping[str, Array] = field(default_factory=dict)
    rows: Any = None

    @property
    def samples(self) -> Iterable[Array]:
        """Return the values of all runs at each point of the axis."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class LineErrors(RunsAlong):
    """Relative errors of the report runs of one line.

    Attributes
    ----------
    x : ndarray of shape (k,)
        Passes over the data at the checkpoints; the first one is 0.
    errors : ndarray of shape (seeds, k)
        Relative error to the certified optimum; inf where a run diverged.
    nnz : ndarray of shape (seeds, k)
        Number of non-zero coordinates of the iterates; nan where a run diverged.
    sets : ndarray of shape (seeds,)
        The seed of the data of each run; empty if all runs have the same data.
    zeros : ndarray of shape (seeds,)
        The relative error of w = 0 on the problem of each run; nan if unknown.
    seconds : ndarray of shape (seeds, k)
        Seconds up to each checkpoint: the time of the batch divided by its number of
        trials.
    """

    errors: Array
    nnz: Array
    sets: Array = field(default_factory=lambda: np.empty(0))
    zeros: Array = field(default_factory=lambda: np.empty(0))
    seconds: Array = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def certified_epsilon(self) -> float:
        """Return the certified epsilon, nan if there is none."""
        value = self.rows["epsilon_certified"].iloc[0]
        return math.nan if value is None else float(value)

    @property
    def samples(self) -> Array:
        """Return the errors of all seeds at each checkpoint."""
        return self.errors.T

    @property
    def standing_still(self) -> LineErrors:
        """Return the runs as they would be if they had stayed at the start, w = 0."""
        start = np.zeros(len(self.x), int)
        return replace(self, errors=self.errors[:, start], nnz=self.nnz[:, start])

    def finals(self, passes: float | None = None) -> Finals:
        """Return the errors of all runs after a number of passes, or at their end."""
        errors = self.errors[:, -1]
        if passes is not None:
            found = [np.interp(passes, self.x, run) for run in self.errors]
            errors = np.array([math.inf if math.isnan(x) else x for x in found])
        sets = self.sets if self.sets.size else np.zeros(len(errors))
        return Finals(errors, sets)


def add_failed_lines(table: pd.DataFrame, config: Mapping[str, Any]) -> pd.DataFrame:
    """Return the table with a row for each line that the runner could not start.

    Parameters
    ----------
    table : DataFrame
        The tidy table, which has no row of such lines.
    config : mapping
        The configuration. Its key `not_run`, as in the manifest, is a list of mappings
        with `panel`, `line` and `reason`.

    Returns
    -------
    DataFrame
        The table with one skipped row per such line; its message is the reason.
    """
    import pandas as pd

    entries = list(config.get("not_run") or ())
    if not entries:
        return table
    named = {"panel": "panel", "line": "line", "reason": "message"}
    missing = pd.DataFrame(entries)[[*named]].rename(columns=named)
    return pd.concat([table, missing.assign(phase="tune", status="skipped")])


def report_runs(
    table: pd.DataFrame,
    panel: str,
    line: str | None = None,
    epsilon: float | None = None,
    data_seed: int | None = None,
) -> pd.DataFrame:
    """Return the report rows of a panel, or of one of its lines.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    panel, line : str
        Labels of the experiment's block; all lines if `line` is None.
    epsilon, data_seed : float, int, optional
        Epsilon of the budget and seed of the data, if `line` is given; None for all.

    Raises
    ------
    Missing
        If there is no such row. The message is that of a failed run, if there is one.
    """
    rows = table[table["panel"] == panel]
    # A sweep tunes nothing: all of its runs are reports.
    report, absent = rows[rows["phase"] != "tune"], f"panel {panel}"
    at = ""
    if line is not None and not report.empty:
        rows, report = (some[some["line"] == line] for some in (rows, report))
        absent = line
        if epsilon is not None:
            report = report[np.isclose(report["epsilon"], epsilon)]
            at = f" at epsilon = {epsilon:g}"
        if data_seed is not None:
            report = report[report["dataset_seed"] == data_seed]
    if report.empty:
        raise Missing(commonest_reason(rows, f"{absent} has no report runs{at}"))
    return report


def line_errors(
    table: pd.DataFrame,
    panel: str,
    line: str,
    epsilon: float = 1.0,
    data_seed: int | None = None,
) -> LineErrors:
    """Return the report runs of one line at one epsilon.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    panel, line : str
        Labels of the experiment's block.
    epsilon : float
        Epsilon of the budget.
    data_seed : int or None
        Seed of the data; None for all.

    Raises
    ------
    Missing
        If nothing ran, a run failed or the problem has no certified optimum.
    """
    rows = rows_of_line(report_runs(table, panel, line, epsilon, data_seed), line)
    axis = _axis_of_runs(rows)
    errors, nnz, seconds = (
        _on_one_axis(rows, of, axis) for of in ("relative_error", "nnz", "seconds")
    )
    if np.isnan(errors).all():
        raise Missing(f"{line} has no certified optimum to compare with")
    zeros = (
        baseline_columns(rows, "relative_error")[ZERO].groupby(rows["trial"]).first()
    )
    return LineErrors(
        rows.groupby(axis)["passes"].first().sort_index().to_numpy(float),
        np.where(np.isnan(errors), np.inf, errors),
        nnz,
        rows.groupby("trial")["dataset_seed"].first().sort_index().to_numpy(float),
        zeros.sort_index().to_numpy(float),
        seconds,
        rows=rows,
    )


def _axis_of_runs(rows: pd.DataFrame) -> str:
    """Return the column by which the checkpoints of runs are aligned.

    If data sets were tuned separately, the number of passes at an iteration may differ
    between data sets.
    """
    own = rows.groupby("dataset_seed", dropna=False)["iteration"].unique()
    one = len({tuple(sorted(x)) for x in own}) == 1
    return "iteration" if one or rows["passes"].isna().any() else "passes"


def _on_one_axis(rows: pd.DataFrame, of: str, axis: str) -> Array:
    """Return the values of each run at the union of all checkpoints, shape (trials, k).

    Runs on different data may have different lengths and checkpoints. The values of
    such a run are interpolated between its checkpoints. Beyond its end the last value
    is repeated, or is nan if the run diverged. Values are also nan at checkpoints that
    a run lacks but that other runs on the same data have.
    """
    at = np.unique(rows[axis].to_numpy(float))
    lost = rows["status"].ne("ok").groupby(rows["trial"]).any()
    found: dict[Any, Array] = {}
    for _, own in rows.groupby("dataset_seed", dropna=False):
        values = own.pivot_table(
            index="trial", columns=axis, values=of, dropna=False
        ).sort_index(axis=1)
        x = values.columns.to_numpy(float)
        for trial, y in zip(values.index, values.to_numpy(float), strict=True):
            end = math.nan if lost[trial] else y[-1]
            whole = x.size == at.size
            found[trial] = y if whole else np.interp(at, x, y, right=end)
    return np.stack([found[trial] for trial in sorted(found)])


def rows_of_line(rows: pd.DataFrame, line: str) -> pd.DataFrame:
    """Return the rows of a line; raise `Missing` if one of its runs failed."""
    if not rows["status"].isin(RAN).all():
        raise Missing(commonest_reason(rows, f"{line} failed"))
    return rows


def commonest_reason(rows: pd.DataFrame, default: str = "skipped") -> str:
    """Return the commonest message of rows without a result, else the default."""
    bad = rows[~rows["status"].isin(RAN)]
    messages = bad["message"].dropna()
    messages = messages[messages != ""]
    if messages.empty:
        return default
    status = str(bad["status"].iloc[0])
    return f"{status}: {str(messages.mode().iloc[0]).splitlines()[0]}"
