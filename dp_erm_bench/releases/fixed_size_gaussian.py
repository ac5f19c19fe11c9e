"""Normal noise on a function of a fixed-size sample, drawn without replacement."""

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
"""Highest Renyi order with amplification by sampling.

Above it, the mechanism on all records is charged.
"""
STEP, REACH = 0.05, 12.0
"""Spacing and half width of the quadrature, in standard deviations."""
WIDEST, STEEPEST = 40.0, 8.0
"""Largest order times d, and largest d, at which ``log_profiles`` is integrated."""
PIECE = 8
UP = 1e-6
"""Relative margin for the error of the quadrature, which was measured at 1e-8."""


@functools.cache
def whole_orders() -> Floats:
    """Return the whole orders at which the bound is computed, 2 .. HIGHEST."""
    return np.arange(2.0, HIGHEST + 1)


def log_integral(logs: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
    """Return the logs of the integrals of e^logs(t) / sqrt(2 pi) over m intervals.

    The trapezoidal rule is used: the integrands vanish at the ends, or are even there.

    Parameters
    ----------
    logs : callable
        Maps points, shape (m, k), to the logs of the integrands at the points. Each row
        belongs to one interval.
    low, high : arrays of shape (m,)
        Ends of the intervals.
    """
    count = math.ceil(float((high - low).max()) / STEP)
    part = np.linspace(0.0, 1.0, count + 1)[1:]
    t = low[:, None] + (high - low)[:, None] * part
    steps = (high - low) / count / math.sqrt(2 * math.pi)
    return np.asarray(logsumexp(logs(t), axis=1) + np.log(steps) + UP)


@functools.lru_cache(maxsize=64)
def log_moments(d: float) -> Floats:
    """Return log max(T_j, U_j), as in `FixedSizeGaussianLaw`, for j = 2 .. HIGHEST.

    T_j = e^(3 j^2 d^2/8 - j d^2/2) E |2 sinh(d t/2)|^j for a standard normal t. The
    interval of the integral extends at least ``REACH`` beyond its peak, or begins at 0.
    """
    j = whole_orders()
    m, zero, root = j[:, None], np.zeros_like(j), np.sqrt(j)
    triangle = log_integral(
        lambda t: m * (log_growth(t, d) - d * t / 2) - t * t / 2,
        np.maximum(zero, j * d / 2 - REACH),
        j * d / 2 + root + REACH,
    )
    triangle += math.log(2) + (3 * j * j / 8 - j / 2) * d * d
    return np.maximum(triangle, log_pair_moments(d))


def log_growth(t: Floats, d: float) -> Floats:
    """Return log(e^(d t) - 1)."""
    return d * t + np.log(-np.expm1(-d * t))


@functools.lru_cache(maxsize=64)
def log_pair_moments(d: float) -> Floats:
    """Return log U_j = log E |e^(d t - d^2/2) - 1|^j for j = 2 .. HIGHEST, t normal.

    The integrals on both sides of d/2 are added. Their intervals are as in
    ``log_moments``.
    """
    j = whole_orders()
    m, zero, root = j[:, None], np.zeros_like(j), np.sqrt(j)
    above = log_integral(
        lambda t: m * log_growth(t, d) - (t + d / 2) ** 2 / 2,
        np.maximum(zero, (j - 0.5) * d - REACH),
        j * d + root + REACH,
    )
    below = log_integral(
        lambda t: m * (log_growth(t, d) - d * t) - (t - d / 2) ** 2 / 2,
        zero,
        d / 2 + root + REACH,
    )
    return np.logaddexp(above, below)


@functools.lru_cache(maxsize=64)
def log_row_moments(d: float) -> Floats:
    """Return log V_j, V_j = E |(N_2d - N_d)/N_0|^j under N_0, for j = 2 .. HIGHEST.

    N_x is the normal law around x. Let t be the distance to 3d/2. Then |N_2d - N_d| is
    e^(-t^2/2 - d^2/8) 2 sinh(d t/2) on both sides, and N_0 is
    e^(-t^2/2 -+ 3 d t/2 - 9 d^2/8), with - above 3d/2 and + below it. The
    intervals are as in ``log_moments``.
    """
    j = whole_orders()
    m, zero, root = j[:, None], np.zeros_like(j), np.sqrt(j)
    peak = (2 * j - 1.5) * d
    above = log_integral(
        lambda t: (
            m * (log_growth(t, d) - d * t / 2) + 1.5 * (m - 1) * d * t - t * t / 2
        ),
        np.maximum(zero, peak - REACH),
        peak + root + REACH,
    )
    below = log_integral(
        lambda t: (
            m * (log_growth(t, d) - d * t / 2) - 1.5 * (m - 1) * d * t - t * t / 2
        ),
        zero,
        root + REACH,
    )
    return np.logaddexp(above, below) + (j - 9 / 8) * d * d


@functools.lru_cache(maxsize=512)
def log_sums(d: float, rate: float, zeroed: bool = False) -> Floats:
    """Return log(1 + sum_j C(r, j) q^j M_j) for r in ``whole_orders``.

    M_j is max(T_j, U_j), or (1 - q) V_j + q U_j if ``zeroed``.

    Parameters
    ----------
    d : float
        Sensitivity / noise scale.
    rate : float
        q, in (0, 1).
    zeroed : bool
        As in `FixedSizeGaussian`.
    """
    if zeroed:
        row = math.log1p(-rate) + log_row_moments(d)
        logs = np.logaddexp(row, math.log(rate) + log_pair_moments(d))
    else:
        logs = log_moments(d)
    terms = whole_orders() * math.log(rate) + logs + log_binomials()
    return np.asarray(np.logaddexp(0.0, logsumexp(terms, axis=1)))


def log_excess(log_gap: Floats, r: Floats, rises: bool) -> Floats:
    """Return log(t^r - 1 - r (t - 1)), where t is 1 + e^log_gap or its inverse.

    Parameters
    ----------
    log_gap : array
        Logarithm of the number that is added to 1.
    r : array, broadcastable to ``log_gap``
        Renyi orders above 1.
    rises : bool
        True for t = 1 + e^log_gap, False for its inverse.
    """
    log_t = np.logaddexp(0.0, log_gap)
    if not rises:
        log_t, log_gap = -log_t, log_gap - log_t
    is_near = np.log(r) + log_gap < math.log(1e-3)
    gap = np.exp(np.where(is_near, log_gap, -np.inf)) * (1.0 if rises else -1.0)
    bend = np.log1p((r - 2) * gap / 3 * (1 + (r - 3) * gap / 4))
    near = 2 * log_gap + np.log(r * (r - 1) / 2) + bend
    with np.errstate(divide="ignore", invalid="ignore"):
        if rises:
            line = np.logaddexp(0.0, np.log(r) + log_gap)
            far = r * log_t + np.log1p(-np.exp(line - r * log_t))
        else:
            far = np.log(np.expm1(r * log_t) + r * np.exp(log_gap))
    return np.where(is_near, near, far)


@functools.lru_cache(maxsize=512)
def log_profiles(d: float, rate: float, orders: tuple[float, ...]) -> Floats:
    """Return log(1 + s) for each order r > 1, where s is the larger of two sums.

    The larger sum gives the second bound of `FixedSizeGaussianLaw`, whose docstring
    defines the sums, the laws P and Q, and the means a, b and c. The result is infinite
    if r d is so large that a sample does not help.

    Means are in units of the noise scale. In the opposite pair b is 0, a is d and c is
    -d, so that P > Q for t > d/2. In the equal pair a and c are 0 and b is d, so that Q
    > P for t > d/2. Each integral is over t > d/2.

    Parameters
    ----------
    d : float
        Sensitivity / noise scale.
    rate : float
        q, in (0, 1).
    orders : tuple of float
        The orders r.
    """
    sums = np.full(len(orders), np.inf)
    most = min(float(HIGHEST), WIDEST / d) if d <= STEEPEST else 0.0
    kept = np.flatnonzero(np.array(orders) <= most)

    def part(some: Floats, opposite: bool, rises: bool) -> Floats:
        r = some[:, None]

        def logs(t: Floats) -> Floats:
            # Logs of the smaller law, relative to N_0, and of the gap, relative to it.
            lower = np.zeros_like(t)
            if opposite:
                c = math.log1p(-rate) - d * t - d * d / 2
                lower = np.logaddexp(c, math.log(rate))
            gap = math.log(rate) + log_growth(t - d / 2, d) - lower
            under = lower if rises else lower + np.logaddexp(0.0, gap)
            return under - t * t / 2 + log_excess(gap, r, rises)

        reach = (2 * some if rises else np.full_like(some, 4.0)) * d
        return log_integral(logs, np.full_like(some, d / 2), reach + REACH)

    # In pieces: each has as many nodes as its widest interval needs.
    for k in range(0, kept.size, PIECE):
        piece = kept[k : k + PIECE]
        some = np.array(orders)[piece]
        first = np.logaddexp(part(some, True, True), part(some, False, False))
        second = np.logaddexp(part(some, False, True), part(some, True, False))
        sums[piece] = np.logaddexp(0.0, np.maximum(first, second))
    return sums


@functools.cache
def log_binomials() -> Floats:
    """Return log C(r, j) for r and j in ``whole_orders``, -inf for j > r."""
    j = whole_orders()
    r = j[:, None]
    places = gammaln(np.maximum(r - j, 0.0) + 1)
    return np.where(j <= r, gammaln(r + 1) - gammaln(j + 1) - places, -np.inf)


@dataclass(frozen=True)
class FixedSizeGaussianLaw(SampledLaw):
    """The law of the Gaussian mechanism on k of n records, drawn without replacement.

    Let d = 1 / (z weight). The record in which neighbours differ is in the sample with
    probability q = k/n. Draw the k - 1 other records of a sample that contains it, and
    one more record that takes its place in a sample that does not. Given these records,
    the answer has the law (1 - q) N_c + q N_a on D and (1 - q) N_c + q N_b on D'. N_x
    is the normal law around x, and any two of a, b, c are within d in units of the
    noise, because one record of the sample is exchanged. Renyi moments are jointly
    convex in the pair, so that the bound below holds for the mixtures over these draws.
    A Poisson sample of rate q has such a pair, given the coins of the other records
    (``SampledRelease``).

    Let P, Q be the two laws. For whole orders, with W = (N_a - N_b) / Q,
    E_Q (P/Q)^r = 1 + sum_j C(r, j) q^j E_Q W^j over j = 2 .. r. By the convexity of
    |x|^j y^(1 - j), E_Q |W|^j is at most the larger of E |(N_a - N_b)/N_x|^j under
    N_x, for x = b or c (Wang, Balle, Kasiviswanathan, "Subsampled Renyi differential
    privacy and analytical moments accountant", AISTATS 2019, section 3). Here we depart
    from them: they bound this by the moments of N_a/N_c, and we compute it.

    Let A, B, D be the squares of |a - c|, |b - c|, |a - b|, and g standard normal. Then
    the moment for x = c is E |e^((j-1) A/2) X - e^((j-1) B/2)|^j, with
    X = e^(sqrt(D) g - j D/2). As E X^j = 1, it is symmetric in A and B. It grows with
    D: for phi(x) = |u x - v|^j, the drift (x^2 phi'' - (j - 1) x phi')/2 is
    j (j - 1) u v x |u x - v|^(j-2) / 2 >= 0. In u = e^((j-1) A/2) >= v it is convex. As
    it is symmetric and homogeneous, it grows at u = v, hence beyond. So its supremum is
    at A = D = d^2 and, by convexity in v, at B = d^2, a triangle of equal sides, or at
    B = 0, where c = b. These are T_j and U_j. U_j is also the moment for x = b. Neither
    is the larger one at all j.

    (r - 1) D_r is convex in r and 0 at r = 1: between whole orders, its chord is taken.
    No more is charged than for the mechanism on all records (joint quasi-convexity).

    **Zeroed.** Under ``zero_out``, let b be the mean where our record's term is 0, and
    d the norm of any record's term: a and c are within d of b, and within 2 d of each
    other. As |x|^j y^(1 - j) is convex in y and Q = (1 - q) N_c + q N_b, E_Q |W|^j is
    at most (1 - q) E |(N_a - N_b)/N_c|^j + q E |(N_a - N_b)/N_b|^j, under N_c and N_b.
    The second moment grows with D, to U_j at D = d^2. The first one is symmetric in A
    and B and grows with D, see above: let A >= B and D = d^2, where A is at most
    (s + d)^2 for s = sqrt(B) <= d. It grows with A up to its value for three points in
    a row, c, b, a at 0, s, s + d: e^(j (j-1) s^2/2) E |e^((j-1) s d) Y - 1|^j, with
    Y = e^(d g - d^2/2). In e^((j-1) s d) it is convex, and its slope at s = 0 is
    j E |Y - 1|^(j-1) sign(Y - 1) Y. Under the law weighted by Y, log Y is normal around
    d^2/2 > 0, and as e^t - 1 >= 1 - e^-t the slope is >= 0: it grows with s, to V_j at
    s = d. So both moments are largest at the same triple, c, b, a at 0, d, 2 d: the
    term of the other record is opposite to ours (the terms are -C, 0 and C). For P in
    place of Q, exchange a and b: N_a - N_b changes its sign, the second moment is U_j
    again, and the first one, symmetric in A and B, is V_j. So one bound holds for both
    directions,

        E |W|^j <= (1 - q) V_j + q U_j.

    On all records, the mechanism is charged at d, not 2 d: in a coupled pair the
    components N_c are equal, and N_a and N_b are within d. All that was used is that a
    and b, and b and c, are within d. So the bound also holds under ``replace_one``,
    where d is twice the bound on a term, but it is larger there.

    Which triple is the worst depends on the direction. For e >= 0, the hockey-stick
    divergence of P from Q, the largest P(S) - e^e Q(S), is E_b phi(u, v) with
    phi = (q u - (1 - q)(e^e - 1) v - q e^e)+, u = N_a/N_b, v = N_c/N_b. The logs of u
    and v are normal, with variances k, l, means -k/2, -l/2 and covariance
    x = (a - b)(c - b). By the heat equation, its slopes in k, l, x are E u^2 phi_uu / 2
    and E v^2 phi_vv / 2, both >= 0 because phi is convex, and E u v phi_uv, which has
    the sign of the product of the coefficients of u and v, <= 0. So the largest
    k = l = d^2 and the least x = -d^2 are the worst: opposite terms. In the divergence
    of Q from P, both coefficients are <= 0 and that slope is >= 0: equal terms, a = c,
    are the worst, where P = N_a and the pair is that of a removed record over a Poisson
    sample. The moment is E_Q f(P/Q) + 1, f(t) = t^r - 1 - r (t - 1). Any such
    divergence is a mixture, with weights f''(s) and f''(1/s)/s^3, s > 1, of
    hockey-stick divergences of P from Q, which make up its part where P > Q, and of Q
    from P, which make up its part where P < Q. So it is at most the part of the
    opposite pair where P > Q plus the part of the equal pair where P < Q. Likewise,
    E_P f(Q/P) is at most the part of the equal pair where Q > P plus the part of the
    opposite pair where Q < P. The larger sum is the second bound. It is up to 1.26
    times the divergence of the opposite pair. The first bound is close to that
    divergence for small q and d, and far above it for large ones. The smaller of the
    two bounds is charged.
    """

    name: ClassVar[str] = "fixed_size_gaussian"
    zeroed: bool = False

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the smaller of the bounds for the sample and for all records."""
        whole, d = whole_orders(), 1 / self.multiplier(z)
        full = gaussian_rdp(orders, self.multiplier(z))
        # Beyond, a sample does not help and the quadrature needs too many nodes.
        if not 1e-150 < d < 1e3:
            return full
        sums = log_sums(d, self.rate, self.zeroed)
        nodes = np.append(1.0, whole), np.append(0.0, sums)
        moments = np.interp(orders, *nodes, right=np.inf)
        if self.zeroed:
            parts = log_profiles(d, self.rate, tuple(orders.tolist()))
            moments = np.minimum(moments, parts)
        return np.asarray(np.minimum(full, moments / (orders - 1)))

    def guess(self, square: float) -> float:
        """Return the z at which the mean squared privacy loss is about ``square``.

        The mean squared privacy loss is taken as q^2 d^2, with d = 1 / (z weight).
        """
        return super().guess(square) * self.rate


class FixedSizeMechanism(SamplingMechanism):
    """Samples k of n records without replacement, in random order."""

    kind = "sample of fixed size"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self._used, self.is_secret = [0] * len(identities), True

    def size(self, n: int) -> int:
        """Return k, the number of records in a sample.

        Raises
        ------
        NotSampled
            If the rate that is charged is not k / n for a whole number k > 0.
        """
        k = round(self.rate * n)
        # Only k / n is accepted: rounding must not add records that are not charged.
        if k < 1 or not math.isclose(self.rate, k / n, rel_tol=ULPS):
            self._refuse_samples(f"this rate gives no whole number of the {n} records")
        return k

    def _draw_samples(self, trial: int, n: int, steps: int) -> Batch:
        k = self.size(n)
        start, self._used[trial] = self._used[trial], self._used[trial] + k * steps
        u = uniforms(self.sample_seeds[trial], start, k * steps).reshape(steps, k)
        records = [one for row in u for one in draw_distinct(row, n)]
        return np.array(records, np.int64), k * np.arange(steps + 1)


def draw_distinct(u: Floats, n: int) -> list[int]:
    """Return distinct integers below n in random order, one per uniform number.

    This is the shuffle of Fisher and Yates; only the entries that moved are stored.
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

    The records of the sample are in random order, so that a query may treat their
    places differently.

    If one record is replaced between neighbours, the sensitivity is the largest change,
    in the euclidean norm, when one record of the sample is exchanged for any other at
    the same place. It is 2 C for a sum of terms of norm at most C.

    If the term of one record is 0 in one of the neighbours (``zeroed``, under
    ``zero_out``), the sensitivity is the largest change when any term of the sample
    becomes 0. It is C for a sum. Another record still takes the place of one that is
    not sampled, and the answer then moves by up to 2 C. The law takes this into
    account. Declaring C without ``zeroed`` would charge for three answers that are C
    apart. This would be too little by a factor of up to 4 in Renyi divergence.

    Parameters
    ----------
    rate : float
        The share k / n of the records that a sample contains.
    halves : bool
        Whether the query consists of three sums: over the sample, its first half and
        its second half. A record is in two of the three sums, so that the sensitivity
        of all three together is sqrt(2) times that of one sum.
    zeroed : bool
        Whether the sensitivity bounds the change when any record's term becomes 0.
    """

    vectors: ClassVar[bool] = True
    halved: ClassVar[bool] = False
    mechanism: ClassVar[type[Mechanism]] = FixedSizeMechanism
    draw = staticmethod(draws.gaussian)
    halves: bool = False
    zeroed: bool = False

    def law(self) -> Law:
        """Return the law of the sample; at rate 1, that of the Gaussian mechanism."""
        if self.rate == 1:
            return GaussianLaw(self.times, self.weight)
        return FixedSizeGaussianLaw(self.times, self.weight, self.rate, self.zeroed)
