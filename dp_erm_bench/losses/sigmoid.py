"""The sigmoid loss, which is not convex."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels.elementwise import sigmoid
from dp_erm_bench.losses.base import Array, Loss, check_signs


@dataclass(frozen=True)
class Sigmoid(Loss):
    """phi(z, y) = 1 / (1 + exp(y z)) with y in {-1, +1}: a smooth count of errors.

    |phi'| is at most 1/4, at z = 0, and |phi''| at most 1 / (6 sqrt(3)).

    References
    ----------
    Mason, Baxter, Bartlett, Frean, "Boosting algorithms as gradient descent", NIPS
    1999, for such losses; no minimum is certified, and nobody publishes a minimiser.
    """

    name: ClassVar[str] = "sigmoid"
    classification: ClassVar[bool] = True
    convex: ClassVar[bool] = False
    monotone: ClassVar[bool] = True
    lipschitz = 0.25
    smoothness = 1.0 / (6.0 * math.sqrt(3.0))

    def value(self, y: Array, z: Array) -> Array:
        """Return the loss without overflow."""
        return sigmoid(-y * z)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return -y s (1 - s), s being the loss."""
        return -y * sigmoid(-y * z) * sigmoid(y * z)

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return s (1 - s) (1 - 2 s), s being the loss."""
        s, right = sigmoid(-y * z), sigmoid(y * z)
        return np.asarray(s * right * (right - s), np.float64)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is -1 or +1."""
        check_signs(self.name, y)
