"""Second implementation (twin) of the exponential mechanism."""

import math
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.trust.twins.base import Answered, Array
from dp_erm_bench.trust.twins.laplace import GRADED
from dp_erm_bench.trust.twins.pure import PureTwin, two_candidates, two_outcomes


class NoisyMaxTwin(PureTwin):
    """Second implementation (twin) of a selection with Gumbel noise on the scores.

    The mechanism has bounded range.
    """

    exact: ClassVar[bool] = True

    @property
    def level(self) -> float:
        """Return the range, which is also a pure epsilon."""
        return 2.0 / self.ratio if self.ratio > 0 else math.inf

    def renyi(self, orders: Array) -> Array:
        """Return the largest Renyi divergence of two outcomes of bounded range.

        The log-ratios of the outcomes are t and t - range.
        """
        ends = self.level * (1 - GRADED)
        return two_outcomes(orders, self.level, ends, self.level)

    def profile(self, epsilons: Array) -> Array:
        """Return the largest delta of two outcomes of bounded range.

        The log-ratios of the outcomes are t and t - range, and delta is the largest
        over t.
        """
        half = np.expm1((epsilons - self.level) / 2)
        return np.asarray(half**2 / -math.expm1(-self.level))

    def instance(self, step: float) -> Any:
        """Return the distribution of a selection between two candidates.

        The probabilities of winning are logistic functions.
        """
        return two_candidates(1 / (1 + math.exp(-1 / self.ratio)), step)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of the winner's softmax probabilities."""
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
        """Return infinity if the winners are those of the draws, else 0.

        Parameters
        ----------
        query : Query
            The query, with its value before noise.
        draws : array of shape (B, k)
            The stream's draws for this use, of scale 1.
        scale : array, broadcastable to (B, k)
            The noise scale before the run.
        answer : array
            The published answer.
        """
        winners = (query.value + scale * draws).argmax(axis=1)
        return np.inf if np.array_equal(answer, winners) else 0.0


def entries_of_winners(table: Array, answer: Array) -> Array:
    """Return the entry of the winner from each row of a table, shape (B,)."""
    indices = answer.astype(np.int64)[:, None]
    return np.take_along_axis(table, indices, axis=1)[:, 0]
