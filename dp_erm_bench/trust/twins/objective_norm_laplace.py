"""A minimiser with norm-Laplace noise in its objective, a second time."""

import math
from dataclasses import dataclass

from dp_erm_bench.trust.twins.base import Array
from dp_erm_bench.trust.twins.pure import PureTwin


@dataclass(frozen=True)
class ObjectiveNormLaplaceTwin(PureTwin):
    """A minimiser with norm-Laplace noise in its objective.

    Attributes
    ----------
    curvature : float
        log(1 + beta / ridge): a fact of the objective, not of the noise, as declared.
    """

    curvature: float = 0.0

    @property
    def level(self) -> float:
        """Return the pure level of one use."""
        return self.curvature + 1 / self.ratio if self.ratio > 0 else math.inf

    @staticmethod
    def log_noise(size: Array) -> Array:
        """Return the log-density of noise of a norm, in units of its scale."""
        return -size
