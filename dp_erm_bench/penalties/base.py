"""The interface of a penalty: separable, with a closed prox."""

import math
from abc import ABC
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError

Array = NDArray[np.float64]


def check_strength(name: str, strength: object) -> float:
    """Return the strength as a number, refusing a negative or infinite one."""
    number = float(strength) if isinstance(strength, int | float) else math.nan
    if not 0.0 <= number < math.inf:
        raise UsageError(
            f"penalty.strength={strength} of {name}: must be a number >= 0, "
            "'1/n' or 'auto'"
        )
    return number


class Penalty(ABC):
    """A separable penalty l1 |w_j| + (l2 / 2) w_j^2 on the box [lower, upper].

    Attributes
    ----------
    name : str
        The name of its yaml.
    l1, l2 : float
        Strengths of the two parts.
    lower, upper : float
        The box, the same for all coordinates.
    """

    name: ClassVar[str]
    l1: float = 0.0
    l2: float = 0.0
    lower: float = -math.inf
    upper: float = math.inf

    @property
    def boxed(self) -> bool:
        """Return whether the box is not the whole line."""
        return self.lower > -math.inf or self.upper < math.inf

    @property
    def quadratic(self) -> bool:
        """Return whether there is neither an L1 part nor a box."""
        return self.l1 == 0.0 and not self.boxed

    @property
    def strong_convexity(self) -> float:
        """Return the modulus of strong convexity in the euclidean norm."""
        return self.l2

    def parameters(self) -> Array:
        """Return (l1, l2, lower, upper), the form that the kernels take."""
        return np.array([self.l1, self.l2, self.lower, self.upper])

    def value(self, w: Array) -> Any:
        """Return the penalty of w, shape (..., p), summed over the last axis."""
        smooth = 0.5 * self.l2 * np.square(w).sum(axis=-1)
        inside = ((w >= self.lower) & (w <= self.upper)).all(axis=-1)
        total = smooth + self.l1 * np.abs(w).sum(axis=-1)
        return np.where(inside, total, math.inf)[()]

    def prox(self, v: Array, step: Array | float) -> Array:
        """Return argmin_u (u - v)^2 / 2 + step psi_j(u), elementwise."""
        shrunk = np.sign(v) * np.maximum(np.abs(v) - step * self.l1, 0.0)
        scaled = shrunk / (1.0 + step * self.l2)
        return np.asarray(np.clip(scaled, self.lower, self.upper))

    def subdifferential_distance(self, g: Array, w: Array) -> Array:
        """Return the distance of -g to the subdifferential of psi_j at w.

        The subdifferential is a point, an interval (at the kink) or a ray (on
        the border of the box); the distance is zero exactly at a minimiser.
        """
        centre = g + self.l2 * w + self.l1 * np.sign(w)
        slack = np.where(w == 0.0, self.l1, 0.0)
        down = np.maximum(centre - slack, 0.0) * (w > self.lower)
        up = np.maximum(-centre - slack, 0.0) * (w < self.upper)
        distance: Array = down + up
        return distance
