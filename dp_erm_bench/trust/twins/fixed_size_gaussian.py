"""Second implementation (twin) of normal noise on samples of fixed size."""

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Answered, Array, Twin
from dp_erm_bench.trust.twins.gaussian import GaussianTwin, normal

# Whole orders whose bound is expanded, and quadrature panels per deviation.
AMPLIFIED = range(2, 513)
PANELS = 2
# Largest distance, and largest order times distance, of pairs that are integrated.
FARTHEST, WIDEST = 8.0, 40.0


@functools.lru_cache(maxsize=64)
def log_moment(j: int, first: float, second: float, apart: float) -> float:
    """Return log E |e^((j-1) first/2) X - e^((j-1) second/2)|^j by quadrature.

    X = e^(sqrt(apart) g - j apart/2) for a normal g. This is the j-th moment of the
    difference of the likelihood ratios of two normal laws to a third one. The
    Gauss-Legendre sum is in units of its largest value, so that it does not overflow.

    Parameters
    ----------
    j : int
        The moment, at least 2.
    first, second : float
        Squared distance of each of the two means to that of the third law.
    apart : float
        Squared distance of the two means from each other.
    """
    d = math.sqrt(apart)
    low, high = -math.sqrt(j) - 13, j * d + math.sqrt(j) + 13
    ends = np.linspace(low, high, math.ceil((high - low) * PANELS))
    nodes, weights = np.polynomial.legendre.leggauss(6)
    half = np.diff(ends)[:, None] / 2
    g = (ends[:-1, None] + half * (nodes + 1)).ravel()
    one = (j - 1) * first / 2 + d * g - j * apart / 2
    other = (j - 1) * second / 2
    larger, less = np.maximum(one, other), -np.abs(one - other)
    with np.errstate(divide="ignore"):
        logs = j * (larger + np.log(-np.expm1(less))) - g * g / 2
    top = float(logs.max())
    total = np.exp(logs - top) @ (half * weights).ravel()
    return top + math.log(float(total) / math.sqrt(2 * math.pi))


@functools.lru_cache(maxsize=16)
def moments(d: float, highest: int) -> tuple[float, ...]:
    """Return, for each moment from 2 to ``highest``, the larger of two log-moments.

    One is that of three means at mutual distances d. The other is that of a pair of
    means at distance d.
    """
    square = d * d
    return tuple(
        max(log_moment(j, square, square, square), log_moment(j, square, 0.0, square))
        for j in range(2, highest + 1)
    )


@functools.lru_cache(maxsize=16)
def row_moments(d: float, rate: float, highest: int) -> tuple[float, ...]:
    """Return log-moments 2 .. highest for means c, b, a in a row at 0, d, 2 d.

    These are moments of the difference of the likelihood ratios of N_a and N_b. They
    are taken under N_c and under N_b, and weighted as N_c and N_b in the mixture.

    Parameters
    ----------
    d : float
        Distance of neighbouring means in units of the noise.
    rate : float
        The weight q of N_b in the mixture; that of N_c is 1 - q.
    highest : int
        The highest moment.
    """
    weights, square = (math.log1p(-rate), math.log(rate)), d * d
    return tuple(
        float(
            np.logaddexp(
                weights[0] + log_moment(j, 4 * square, square, square),
                weights[1] + log_moment(j, square, 0.0, square),
            )
        )
        for j in range(2, highest + 1)
    )


def worst_cumulants(d: float, rate: float, orders: Array) -> Array:
    """Return log-moments of the worst losses, combined from two pairs of mixtures.

    The pairs are P = (1 - q) N_c + q N_a and Q = (1 - q) N_c + q N_0 with a = d, once
    for c = -d and once for c = d. Of (P/Q)^r - 1 under Q, the part with P > Q is that
    of the first pair and the part with P < Q that of the second. The same holds for
    (Q/P)^r - 1 under P. The rest of the mass has a ratio of 1. The larger moment of the
    two is computed by Gauss-Legendre quadrature on panels of 1/PANELS standard
    deviations.

    Parameters
    ----------
    d : float
        Distance of the means in units of the noise.
    rate : float
        The sampling rate q.
    orders : array of shape (m,)
        The orders r > 1.
    """
    wide = 2 * float(orders.max()) * d + 14
    ends = np.linspace(0.0, wide, math.ceil(wide * max(PANELS, d * PANELS)))
    nodes, weights = np.polynomial.legendre.leggauss(6)
    half = np.diff(ends)[:, None] / 2
    far = (ends[:-1, None] + half * (nodes + 1)).ravel()
    measure = np.log((half * weights).ravel() / math.sqrt(2 * math.pi))

    def laws(x: Array, c: float) -> tuple[Array, Array]:
        common = math.log1p(-rate) - (x - c) ** 2 / 2
        own = [math.log(rate) - (x - mean) ** 2 / 2 for mean in (d, 0.0)]
        return np.logaddexp(common, own[0]), np.logaddexp(common, own[1])

    p, q = laws(d / 2 + far, -d)
    little, much = laws(d / 2 - far, d)
    found = []
    # The pair of laws of the part with a ratio above 1, and of the part below 1.
    for up, down in (((p, q), (little, much)), ((much, little), (q, p))):
        logs = []
        for one, other in (up, down):
            power = orders[:, None] * (one - other)
            gain = np.log(np.abs(np.expm1(-np.abs(power))))
            logs.append(other + np.maximum(power, 0.0) + gain + measure)
        top = np.maximum(logs[0].max(axis=1), logs[1].max(axis=1))[:, None]
        total = [np.exp(log - top).sum(axis=1) for log in logs]
        with np.errstate(divide="ignore", invalid="ignore"):
            found.append(top[:, 0] + np.log(total[0] - total[1]))
    return np.asarray(np.logaddexp(0.0, np.fmax(*found)))


