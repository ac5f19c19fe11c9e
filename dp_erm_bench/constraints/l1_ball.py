"""The L1 ball."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints import base
from dp_erm_bench.constraints.base import Array, Indices


@dataclass(frozen=True)
class L1Ball(base.Ball):
    """The points with norm1(w) <= radius."""

    name: ClassVar[str] = "l1_ball"
    code: ClassVar[int] = 2

    def gauge(self, w: Array) -> Array:
        """Return the least t >= 0 with w in t times the ball."""
        return np.asarray(np.abs(w).sum(axis=-1) / self.radius)

    def project(self, w: Array) -> Array:
        """Return w where it is inside; else |w| projected on the simplex, with signs.

        The projection keeps signs and is that of |w| on the face of the ball in the
        positive orthant, the simplex.
        """
        return base.projected(self.kernel, w)

    def project_linf(self, w: Array) -> Array:
        """Return the euclidean projection: both shrink all entries by one number."""
        return self.project(w)

    def linear_minimiser(self, g: Array) -> Array:
        """Return the vertex -+radius e_j of the largest |g_j|."""
        best = np.abs(g).argmax(axis=-1)[..., None]
        signs = np.where(np.take_along_axis(g, best, axis=-1) > 0.0, -1.0, 1.0)
        vertex = np.zeros(g.shape)
        np.put_along_axis(vertex, best, self.radius * signs, axis=-1)
        return vertex

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the ball, up to tolerance * radius."""
        return self.gauge(w) <= 1.0 + tolerance

    def vertex_count(self, p: int) -> int:
        """Return 2 p."""
        return 2 * p

    def vertex_products(self, g: Array) -> Array:
        """Return <v, g> of radius e_1 .. radius e_p, then of -radius e_1 .. ."""
        return self.radius * np.concatenate([g, -g], axis=-1)

    def vertex_entries(self, index: Indices, p: int) -> tuple[Indices, Array]:
        """Return the coordinate and plus or minus the radius."""
        return index % p, np.where(index < p, self.radius, -self.radius)

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return radius max_j R_j, by Hoelder's inequality.

        No entry of a record exceeds its norm, so radius R_2 holds too.
        """
        return self.radius * min(norm, float(columns.max()))
