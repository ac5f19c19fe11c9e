"""A vector with noise whose density is proportional to exp(-norm2)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.base import Array, Mechanism, Release, Seed
from dp_erm_bench.releases.law import PureLaw


@dataclass(frozen=True)
class NormLaplaceLaw(PureLaw):
    """The law of ``NormLaplace``, of pure level sensitivity / scale."""

    name: ClassVar[str] = "norm_laplace"


class NormLaplace(Release):
    """A vector plus noise of density proportional to exp(-norm2(b) / scale).

    The vector changes between neighbours by at most the sensitivity in the euclidean
    norm. By the triangle inequality, the log-ratio of the densities is at most 1/z: the
    release is (1/z)-DP. The norm of the noise has a Gamma law of shape p, and its
    direction is uniform. In one dimension this is the Laplace release.

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
        """Return one noise vector of ``count`` entries, with scale 1.

        A normal vector gives the direction, and a sum of exponentials gives the norm.
        Vectors from disjoint draws share no random number: draw k uses only the places
        4 k .. 4 k + 3 of the stream.

        Parameters
        ----------
        seed : uint32 array of shape (4,)
            Seed of the stream.
        start : int
            Number of the first draw, from 0.
        count : int
            Length of the vector, and number of draws.
        """
        normal = draws.gaussian(seed, 4 * start, count)
        lengths = np.abs(draws.laplace(seed, 4 * start + count + count % 2, count))
        return np.asarray(normal * (lengths.sum() / np.linalg.norm(normal)))

    def unit(self, seed: Seed, start: int, uses: int, size: int) -> Array:
        """Return the noise of several uses, one vector each, of shape (uses, size).

        Parameters
        ----------
        seed, start, uses, size
            As in ``Release.unit``.
        """
        starts = [start + use * size for use in range(uses)]
        return np.stack([self.draw(seed, first, size) for first in starts])
