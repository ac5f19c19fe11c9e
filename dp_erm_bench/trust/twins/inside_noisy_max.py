"""Second implementation (twin) of selections with Laplace noise inside the scores."""

from typing import Any

import numpy as np

from dp_erm_bench.trust.twins.base import Answered, Array
from dp_erm_bench.trust.twins.laplace_noisy_max import (
    LaplaceNoisyMaxTwin,
    inside_chances,
    log_ratio_at_winner,
)


class InsideNoisyMaxTwin(LaplaceNoisyMaxTwin):
    """Second implementation (twin) of a selection with noise in the gradient.

    Only its pure epsilon is known.
    """

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of the winner's probabilities, with noise in gradients.

        The score is taken as |g_j| / Delta_j. That is the score, up to a factor, if all
        score sensitivities are equal (M_j = H R_j^2) and there is no penalty.
        """
        v, u = use.normalise_queries()
        return log_ratio_at_winner(inside_chances, np.abs(v), np.abs(u), use.answer)

    @staticmethod
    def recovered_multiplier(
        query: Any, draws: Array, scale: Array, answer: Array
    ) -> float:
        """Return infinity: the winner depends on the score, which is not known here.

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
        return np.inf
