"""Laplace noise inside of scores, a second time."""

from typing import Any

import numpy as np

from dp_erm_bench.trust.twins.base import Answered, Array
from dp_erm_bench.trust.twins.laplace_noisy_max import (
    LaplaceNoisyMaxTwin,
    inside_chances,
    log_ratio_at_winner,
)


class InsideNoisyMaxTwin(LaplaceNoisyMaxTwin):
    """A selection of which a level is known, its noise being in the gradient."""

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of the winner's probabilities, the noise being inside.

        The score is taken as |g_j| / Delta_j, which it is up to a factor where all
        score sensitivities are equal (M_j = H R_j^2) and there is no penalty.
        """
        v, u = use.normalise_queries()
        return log_ratio_at_winner(inside_chances, np.abs(v), np.abs(u), use.answer)

    @staticmethod
    def recovered_multiplier(
        query: Any, draws: Array, scale: Array, answer: Array
    ) -> float:
        """Return infinity: the winner depends on the score, which is not heard."""
        return np.inf
