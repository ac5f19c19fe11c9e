"""The exponential mechanism: Gumbel noise on scores."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.kernels.selection import gumbel_argmax
from dp_erm_bench.releases.additive import Indices
from dp_erm_bench.releases.base import Array, Mechanism, Release, Seed
from dp_erm_bench.releases.law import PureLaw
from dp_erm_bench.releases.losses import Floats, Losses, exponential_part

Score = Callable[[Array], Array]


def log_sinh_ratio(x: Floats) -> Floats:
    """Return log(sinh(x/2) / (x/2)) for x >= 0, accurate near 0 and for large x."""
    small = np.where(x < 0.1, x, 0.0) ** 2
    series = small / 24 - small**2 / 2880 + small**3 / 181440
    large = np.where(x < 0.1, 1.0, x)
    return np.where(
        x < 0.1, series, large / 2 - np.log(large) + np.log1p(-np.exp(-large))
    )


@dataclass(frozen=True)
class BoundedRangeLaw(PureLaw):
    """The law of a mechanism of bounded range 2 sensitivity / scale.

    One record may raise one score and lower another. So the likelihood ratio of a
    winner is at most e^((Delta_i + Delta_j)/b), with the noise scale b and the
    sensitivities Delta_i, Delta_j of two scores.
    """

    name: ClassVar[str] = "bounded_range"

    def level(self, z: float) -> float:
        """Return the range, which is also a pure epsilon."""
        return 2.0 / self.multiplier(z)

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve of the worst pair of that range.

        The exponential mechanism's log-ratios lie in some [t - level, t] (Durfee and
        Rogers, NeurIPS 2019). The worst pair puts them on the two ends (Dong, Durfee,
        Rogers, "Optimal DP Composition for Exponential Mechanisms", ICML 2020),
        and the curve is the largest over t. Setting the derivative in t to zero gives
        t* = level/2 + g(a level) - g((a-1) level), which lies in [0, level] because
        (1 - e^-x)/x falls and (e^x - 1)/x grows, and

            (a - 1) eps(a) = a g(a level) - (a-1) g((a-1) level) - g(level)

        with g(x) = log(sinh(x/2)/(x/2)). The curve is at most a level^2 / 8.
        """
        level = self.level(z)
        whole = orders * log_sinh_ratio(orders * level)
        part = (orders - 1) * log_sinh_ratio((orders - 1) * level)
        single = log_sinh_ratio(np.full_like(orders, level))
        return np.maximum(whole - part - single, 0) / (orders - 1)

    def rho(self, z: float) -> float:
        """Return rho of zCDP, range^2 / 8 (Cesar and Rogers, ALT 2021)."""
        return 0.125 * self.level(z) ** 2

    def losses(self, level: float, step: float) -> Losses:
        """Return the losses of a law that dominates all mechanisms of that range.

        The largest profile over the two-point pairs of Dong, Durfee, Rogers (ICML
        2020) is delta(e) = (1 - u)^2 / (1 - e^-level), u = e^((e - level)/2). Every
        profile has P(l > e) = delta(e) - delta'(e). Here this is
        (1 - u) / (1 - e^-level), with density e^((l - level)/2) / (2 (1 - e^-level)).
        """
        rate = -0.5 / math.expm1(-level)
        return Losses(*exponential_part(level, rate, step), 0.0)


class MaxMechanism(Mechanism):
    """Publishes the index of the largest score after noise of one common scale."""

    def _scale(self, multiplier: float, batch: int) -> Array:
        return np.asarray(super()._scale(multiplier, batch).max(axis=1, keepdims=True))

    def publish(self, gradient: Array, score: Score) -> Indices:
        """Return the index of the winner of each trial, of shape (B,).

        Parameters
        ----------
        gradient : array of shape (B, p)
        score : callable
            Maps a gradient to scores, shape (B, p). A score of minus infinity never
            wins.
        """
        return self._pick_winners(score(gradient))

    def _pick_winners(self, scores: Array) -> Indices:
        assert isinstance(self.release, NoisyMax)
        self.spend(1)
        start, self._drawn = self._drawn, self._drawn + scores.shape[1]
        trials = zip(self.seeds, scores, self.scale[:, 0], strict=True)
        winner = self.release.winner
        return np.array(
            [winner(s, start, x, b) if b else x.argmax() for s, x, b in trials]
        )

    def query(self, gradient: Array, score: Score) -> Array:
        """Return the value before noise: the scores, of shape (B, p)."""
        return score(gradient)


class NoisyMax(Release):
    """The index of the largest score after Gumbel noise: the exponential mechanism.

    Each score changes by at most its ``sensitivity`` in either direction. The noise has
    scale z times the largest sensitivity, the same for all scores: with different
    scales, scores with more noise would win more often (solvers' docs: mangold2023).

    References
    ----------
    McSherry and Talwar, "Mechanism design via differential privacy", FOCS 2007;
    Dong, Durfee, Rogers, "Optimal differential privacy composition for
    exponential mechanisms", ICML 2020 (bounded range).
    """

    mechanism = MaxMechanism
    selects: ClassVar[bool] = True
    proof: ClassVar[type[PureLaw]] = BoundedRangeLaw
    draw = staticmethod(draws.gumbel)

    def winner(self, seed: Seed, start: int, scores: Array, scale: float) -> int:
        """Return the index of the largest score after noise from a stream.

        Parameters
        ----------
        seed : uint32 array of shape (4,)
            Seed of the stream.
        start : int
            Number of the first draw: the noise of score j is draw ``start + j``.
        scores : array of shape (p,)
            Scores before noise.
        scale : float
            Noise scale, positive.
        """
        return int(gumbel_argmax(seed, start, scores, scale))
