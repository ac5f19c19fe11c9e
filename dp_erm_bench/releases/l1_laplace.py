"""A vector with Laplace noise on each entry."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.base import Array, Mechanism, Release
from dp_erm_bench.releases.laplace import LaplaceLaw


class L1Mechanism(Mechanism):
    """Publishes a vector of each trial, with independent noise on every entry."""

    order = 1.0

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        # One number bounds the l1 norm of the change; a row bounds each entry.
        self.vector = self.scale.shape[1] == 1

    def publish(self, value: Array) -> Array:
        """Return the noisy vectors, of shape (B, size)."""
        return value + self.unit_noise(1, value.shape[1])[:, 0] * self.scale

    def query(self, value: Array) -> Array:
        """Return the vectors before noise, of shape (B, size)."""
        return value


@dataclass(frozen=True, eq=False)
class L1Laplace(Release):
    """A vector plus Laplace noise of scale z * sensitivity on each entry.

    The sensitivity bounds the change of the vector between neighbours in the l1 norm.
    The vector is then as private as one number that changes by as much (``Laplace``),
    of pure level 1/z:

    1. Let d_j be the change of entry j in units of the noise scale. The absolute values
       add up to t <= 1/z. The log-ratio of the densities is at most t.
    2. Go from one dataset to the other by changing one entry at a time. The two laws of
       step j are no easier to distinguish than those of one number at 0 and at d_j: the
       trade-off function of the Laplace law F is f_d(a) = F(F^-1(1 - a) - |d|). If no
       test distinguishes P from Q better than f allows, nor Q from R better than g,
       then none distinguishes P from R better than g(1 - f(a)) (Dong, Roth, Su 2022,
       section 2.5, group privacy). And
       f_d(1 - f_e(a)) = F(F^-1(f_e(a)) - |d|) = f_(|d| + |e|)(a). So all steps together
       are no worse than f_t, the function of one number. Its dominating pair, and hence
       its PLD and Renyi curve, are those of the vector.

    Parameters
    ----------
    sensitivity : float or array of shape (1 or B, 1), or (1, p)
        The largest l1 norm of the change. A row Delta_1 .. Delta_p of more than one
        entry bounds the change of each entry instead. The noise of entry j then has
        scale z * p * Delta_j, so that each of the p numbers takes an equal part of the
        level. Entries with Delta_j = 0 are published without noise.
    weight : float
        For a row, this is set to its length p.
    epsilon_share : float, optional
        The part of the budget's epsilon that the release takes, in (0, 1). It fixes the
        noise, whatever else is released. With None, the release has the common z.

    References
    ----------
    Dwork and Roth, "The Algorithmic Foundations of Differential Privacy", 2014,
    Theorems 3.6 and 3.16.
    """

    mechanism = L1Mechanism
    draw = staticmethod(draws.laplace)
    vectors: ClassVar[bool] = True
    epsilon_share: float | None = None

    def __post_init__(self) -> None:
        """Check the share of epsilon, and set the weight of a row to its length."""
        share = self.epsilon_share
        if share is not None and not 0.0 < share < 1.0:
            raise UsageError(f"epsilon_share={share}: must be in (0, 1)")
        if self.entries != 1:
            object.__setattr__(self, "weight", float(max(1, self.entries)))

    @property
    def entries(self) -> int:
        """Return the length of a row of sensitivities, 1 for one number."""
        return int(np.atleast_2d(self.sensitivity).shape[1])

    def law(self) -> LaplaceLaw:
        """Return the law of one number, or of the entries of a row."""
        return LaplaceLaw(self.times * self.entries, self.weight)

    def multiplier(self, epsilon: float) -> float:
        """Return the z for the release's share of epsilon, 0 if epsilon is infinite."""
        if self.epsilon_share is None:
            raise ValueError(f"release {self.name} takes no share of the budget")
        return 1.0 / (self.epsilon_share * epsilon)


Shared = tuple[L1Laplace, ...]
