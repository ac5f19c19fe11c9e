"""Second implementation (twin) of a minimiser with norm-Laplace noise.

The noise is in the objective.
"""

import math
from dataclasses import dataclass

from dp_erm_bench.trust.twins.base import Array
from dp_erm_bench.trust.twins.pure import PureTwin


@dataclass(frozen=True)
class ObjectiveNormLaplaceTwin(PureTwin):
    """Twin of a minimiser with norm-Laplace noise in its objective.

    A twin is a second implementation of a law.

    Attributes
    ----------
    curvature : float
        log(1 + beta / ridge) as declared, which does not depend on the noise.
    """

    curvature: float = 0.0

    @property
    def level(self) -> float:
        """Return the pure epsilon of one use."""
        return self.curvature + 1 / self.ratio if self.ratio > 0 else math.inf

    @staticmethod
    def log_noise(size: Array) -> Array:
        """Return the log-density of noise from its norm, in units of its scale."""
        return -size