@dataclass(frozen=True)
class FixedSizeGaussianTwin(Twin):
    """Twin of the Gaussian mechanism on a sample drawn without replacement.

    A twin is a second implementation of a law.

    Attributes
    ----------
    rate : float
        The fraction of the records in a sample.
    halves : bool
        Whether sums over halves of the sample are published in addition to the sum over
        the sample.
    zeroed : bool
        Whether ``ratio`` is for a term that becomes 0, not for an exchanged term.
    """

    exact: ClassVar[bool] = True
    rate: float = 1.0
    halves: bool = False
    zeroed: bool = False

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> Twin:
        """Return the twin (second implementation) of a mechanism as a run used it.

        At rate 1, it is the twin of the Gaussian mechanism.

        Parameters
        ----------
        release : Release
            The release with its declared sensitivity.
        mechanism : Mechanism
            The mechanism after the run.
        ratio : float
            The smallest noise scale / sensitivity.
        times : int
            Number of uses.
        """
        if mechanism.rate == 1.0:
            return GaussianTwin(ratio, times)
        return cls(ratio, times, mechanism.rate, release.halves, release.zeroed)

    @property
    def typical_loss(self) -> float:
        """Return the typical privacy loss of one use."""
        return self.rate * math.sqrt(math.expm1(min(self.ratio**-2, 600)))

    def renyi(self, orders: Array) -> Array:
        """Return the smaller of the Renyi bounds for the sample and for all records.

        The bound for the sample is a binomial expansion, term by term, at whole orders.
        Between them it is the chord of (order - 1) times the divergence.
        """
        whole = AMPLIFIED[: max(1, math.ceil(orders.max()) - 1)]
        d = 1 / self.ratio
        row = (d, self.rate, whole[-1])
        logs = np.array(row_moments(*row) if self.zeroed else moments(d, whole[-1]))
        cumulants = [0.0]
        for order in whole:
            terms, choose, gain = [0.0], math.log(order), math.log(self.rate)
            for j in range(2, order + 1):
                choose += math.log((order - j + 1) / j)
                terms.append(choose + j * gain + logs[j - 2])
            cumulants.append(float(np.logaddexp.reduce(terms)))
        chords = np.interp(orders, (1, *whole), cumulants, right=np.inf)
        if self.zeroed and d <= FARTHEST:
            near = orders * d <= WIDEST
            for k in np.array_split(np.flatnonzero(near & (orders <= whole[-1])), 40):
                if k.size:
                    worst = worst_cumulants(d, self.rate, orders[k])
                    chords[k] = np.minimum(chords[k], worst)
        return np.minimum(chords / (orders - 1), orders / (2 * self.ratio**2))

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return dp_accounting's loss distribution for one pair of neighbours.

        The privacy loss of this pair is known exactly. All other records are equal, and
        in one dataset the record in which the neighbours differ equals them, too. Under
        ``zero_out``, that record is zero in this dataset. If the charge was for an
        exchange (not ``zeroed``), it is twice the change. With halves, only the sum
        over the whole sample is considered.

        Parameters
        ----------
        step : float
            Spacing of the lattice of losses.
        adjacency : Adjacency
            The neighbouring relation.
        least : bool
            Whether to round down, for a lower bound; otherwise up.
        """
        if not least:
            raise ValueError("no dominating pair is kept for a sample of fixed size")
        exchanged = adjacency is Adjacency.REPLACE_ONE or self.zeroed
        less = 1.0 if exchanged else 2.0
        less *= math.sqrt(2) if self.halves else 1.0
        return normal(less * self.ratio, self.rate, step, least)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of two mixtures over one record's place in the sample.

        The query is that of a sample of all records, of which all but one are zero. So
        the value of a sample is v with probability q, else 0. If the query consists of
        halves, the record is in either half with probability q/2.
        """
        a, (v, u) = use.values(), use.normalise_queries()

        def mixture_at(v: Array) -> Array:
            places = [v]
            if release.halves:
                whole, one, other = np.split(v, 3, axis=1)
                places = [v, np.concatenate([whole, other, one], axis=1)]
            gains = [((a - one / 2) * one).sum(axis=1) for one in places]
            gain = np.logaddexp.reduce(gains) - math.log(len(places))
            with np.errstate(divide="ignore"):
                out = np.log1p(-release.rate)
            total: Array = np.logaddexp(out, np.log(release.rate) + gain)
            return total

        return mixture_at(v) - mixture_at(u)
