"""A vector with noise of density exp(-norm2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.base import Array, Mechanism, Release, Seed
from dp_erm_bench.releases.law import PureLaw


@dataclass(frozen=True)
class NormLaplaceLaw(PureLaw):
    """A vector with noise of density exp(-norm2), of level sensitivity / scale."""

    name: ClassVar[str] = "norm_laplace"


class NormLaplace(Release):
    """A vector plus noise of density proportional to exp(-norm2(b) / scale).

    Neighbours move the vector by at most the sensitivity in the euclidean norm, so by
    the triangle inequality the log-ratio of the densities is at most 1/z: it is
    (1/z)-DP. The norm has a Gamma law of shape p, the direction is uniform; in one
    dimension it is the Laplace release.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, "Differentially private empirical risk
    minimization", JMLR 2011, Algorithm 1.
    """

    mechanism: ClassVar[type[Mechanism]] = AdditiveMechanism
    proof: ClassVar[type[PureLaw]] = NormLaplaceLaw
    vectors: ClassVar[bool] = True

    @staticmethod
    def draw(seed: Seed, start: int, count: int) -> Array:
        """Return one vector of ``count`` entries: draws from start of a stream.

        A normal vector gives the direction, a sum of exponentials the norm. Vectors
        over disjoint draws share nothing: draw k owns the places 4 k .. 4 k + 3.
        """
        normal = draws.gaussian(seed, 4 * start, count)
        lengths = np.abs(draws.laplace(seed, 4 * start + count + count % 2, count))
        return np.asarray(normal * (lengths.sum() / np.linalg.norm(normal)))

    def unit(self, seed: Seed, start: int, uses: int, size: int) -> Array:
        """Return the noise of some uses, (uses, size): one vector each."""
        starts = [start + use * size for use in range(uses)]
        return np.stack([self.draw(seed, first, size) for first in starts])
