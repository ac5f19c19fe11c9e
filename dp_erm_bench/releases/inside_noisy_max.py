"""Laplace noise inside of scores."""

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
        """Return the winner of each trial, (B,)."""
        noise = self.unit_noise(1, gradient.shape[1])[:, 0] * self.scale
        return np.asarray(score(gradient + noise).argmax(axis=1))

    def query(self, gradient: Array, score: Score) -> Array:
        """Return the value before noise: the gradient, of shape (B, p)."""
        return gradient


@dataclass(frozen=True, eq=False)
class InsideNoisyMax(Release):
    """The index of the largest score of a gradient with Laplace noise.

    The noise, of scale z times the gradient's sensitivity per coordinate, is
    added before the score is taken. Let the score of coordinate j be |affine in
    g_j| with slope c_j, less a constant. Given the other coordinates' noise, j
    wins when its noisy g_j lies outside an interval; between neighbours each end
    moves by at most Delta_j (the gradient) and max_i s_i / c_j (the level to
    beat), with s_i = c_i Delta_i. The level is therefore at most
    (1 + max_i s_i / min_j s_j) / z. A score that is floored at zero is not covered:
    where all others tie at zero, the interval vanishes at once.

    Parameters
    ----------
    spread : float
        max_i s_i / min_j s_j; the slopes are the solver's, so that it must say.

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi, AISTATS 2023, Algorithm 1 (the noise chi).
    """

    spread: float = field(kw_only=True)
    mechanism = InsideMechanism
    selects: ClassVar[bool] = True
    proof = NoisyMaxLaw
    draw = staticmethod(draws.laplace)
