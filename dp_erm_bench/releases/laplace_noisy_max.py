"""Noisy maximum with Laplace noise on the scores."""

from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.base import Array, Seed
from dp_erm_bench.releases.law import PureLaw
from dp_erm_bench.releases.noisy_max import NoisyMax


@dataclass(frozen=True)
class NoisyMaxLaw(PureLaw):
    """The law of a noisy maximum, of pure level (1 + spread) sensitivity / scale.

    The likelihood ratio of a winner is at most e^((Delta_i + Delta_j)/b), with the
    noise scale b and the sensitivities Delta_i, Delta_j of two scores. Scores of
    gradients are not monotone: a record may raise one score and lower another.

    Attributes
    ----------
    spread : float
        Ratio kappa of the largest to the smallest score sensitivity, if each score has
        noise of its own scale.
    """

    name: ClassVar[str] = "pure"
    spread: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError unless the spread is finite and at least 1."""
        super().__post_init__()
        if not 1 <= self.spread < float("inf"):
            raise ValueError(f"spread={self.spread}: must be at least 1")

    def level(self, z: float) -> float:
        """Return the level of one use, its pure epsilon."""
        return (1.0 + self.spread) / self.multiplier(z)


class LaplaceNoisyMax(NoisyMax):
    """The index of the largest score after Laplace noise.

    Only the pure level 2 / z is proved: the mechanism is not of bounded range.

    References
    ----------
    Dwork and Roth, "The algorithmic foundations of differential privacy", 2014,
    section 3.3 (report noisy max).
    """

    proof = NoisyMaxLaw
    draw = staticmethod(draws.laplace)

    def winner(self, seed: Seed, start: int, scores: Array, scale: float) -> int:
        """Return the index of the largest score after noise from a stream.

        Parameters
        ----------
        seed, start, scores, scale
            As in ``NoisyMax.winner``.
        """
        noise = scale * self.draw(seed, start, scores.size)
        return int((scores + noise).argmax())
