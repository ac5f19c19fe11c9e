"""Losses with a kink, a point without a derivative."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels.elementwise import between
from dp_erm_bench.losses.base import Array, Loss, check_finite, check_signs
from dp_erm_bench.losses.smooth import Huber, SmoothedHinge


class RoundedAbsolute(Huber):
    """The absolute loss with a parabola of half-width kappa in place of its kink.

    This loss exceeds the absolute loss by at most kappa / 2.
    """

    def value(self, y: Array, z: Array) -> Array:
        """Return the loss, which is at least |z - y|, elementwise."""
        return super().value(y, z) / self.kappa + 0.5 * self.kappa

    def derivative(self, y: Array, z: Array) -> Array:
        """Return (z - y) / kappa, clipped to +-1."""
        return super().derivative(y, z) / self.kappa

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 1 / kappa on the parabola, 0 elsewhere."""
        return super().second_derivative(y, z) / self.kappa

    def __post_init__(self) -> None:
        """Check kappa, and set the Lipschitz and smoothness constants."""
        super().__post_init__()
        for key, constant in (("lipschitz", 1.0), ("smoothness", 1.0 / self.kappa)):
            object.__setattr__(self, key, constant)


@dataclass(frozen=True)
class Absolute(Loss):
    """The absolute loss phi(z, y) = |z - y|, which is minimised by a median.

    The loss has no derivative at z = y.

    References
    ----------
    Koenker, Bassett, "Regression quantiles", Econometrica 1978.
    """

    name: ClassVar[str] = "absolute"
    classification: ClassVar[bool] = False
    smooth: ClassVar[bool] = False
    lipschitz = 1.0
    smoothness = math.inf

    def value(self, y: Array, z: Array) -> Array:
        """Return phi(z, y), elementwise."""
        return abs(z - y)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return a subgradient in z, the sign of z - y."""
        return 1.0 * (z > y) - 1.0 * (z < y) + 0.0 * z

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 0, the second derivative away from the kink."""
        return np.asarray(0.0 * (z - y), np.float64)

    def smooth_surrogate(self, width: float) -> RoundedAbsolute:
        """Return the loss with its kink replaced by a parabola."""
        return RoundedAbsolute(kappa=width)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is finite."""
        check_finite(self.name, y)


@dataclass(frozen=True)
class Hinge(Loss):
    """The hinge loss max(0, 1 - y z), y in {-1, +1}, not differentiable at y z = 1.

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
        """Return phi(z, y), elementwise."""
        return between(0.0, 1.0 - y * z, math.inf)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return a subgradient in z: -y if y z < 1, else 0."""
        # The last term keeps a diverged margin visible, as NaN.
        return -y * (y * z < 1.0) + 0.0 * z

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 0, the second derivative away from the kink."""
        return np.asarray(0.0 * (y * z), np.float64)

    def smooth_surrogate(self, width: float) -> SmoothedHinge:
        """Return the loss with its kink replaced by a parabola."""
        return SmoothedHinge(h=width)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is -1 or +1."""
        check_signs(self.name, y)
