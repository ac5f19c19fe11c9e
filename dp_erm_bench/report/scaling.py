"""Final values of a line along n, p, epsilon, or the quotient of two bounds.

A *line* consists of the runs of one algorithm. A *family* is a set of panels whose
names have the same beginning; each panel is one point of the axis.

The quotient of each panel of a family is the bound on DP-CD over the bound on DP-SGD in
Mangold et al. (ICML 2022, section 3.4). For convex losses the bound on DP-CD is
norm_{M^-1}(L) R_M and the bound on DP-SGD is Lambda R_I, up to the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.registry import POPULATION
from dp_erm_bench.report import curves
from dp_erm_bench.report.curves import (
    Array,
    Finals,
    LineErrors,
    Missing,
    RunsAlong,
    report_runs,
)
from dp_erm_bench.report.figure import QUOTIENT, panels_of
from dp_erm_bench.results.settings import column_of
from dp_erm_bench.results.statistics import (
    ZERO,
    baseline_columns,
    estimate_sum,
)

if TYPE_CHECKING:
    import pandas as pd

    from dp_erm_bench.problems.erm.problem import ERMProblem


def norm_quotient(problem: ERMProblem) -> float:
    """Return the quotient of the bounds on DP-CD and DP-SGD, for runs from w = 0.

    The quotient is norm_{M^-1}(L) R_M / (Lambda R_I). L_j and Lambda are the Lipschitz
    constants on these records, and M_j is taken from the data. R_M and R_I are the
    distances from w = 0 to the optimum in the norms M and I. The penalty does not count
    in M.

    Parameters
    ----------
    problem : ERMProblem
        A dense problem with a Lipschitz loss and a certified optimum.

    Raises
    ------
    Missing
        If there is no certified optimum.
    """
    w = problem.optimum.w
    if w is None:
        raise Missing(f"no certified optimum: {problem.optimum.reason}")
    M = problem.with_smoothness("data").smoothness.columns
    L, longest = problem.largest_records()
    active = M > 0
    by_coordinate = np.sqrt((L[active] ** 2 / M[active]).sum() * (M * w**2).sum())
    return float(by_coordinate / (longest * np.linalg.norm(w)))


def quotients_of(config: Mapping[str, Any], family: str) -> dict[str, float]:
    """Return the quotient of the two bounds for each panel of a family.

    Parameters
    ----------
    config : mapping
        The experiment's resolved configuration, whose blocks name the data.
    family : str
        The start of the panels' names, before an underscore.
    """
    from dp_erm_bench.experiment.parameters import problem_named
    from dp_erm_bench.problems.erm.problem import ERMProblem

    blocks: dict[str, Mapping[str, Any]] = {}
    for block in config.get("blocks") or ():
        blocks.setdefault(str(block["panel"]), block)
    by_panel: dict[str, float] = {}
    for panel in panels_of(blocks, family, QUOTIENT):
        dataset = dict(blocks[panel]["dataset"])
        parts = [blocks[panel].get(part, "auto") for part in ("loss", "penalty")]
        try:
            problem = problem_named(dataset.pop("name"), dataset, *parts, "none")
        except DataUnavailable as error:
            raise Missing(str(error)) from None
        assert isinstance(problem, ERMProblem)
        by_panel[panel] = norm_quotient(problem)
    return by_panel


@dataclass(frozen=True, eq=False)
class Scaling(RunsAlong):
    """Final values of the report runs of one line along an axis.

    Attributes
    ----------
    ends : tuple of k ndarrays
        Final values of all runs at each point of the axis; inf where a run diverged.
    skipped : mapping of float to str
        Values of the axis at which the algorithm cannot run, with the reason.
    quantity : str
        Name of the column with the values; empty for excess risks F(w) - F*.
    sets : tuple of k ndarrays
        The seed of the data of each run; empty if all runs have the same data.
    zeros : tuple of k ndarrays
        The value at w = 0 on the problem of each run, nan if it is unknown.
    """

    ends: tuple[Array, ...]
    skipped: Mapping[float, str] = field(default_factory=dict)
    quantity: str = ""
    sets: tuple[Array, ...] = ()
    zeros: tuple[Array, ...] = ()

    @property
    def samples(self) -> tuple[Array, ...]:
        """Return the final values of all runs at each point of the axis."""
        return self.ends

    def finals(self, place: int) -> Finals:
        """Return the final values of all runs at one value of the axis."""
        runs = self.ends[place]
        return Finals(runs, self.sets[place] if self.sets else np.zeros(len(runs)))

    @property
    def standing_still(self) -> Scaling:
        """Return the runs as if they stayed at w = 0.

        Raise `Missing` if the value at w = 0 is unknown.
        """
        if any(np.isnan(zeros).any() for zeros in self.zeros):
            raise Missing(f"w = 0 has no {self.quantity or 'error'}")
        return replace(self, ends=self.zeros)

    @property
    def mean(self) -> Array:
        """Return the mean over runs; with several data sets, over the means of each."""
        places = range(len(self.ends))
        return np.array([self.finals(place).units().mean() for place in places])

    @property
    def slope(self) -> float:
        """Return the least-squares slope of the log of the mean against log x.

        The slope is nan with fewer than two points or a mean that is not positive.
        """
        return log_slope(self.x, self.mean)

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval of the slope (`results.statistics.estimate_sum`)."""
        parts = [
            (self.finals(place).units()[:, None], np.array([weight]))
            for place, weight in enumerate(slope_weights(self.x))
        ]
        return estimate_sum(parts)[1:]


def log_slope(x: Array, values: Array) -> float:
    """Return the least-squares slope on log-log scales.

    Parameters
    ----------
    x, values : ndarray of shape (k,)
        Coordinates of the points. The slope is nan unless k >= 2 and all values are
        positive and finite.
    """
    usable = np.isfinite(values).all() and (values > 0).all()
    if len(x) < 2 or not usable:
        return float("nan")
    return float(slope_weights(x) @ np.log(values))


