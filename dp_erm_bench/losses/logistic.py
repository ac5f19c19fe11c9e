"""The logistic loss."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels.elementwise import sigmoid, softplus
from dp_erm_bench.losses.base import Array, Loss, check_signs


@dataclass(frozen=True)
class Logistic(Loss):
    """phi(z, y) = log(1 + exp(-y z)) with y in {-1, +1}."""

    name: ClassVar[str] = "logistic"
    classification: ClassVar[bool] = True
    monotone: ClassVar[bool] = True
    lipschitz = 1.0
    smoothness = 0.25

    def value(self, y: Array, z: Array) -> Array:
        """Return log(1 + exp(-y z)) without overflow."""
        return softplus(-y * z)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return -y / (1 + exp(y z)) without overflow."""
        return -y * sigmoid(-y * z)

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return s(z) (1 - s(z)) with s the logistic function."""
        decay = np.exp(-np.abs(z))
        return decay / (1.0 + decay) ** 2 + 0.0 * y

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is -1 or +1."""
        check_signs(self.name, y)
