"""The squared loss."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.losses.base import Array, Loss, check_finite


@dataclass(frozen=True)
class Squared(Loss):
    """phi(z, y) = (z - y)^2 / 2; its derivative is unbounded on the whole space."""

    name: ClassVar[str] = "squared"
    classification: ClassVar[bool] = False
    lipschitz = math.inf
    smoothness = 1.0

    def value(self, y: Array, z: Array) -> Array:
        """Return (z - y)^2 / 2."""
        return 0.5 * (z - y) * (z - y)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return z - y."""
        return z - y

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return ones of the broadcast shape."""
        return np.ones(np.broadcast_shapes(y.shape, z.shape))

    def lipschitz_within(self, margin: float, label: float) -> float:
        """Return the largest |z - y|."""
        return margin + label

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is finite."""
        check_finite(self.name, y)
