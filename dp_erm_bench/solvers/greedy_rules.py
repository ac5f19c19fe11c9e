"""Greedy rules: scores of the coordinates, given a gradient of the data term.

References
----------
Nutini, Schmidt, Laradji, Friedlander, Koepke, "Coordinate descent converges
faster with the Gauss-Southwell rule than random selection", ICML 2015;
Karimireddy, Koloskova, Stich, Jaggi, "Efficient greedy coordinate descent for
composite problems", AISTATS 2019.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.kernels import scores as kernels
from dp_erm_bench.penalties.base import SeparablePenalty

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rule(ABC):
    """Scores of coordinates with M_j > 0; others score minus infinity.

    Attributes
    ----------
    code : int
        The formula of the score, in ``kernels.scores``.
    """

    code: ClassVar[int]

    def scores(
        self, gradient: Array, w: Array, M: Array, penalty: SeparablePenalty
    ) -> Array:
        """Return the scores, shape (B, p), at (B, p) iterates; M: (p,) or (B, p)."""
        out = np.empty_like(gradient)
        psi = penalty.parameters()
        kernels.all_scores(self.code, gradient, w, np.atleast_2d(M), psi, out)
        return out

    def lipschitz(self, M: Array, penalty: SeparablePenalty) -> Array:
        """Return how much a score can change per unit of g_j, the shape of M."""
        active = M > 0.0
        return np.where(active, self._slope(np.where(active, M, 1.0), penalty), 0.0)

    @abstractmethod
    def _slope(self, M: Array, penalty: SeparablePenalty) -> Array: ...


class SubgradientRule(Rule):
    """GS-s: the distance of -g_j to the subdifferential, over sqrt(M_j)."""

    code: ClassVar[int] = kernels.SUBGRADIENT

    def _slope(self, M: Array, penalty: SeparablePenalty) -> Array:
        return 1.0 / np.sqrt(M)


class ExcessRule(SubgradientRule):
    """GS-s without its floor: minus the distance to where the score is positive.

    The same winner wherever a score of GS-s is positive. Where all are zero (the
    dead zone of an L1 penalty) there are no ties, which would tell of every
    coordinate at once that its noisy derivative lies in there.
    """

    code: ClassVar[int] = kernels.EXCESS


class StepRule(Rule):
    """GS-r: the length of the proximal step, times sqrt(M_j)."""

    code: ClassVar[int] = kernels.STEP

    def _slope(self, M: Array, penalty: SeparablePenalty) -> Array:
        # The prox of (l2 / 2) w^2 with step 1 / M contracts by 1 + l2 / M, and the
        # shrinkage before it and the clipping to a box after it do not expand.
        return 1.0 / (np.sqrt(M) * (1.0 + penalty.l2 / M))


class DecreaseRule(Rule):
    """GS-q: sqrt(2 q_j), with q_j the decrease of the quadratic model.

    q_j itself has no sensitivity free of the data; its root has: with d the
    minimiser of the model, q'(g) = -d and (M + l2) d^2 <= 2 q by strong convexity.
    Both hold for any convex psi_j that is finite at w_j, a box among them.
    """

    code: ClassVar[int] = kernels.DECREASE

    def _slope(self, M: Array, penalty: SeparablePenalty) -> Array:
        return 1.0 / np.sqrt(M + penalty.l2)


RULES: dict[str, Rule] = {
    "GS-r": StepRule(),
    "GS-s": SubgradientRule(),
    "GS-q": DecreaseRule(),
}
