"""Normal noise on a random sketch of a vector; the sketch is published, too.

After the mechanism gets the vector v, it draws A, an m x p matrix with entries
N(0, 1/m). It publishes A and b = A v + N(0, scale^2 I_m). The privacy loss is as
follows:

1. Let d = v - v' be the change between neighbours, norm2(d) <= Delta. It is fixed
   before A is drawn, and A has the same law for both. So the loss is that of b given A:
   two normal laws whose means are norm2(A d) apart, mu-GDP with
   mu = norm2(A d) / scale.
2. A d / norm2(d) has the law N(0, I_m / m): norm2(A d) = R norm2(d), where R^2 m has
   the law chi^2_m. norm2(A d) is above norm2(d) half of the time: noise for the change
   of v alone is too small.
3. Given A, the profile is that of a Gaussian, hence
   delta(eps) = E H(eps, R Delta / scale), H(eps, mu) the profile of mu-GDP. Each term
   grows with norm2(d), so Delta is the worst. Other Gaussian releases, of mu' in total,
   add in quadrature for each R. This is exact, not a bound.
4. Renyi, with z = scale / Delta: E e^(a (a-1) R^2 / (2 z^2)) is the moment of chi^2_m,
   (1 - a (a-1) / (m z^2))^(-m/2). It is infinite if a (a-1) >= m z^2.

This holds for a vector that depends on earlier answers, but not for one that depends on
A. Nobody knows A before the mechanism gets the vector. No restricted isometry is
needed.

References
----------
Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
sparse gradients", NeurIPS 2024, Algorithm 2 (with a condition on A in place of step 3).
"""

import functools
import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import erfcx, ndtr
from scipy.stats import chi2

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.base import Array, Mechanism, Release
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats

CUT_OFF = 1e-40
"""Probability that R exceeds the largest node of its quadrature."""
RATIO, SHORTEST, PANELS, ORDER = 1.05, 1e-8, 48, 8
"""Parameters of the panels on which R is integrated.

These are the ratio of successive ends, the first end divided by the last, the number of
panels across the law, and the number of nodes per panel.
"""
RESOLVED = 500.0
"""Largest epsilon for which the panels resolve the growth of H with R."""
MARGIN = 1.0 + 1e-9
"""Relative margin for the error of the quadrature."""


@functools.lru_cache(maxsize=64)
def nodes_of(rows: int) -> tuple[Floats, Floats]:
    """Return values of R and their masses, for integrals of increasing functions.

    The profile H rises where R is about sqrt(2 eps) scale / Delta, which may be very
    small. So the panels grow with R. All mass below the first panel is put at the
    panel's lower end.
    """
    low, high = np.sqrt([chi2.ppf(CUT_OFF, rows), chi2.isf(CUT_OFF, rows)])
    count = math.ceil(-math.log(SHORTEST) / math.log(RATIO))
    grown = np.geomspace(SHORTEST * high, high, count + 1)
    across = np.linspace(max(low, grown[0]), high, PANELS + 1)
    breaks = np.union1d(grown, across)
    x, weights = np.polynomial.legendre.leggauss(ORDER)
    half = np.diff(breaks)[:, None] / 2
    root = (breaks[:-1, None] + half * (1 + x)).ravel()
    # The density of chi_m is 2 t f(t^2), f that of chi^2_m.
    masses = 2 * root * chi2.pdf(root * root, rows) * (half * weights).ravel()
    below = chi2.cdf(breaks[0] ** 2, rows)
    return np.append(root, breaks[0]) / math.sqrt(rows), np.append(masses, below)


def gdp_deltas(epsilon: float, mu: Floats) -> Floats:
    """Return delta of mu-GDP at an epsilon for each mu > 0, as in ``gdp_delta``."""
    s, r = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    far = np.exp(-s * s / 2) * erfcx(r / math.sqrt(2)) / 2
    return np.asarray(np.maximum(ndtr(-s) - far, 0.0))


@dataclass(frozen=True)
class SketchedGaussianLaw(Law):
    """The law of a sketch of length ``rows`` with normal noise."""

    name: ClassVar[str] = "sketched_gaussian"
    profiled: ClassVar[bool] = True
    rows: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError if a parameter is outside its range."""
        super().__post_init__()
        if self.rows < 1:
            raise ValueError(f"rows={self.rows}: must be at least 1")

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve of the module's step 4, which may be infinite."""
        share = orders * (orders - 1) / self.multiplier(z) ** 2 / self.rows
        with np.errstate(divide="ignore"):
            moment = -self.rows / 2 * np.log1p(-np.minimum(share, 1.0))
        return np.asarray(moment / (orders - 1))

    def delta(self, epsilon: float, z: float, mu: float) -> float:
        """Return the delta of step 3 of the module's docstring, rounded up.

        Parameters
        ----------
        epsilon, z, mu : float
            As in ``Law.delta``.
        """
        lengths, masses = nodes_of(self.rows)
        epsilon = min(epsilon, RESOLVED)
        apart = np.hypot(lengths / self.multiplier(z), mu)
        found = float(masses @ gdp_deltas(epsilon, apart))
        return min(1.0, MARGIN * found + CUT_OFF)


class SketchMechanism(Mechanism):
    """Draws a sketch matrix for a vector, and publishes it with the noisy product."""

    vector = True
    release: "SketchedGaussian"

    def publish(self, value: Array) -> Array:
        """Return the sketch A with the noisy product as last column.

        Parameters
        ----------
        value : array of shape (B, p)
            The vector v of each trial. The result has the shape (B, m, p + 1).
        """
        rows, start = self.release.rows, self._drawn
        normal = self.unit_noise(1, self.release.draws_of(value.shape[1]))[:, 0]
        if not self.scale.any():
            # A is not noise: the same A is drawn if there is no noise.
            for seed, row in zip(self.seeds, normal, strict=True):
                row[rows:] = draws.gaussian(seed, start + rows, row.size - rows)
        sketch = normal[:, rows:].reshape(-1, rows, value.shape[1]) / math.sqrt(rows)
        noise = (normal[:, :rows] * self.scale)[:, :, None]
        return np.concatenate([sketch, sketch @ value[:, :, None] + noise], axis=2)

    def query(self, value: Array) -> Array:
        """Return the vectors v; given A, the product A v may change by more than v."""
        return value


@dataclass(frozen=True, eq=False)
class SketchedGaussian(Release):
    """Publishes a random sketch A of a vector v, and A v plus normal noise.

    Parameters
    ----------
    sensitivity : float
        The largest change of v in the euclidean norm. The standard deviation of the
        noise is z * sensitivity.
    rows : int
        The length m of the sketch.
    """

    mechanism = SketchMechanism
    vectors: ClassVar[bool] = True
    proof = SketchedGaussianLaw
    draw = staticmethod(draws.gaussian)
    rows: int = field(kw_only=True)

    def draws_of(self, size: int) -> int:
        """Return the number of draws: m for the noise, then those for the sketch."""
        return self.rows * (size + 1)
