"""Laplace noise on scores, a second time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.trust.twins.base import Answered, Array
from dp_erm_bench.trust.twins.noisy_max import NoisyMaxTwin, won
from dp_erm_bench.trust.twins.pure import PureTwin, two_candidates
from dp_erm_bench.trust.winners import laplace_chances


@dataclass(frozen=True)
class LaplaceNoisyMaxTwin(PureTwin):
    """A selection of which a level is known, and the winners under Laplace noise.

    Attributes
    ----------
    spread : float
        Ratio of the largest to the smallest score sensitivity, of noise inside.
    """

    spread: float = 1.0

    @property
    def level(self) -> float:
        """Return the pure level of one use."""
        return (1 + self.spread) / self.ratio if self.ratio > 0 else math.inf

    @property
    def is_exact(self) -> bool:
        """Return whether two candidates are an instance: with noise of one scale."""
        return self.spread == 1.0

    def instance(self, step: float) -> Any:
        """Return that of two candidates.

        The difference of two Laplace draws of scale b has the tail
        e^(-d/b) (1/2 + d/(4b)).
        """
        d = 1 / self.ratio
        return two_candidates(1 - math.exp(-d) * (0.5 + d / 4), step)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of the winner's probabilities under Laplace noise."""
        b = np.max(use.scale, axis=-1, keepdims=True)
        return selected(laplace_chances, use.first / b, use.second / b, use.answer)

    @staticmethod
    def heard(query: Any, draws: Array, scale: Array, answer: Array) -> float:
        """Return infinity if the winners are those of the draws, else 0."""
        return NoisyMaxTwin.heard(query, draws, scale, answer)


def selected(
    chances: Callable[[Array], Array], first: Array, second: Array, answer: Array
) -> Array:
    """Return log chances(first) - log chances(second) at the winner.

    The scores hardly move along a run: equal rows are integrated once.
    """
    both = np.round(np.concatenate([first, second]), 9)
    rows, where = np.unique(both, axis=0, return_inverse=True)
    table = np.log(np.maximum(chances(rows), 1e-300))[where.ravel()]
    half = len(first)
    return won(table[:half], answer) - won(table[half:], answer)
