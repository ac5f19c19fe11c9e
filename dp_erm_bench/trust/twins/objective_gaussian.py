"""Second implementation (twin) of a minimiser with normal noise in its objective."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import (
    LARGEST_TILT,
    Array,
    Twin,
    log_moments_of_losses,
)


@dataclass(frozen=True)
class ObjectiveGaussianTwin(Twin):
    """Twin (second implementation) of a minimiser with normal noise in its objective.

    Attributes
    ----------
    curvature : float
        log(1 + beta / ridge) as declared, which does not depend on the noise.
    """

    curvature: float = 0.0

    def losses(self) -> tuple[Array, Array]:
        """Return losses c + m^2 / 2 + m |u| for normal u, and their masses.

        Here m = 1 / ratio and c is the curvature. The loss of a record's term in the
        objective is at most the loss returned.
        """
        nodes, weights = np.polynomial.legendre.leggauss(40)
        ends = np.linspace(0.0, 38.0, 400)
        half = np.diff(ends)[:, None] / 2
        u = (ends[:-1, None] + half * (1 + nodes)).ravel()
        masses = 2 * norm.pdf(u) * (half * weights).ravel()
        m = 1 / self.ratio
        return self.curvature + m * m / 2 + m * u, masses

    def terms(self, adjacency: Adjacency) -> int:
        """Return 2 if neighbours replace a record's term by another, else 1."""
        return 2 if adjacency is Adjacency.REPLACE_ONE else 1

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi divergence by quadrature; infinite if it is too large."""
        power = orders - 1
        tame = power / self.ratio < LARGEST_TILT
        curve = np.full(orders.shape, np.inf)
        curve[tame] = log_moments_of_losses(self.losses(), power[tame]) / power[tame]
        return curve

    @staticmethod
    def log_noise(size: Array) -> Array:
        """Return the log-density of noise from its norm, in units of its scale."""
        return np.asarray(-size * size / 2)
