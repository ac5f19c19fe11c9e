"""The euclidean ball."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints.base import Array, Ball
from dp_erm_bench.kernels.lengths import norm2, powers_of, unscaled, within


@dataclass(frozen=True)
class L2Ball(Ball):
    """The points with norm2(w) <= radius."""

    name: ClassVar[str] = "l2_ball"
    code: ClassVar[int] = 1

    def gauge(self, w: Array) -> Array:
        """Return the least t >= 0 with w in t times the ball."""
        return np.asarray(norm2(w, axis=-1) / self.radius)

    def project(self, w: Array) -> Array:
        """Return w, scaled to the sphere where it is outside."""
        return within(w, self.radius)

    def project_linf(self, w: Array) -> Array:
        """Return w where it is inside; else all entries shrunk by the same least t.

        Of the entries by size, |w| = a_1 >= a_2 >= .., those of rank 1 .. k stay, k
        being the first with sum_i (a_i - a_(k+1))^2 > radius^2; t is the smaller root
        of sum_(i <= k) (a_i - t)^2 = radius^2 (Ghazi et al., NeurIPS 2024, Algorithm 6
        for this ball).
        """
        w = np.asarray(w, dtype=np.float64)
        rows = np.atleast_2d(w.reshape(-1, w.shape[-1]))
        lengths = norm2(rows, axis=-1)
        outside = lengths / self.radius > 1.0
        odd = outside & ~unscaled(lengths) & np.isfinite(rows).all(axis=1)
        powers = np.where(odd, powers_of(np.abs(rows).max(axis=1)), 0)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            radii = np.ldexp(self.radius, -powers)
            near = np.ldexp(_shrunk(np.ldexp(rows, -powers), radii), powers)
        return np.where(outside[:, None], near, rows).reshape(w.shape)

    def linear_minimiser(self, g: Array) -> Array:
        """Return -radius g / norm2(g); zero for g = 0."""
        size = norm2(g, axis=-1, keepdims=True)
        return np.asarray(-self.radius * g / np.where(size > 0.0, size, 1.0))

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the ball, up to tolerance * radius."""
        return self.gauge(w) <= 1.0 + tolerance

    def vertex_count(self, p: int) -> int | None:
        """Return None, but for p = 1 all points of the sphere are extreme."""
        return 2 if p == 1 else None

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return radius R_2, by the inequality of Cauchy and Schwarz."""
        return self.radius * min(norm, float(norm2(columns)))


def _shrunk(w: Array, radii: Array) -> Array:
    """Return the rows of w, (m, p), outside of balls of radii (m, 1), moved in."""
    sizes = -np.sort(-np.abs(w), axis=-1)
    sums, squares = np.cumsum(sizes, axis=-1), np.cumsum(sizes**2, axis=-1)
    counts = np.arange(1, w.shape[-1] + 1)
    below = np.append(sizes[:, 1:], np.zeros((len(w), 1)), axis=-1)
    left = squares - 2 * below * sums + counts * below**2
    first = np.argmax(left > radii**2, axis=-1)[:, None]
    k = first + 1
    total, square = (np.take_along_axis(x, first, -1) for x in (sums, squares))
    root = np.sqrt(np.maximum(total**2 - k * (square - radii**2), 0.0))
    shrunk = np.maximum(np.abs(w) - (total - root) / k, 0.0)
    return np.asarray(np.copysign(shrunk, w))
