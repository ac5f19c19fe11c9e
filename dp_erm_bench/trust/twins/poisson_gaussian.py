"""Second implementation (twin) of normal noise on the sum over a Poisson sample."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Answered, Array, Twin
from dp_erm_bench.trust.twins.gaussian import GaussianTwin, normal


@dataclass(frozen=True)
class PoissonGaussianTwin(Twin):
    """Twin (second implementation) of the Gaussian mechanism on a Poisson sample.

    Attributes
    ----------
    rate : float
        Probability that a record is in a sample.
    """

    exact: ClassVar[bool] = True
    rate: float = 1.0

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
        return cls(ratio, times, mechanism.rate)

    @property
    def typical_loss(self) -> float:
        """Return the typical privacy loss of one use."""
        half = 1 / (2 * self.ratio)
        quiet = self.rate * math.sqrt(math.expm1(min(half * half, 600)))
        # The loss of a sampled record varies by half or more, however large it is. For
        # few samples, a finer lattice than this would have too many cells.
        return min(quiet, max(math.sqrt(self.rate), 0.05) * half)

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return dp_accounting's distribution of the sampled Gaussian mechanism.

        Parameters
        ----------
        step : float
            Spacing of the lattice of losses.
        adjacency : Adjacency
            The neighbouring relation.
        least : bool
            Whether to round down, for a lower bound; otherwise up.
        """
        replaced = adjacency is Adjacency.REPLACE_ONE
        return normal(self.ratio, self.rate, step, least, replaced)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of two mixtures over the sampling coin of one record.

        The query is the sum with every record sampled. All records but one are zero, so
        the sum over a sample is v with probability q, else 0. The coins of a step are
        new and secret. So, given all earlier answers, the answer has density
        (1 - q) N(0, s^2) + q N(v, s^2), which relative to N(0, s^2) is
        1 - q + q e^((a.v - norm2(v)^2 / 2) / s^2).
        """
        a, (v, u) = use.values(), use.normalise_queries()

        def mixture_at(v: Array) -> Array:
            gain = ((a - v / 2) * v).sum(axis=1)
            with np.errstate(divide="ignore"):
                out = np.log1p(-release.rate)
            total: Array = np.logaddexp(out, np.log(release.rate) + gain)
            return total

        return mixture_at(v) - mixture_at(u)
