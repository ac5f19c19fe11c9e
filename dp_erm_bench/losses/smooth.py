"""Losses with a derivative everywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels.elementwise import between, sigmoid, softplus
from dp_erm_bench.losses.base import (
    Array,
    Loss,
    check_finite,
    check_positive,
    check_signs,
)


@dataclass(frozen=True)
class Squared(Loss):
    """The squared loss (z - y)^2 / 2, whose derivative in z is unbounded."""

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
        """Return ones, in the common shape of y and z."""
        return np.ones(np.broadcast_shapes(y.shape, z.shape))

    def lipschitz_within(self, margin: float, label: float) -> float:
        """Return the largest |z - y| for |z| <= margin and |y| <= label."""
        return margin + label

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is finite."""
        check_finite(self.name, y)


@dataclass(frozen=True)
class Huber(Loss):
    """The Huber loss: quadratic up to residuals of kappa, linear beyond.

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
        """Check kappa, and set the Lipschitz constant to kappa."""
        kappa = check_positive(self.name, "kappa", self.kappa)
        for key in ("kappa", "lipschitz"):
            object.__setattr__(self, key, kappa)

    def value(self, y: Array, z: Array) -> Array:
        """Return phi(z, y), elementwise."""
        residual = abs(z - y)
        inner = between(0.0, residual, self.kappa)
        return inner * (residual - 0.5 * inner)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return z - y, clipped to +-kappa."""
        return between(-self.kappa, z - y, self.kappa)

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 1 where the loss is quadratic, 0 elsewhere."""
        return np.asarray(np.abs(z - y) <= self.kappa, dtype=np.float64)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is finite."""
        check_finite(self.name, y)


@dataclass(frozen=True)
class Logistic(Loss):
    """The logistic loss phi(z, y) = log(1 + exp(-y z)) with y in {-1, +1}."""

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


@dataclass(frozen=True)
class SmoothedHinge(Loss):
    """The hinge loss with a parabola of half-width h in place of its kink.

    With the margin m = y z, it is 0 for m > 1 + h, 1 - m for m < 1 - h, and
    (1 + h - m)^2 / (4 h) in between.

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
        """Check h, and set the smoothness constant to 1 / (2 h)."""
        h = check_positive(self.name, "h", self.h)
        for key, value in (("h", h), ("smoothness", 0.5 / h)):
            object.__setattr__(self, key, value)

    def value(self, y: Array, z: Array) -> Array:
        """Return phi(z, y), elementwise."""
        lack = between(0.0, 1.0 + self.h - y * z, math.inf)
        part = between(0.0, lack / (2.0 * self.h), 1.0)
        return part * (lack - self.h * part)

    def derivative(self, y: Array, z: Array) -> Array:
        """Return -y times a factor in [0, 1], the fraction of the full slope."""
        return -y * between(0.0, (1.0 + self.h - y * z) / (2.0 * self.h), 1.0)

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 1 / (2 h) on the parabola, 0 elsewhere."""
        return self.smoothness * np.asarray(np.abs(1.0 - y * z) <= self.h, np.float64)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is -1 or +1."""
        check_signs(self.name, y)


@dataclass(frozen=True)
class Sigmoid(Loss):
    """The sigmoid loss 1 / (1 + exp(y z)), y in {-1, +1}: a smooth count of errors.

    |phi'| is at most 1/4, reached at z = 0, and |phi''| is at most 1 / (6 sqrt(3)). The
    loss is not convex. So no minimum is certified, and no algorithm that publishes a
    minimiser runs on this loss.

    References
    ----------
    Mason, Baxter, Bartlett, Frean, "Boosting algorithms as gradient descent", NIPS
    1999, for such losses.
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
        """Return -y s (1 - s), where s is the loss."""
        return -y * sigmoid(-y * z) * sigmoid(y * z)

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return s (1 - s) (1 - 2 s), where s is the loss."""
        s, right = sigmoid(-y * z), sigmoid(y * z)
        return np.asarray(s * right * (right - s), np.float64)

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is -1 or +1."""
        check_signs(self.name, y)


@dataclass(frozen=True)
class Linear(Loss):
    """The linear loss -y z, with a minimum only for a ridge or on a bounded set.

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
        """Return phi(z, y), elementwise."""
        return -y * z

    def derivative(self, y: Array, z: Array) -> Array:
        """Return -y."""
        return -y + 0.0 * z

    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return 0."""
        return np.asarray(0.0 * (y * z), np.float64)

    def lipschitz_within(self, margin: float, label: float) -> float:
        """Return the bound on the labels, whatever the bound on the margin."""
        return label

    def check_labels(self, y: Array) -> None:
        """Raise UsageError unless every label is finite."""
        check_finite(self.name, y)
