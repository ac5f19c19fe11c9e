"""Normal noise on a sample of fixed size, a second time."""

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Answered, Array, Twin
from dp_erm_bench.trust.twins.gaussian import GaussianTwin, normal

# Whole orders whose bound is expanded, and panels of the quadrature a deviation.
AMPLIFIED = range(2, 513)
PANELS = 2


@functools.lru_cache(maxsize=64)
def log_moment(j: int, first: float, second: float, apart: float) -> float:
    """Return log E |e^((j-1) first/2) X - e^((j-1) second/2)|^j by Gauss and Legendre.

    X = e^(sqrt(apart) g - j apart/2), g normal: of normal laws whose means have these
    squared distances to a third one and from each other, the j-th moment of the
    difference of their likelihood ratios to it. In units of the largest value.
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
    """Return the larger log-moments of a triangle of equal sides d and of a pair."""
    square = d * d
    return tuple(
        max(log_moment(j, square, square, square), log_moment(j, square, 0.0, square))
        for j in range(2, highest + 1)
    )


@dataclass(frozen=True)
class FixedSizeGaussianTwin(Twin):
    """The Gaussian mechanism on a part of the records, drawn without replacement.

    Attributes
    ----------
    rate : float
        The part that was drawn.
    halves : bool
        Whether sums over a half of the sample are published beside that of all.
    """

    exact: ClassVar[bool] = True
    rate: float = 1.0
    halves: bool = False

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> Twin:
        """Return the twin of a mechanism; at rate 1, that of the Gaussian."""
        if mechanism.rate == 1.0:
            return GaussianTwin(ratio, times)
        return cls(ratio, times, mechanism.rate, release.halves)

    @property
    def typical_loss(self) -> float:
        """Return the typical privacy loss of one use."""
        return self.rate * math.sqrt(math.expm1(min(self.ratio**-2, 600)))

    def renyi(self, orders: Array) -> Array:
        """Return the smaller bound of the sample and of all records.

        The binomial expansion, term by term, at some whole orders and on the chords of
        (order - 1) times the divergence between them.
        """
        whole = AMPLIFIED[: max(1, math.ceil(orders.max()) - 1)]
        logs = np.array(moments(1 / self.ratio, whole[-1]))
        cumulants = [0.0]
        for order in whole:
            terms, choose, gain = [0.0], math.log(order), math.log(self.rate)
            for j in range(2, order + 1):
                choose += math.log((order - j + 1) / j)
                terms.append(choose + j * gain + logs[j - 2])
            cumulants.append(float(np.logaddexp.reduce(terms)))
        chords = np.interp(orders, (1, *whole), cumulants, right=np.inf)
        return np.minimum(chords / (orders - 1), orders / (2 * self.ratio**2))

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return the library's distribution of an instance.

        All other records are equal, and in one dataset so is the one in which the
        neighbours differ: a record of zeros under ``zero_out``, where the sum of the
        other one is half of what is charged. Of halves, the sum over all is looked at.
        """
        if not least:
            raise ValueError("no dominating pair is kept for a sample of fixed size")
        less = 1.0 if adjacency is Adjacency.REPLACE_ONE else 2.0
        less *= math.sqrt(2) if self.halves else 1.0
        return normal(less * self.ratio, self.rate, step, least)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of two mixtures over one record's place.

        The query is that of a sample of all records, of which all but one are zero: v
        with probability q, else 0; where it is made of halves, the record is in either
        one, each with probability q/2.
        """
        a, (v, u) = use.values(), use.normalised()

        def mixed(v: Array) -> Array:
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

        return mixed(v) - mixed(u)
