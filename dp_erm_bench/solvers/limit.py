"""What an algorithm comes to without noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_erm_bench.solvers.base import Solver


@dataclass(frozen=True)
class Limit:
    """A statement about a run at epsilon = inf: how near it gets to the minimum.

    Attributes
    ----------
    solver : Solver
        The parameters for which it is made; the length of the run among them.
    gap : float
        Most that F(w) / min F - 1 may be at the end.
    slope : float or None
        Most that the slope of log(gap) against log(iterations) may be over the last
        decades of the run, as -1 where the theory says 1 / t; None: not stated.
    trials : int
        Over how many draws of the public randomness the gap is averaged.
    """

    solver: Solver
    gap: float
    slope: float | None = None
    trials: int = 1
