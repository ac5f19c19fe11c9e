"""A minimiser with normal noise in its objective, a second time."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from dp_erm_bench.trust.twins.base import Array, Twin

LARGEST_TILT = 30.0


@dataclass(frozen=True)
class ObjectiveGaussianTwin(Twin):
    """A minimiser with normal noise in its objective.

    Attributes
    ----------
    curvature : float
        log(1 + beta / ridge): a fact of the objective, not of the noise, as declared.
    """

    curvature: float = 0.0

    def losses(self) -> tuple[Array, Array]:
        """Return nodes (losses, masses) of c + m^2 / 2 + m |u|, m = 1 / ratio.

        Over normal u. The loss of a record's term in an objective is at most that.
        """
        nodes, weights = np.polynomial.legendre.leggauss(40)
        ends = np.linspace(0.0, 38.0, 400)
        half = np.diff(ends)[:, None] / 2
        u = (ends[:-1, None] + half * (1 + nodes)).ravel()
        masses = 2 * norm.pdf(u) * (half * weights).ravel()
        m = 1 / self.ratio
        return self.curvature + m * m / 2 + m * u, masses

    def renyi(self, orders: Array) -> Array:
        """Return the divergence by quadrature, infinite where it is too large."""
        losses, masses = self.losses()
        power = orders - 1
        tame = power / self.ratio < LARGEST_TILT
        curve = np.full(orders.shape, np.inf)
        exponents = power[tame, None] * (losses - losses[0])
        largest = (exponents + np.log(np.maximum(masses, 1e-300))).max(axis=1)
        sums = np.exp(exponents - largest[:, None]) @ masses
        curve[tame] = losses[0] + (largest + np.log(sums)) / power[tame]
        return curve

    @staticmethod
    def log_noise(size: Array) -> Array:
        """Return the log-density of noise of a norm, in units of its scale."""
        return np.asarray(-size * size / 2)