def slope_weights(x: Array) -> Array:
    """Return the weights of log values in the least-squares slope against log x."""
    across = np.log(x) - np.log(x).mean()
    return np.asarray(across / (across @ across))


def scaling_of_line(
    table: pd.DataFrame, panel: str, line: str, axis: str, quantity: str = ""
) -> Scaling:
    """Return the final excess risks F(w) - F* of a line, or another quantity's values.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    panel, line, axis : str
        Labels of the panel and of the line, and the name of the column or of the
        dataset's parameter that varies.
    quantity : str
        The column to return instead, such as `excess_risk`; F(w) - F* if empty.

    Returns
    -------
    Scaling
        The values, without points at which every run was skipped. Values are infinite
        where F(w) is nan.

    Raises
    ------
    Missing
        If nothing ran, a run failed or no optimum is certified.
    """
    rows = report_runs(table, panel, line)
    rows = rows.assign(**{axis: column_of(rows, axis, "axis")})
    served = rows["status"] != "skipped"
    skipped = rows[~served]
    rows = curves.rows_of_line(rows[served] if served.any() else rows, line)
    values = _values_of_line(rows, line, quantity).astype(float)
    levels = baseline_columns(rows, quantity or "objective")
    if not quantity:  # the optimum is subtracted, so it is not a baseline
        levels = levels[[ZERO]].sub(rows["optimum"], axis=0)
    begun = values.where(rows["iteration"] == 0).groupby(rows["trial"])
    rows = rows.assign(excess=values.fillna(math.inf)).join(levels)
    trials = rows.groupby("trial")["iteration"]
    last = rows.loc[trials.idxmax()].sort_values("trial")
    along, ends = last[axis].to_numpy(float), last["excess"].to_numpy()
    # If the value at w = 0 is unknown, it is replaced by the first value of the run.
    zeros = last[ZERO].fillna(begun.transform("first")).to_numpy(float)
    beside = last.groupby(axis)[[*levels]].median().dropna(axis=1, how="all")
    sets = last["dataset_seed"].to_numpy(float)
    places = sorted(skipped[axis].dropna().unique())
    unserved = {
        float(at): curves.commonest_reason(skipped[skipped[axis] == at])
        for at in places
    }
    x = np.unique(along)
    return Scaling(
        x,
        tuple(ends[along == value] for value in x),
        unserved,
        beside={str(name): beside[name].to_numpy(float) for name in beside},
        quantity=quantity,
        sets=tuple(sets[along == value] for value in x),
        zeros=tuple(zeros[along == value] for value in x),
        rows=last,
    )


def _values_of_line(rows: pd.DataFrame, line: str, quantity: str) -> Any:
    if quantity:
        if quantity not in rows or rows[quantity].isna().all():
            how = ", see dataset.n_fresh" if quantity in POPULATION else ""
            raise Missing(f"{line} has no {quantity}{how}")
        return rows[quantity]
    if rows["optimum"].isna().any():
        raise Missing(f"{line} has no certified optimum to compare with")
    return rows["objective"] - rows["optimum"]


def _check_points(table: pd.DataFrame, family: Collection[str], axis: str) -> None:
    """Raise `Missing` unless the panels of a family are distinct points of an axis."""
    owner: dict[float, str] = {}
    for panel in family if axis in table else ():
        values = table.loc[table["panel"] == panel, axis].dropna().unique()
        if len(values) > 1:
            raise Missing(f"{panel} has several {axis}: it is no point of a family")
        for value in values:
            if owner.setdefault(float(value), panel) != panel:
                raise Missing(f"{owner[float(value)]} and {panel} have the same {axis}")


def finals_along(
    table: pd.DataFrame,
    config: Mapping[str, Any],
    panel: str,
    axis: str,
    line: str,
    quantity: str = "",
) -> Scaling:
    """Return the final values of a line along `n`, `p`, `epsilon` or `quotient`.

    Along the quotient, the values are relative errors. Otherwise they are excess risks,
    or the given quantity.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    config : mapping
        The experiment's resolved configuration.
    panel : str
        Label of the panel, or the beginning that the labels of a family have in common.
    axis, line : str
        The axis along which values are returned, and the label of the line.
    quantity : str
        As in `scaling_of_line`; not used along the quotient.

    Raises
    ------
    Missing
        If there are no values, or the line did not run on one of the panels. The
        message gives the reason.
    """
    if axis != QUOTIENT:
        blocks = [str(block["panel"]) for block in config.get("blocks") or ()]
        family = panels_of(blocks, panel, axis)
        if family != [panel]:
            _check_points(table, family, axis)
        inside = table["panel"].isin(family)
        table = table.assign(panel=table["panel"].mask(inside, panel))
        return scaling_of_line(table, panel, line, axis, quantity)
    places = sorted((x, one) for one, x in quotients_of(config, panel).items())
    if not places:
        raise Missing(f"no panel {panel} in the experiment")
    return final_errors(
        [(x, curves.line_errors(table, one, line)) for x, one in places]
    )


def final_errors(runs: Sequence[tuple[float, LineErrors]]) -> Scaling:
    """Return the final errors of one line from pairs of axis value and runs."""
    import pandas as pd

    lines = [one for _, one in runs]
    return Scaling(
        np.array([x for x, _ in runs]),
        tuple(one.errors[:, -1] for one in lines),
        beside={ZERO: np.array([np.median(one.zeros) for one in lines])},
        sets=tuple(one.finals().sets for one in lines),
        zeros=tuple(one.zeros for one in lines),
        rows=pd.concat([one.rows for one in lines]),
    )
