"""The quotient of two bounds, of each panel of a family.

It is that of DP-CD and DP-SGD in Mangold et al. (ICML 2022, section 3.4): for convex
losses DP-CD is as good as norm_{M^-1}(L) R_M and DP-SGD as Lambda R_I, up to the same
factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import DataUnavailable
from dp_erm_bench.report.curves import Missing
from dp_erm_bench.report.figure import QUOTIENT, members

if TYPE_CHECKING:
    from dp_erm_bench.problems.erm.problem import ERMProblem


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
        The common start of the panels' names.
    """
    from dp_erm_bench.experiment.parameters import problem_named
    from dp_erm_bench.problems.erm.problem import ERMProblem

    blocks: dict[str, Mapping[str, Any]] = {}
    for block in config.get("blocks") or ():
        blocks.setdefault(str(block["panel"]), block)
    by_panel: dict[str, float] = {}
    for panel in members(blocks, family, QUOTIENT):
        dataset = dict(blocks[panel]["dataset"])
        parts = [blocks[panel].get(part, "auto") for part in ("loss", "penalty")]
        try:
            problem = problem_named(dataset.pop("name"), dataset, *parts, "none")
        except DataUnavailable as error:
            raise Missing(str(error)) from None
        assert isinstance(problem, ERMProblem)
        by_panel[panel] = norm_quotient(problem)
    return by_panel
