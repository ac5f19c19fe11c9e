"""Normal noise on a function of a sample of fixed size, without replacement."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp

from dp_erm_bench.kernels import draws
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.base import Mechanism, Release
from dp_erm_bench.releases.gaussian import GaussianLaw, gaussian_rdp
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats
from dp_erm_bench.releases.sampling import (
    Batch,
    SampledLaw,
    SampledRelease,
    SamplingMechanism,
)

ULPS = 1e-15
HIGHEST = 512
"""Renyi orders up to here are amplified; beyond, all records are charged."""
STEP, REACH = 0.05, 12.0
"""Spacing, and half of the window, of the quadrature, in deviations."""
UP = 1e-6
"""Relative margin over the error of the quadrature, measured at 1e-8."""


@functools.cache
def whole_orders() -> Floats:
    """Return the whole orders at which the bound is computed, 2 .. HIGHEST."""
    return np.arange(2.0, HIGHEST + 1)


def log_integral(logs: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Return log of the integrals of e^logs(t) / sqrt(2 pi), (m,) for m intervals.

    The trapezoidal rule; the integrands vanish, or are even, at the ends.
    """
    count = math.ceil(float((high - low).max()) / STEP)
    part = np.linspace(0.0, 1.0, count + 1)[1:]
    t = low[:, None] + (high - low)[:, None] * part
    steps = (high - low) / count / math.sqrt(2 * math.pi)
    return np.asarray(logsumexp(logs(t), axis=1) + np.log(steps) + UP)


@functools.lru_cache(maxsize=64)
def log_moments(d: float) -> Floats:
    """Return log of max(T_j, U_j) for j = 2 .. HIGHEST, see the law's docstring.

    T_j = e^(3 j^2 d^2/8 - j d^2/2) E |2 sinh(d t/2)|^j and U_j = E |e^(d t - d^2/2) -
    1|^j for a normal number t, the integrals of T_j and, on either side of d/2, of U_j
    with their peaks less than ``REACH`` from the ends of the intervals.
    """
    j = whole_orders()
    m, zero, root = j[:, None], np.zeros_like(j), np.sqrt(j)

    def grown(t: Floats) -> Floats:  # log(e^(d t) - 1)
        return d * t + np.log(-np.expm1(-d * t))

    triangle = log_integral(
        lambda t: m * (grown(t) - d * t / 2) - t * t / 2,
        np.maximum(zero, j * d / 2 - REACH),
        j * d / 2 + root + REACH,
    )
    triangle += math.log(2) + (3 * j * j / 8 - j / 2) * d * d
    above = log_integral(
        lambda t: m * grown(t) - (t + d / 2) ** 2 / 2,
        np.maximum(zero, (j - 0.5) * d - REACH),
        j * d + root + REACH,
    )
    below = log_integral(
        lambda t: m * (grown(t) - d * t) - (t - d / 2) ** 2 / 2,
        zero,
        d / 2 + root + REACH,
    )
    return np.maximum(triangle, np.logaddexp(above, below))


@functools.lru_cache(maxsize=512)
def log_sums(d: float, rate: float) -> Floats:
    """Return log(1 + sum_j C(r, j) q^j max(T_j, U_j)) for r in ``whole_orders``."""
    terms = whole_orders() * math.log(rate) + log_moments(d) + log_binomials()
    return np.asarray(np.logaddexp(0.0, logsumexp(terms, axis=1)))


@functools.cache
def log_binomials() -> Floats:
    """Return log C(r, j) for r and j in ``whole_orders``, -inf for j > r."""
    j = whole_orders()
    r = j[:, None]
    places = gammaln(np.maximum(r - j, 0.0) + 1)
    return np.where(j <= r, gammaln(r + 1) - gammaln(j + 1) - places, -np.inf)


