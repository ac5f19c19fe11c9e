"""The exponential mechanism: Gumbel noise on scores."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.kernels.selection import gumbel_argmax
from dp_erm_bench.releases.additive import Indices
from dp_erm_bench.releases.base import Array, Mechanism, Release, Seed
from dp_erm_bench.releases.events import Event

Score = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class NoisyMax(Release):
    """The index of the largest score after Gumbel noise: the exponential mechanism.

    The scores change by at most ``sensitivity`` (per score) in either direction,
    so the noise has scale z times the largest of them, the same for all scores:
    noise of different scales would favour the loud (solvers' docs: mangold2023).

    References
    ----------
    McSherry and Talwar, "Mechanism design via differential privacy", FOCS 2007;
    Dong, Durfee, Rogers, "Optimal differential privacy composition for
    exponential mechanisms", ICML 2020 (bounded range).
    """

    draw = staticmethod(draws.gumbel)

    def event(self) -> Event:
        """Return a mechanism of bounded range 2 / z (scores are not monotone)."""
        return Event("bounded_range", self.times, self.weight)

    def winner(self, seed: Seed, start: int, scores: Array, scale: float) -> int:
        """Return the largest score's index after noise from a stream.

        The noise of score j is draw ``start + j``; none at scale 0.
        """
        if scale == 0.0:
            return int(scores.argmax())
        return int(gumbel_argmax(seed, start, scores, scale))


class MaxMechanism(Mechanism):
    """Publishes the index of the largest noisy score."""

    def _scale(self, multiplier: float, batch: int) -> Array:
        scale = super()._scale(multiplier, batch)
        if not isinstance(self.release, NoisyMax):
            return scale
        widest: Array = scale.max(axis=1, keepdims=True)
        return widest

    def publish(self, gradient: Array, score: Score) -> Indices:
        """Return the winner of each trial, (B,).

        Parameters
        ----------
        gradient : array of shape (B, p)
        score : callable
            Maps a gradient to scores, (B, p); minus infinity excludes.
        """
        if isinstance(self.release, NoisyMax):
            return self._winners(score(gradient))
        noise = self.unit_noise(1, gradient.shape[1])[:, 0] * self.scale
        winners: Indices = score(gradient + noise).argmax(axis=1)
        return winners

    def _winners(self, scores: Array) -> Indices:
        assert isinstance(self.release, NoisyMax)
        self.spend(1)
        start, self._drawn = self._drawn, self._drawn + scores.shape[1]
        trials = zip(self.seeds, scores, self.scale[:, 0], strict=True)
        return np.array([self.release.winner(s, start, x, b) for s, x, b in trials])

    def query(self, gradient: Array, score: Score) -> Array:
        """Return what the noise is added to: the gradient or its scores."""
        inside = not isinstance(self.release, NoisyMax)
        return gradient if inside else score(gradient)

    def sensitivity_of(self, gradient: Array, score: Score) -> Array:
        """Return the sensitivity of each entry of the query."""
        return np.atleast_2d(np.asarray(self.release.sensitivity, np.float64))
