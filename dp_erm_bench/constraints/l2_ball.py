"""The euclidean ball."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints.base import Array, Ball


@dataclass(frozen=True)
class L2Ball(Ball):
    """The points with norm2(w) <= radius."""

    name: ClassVar[str] = "l2_ball"
    code: ClassVar[int] = 1

    def gauge(self, w: Array) -> Array:
        """Return the least t >= 0 with w in t times the ball."""
        return np.asarray(np.linalg.norm(w, axis=-1) / self.radius)

    def project(self, w: Array) -> Array:
        """Return w, scaled to the sphere where it is outside."""
        excess = np.maximum(self.gauge(w), 1.0)
        return np.asarray(w / excess[..., None])

    def linear_minimiser(self, g: Array) -> Array:
        """Return -radius g / norm2(g); zero for g = 0."""
        size = np.linalg.norm(g, axis=-1, keepdims=True)
        return np.asarray(-self.radius * g / np.where(size > 0.0, size, 1.0))

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the ball, up to tolerance * radius."""
        return self.gauge(w) <= 1.0 + tolerance

    def vertex_count(self, p: int) -> int | None:
        """Return None, but for p = 1 all points of the sphere are extreme."""
        return 2 if p == 1 else None

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return radius R_2, by the inequality of Cauchy and Schwarz."""
        return self.radius * min(norm, float(np.linalg.norm(columns)))
