"""Look up the report runs of one line of a panel in the tidy table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dp_erm_bench.report.missing import Missing
from dp_erm_bench.results.settings import unchecked_in
from dp_erm_bench.results.statistics import quantile

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[np.float64]

FACTS = (
    *("dataset", "standardise", "n", "p", "loss", "penalty", "strength"),
    *("epsilon", "delta", "adjacency", "calibration", "accountant"),
    *("epsilon_certified", "uncharged", "params"),
)


class Bands:
    """What is drawn of several runs: their median, the smallest and the largest."""

    def quantile(self, q: float) -> Array:
        """Return a quantile over the runs, shape (k,)."""
        raise NotImplementedError

    @property
    def median(self) -> Array:
        """Return the median over the runs, shape (k,)."""
        return self.quantile(0.5)

    @property
    def low(self) -> Array:
        """Return the smallest value, shape (k,)."""
        return self.quantile(0.0)

    @property
    def high(self) -> Array:
        """Return the largest value, shape (k,)."""
        return self.quantile(1.0)


@dataclass(frozen=True, eq=False)
class Curves(Bands):
    """Relative errors of the report runs of one line.

    Attributes
    ----------
    passes : ndarray of shape (k,)
        Passes over the data at the checkpoints; the first one is 0.
    errors : ndarray of shape (seeds, k)
        Relative error to the certified optimum; inf where a run diverged.
    facts : mapping
        What the runs share: the columns named in `FACTS`.
    nnz : ndarray of shape (seeds, k)
        Non-zero coordinates of the iterates; nan where a run diverged.
    runs : tuple of str
        The runs of the folder that computed them.
    unchecked : tuple of str
        Algorithms from outside the package that have not passed `check`.
    """

    passes: Array
    errors: Array
    facts: Mapping[str, Any]
    nnz: Array
    runs: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def n_seeds(self) -> int:
        """Return the number of report seeds."""
        return int(self.errors.shape[0])

    @property
    def mean(self) -> Array:
        """Return the mean over seeds at each checkpoint, shape (k,)."""
        return np.asarray(self.errors.mean(axis=0))

    def quantile(self, q: float) -> Array:
        """Return a quantile over seeds at each checkpoint, shape (k,)."""
        return quantile(self.errors, q)

    def mean_at(self, passes: npt.ArrayLike) -> Array:
        """Interpolate the mean error at given passes; flat after the end.

        Parameters
        ----------
        passes : array_like
            Passes over the data.

        Returns
        -------
        ndarray
            Mean relative errors, of the shape of `passes`.
        """
        at = np.asarray(passes, dtype=float)
        return np.asarray(np.interp(at, self.passes, self.mean))


def explained(table: pd.DataFrame, config: Mapping[str, Any]) -> pd.DataFrame:
    """Add a row for each line that the runner could not even start.

    Parameters
    ----------
    table : DataFrame
        The tidy table, which has no row of such lines.
    config : mapping
        Its `not_run`, as in the manifest: mappings with `panel`, `line`, `reason`.

    Returns
    -------
    DataFrame
        The table with skipped rows whose message is the reason.
    """
    import pandas as pd

    missing = [
        {
            "panel": entry["panel"],
            "line": entry["line"],
            "phase": "tune",
            "status": "skipped",
            "message": entry["reason"],
        }
        for entry in config.get("not_run") or ()
    ]
    return pd.concat([table, pd.DataFrame(missing)]) if missing else table


def report_runs(table: pd.DataFrame, panel: str) -> pd.DataFrame:
    """Return the report rows of a panel.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    panel : str
        Its label.

    Raises
    ------
    Missing
        If the panel has no report row; with the message of a failed run if any.
    """
    rows = table[table["panel"] == panel]
    report = rows[rows["phase"] == "report"]
    if report.empty:
        raise Missing(why(rows, f"panel {panel} has no report runs"))
    return report


def data_seeds(table: pd.DataFrame, panel: str) -> list[int]:
    """Return the data seeds that a panel was reported on, sorted."""
    seeds = report_runs(table, panel)["dataset_seed"].unique()
    return sorted(int(seed) for seed in seeds)


def curves(
    table: pd.DataFrame,
    panel: str,
    line: str,
    epsilon: float = 1.0,
    data_seed: int | None = None,
) -> Curves:
    """Return the report runs of one line at one epsilon.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    panel, line : str
        Labels of the experiment's block.
    epsilon : float
        The epsilon asked for.
    data_seed : int, optional
        Seed of the data where the panel has several.

    Raises
    ------
    Missing
        If nothing ran, a run failed or the problem has no certified optimum.
    """
    rows = report_runs(table, panel)
    rows = rows[(rows["line"] == line) & np.isclose(rows["epsilon"], epsilon)]
    if data_seed is not None:
        rows = rows[rows["dataset_seed"] == data_seed]
    if rows.empty:
        tried = table[(table["panel"] == panel) & (table["line"] == line)]
        default = f"{line} has no report runs at epsilon = {epsilon:g}"
        raise Missing(why(tried, default))
    failed = rows[~rows["status"].isin(["ok", "diverged"])]
    if not failed.empty:
        raise Missing(why(failed, f"{line} failed"))
    return _pivot(rows, line)


def _pivot(rows: pd.DataFrame, line: str) -> Curves:
    """Arrange rows as a matrix seeds x checkpoints."""
    errors, nnz = (_grid(rows, name) for name in ("relative_error", "nnz"))
    if np.isnan(errors).all():
        raise Missing(f"{line} has no certified optimum to compare with")
    passes = rows.groupby("iteration")["passes"].first().sort_index()
    first = rows.iloc[0]
    return Curves(
        passes=passes.to_numpy(float),
        errors=np.where(np.isnan(errors), np.inf, errors),
        facts={name: first[name] for name in FACTS},
        nnz=nnz,
        runs=runs_in(rows),
        unchecked=unchecked_in(rows),
    )


def runs_in(rows: pd.DataFrame) -> tuple[str, ...]:
    """Return the runs that computed rows, none of those recorded without."""
    named = rows["run"].dropna().unique() if "run" in rows else ()
    return tuple(sorted(str(run) for run in named if run))


def _grid(rows: pd.DataFrame, name: str) -> Array:
    """Return a column as a matrix seeds x checkpoints."""
    grid = rows.pivot_table(
        index="trial", columns="iteration", values=name, dropna=False
    )
    return grid.sort_index(axis=1).to_numpy(float)


def why(rows: pd.DataFrame, default: str) -> str:
    """Return the commonest message of rows that are not ok, else the default."""
    bad = rows[~rows["status"].isin(["ok", "diverged"])]
    messages = bad["message"].dropna()
    messages = messages[messages != ""]
    if messages.empty:
        return default
    status = str(bad["status"].iloc[0])
    return f"{status}: {str(messages.mode().iloc[0]).splitlines()[0]}"
