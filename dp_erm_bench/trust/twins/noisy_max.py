"""The exponential mechanism, a second time."""

import math
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.trust.twins.base import Answered, Array
from dp_erm_bench.trust.twins.laplace import GRADED
from dp_erm_bench.trust.twins.pure import PureTwin, two_candidates, two_outcomes


class NoisyMaxTwin(PureTwin):
    """A selection of bounded range, and the winners that Gumbel noise has."""

    exact: ClassVar[bool] = True

    @property
    def level(self) -> float:
        """Return the range, which is a pure level too."""
        return 2.0 / self.ratio if self.ratio > 0 else math.inf

    def renyi(self, orders: Array) -> Array:
        """Return the largest over pairs of outcomes with log-ratios t, t - range."""
        ends = self.level * (1 - GRADED)
        return two_outcomes(orders, self.level, ends, self.level)

    def profile(self, epsilons: Array) -> Array:
        """Return the largest delta over those pairs."""
        half = np.expm1((epsilons - self.level) / 2)
        return np.asarray(half**2 / -math.expm1(-self.level))

    def instance(self, step: float) -> Any:
        """Return that of a selection between two, whose winner is logistic."""
        return two_candidates(1 / (1 + math.exp(-1 / self.ratio)), step)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of softmax probabilities: Gumbel's winners."""
        b = np.max(use.scale, axis=-1, keepdims=True)

        def chance(scores: Array) -> Array:
            shifted = (scores - scores.max(axis=1, keepdims=True)) / b
            total: Array = np.log(np.exp(shifted).sum(axis=1))
            return entries_of_winners(shifted, use.answer) - total

        return chance(use.first) - chance(use.second)

    @staticmethod
    def recovered_multiplier(
        query: Any, draws: Array, scale: Array, answer: Array
    ) -> float:
        """Return infinity if the winners are those of the draws, else 0."""
        winners = (query.value + scale * draws).argmax(axis=1)
        return np.inf if np.array_equal(answer, winners) else 0.0


def entries_of_winners(table: Array, answer: Array) -> Array:
    """Return the entry of each row's winner, (B,)."""
    indices = answer.astype(np.int64)[:, None]
    return np.take_along_axis(table, indices, axis=1)[:, 0]
