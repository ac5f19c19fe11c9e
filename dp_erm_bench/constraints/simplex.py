"""The simplex."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints import base
from dp_erm_bench.constraints.base import Array, Indices


@dataclass(frozen=True)
class Simplex(base.Ball):
    """The points with w >= 0 and sum_j w_j = radius."""

    name: ClassVar[str] = "simplex"
    code: ClassVar[int] = 3

    def project(self, w: Array) -> Array:
        """Return max(w - theta, 0) with theta such that the sum is the radius."""
        return base.projected(self.kernel, w)

    def linear_minimiser(self, g: Array) -> Array:
        """Return the vertex radius e_j of the smallest g_j."""
        vertex = np.zeros(g.shape)
        np.put_along_axis(vertex, g.argmin(axis=-1)[..., None], self.radius, axis=-1)
        return vertex

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the simplex, up to tolerance * radius."""
        slack = tolerance * self.radius
        total = np.abs(w.sum(axis=-1) - self.radius) <= slack
        return total & (w >= -slack).all(axis=-1)

    def vertex_count(self, p: int) -> int:
        """Return p."""
        return p

    def vertex_products(self, g: Array) -> Array:
        """Return <v, g> of radius e_1 .. radius e_p."""
        return self.radius * g

    def vertex_entries(self, index: Indices, p: int) -> tuple[Indices, Array]:
        """Return the coordinate and the radius."""
        return index, np.full(index.shape, float(self.radius))

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return radius max_j R_j: x.w is between radius times two entries of x.

        No entry of a record exceeds its norm, so radius R_2 holds too.
        """
        return self.radius * min(norm, float(columns.max()))
