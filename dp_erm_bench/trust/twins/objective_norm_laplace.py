"""A minimiser with norm-Laplace noise in its objective, a second time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dp_erm_bench.trust.twins.base import Array, Twin
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

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> Twin:
        """Return what was called, with the curvature that is declared."""
        return cls(ratio, times, float(release.curvature))

    @property
    def level(self) -> float:
        """Return the pure level of one use."""
        return self.curvature + 1 / self.ratio if self.ratio > 0 else math.inf

    @staticmethod
    def log_noise(size: Array) -> Array:
        """Return the log-density of noise of a norm, in units of its scale."""
        return -size
