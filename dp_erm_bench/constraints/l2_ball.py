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

    def project_linf(self, w: Array) -> Array:
        """Return w where it is inside; else all entries shrunk by the same least t.

        Of the entries by size, |w| = a_1 >= a_2 >= .., those of rank 1 .. k stay, k
        being the first with sum_i (a_i - a_(k+1))^2 > radius^2; t is the smaller root
        of sum_(i <= k) (a_i - t)^2 = radius^2 (Ghazi et al., NeurIPS 2024, Algorithm 6
        for this ball).
        """
        w = np.asarray(w, dtype=np.float64)
        sizes = -np.sort(-np.abs(w), axis=-1)
        sums, squares = np.cumsum(sizes, axis=-1), np.cumsum(sizes**2, axis=-1)
        counts = np.arange(1, w.shape[-1] + 1)
        below = np.append(sizes[..., 1:], np.zeros((*w.shape[:-1], 1)), axis=-1)
        left = squares - 2 * below * sums + counts * below**2
        first = np.argmax(left > self.radius**2, axis=-1)[..., None]
        k = first + 1
        total, square = (np.take_along_axis(x, first, -1) for x in (sums, squares))
        root = np.sqrt(np.maximum(total**2 - k * (square - self.radius**2), 0.0))
        shrunk = np.maximum(np.abs(w) - (total - root) / k, 0.0)
        outside = self.gauge(w)[..., None] > 1.0
        return np.where(outside, np.copysign(shrunk, w), w)

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