@dataclass(frozen=True)
class FixedSizeGaussianLaw(SampledLaw):
    """The Gaussian mechanism on k of n records, drawn without replacement.

    Let d = 1 / (z weight). The record in which neighbours differ is in the sample with
    probability q = k/n. Draw the k - 1 other records of a sample that holds it, and one
    more record that takes its place in a sample that does not: given these, the answer
    has the law (1 - q) N_c + q N_a on D and (1 - q) N_c + q N_b on D', where N_x is the
    normal law around x and any two of a, b, c, in units of the noise, are within d:
    one record of the sample is exchanged. Renyi moments are jointly convex in the pair,
    so that the bound below holds for the mixtures over what was drawn. A Poisson sample
    of rate q has such a pair, given the coins of the others (``SampledRelease``).

    Let P, Q be the two laws. For whole orders, with W = (N_a - N_b) / Q,
    E_Q (P/Q)^r = 1 + sum_j C(r, j) q^j E_Q W^j over j = 2 .. r, and by the convexity
    of |x|^j y^(1 - j), E_Q |W|^j is at most the larger of E |(N_a - N_b)/N_x|^j under
    N_x, for x = b or c (Wang, Balle, Kasiviswanathan, "Subsampled Renyi differential
    privacy and analytical moments accountant", AISTATS 2019, section 3). That is where
    we depart from them: they bound this by the moments of N_a/N_c, we compute it.

    With A, B, D the squares of |a - c|, |b - c|, |a - b| it is, for a normal g,
    E |e^((j-1) A/2) X - e^((j-1) B/2)|^j for X = e^(sqrt(D) g - j D/2). As E X^j = 1
    it is symmetric in A and B. It grows with D: of phi(x) = |u x - v|^j, the drift
    (x^2 phi'' - (j - 1) x phi')/2 is j (j - 1) u v x |u x - v|^(j-2) / 2 >= 0. In
    u = e^((j-1) A/2) >= v it is convex and, being symmetric and homogeneous, grows at
    u = v, hence beyond. So its supremum is at A = D = d^2 and, by convexity in v, at
    B = d^2, a triangle of equal sides, or at B = 0, where c = b. These are T_j and U_j,
    U_j being also that of x = b; neither is the larger one at all j.

    (r - 1) D_r is convex in r and 0 at r = 1: between whole orders its chord is taken.
    Nothing is charged above the mechanism on all records (joint quasi-convexity).
    """

    name: ClassVar[str] = "fixed_size_gaussian"

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the smaller of the bound of the sample and that of all records."""
        whole, d = whole_orders(), 1 / self.multiplier(z)
        full = gaussian_rdp(orders, self.multiplier(z))
        # Beyond, a sample helps no longer and the quadrature needs too many nodes.
        if not 1e-150 < d < 1e3:
            return full
        nodes = np.append(1.0, whole), np.append(0.0, log_sums(d, self.rate))
        moments = np.interp(orders, *nodes, right=np.inf)
        return np.asarray(np.minimum(full, moments / (orders - 1)))

    def guess(self, square: float) -> float:
        """Return the z of s^2 = q^2 d^2."""
        return super().guess(square) * self.rate


class FixedSizeMechanism(SamplingMechanism):
    """Samples k of n records without replacement, in random order."""

    kind = "sample of fixed size"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self._used, self.is_secret = [0] * len(identities), True

    def size(self, n: int) -> int:
        """Return k, the records of a sample.

        Raises
        ------
        NotSampled
            If the rate that is charged is none of n records.
        """
        k = round(self.rate * n)
        # Of k / n alone: more records than are charged are not rounded away.
        if k < 1 or not math.isclose(self.rate, k / n, rel_tol=ULPS):
            self._refuse(f"that is no number of {n} records")
        return k

    def _sampled(self, trial: int, n: int, steps: int) -> Batch:
        k = self.size(n)
        start, self._used[trial] = self._used[trial], self._used[trial] + k * steps
        u = uniforms(self.sample_seeds[trial], start, k * steps).reshape(steps, k)
        records = [one for row in u for one in drawn(row, n)]
        return np.array(records, np.int64), k * np.arange(steps + 1)


def drawn(u: Floats, n: int) -> list[int]:
    """Return distinct numbers below n in random order, one per uniform.

    The shuffle of Fisher and Yates, of which only the entries that moved are kept.
    """
    moved: dict[int, int] = {}
    chosen = []
    for i, share in enumerate(u.tolist()):
        j = i + int(share * (n - i))
        chosen.append(moved.get(j, j))
        moved[j] = moved.get(i, i)
    return chosen


@dataclass(frozen=True, eq=False)
class FixedSizeGaussian(SampledRelease):
    """A function of k of n records, drawn without replacement, plus normal noise.

    The records come in random order, so that a query may tell their places apart. Its
    sensitivity is the largest change, in the euclidean norm, when one record of the
    sample is exchanged for any other, at the same place: 2 C for a sum of terms of
    norm at most C, under both adjacencies. For under ``zero_out``, too, another record
    takes the place of the one that is not sampled; only where both datasets have the
    record in the sample is the change C. To charge 2 C there, too, holds and is dear:
    3.3 to 4.2 times the Renyi divergence that is needed at usual noise.

    Parameters
    ----------
    rate : float
        k/n.
    halves : bool
        Whether the query is made of the sums over the sample, its first half and its
        second half: a record is in two of the three, so that the sensitivity of all
        together is sqrt(2) times that of one.
    """

    vectors: ClassVar[bool] = True
    halved: ClassVar[bool] = False
    mechanism: ClassVar[type[Mechanism]] = FixedSizeMechanism
    draw = staticmethod(draws.gaussian)
    halves: bool = False

    def law(self) -> Law:
        """Return the law of the sample; of all records, the Gaussian mechanism."""
        if self.rate == 1:
            return GaussianLaw(self.times, self.weight)
        return FixedSizeGaussianLaw(self.times, self.weight, self.rate)
