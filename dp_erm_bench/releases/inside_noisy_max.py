"""Noisy maximum with Laplace noise on the gradient, inside the scores."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.additive import Indices
from dp_erm_bench.releases.base import Array, Mechanism, Release
from dp_erm_bench.releases.laplace_noisy_max import NoisyMaxLaw
from dp_erm_bench.releases.noisy_max import Score


class InsideMechanism(Mechanism):
    """Publishes the index of the largest score of a noisy gradient."""

    def publish(self, gradient: Array, score: Score) -> Indices:
        """Return the index of the winner of each trial, of shape (B,)."""
        noise = self.unit_noise(1, gradient.shape[1])[:, 0] * self.scale
        return np.asarray(score(gradient + noise).argmax(axis=1))

    def query(self, gradient: Array, score: Score) -> Array:
        """Return the value before noise: the gradient, of shape (B, p)."""
        return gradient


@dataclass(frozen=True, eq=False)
class InsideNoisyMax(Release):
    """The index of the largest score of a gradient with Laplace noise.

    The noise has scale z times the gradient's sensitivity per coordinate, and is added
    before the score is computed. Let the score of coordinate j be the absolute value of
    an affine function of g_j with slope c_j, minus a constant. Given the noise of the
    other coordinates, j wins if its noisy g_j lies outside an interval. Between
    neighbours, each end of the interval moves by at most Delta_j (the gradient) plus
    max_i s_i / c_j (the score to beat), with s_i = c_i Delta_i. The pure level is
    therefore at most (1 + max_i s_i / min_j s_j) / z. A score that is floored at zero
    is not covered: if all others tie at zero, the interval vanishes abruptly.

    Parameters
    ----------
    spread : float
        The ratio max_i s_i / min_j s_j. The solver must give this number, because the
        slopes depend on the solver.

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi, AISTATS 2023, Algorithm 1 (the noise chi).
    """

    spread: float = field(kw_only=True)
    mechanism = InsideMechanism
    selects: ClassVar[bool] = True
    proof = NoisyMaxLaw
    draw = staticmethod(draws.laplace)
