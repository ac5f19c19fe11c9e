"""Noise of private Frank-Wolfe's selections against the number of steps.

Nothing is run, as in ``noise``: logistic loss on features within [-1, 1] over the L1
ball of radius 1, so that L_1 norm1(C) = 1 in the terms of Talwar, Thakurta, Zhang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from dp_erm_bench.audit.accounting import unit_problem
from dp_erm_bench.constraints.l1_ball import L1Ball
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.noise import Noise, Released

LAPLACE = (("noise", "laplace"),)
SELECTIONS = {
    "DP-FW Gumbel": Released("frank_wolfe", "vertex"),
    "DP-FW Laplace": Released("frank_wolfe", "vertex", LAPLACE),
    "DP-FW Laplace printed": Released(
        "frank_wolfe", "vertex", LAPLACE, calibration="paper"
    ),
}
LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200)


@lru_cache(maxsize=64)
def selection(line: str, n_iter: int) -> Noise:
    """Return the noise of each of some selections, of one of `SELECTIONS`."""
    problem = replace(unit_problem(), constraint=L1Ball())
    return SELECTIONS[line].calibrated(problem, n_iter)


def scales(line: str, lengths: Sequence[int] = LENGTHS) -> Array:
    """Return the scale of the noise on a score for some numbers of selections.

    Parameters
    ----------
    line : str
        One of `SELECTIONS`.
    lengths : sequence of int
        Values of T.

    Returns
    -------
    ndarray of shape (len(lengths),)
    """
    return np.array([selection(line, n_iter).scale for n_iter in lengths])
