"""A second implementation (twin) of the law of a sampled vector."""

import math
from dataclasses import dataclass

import numpy as np

from dp_erm_bench.trust.twins.pure import PureTwin


@dataclass(frozen=True)
class SampledVectorTwin(PureTwin):
    """What was called, with the rate of the samples that were drawn."""

    rate: float = 1.0

    @classmethod
    def of(cls, release, mechanism, ratio, times):
        return cls(ratio, times, mechanism.rate)

    @property
    def level(self):
        """The log-ratio of two mixtures where the answer says most."""
        if self.ratio == 0:
            return math.inf
        return float(mixed(self.rate, 1 / self.ratio))

    @staticmethod
    def log_ratio(release, use):
        """The log-ratio of two mixtures over one record's coin.

        The query is the sum with every record sampled; all but one are zero.
        """
        a, (v, u) = use.values(), use.normalise_queries()

        plain, with_v, with_u = (np.linalg.norm(a - x, axis=1) for x in (0 * v, v, u))
        first = mixed(release.rate, plain - with_v)
        return first - mixed(release.rate, plain - with_u)


def mixed(rate, gain):
    """The log of (1 - q) + q e^gain."""
    with np.errstate(divide="ignore"):
        return np.logaddexp(np.log(1 - rate), np.log(rate) + gain)
