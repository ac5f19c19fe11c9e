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
    """Publishes a vector of each trial, every entry with noise of its own."""

    order = 1.0

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        # One number bounds the l1 norm of the change, a row each of its entries.
        self.vector = self.scale.shape[1] == 1

    def publish(self, value: Array) -> Array:
        """Return the noisy vectors, (B, size)."""
        return value + self.unit_noise(1, value.shape[1])[:, 0] * self.scale

    def query(self, value: Array) -> Array:
        """Return the vectors."""
        return value


@dataclass(frozen=True, eq=False)
class L1Laplace(Release):
    """A vector, each entry plus Laplace noise of scale z * sensitivity.

    Neighbours move the vector by at most the sensitivity in the l1 norm. It is then as
    private as one number that moves by as much (``Laplace``), of pure level 1/z:

    1. Let d_j be the change of entry j in units of the noise scale; their absolute
       values add up to t <= 1/z. The log-ratio of the densities is at most t.
    2. Go from one dataset to the other by changing one entry at a time. Step j tells
       two laws apart no better than the number tells 0 from d_j: the trade-off function
       of the Laplace law F is f_d(a) = F(F^-1(1 - a) - |d|). Where no test tells P from
       Q better than f allows, nor Q from R better than g, none tells P from R better
       than g(1 - f(a)) (Dong, Roth, Su 2022, section 2.5, group privacy). And
       f_d(1 - f_e(a)) = F(F^-1(f_e(a)) - |d|) = f_(|d| + |e|)(a). So all steps
       together are no worse than f_t, that of one number: its dominating pair, hence
       its PLD and Renyi curve, are those of the vector.

    Parameters
    ----------
    sensitivity : float or array of shape (1 or B, 1), or (1, p)
        The largest l1 norm of the change. A row Delta_1 .. Delta_p of more than one
        entry bounds each entry instead: the noise of entry j has scale z * p * Delta_j,
        so that it is p numbers of an equal part of the level each; entries with
        Delta_j = 0 are published as they are.
    weight : float
        Of a row it is its length p.
    epsilon_share : float, optional
        The part of the budget's epsilon that it takes, in (0, 1); its noise is fixed
        by that, whatever else is released. None: it shares the common z.

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
        """Weigh every entry of a row with its length."""
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
        """Return the z of its share of a budget's epsilon, 0 at infinity."""
        if self.epsilon_share is None:
            raise ValueError(f"release {self.name} takes no share of the budget")
        return 1.0 / (self.epsilon_share * epsilon)


Shared = tuple[L1Laplace, ...]
