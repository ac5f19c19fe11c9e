"""The squared loss."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.losses.base import Array, Loss


@dataclass(frozen=True)
class Squared(Loss):
    """phi(z, y) = (z - y)^2 / 2; its derivative is unbounded on the whole space."""

    name: ClassVar[str] = "squared"
    code: ClassVar[int] = 1
    lipschitz: ClassVar[float] = math.inf
    smoothness: ClassVar[float] = 1.0
    classification: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        """Return (z - y)^2 / 2."""
        return 0.5 * (z - y) ** 2

    def derivative(self, y: Array, z: Array) -> Array:
        """Return z - y."""
        return z - y

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return ones of the broadcast shape."""
        return np.ones(np.broadcast_shapes(y.shape, z.shape))

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is finite."""
        if not np.isfinite(y).all():
            raise UsageError("loss=squared: labels must be finite numbers")
