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

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.penalties.base import Penalty

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rule(ABC):
    """Scores of coordinates with M_j > 0; others score minus infinity."""

    def scores(self, gradient: Array, w: Array, M: Array, penalty: Penalty) -> Array:
        """Return the scores, shape (B, p); all arguments broadcast to it."""
        active = M > 0.0
        safe = np.where(active, M, 1.0)
        return np.where(active, self._score(gradient, w, safe, penalty), -np.inf)

    def lipschitz(self, M: Array, penalty: Penalty) -> Array:
        """Return how much a score can change per unit of g_j, shape (p,)."""
        active = M > 0.0
        return np.where(active, self._slope(np.where(active, M, 1.0), penalty), 0.0)

    @abstractmethod
    def _score(self, g: Array, w: Array, M: Array, penalty: Penalty) -> Array: ...

    @abstractmethod
    def _slope(self, M: Array, penalty: Penalty) -> Array: ...


class SubgradientRule(Rule):
    """GS-s: the distance of -g_j to the subdifferential, over sqrt(M_j)."""

    def _score(self, g: Array, w: Array, M: Array, penalty: Penalty) -> Array:
        return penalty.subdifferential_distance(g, w) / np.sqrt(M)

    def _slope(self, M: Array, penalty: Penalty) -> Array:
        return 1.0 / np.sqrt(M)


class ExcessRule(SubgradientRule):
    """GS-s without its floor: minus the distance to where the score is positive.

    The same winner wherever a score of GS-s is positive. Where all are zero (the
    dead zone of an L1 penalty) there are no ties, which would tell of every
    coordinate at once that its noisy derivative lies in there.
    """

    def _score(self, g: Array, w: Array, M: Array, penalty: Penalty) -> Array:
        centre = g + penalty.l2 * w + penalty.l1 * np.sign(w)
        slack = np.where(w == 0.0, penalty.l1, 0.0)
        down = np.where(w > penalty.lower, centre - slack, -np.inf)
        up = np.where(w < penalty.upper, -centre - slack, -np.inf)
        excess: Array = np.maximum(down, up) / np.sqrt(M)
        return excess


class StepRule(Rule):
    """GS-r: the length of the proximal step, times sqrt(M_j)."""

    def _score(self, g: Array, w: Array, M: Array, penalty: Penalty) -> Array:
        return np.sqrt(M) * np.abs(penalty.prox(w - g / M, 1.0 / M) - w)

    def _slope(self, M: Array, penalty: Penalty) -> Array:
        # The prox of (l2 / 2) w^2 with step 1 / M contracts by 1 + l2 / M.
        return 1.0 / (np.sqrt(M) * (1.0 + penalty.l2 / M))


class DecreaseRule(Rule):
    """GS-q: sqrt(2 q_j), with q_j the decrease of the quadratic model.

    q_j itself has no sensitivity free of the data; its root has: with d the
    minimiser of the model, q'(g) = -d and (M + l2) d^2 <= 2 q by strong convexity.
    """

    def _score(self, g: Array, w: Array, M: Array, penalty: Penalty) -> Array:
        new = penalty.prox(w - g / M, 1.0 / M)
        d = new - w
        change = penalty.l1 * (np.abs(new) - np.abs(w))
        change = change + 0.5 * penalty.l2 * d * (new + w)
        decrease = -(g * d + 0.5 * M * d * d + change)
        return np.sqrt(2.0 * np.maximum(decrease, 0.0))

    def _slope(self, M: Array, penalty: Penalty) -> Array:
        return 1.0 / np.sqrt(M + penalty.l2)


RULES: dict[str, Rule] = {
    "GS-r": StepRule(),
    "GS-s": SubgradientRule(),
    "GS-q": DecreaseRule(),
}
