"""Final errors against the quotient of the bounds of DP-CD and DP-SGD.

Mangold et al. (ICML 2022, section 3.4): for convex losses DP-CD is as good as
norm_{M^-1}(L) R_M and DP-SGD as Lambda R_I, up to the same factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.report.curves import curves
from dp_erm_bench.report.missing import Missing
from dp_erm_bench.report.scaling import Scaling, scaling

if TYPE_CHECKING:
    import pandas as pd

    from dp_erm_bench.problems.erm.problem import ERMProblem


QUOTIENT = "quotient"
"""The axis that is no column of the table."""


def norm_quotient(problem: ERMProblem) -> float:
    """Return norm_{M^-1}(L) R_M / (Lambda R_I) of a dense problem, from w = 0.

    L_j and Lambda are the Lipschitz constants on these records, M_j is taken from
    the data, R_M and R_I are the distances to the optimum without the penalty's part.

    Parameters
    ----------
    problem : ERMProblem
        With a Lipschitz loss and a certified optimum.

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


def quotients(config: Mapping[str, Any], family: str) -> dict[str, float]:
    """Return the quotient of each panel `<family>_...` of an experiment.

    Parameters
    ----------
    config : mapping
        The experiment's resolved yaml; its blocks name the data.
    family : str
        What the panels' names begin with.
    """
    by_panel: dict[str, float] = {}
    for block in config.get("blocks") or ():
        panel = str(block["panel"])
        if panel.startswith(f"{family}_") and panel not in by_panel:
            by_panel[panel] = norm_quotient(_problem(block))
    return by_panel


def _problem(block: Mapping[str, Any]) -> ERMProblem:
    from dp_erm_bench.experiment.parameters import problem_named
    from dp_erm_bench.problems.erm.problem import ERMProblem

    dataset = dict(block["dataset"])
    parts = [block.get(part, "auto") for part in ("loss", "penalty")]
    try:
        problem = problem_named(dataset.pop("name"), dataset, *parts, "none")
    except DataUnavailable as error:
        raise Missing(str(error)) from None
    assert isinstance(problem, ERMProblem)
    return problem


def against_quotient(
    table: pd.DataFrame, config: Mapping[str, Any], family: str, line: str
) -> Scaling:
    """Return the final relative errors of a line against the quotient.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    config : mapping
        The experiment's resolved yaml.
    family : str
        What the panels' names begin with.
    line : str
        Label of the line.

    Raises
    ------
    Missing
        If a panel of the line did not run.
    """
    places = sorted((x, panel) for panel, x in quotients(config, family).items())
    if not places:
        raise Missing(f"no panel {family} in the experiment")
    lines = [curves(table, panel, line) for _, panel in places]
    runs = [one.errors for one in lines]
    return Scaling(
        np.array([x for x, _ in places]),
        tuple(errors[:, -1] for errors in runs),
        np.array([errors[:, 0].mean() for errors in runs]),
        tuple(sorted({run for one in lines for run in one.runs})),
    )


def along(
    table: pd.DataFrame, config: Mapping[str, Any], panel: str, axis: str, line: str
) -> Scaling:
    """Return the final values of a line along `n`, `p`, `epsilon` or `quotient`.

    Raises
    ------
    Missing
        If there are none; says why.
    """
    if axis == QUOTIENT:
        return against_quotient(table, config, panel, line)
    return scaling(table, panel, line, axis)
