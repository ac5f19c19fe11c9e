"""Normal noise on a number or a vector."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from scipy.special import erfcx, ndtr

from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats

TINY = 1e-5
"""Smallest mu for which the closed form of delta keeps enough digits.

The form loses about 1e-16 / mu of delta.
"""
LARGE = 40.0

ROUNDED = 1e-9
"""Allowed difference of the sum of the shares from 1."""


def log_gdp_delta(epsilon: float, mu: float) -> float:
    """Return the log of ``gdp_delta``, which is finite even for delta below 1e-308.

    Let s = eps/mu - mu/2 and r = eps/mu + mu/2. As r^2 - s^2 = 2 eps, both terms share
    the factor e^(-s^2/2): delta = e^(-s^2/2) (erfcx(s/sqrt2) - erfcx(r/sqrt2)) / 2,
    with erfcx(x) = e^(x^2) erfc(x). For s > 0, nothing over- or underflows. For s <= 0,
    the first term of the plain formula is at least 1/2. For tiny mu, the difference is
    computed as an integral, see :func:`tiny_log_delta`.
    """
    if mu <= 0:
        return -math.inf
    if mu < TINY:
        return tiny_log_delta(epsilon, mu)
    s, r = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    tail = float(erfcx(r / math.sqrt(2))) / 2
    if s > 0:
        gap = float(erfcx(s / math.sqrt(2))) / 2 - tail
        return math.log(gap) - s * s / 2 if gap > 0 else -math.inf
    value = float(ndtr(-s)) - math.exp(-s * s / 2) * tail
    return math.log(value) if value > 0 else -math.inf


def tiny_log_delta(epsilon: float, mu: float) -> float:
    """Return the logarithm of ``gdp_delta`` for mu < TINY, rounded up.

    Let M(x) = sqrt(pi/2) erfcx(x/sqrt2) be Mills' ratio, and N = -M' = 1 - x M. With s
    and r as in ``log_gdp_delta``, the difference there is sqrt(2/pi) times the integral
    of N over [s, r]. The middle of this interval is a = eps/mu, and its length is mu. N
    is convex and 0 <= N'' <= 2 N for x >= 0, so that the integral is at most mu N(a) (1
    + mu^2/12). The bound exceeds the integral by a share of at most 1e-11. For large a,
    N(a) is computed by its asymptotic series.
    """
    a = epsilon / mu
    if a < LARGE:
        slope = 1 - a * math.sqrt(math.pi / 2) * float(erfcx(a / math.sqrt(2)))
    else:
        slope = 1.0
        for odd in (13, 11, 9, 7, 5, 3):
            slope = 1 - odd / a / a * slope
        slope = slope / a / a
    if not slope > 0:
        return -math.inf
    s = a - mu / 2
    logs = math.log(mu) + math.log(slope) + math.log1p(mu * mu / 12)
    return logs - s * s / 2 - math.log(2 * math.pi) / 2


def gdp_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta at which mu-GDP is (epsilon, delta)-DP."""
    return math.exp(log_gdp_delta(epsilon, mu))


def gaussian_rdp(orders: Floats, z: float) -> Floats:
    """Return a Gaussian's Renyi curve alpha / (2 z^2) (Mironov 2017, Corollary 3)."""
    return orders / 2 / z / z


@dataclass(frozen=True)
class GaussianLaw(Law):
    """The law of the Gaussian mechanism."""

    name: ClassVar[str] = "gaussian"
    normal: ClassVar[bool] = True

    def mu_square(self, z: float) -> float:
        """Return mu^2 of all uses together; infinite if the noise is almost zero."""
        square = self.multiplier(z) ** 2
        return self.times / square if square > 0 else math.inf

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve alpha / (2 z^2)."""
        return gaussian_rdp(orders, self.multiplier(z))

    def rho(self, z: float) -> float:
        """Return rho of zCDP, 1 / (2 z^2) (Bun, Steinke, TCC 2016, Proposition 1.6)."""
        return 0.5 * (1 / self.multiplier(z)) ** 2

    def steepness(self, z: float) -> float:
        """Return mu of all uses, which are composed as one mechanism."""
        return 1 / self.multiplier(z) * math.sqrt(self.times)

    def library_event(self, z: float) -> Any:
        """Return the Gaussian event of dp_accounting."""
        from dp_accounting import GaussianDpEvent

        return GaussianDpEvent(self.multiplier(z))


class Gaussian(Release):
    """A number or vector plus normal noise of standard deviation z * sensitivity.

    The sensitivity of a vector is in the euclidean norm.
    """

    vectors: ClassVar[bool] = True
    mechanism = AdditiveMechanism
    proof = GaussianLaw
    draw = staticmethod(draws.gaussian)


def divide_mu(shares: Sequence[tuple[Release, float]]) -> Iterator[Gaussian]:
    """Yield Gaussian releases, each with the weight that gives it its share of mu^2.

    T uses of a Gaussian mechanism with noise z w times its sensitivity are mu-GDP with
    mu^2 = T / (z w)^2, and the mu^2 of all releases add up (Dong, Roth, Su 2022,
    Corollary 3.3). With w = sqrt(T / share), a release has mu^2 = share / z^2 for any
    T. Shares that add up to 1 give mu = 1 / z.

    Parameters
    ----------
    shares : sequence of (Gaussian, float)
        Releases, whose own weights are ignored, and their shares, in (0, 1), which add
        up to 1.

    Raises
    ------
    UsageError
        For shares that do not satisfy this, or for a release that is not Gaussian.
    """
    for release, share in shares:
        if type(release) is not Gaussian:
            raise UsageError(
                f"release {release.name}: shares of mu^2 are for Gaussian releases "
                f"only, not for {type(release).__name__}"
            )
        if not 0.0 < share < 1.0:
            raise UsageError(
                f"release {release.name}: share={share} must be a number > 0 and < 1"
            )
    total = math.fsum(share for _, share in shares)
    if abs(total - 1.0) > ROUNDED:
        raise UsageError(f"shares of mu^2 add up to {total:.6g}, but must add up to 1")
    for release, share in shares:
        weight = math.sqrt(release.times / share) if release.times else 1.0
        yield Gaussian(release.name, release.sensitivity, release.times, weight)
