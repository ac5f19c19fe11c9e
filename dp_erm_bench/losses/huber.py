"""The Huber loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels.elementwise import between
from dp_erm_bench.losses.base import Array, Loss, check_finite, check_positive


@dataclass(frozen=True)
class Huber(Loss):
    """Quadratic up to residuals of kappa, linear beyond.

    phi(z, y) = r^2 / 2 for r = |z - y| <= kappa, else kappa (r - kappa / 2).

    References
    ----------
    Huber, "Robust estimation of a location parameter", Annals of Mathematical
    Statistics 1964.
    """

    name: ClassVar[str] = "huber"
    classification: ClassVar[bool] = False
    kappa: float = 1.0

    smoothness = 1.0

    def __post_init__(self) -> None:
        """Check kappa, which is also the Lipschitz constant."""
        kappa = check_positive(self.name, "kappa", self.kappa)
        for key in ("kappa", "lipschitz"):
            object.__setattr__(self, key, kappa)

    def value(self, y: Array, z: Array) -> Array:
        """Return the loss."""
        residual = abs(z - y)
        inner = between(0.0, residual, self.kappa)
        return inner * (residual - 0.5 * inner)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return z - y, clipped to +-kappa."""
        return between(-self.kappa, z - y, self.kappa)

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 1 where the loss is quadratic, else 0."""
        return np.asarray(np.abs(z - y) <= self.kappa, dtype=np.float64)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is finite."""
        check_finite(self.name, y)
