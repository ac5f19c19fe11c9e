"""Laplace noise on scores."""

from dataclasses import dataclass

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.base import Array, Seed
from dp_erm_bench.releases.events import Event
from dp_erm_bench.releases.noisy_max import NoisyMax


@dataclass(frozen=True, eq=False)
class LaplaceNoisyMax(NoisyMax):
    """The index of the largest score after Laplace noise.

    Only the pure level 2 / z is proved: it is not of bounded range.

    References
    ----------
    Dwork and Roth, "The algorithmic foundations of differential privacy", 2014,
    section 3.3 (report noisy max).
    """

    draw = staticmethod(draws.laplace)

    def event(self) -> Event:
        """Return a mechanism of which the pure level alone is known."""
        return Event("pure", self.times, self.weight)

    def winner(self, seed: Seed, start: int, scores: Array, scale: float) -> int:
        """Return the largest score's index after noise from a stream."""
        if scale == 0.0:
            return int(scores.argmax())
        noise = self.draw(seed, start, scores.size)
        return int((scores + scale * noise).argmax())
