"""The linear loss."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.losses.base import Array, Loss, check_finite


@dataclass(frozen=True)
class Linear(Loss):
    """phi(z, y) = -y z, which has a minimum with a ridge or on a bounded set only.

    References
    ----------
    Bassily, Smith, Thakurta, "Private empirical risk minimization: efficient
    algorithms and tight error bounds", FOCS 2014, section 5 (lower bounds).
    """

    name: ClassVar[str] = "linear"
    classification: ClassVar[bool] = False
    monotone: ClassVar[bool] = True
    lipschitz = math.inf
    smoothness = 0.0

    def value(self, y: Array, z: Array) -> Array:
        """Return the loss."""
        return -y * z

    def derivative(self, y: Array, z: Array) -> Array:
        """Return -y."""
        return -y + 0.0 * z

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 0."""
        return np.asarray(0.0 * (y * z), np.float64)

    def lipschitz_within(self, margin: float, label: float) -> float:
        """Return the bound on the labels, whatever the margin."""
        return label

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is finite."""
        check_finite(self.name, y)
