"""A user's constraint: the ball of the largest absolute entry."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.extend import Ball


@dataclass(frozen=True)
class Cube(Ball):
    """The points with |w_j| <= radius for all j."""

    name: ClassVar[str] = "cube"

    def project(self, w):
        return np.clip(w, -self.radius, self.radius)

    def linear_minimiser(self, g):
        return np.where(g > 0.0, -self.radius, self.radius)

    def contains(self, w, tolerance=1e-12):
        return np.abs(w).max(axis=-1) <= self.radius * (1.0 + tolerance)

    def vertex_count(self, p):
        return None  # 2^p are too many for a list

    def largest_margin(self, columns, norm):
        active = int((columns > 0.0).sum())
        return self.radius * min(float(columns.sum()), active**0.5 * norm)
