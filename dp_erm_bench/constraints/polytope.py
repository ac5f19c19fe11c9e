"""The convex hull of finitely many points."""

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints.base import (
    Array,
    Constraint,
    Indices,
    largest_products,
)
from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.paths import numbers_of

HELP = "a list of points, or the path of a .csv or .npy file of its rows"
# Passes of the active-set method, per vertex.
MOST_PASSES = 30
LONGEST = 60
# In units of the radius.
FAR = 10.0


@dataclass(frozen=True)
class Polytope(Constraint):
    """The convex hull of a list of points.

    A path is read when the set is built: what is kept, and is part of the key of a
    trial, is the list. A point that is no vertex of the hull does no harm: no linear
    function is smaller there than at a vertex.
    """

    name: ClassVar[str] = "polytope"
    explicit: ClassVar[bool] = True
    dense_vertices: ClassVar[bool] = True

    vertices: Any = field(default=None, metadata={"help": HELP})

    def __post_init__(self) -> None:
        """Read and check the vertices; keep them as tuples."""
        rows = _matrix(self.vertices)
        # A zero has one sign, so that equal sets have one key.
        listed = tuple(tuple(map(float, row)) for row in rows + 0.0)
        object.__setattr__(self, "vertices", listed)

    @classmethod
    def example(cls, p: int, size: float = 1.0) -> dict[str, Any]:
        """Return size e_1 .. size e_p and a point beyond zero, all coordinates < 0."""
        corners = np.vstack([np.eye(p), np.full(p, -1.0 / p)])
        return {"vertices": (size * corners).tolist()}

    @functools.cached_property
    def points(self) -> Array:
        """Return the vertices, (m, p)."""
        return np.array(self.vertices)

    @functools.cached_property
    def radius(self) -> float:  # type: ignore[override]
        """Return the largest absolute entry of a vertex."""
        return float(np.abs(self.points).max())

    def check_features(self, p: int) -> None:
        """Refuse vertices of another space."""
        if self.points.shape[1] != p:
            raise UsageError(
                f"constraint.vertices of {self.points.shape[1]} coordinates: must have "
                f"{p}, one per feature"
            )

    def project(self, w: Array) -> Array:
        """Return the nearest points of the hull; NaN where w is not finite."""
        w = np.asarray(w, dtype=np.float64)
        rows = w.reshape(-1, w.shape[-1])
        nearest = np.full(rows.shape, np.nan)
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(self.vertex_products(rows)).all(axis=1)
        for i in np.flatnonzero(finite):
            nearest[i] = self._nearest(rows[i])
        return nearest.reshape(w.shape)

    def _nearest(self, w: Array) -> Array:
        """Return the nearest point of one point, (p,).

        A vertex v has no weight in it if <v, w> is below the largest such product by
        more than <v, x> and <v', x> may differ for x, v, v' in the hull. Of w only the
        products with differences of the other vertices matter: far away, the smallest
        point with the same products replaces it, so that digits are not lost.
        """
        points = self.points
        if np.abs(w).max() > FAR * self.radius:
            centre = points.mean(axis=0)
            around = points - centre
            products = around @ (w - centre)
            spread = 2.0 * np.square(around).sum(axis=1).max()
            kept = products >= products.max() - spread
            points, around, products = points[kept], around[kept], products[kept]
            sides, levels = around - around[0], products - products[0]
            w = np.linalg.lstsq(sides, levels)[0]
            return np.asarray(hull_weights(around - w) @ points)
        return np.asarray(hull_weights(points - w) @ points)

    def linear_minimiser(self, g: Array) -> Array:
        """Return the vertex of the smallest <v, g>."""
        return np.asarray(self.points[self.vertex_products(g).argmin(axis=-1)])

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are within tolerance * radius of the hull."""
        # Entries as large as that, and distances to them, need no projection.
        near = np.abs(w).max(axis=-1) <= self.radius * (1.0 + 2.0 * tolerance)
        inside = np.where(near[..., None], w, 0.0)
        distance = norm2(inside - self.project(inside), axis=-1)
        return near & (distance <= tolerance * self.radius)

    def vertex_count(self, p: int) -> int:
        """Return m, the number of points."""
        return len(self.vertices)

    def vertex_products(self, g: Array) -> Array:
        """Return <v, g> of the points in their order, (..., p) to (..., m)."""
        return np.asarray(g @ self.points.T)

    def vertex_sizes(self, bounds: Array) -> Array:
        """Return sum_j |v_j| bounds_j, of which 0 times infinity is 0."""
        return largest_products(self.points, bounds)

    def vertex_points(self, index: Indices, p: int) -> Array:
        """Return the points."""
        return np.asarray(self.points[index])

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return the largest of min(sum_j |v_j| R_j, norm2(v) R_2).

        A convex function of w is largest at a vertex.
        """
        sums = self.vertex_sizes(columns)
        lengths = norm2(self.points, axis=-1) * norm
        return float(np.minimum(sums, lengths).max())


def hull_weights(points: Array) -> Array:
    """Return a >= 0 of sum 1 with a @ points nearest to zero, (m, p) to (m,).

    The u >= 0 that minimises norm2(u @ points)^2 + (sum u - 1)^2 is a multiple of it:
    for u = s a with sum a = 1 that is s^2 norm2(a @ points)^2 + (s - 1)^2, and the best
    a is the same for every s > 0.

    References
    ----------
    Lawson, Hanson, "Solving least squares problems", 1974, chapter 23.
    """
    # Not at the top: scipy.optimize takes long to import.
    from scipy.optimize import nnls

    m, scale = len(points), float(np.abs(points).max())
    if m == 1 or scale == 0.0:
        return np.full(m, 1.0 / m)
    system = np.vstack([points.T / scale, np.ones(m)])
    goal = np.append(np.zeros(points.shape[1]), 1.0)
    u, _ = nnls(system, goal, maxiter=MOST_PASSES * m)
    return np.asarray(u / u.sum())


def _matrix(vertices: Any) -> Array:
    """Return the vertices, (m, p), from a list or from a file."""
    is_path = isinstance(vertices, str | Path)
    listed = numbers_of(Path(vertices), "constraint.vertices") if is_path else vertices
    try:
        rows = np.array(listed)
    except ValueError:  # of several lengths
        rows = np.empty(0)
    matrix = rows.dtype.kind in "iuf" and rows.ndim == 2 and rows.size > 0
    if not (matrix and np.isfinite(rows).all()):
        text = " ".join(str(vertices).split())
        text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
        raise UsageError(
            f"constraint.vertices={text}: must be a list of points, each a list of as "
            "many finite numbers, or the path of a .csv or .npy file of such rows"
        )
    return rows.astype(np.float64)
