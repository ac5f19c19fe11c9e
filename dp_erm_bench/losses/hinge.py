"""The hinge loss."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels.elementwise import between
from dp_erm_bench.losses.base import Array, Loss, check_signs
from dp_erm_bench.losses.smoothed_hinge import SmoothedHinge


@dataclass(frozen=True)
class Hinge(Loss):
    """phi(z, y) = max(0, 1 - y z) with y in {-1, +1}, not differentiable at y z = 1.

    References
    ----------
    Cortes, Vapnik, "Support-vector networks", Machine Learning 1995.
    """

    name: ClassVar[str] = "hinge"
    classification: ClassVar[bool] = True
    smooth: ClassVar[bool] = False
    monotone: ClassVar[bool] = True
    lipschitz = 1.0
    smoothness = math.inf

    def value(self, y: Array, z: Array) -> Array:
        """Return the loss."""
        return between(0.0, 1.0 - y * z, math.inf)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return a subgradient in z: -y where y z < 1, else 0."""
        # A diverged margin is not hidden.
        return -y * (y * z < 1.0) + 0.0 * z

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 0, the second derivative beside the kink."""
        return np.asarray(0.0 * (y * z), np.float64)

    def smoothed(self, width: float) -> SmoothedHinge:
        """Return the loss with a parabola for its kink."""
        return SmoothedHinge(h=width)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is -1 or +1."""
        check_signs(self.name, y)
