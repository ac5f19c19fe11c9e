"""The smoothed hinge loss."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels.elementwise import between
from dp_erm_bench.losses.base import Array, Loss, check_positive, check_signs


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """The hinge loss with a parabola of half-width h in place of its kink.

    With the margin m = y z: 0 for m > 1 + h, 1 - m for m < 1 - h, and
    (1 + h - m)^2 / (4 h) between.

    References
    ----------
    Chapelle, "Training a support vector machine in the primal", Neural
    Computation 2007; Chaudhuri, Monteleoni, Sarwate, "Differentially private
    empirical risk minimization", JMLR 2011, section 3.4.2.
    """

    name: ClassVar[str] = "smoothed_hinge"
    classification: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    h: float = 0.5

    lipschitz = 1.0

    def __post_init__(self) -> None:
        """Check h and derive the smoothness, 1 / (2 h)."""
        h = check_positive(self.name, "h", self.h)
        for key, value in (("h", h), ("smoothness", 0.5 / h)):
            object.__setattr__(self, key, value)

    def value(self, y: Array, z: Array) -> Array:
        """Return the loss."""
        lack = between(0.0, 1.0 + self.h - y * z, math.inf)
        part = between(0.0, lack / (2.0 * self.h), 1.0)
        return part * (lack - self.h * part)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return -y times the part of the slope, which is in [0, 1]."""
        return -y * between(0.0, (1.0 + self.h - y * z) / (2.0 * self.h), 1.0)

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 1 / (2 h) on the parabola, else 0."""
        return self.smoothness * np.asarray(np.abs(1.0 - y * z) <= self.h, np.float64)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is -1 or +1."""
        check_signs(self.name, y)
