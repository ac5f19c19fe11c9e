"""Bounded sets as the reference solvers see them: projections, faces, gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Array

ON_BORDER = 1e-12
ROUNDING = 1e-15


@dataclass(frozen=True, eq=False)
class Face:
    """The directions that stay in a face of the set.

    Parameters
    ----------
    free : array of shape (k,)
        Indices of the coordinates that may move.
    normal : array of shape (k,) or None
        Moves of the free coordinates are orthogonal to it.
    """

    free: NDArray[np.intp]
    normal: Array | None = None


class Region(Protocol):
    """A convex set with finitely many faces."""

    def project(self, w: Array) -> Array:
        """Return the nearest point of the set."""

    def gap(self, w: Array, g: Array) -> float:
        """Return max over s in the set of g.(w - s), the Frank-Wolfe gap."""

    def face(self, w: Array, g: Array) -> Face:
        """Return the face at w, less what the gradient g leaves."""


@dataclass(frozen=True)
class BoxRegion:
    """The box [lower, upper]^p."""

    lower: float
    upper: float

    def project(self, w: Array) -> Array:
        """Return w clipped to the box."""
        return np.asarray(np.clip(w, self.lower, self.upper))

    def gap(self, w: Array, g: Array) -> float:
        """Return the gap, a sum of terms >= 0."""
        ends = np.where(g > 0.0, self.lower, self.upper)
        steps = np.where(g == 0.0, 0.0, w - ends)
        return float((g[g != 0.0] * steps[g != 0.0]).sum())

    def face(self, w: Array, g: Array) -> Face:
        """Return the coordinates inside, and those that leave the border."""
        held = ((w == self.lower) & (g >= 0.0)) | ((w == self.upper) & (g <= 0.0))
        return Face(np.flatnonzero(~held))


@dataclass(frozen=True)
class SimplexRegion:
    """The simplex, through its constraint."""

    constraint: Constraint

    def project(self, w: Array) -> Array:
        """Return the nearest point of the simplex."""
        return _trimmed(self.constraint.project(w))

    def gap(self, w: Array, g: Array) -> float:
        """Return sum_j w_j (g_j - min g), whose terms are >= 0."""
        excess = self.constraint.radius - w.sum()
        return float((w * (g - g.min())).sum() + abs(excess * g.min()))

    def face(self, w: Array, g: Array) -> Face:
        """Return the support and the coordinates that enter it."""
        level = float(w @ g) / float(w.sum())
        free = np.flatnonzero((w > 0.0) | (g < level))
        return Face(free, np.ones(free.size))


@dataclass(frozen=True)
class CrossRegion:
    """The L1 ball, through its constraint."""

    constraint: Constraint

    def project(self, w: Array) -> Array:
        """Return the nearest point of the ball."""
        return _trimmed(self.constraint.project(w))

    def gap(self, w: Array, g: Array) -> float:
        """Return radius max |g| + g.w, as a sum of terms >= 0."""
        top = float(np.abs(g).max(initial=0.0))
        inside = max(self.constraint.radius - float(np.abs(w).sum()), 0.0)
        return float((np.abs(w) * top + w * g).sum() + inside * top)

    def face(self, w: Array, g: Array) -> Face:
        """Return the support and what enters it; everything inside the ball."""
        radius, level = self.constraint.radius, -float(w @ g)
        inside = np.abs(w).sum() < radius * (1.0 - ON_BORDER)
        if inside or level <= 0.0:
            return Face(np.arange(w.size))
        free = np.flatnonzero((w != 0.0) | (np.abs(g) > level / radius))
        sign = np.where(w != 0.0, np.sign(w), -np.sign(g))
        return Face(free, sign[free])


def _trimmed(w: Array) -> Array:
    """Return w with what rounding left of its zeros removed, of the same norm1."""
    total = float(np.abs(w).sum())
    kept = np.where(np.abs(w) > ROUNDING * total, w, 0.0)
    left = float(np.abs(kept).sum())
    return np.asarray(kept * (total / left)) if left > 0.0 else kept
