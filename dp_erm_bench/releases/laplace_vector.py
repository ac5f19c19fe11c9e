"""A vector with Laplace noise that takes a fixed share of epsilon."""

from dataclasses import dataclass

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.base import Array, Mechanism, Release
from dp_erm_bench.releases.laplace import LaplaceLaw


class EntrywiseMechanism(Mechanism):
    """Publishes a vector of each trial, every entry with noise of its own scale."""

    def publish(self, value: Array) -> Array:
        """Return the noisy vectors, (B, size)."""
        return value + self.unit_noise(1, value.shape[1])[:, 0] * self.scale

    def query(self, value: Array) -> Array:
        """Return the vectors."""
        return value


@dataclass(frozen=True, eq=False)
class LaplaceVector(Release):
    """A vector, each entry plus Laplace noise of scale z * size * sensitivity_j.

    Neighbours move entry j by at most its sensitivity Delta_j, so the log-ratio of
    the densities is at most sum_j Delta_j / (z size Delta_j) = 1 / z: the vector is
    (1/z)-DP, each of its entries taking an equal part (Dwork and Roth, 2014,
    Theorems 3.6 and 3.16). Entries of sensitivity 0 are published as they are.

    Parameters
    ----------
    epsilon_share : float
        The part of the budget's epsilon that it takes, in (0, 1).
    """

    mechanism = EntrywiseMechanism
    draw = staticmethod(draws.laplace)
    epsilon_share: float = 0.1

    def __post_init__(self) -> None:
        """Weigh every entry with the size of the vector."""
        if not 0.0 < self.epsilon_share < 1.0:
            raise UsageError(f"epsilon_share={self.epsilon_share}: must be in (0, 1)")
        object.__setattr__(self, "weight", float(max(1, self.size)))

    @property
    def size(self) -> int:
        """Return the number of entries."""
        return int(np.shape(self.sensitivity)[-1])

    def law(self) -> LaplaceLaw:
        """Return ``size`` Laplace mechanisms of an equal part each."""
        return LaplaceLaw(self.times * self.size, self.weight)

    def multiplier(self, epsilon: float) -> float:
        """Return the z of its share of a budget's epsilon, 0 at infinity."""
        return 1.0 / (self.epsilon_share * epsilon)


Shared = tuple[LaplaceVector, ...]
