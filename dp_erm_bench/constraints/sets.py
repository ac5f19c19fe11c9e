"""Sets with projections in closed form, and polytopes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints import base
from dp_erm_bench.constraints.base import (
    Array,
    Ball,
    Constraint,
    Indices,
    largest_products,
)
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.kernels.lengths import are_usual, clip_to_norm, norm2, powers_of
from dp_erm_bench.paths import load_numbers


@dataclass(frozen=True)
class WholeSpace(Constraint):
    """The whole of R^p."""

    name: ClassVar[str] = "none"
    code: ClassVar[int] = 0
    bounded: ClassVar[bool] = False
    radius = math.inf

    @classmethod
    def example(cls, p: int, size: float = 1.0) -> dict[str, Any]:
        """Return no parameters, because R^p has no size."""
        return {}

    def project(self, w: Array) -> Array:
        """Return w, which is feasible already."""
        return w

    def project_linf(self, w: Array) -> Array:
        """Return w, which is feasible already."""
        return w

    def linear_minimiser(self, g: Array) -> Array:
        """Raise Unsupported: a linear function has no minimum on R^p."""
        raise Unsupported(
            "constraint=none: needs a bounded set, l2_ball, l1_ball or simplex"
        )

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether the points are finite."""
        return np.isfinite(w).all(axis=-1)

    def vertex_count(self, p: int) -> int:
        """Return the number of vertices, 0 for R^p."""
        return 0

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return a bound on |x.w|: infinity, or 0 if all records are 0."""
        return math.inf if min(norm, float(columns.max())) > 0.0 else 0.0


@dataclass(frozen=True)
class L2Ball(Ball):
    """The points with norm2(w) <= radius."""

    name: ClassVar[str] = "l2_ball"
    code: ClassVar[int] = 1

    def gauge(self, w: Array) -> Array:
        """Return the smallest t >= 0 such that w is in t times the ball."""
        return np.asarray(norm2(w, axis=-1) / self.radius)

    def project(self, w: Array) -> Array:
        """Return the nearest points of the ball; points outside go to the sphere."""
        return clip_to_norm(w, self.radius)

    def project_linf(self, w: Array) -> Array:
        """Return the nearest point of the ball in the max norm.

        A point outside gets every |w_j| reduced by the smallest t that suffices, but
        not below 0.

        Let a_1 >= a_2 >= .. be the sorted |w_j|. The entries of rank 1 .. k do not
        become 0. Here k is the first with sum_(i <= k) (a_i - a_(k+1))^2 > radius^2,
        and t is the smaller root of sum_(i <= k) (a_i - t)^2 = radius^2 (Ghazi et al.,
        NeurIPS 2024, Algorithm 6 for this ball).
        """
        w = np.asarray(w, dtype=np.float64)
        rows = np.atleast_2d(w.reshape(-1, w.shape[-1]))
        lengths = norm2(rows, axis=-1)
        outside = lengths / self.radius > 1.0
        odd = outside & ~are_usual(lengths) & np.isfinite(rows).all(axis=1)
        powers = np.where(odd, powers_of(np.abs(rows).max(axis=1)), 0)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            radii = np.ldexp(self.radius, -powers)
            near = np.ldexp(_shrink_rows(np.ldexp(rows, -powers), radii), powers)
        return np.where(outside[:, None], near, rows).reshape(w.shape)

    def linear_minimiser(self, g: Array) -> Array:
        """Return -radius g / norm2(g); zero for g = 0."""
        size = norm2(g, axis=-1, keepdims=True)
        return np.asarray(-self.radius * g / np.where(size > 0.0, size, 1.0))

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the ball, up to tolerance * radius."""
        return self.gauge(w) <= 1.0 + tolerance

    def vertex_count(self, p: int) -> int | None:
        """Return None, because every point of the sphere is an extreme point."""
        return None

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return ``radius * R_2``, a bound on |x.w| by the Cauchy-Schwarz inequality.

        R_2 is the bound on the norm of a record, or norm2(``columns``) if that is
        smaller.
        """
        return self.radius * min(norm, float(norm2(columns)))


def _shrink_rows(w: Array, radii: Array) -> Array:
    """Return max-norm projections of points (m, p) outside balls of given radii."""
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


@dataclass(frozen=True)
class L1Ball(base.Ball):
    """The points with norm1(w) <= radius."""

    name: ClassVar[str] = "l1_ball"
    code: ClassVar[int] = 2

    def gauge(self, w: Array) -> Array:
        """Return the smallest t >= 0 such that w is in t times the ball."""
        return np.asarray(np.abs(w).sum(axis=-1) / self.radius)

    def project(self, w: Array) -> Array:
        """Return the nearest points of the ball, shape (..., p).

        A point inside stays. Otherwise |w| is projected on the simplex, and the result
        gets the signs of w. The projection keeps signs, and in the positive orthant the
        face of the ball is the simplex.
        """
        return base.project_on_kernel(self.kernel, w)

    def project_linf(self, w: Array) -> Array:
        """Return the euclidean projection, which is also nearest in the max norm.

        Both projections reduce every |w_j| by the same number, but not below 0.
        """
        return self.project(w)

    def linear_minimiser(self, g: Array) -> Array:
        """Return the vertex -+radius e_j for the j with the largest |g_j|."""
        best = np.abs(g).argmax(axis=-1)[..., None]
        signs = np.where(np.take_along_axis(g, best, axis=-1) > 0.0, -1.0, 1.0)
        vertex = np.zeros(g.shape)
        np.put_along_axis(vertex, best, self.radius * signs, axis=-1)
        return vertex

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the ball, up to tolerance * radius."""
        return self.gauge(w) <= 1.0 + tolerance

    def vertex_count(self, p: int) -> int:
        """Return the number of vertices, 2 p."""
        return 2 * p

    def vertex_products(self, g: Array) -> Array:
        """Return <v, g> for the vertices v, shape (..., 2 p).

        The vertices are radius e_1 .. radius e_p, then -radius e_1 .. -radius e_p.
        """
        return self.radius * np.concatenate([g, -g], axis=-1)

    def vertex_entries(self, index: Indices, p: int) -> tuple[Indices, Array]:
        """Return the nonzero coordinate of each vertex and its value, +- the radius."""
        return index % p, np.where(index < p, self.radius, -self.radius)

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return ``radius * max_j R_j``, a bound on |x.w| by Hoelder's inequality.

        R_j is the bound on |x_j|. No entry of a record exceeds the bound R_2 on its
        norm, so ``radius * R_2`` is a bound, too, and the smaller bound is returned.
        """
        return self.radius * min(norm, float(columns.max()))


@dataclass(frozen=True)
class Simplex(base.Ball):
    """The points with w >= 0 and sum_j w_j = radius."""

    name: ClassVar[str] = "simplex"
    code: ClassVar[int] = 3

    def project(self, w: Array) -> Array:
        """Return the nearest points of the simplex, shape (..., p).

        These points are max(w - theta, 0), with theta such that the sum is the radius.
        """
        return base.project_on_kernel(self.kernel, w)

    def linear_minimiser(self, g: Array) -> Array:
        """Return the vertex radius e_j for the j with the smallest g_j."""
        vertex = np.zeros(g.shape)
        np.put_along_axis(vertex, g.argmin(axis=-1)[..., None], self.radius, axis=-1)
        return vertex

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the simplex, up to tolerance * radius."""
        slack = tolerance * self.radius
        total = np.abs(w.sum(axis=-1) - self.radius) <= slack
        return total & (w >= -slack).all(axis=-1)

    def vertex_count(self, p: int) -> int:
        """Return the number of vertices, p."""
        return p

    def vertex_products(self, g: Array) -> Array:
        """Return <v, g> for the vertices v = radius e_j, shape (..., p)."""
        return self.radius * g

    def vertex_entries(self, index: Indices, p: int) -> tuple[Indices, Array]:
        """Return the nonzero coordinate of each vertex and its value, the radius."""
        return index, np.full(index.shape, float(self.radius))

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return ``radius * max_j R_j``, a bound on |x.w|, where R_j bounds |x_j|.

        x.w lies between the smallest and the largest entry of x, times the radius. No
        entry exceeds the bound R_2 on the norm of the record, so ``radius * R_2`` is a
        bound, too, and the smaller bound is returned.
        """
        return self.radius * min(norm, float(columns.max()))


HELP = "a list of points, or the path of a .csv or .npy file with a point in each row"
# Passes of the active-set method, per vertex.
MOST_PASSES = 30
LONGEST = 60
# In units of the radius.
FAR = 10.0


@dataclass(frozen=True)
class Polytope(Constraint):
    """The convex hull of a list of points.

    If the points are in a file, the file is read when the set is built. The points are
    kept and are part of the key of a trial. A point that is not a vertex of the hull
    does no harm, because no linear function is smaller there than at every vertex.
    """

    name: ClassVar[str] = "polytope"
    explicit: ClassVar[bool] = True
    dense_vertices: ClassVar[bool] = True

    vertices: Any = field(default=None, metadata={"help": HELP})

    def __post_init__(self) -> None:
        """Read and check the vertices; keep them as tuples."""
        rows = _vertex_matrix(self.vertices)
        # Zeros get the same sign, so that equal sets have the same key.
        listed = tuple(tuple(map(float, row)) for row in rows + 0.0)
        object.__setattr__(self, "vertices", listed)

    @classmethod
    def example(cls, p: int, size: float = 1.0) -> dict[str, Any]:
        """Return points of an example: size e_1 .. size e_p, and a negative one.

        The last point has negative coordinates.
        """
        corners = np.vstack([np.eye(p), np.full(p, -1.0 / p)])
        return {"vertices": (size * corners).tolist()}

    @functools.cached_property
    def points(self) -> Array:
        """Return the vertices, shape (m, p)."""
        return np.array(self.vertices)

    @functools.cached_property
    def radius(self) -> float:  # type: ignore[override]
        """Return the largest absolute entry of a vertex."""
        return float(np.abs(self.points).max())

    def check_features(self, p: int) -> None:
        """Raise UsageError if the vertices are not in R^p."""
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
            nearest[i] = self._nearest_point(rows[i])
        return nearest.reshape(w.shape)

    def _nearest_point(self, w: Array) -> Array:
        """Return the point of the hull that is nearest to one point w, shape (p,).

        Let D be the largest difference of <v, x> and <v', x> over points x, v, v' of
        the hull. A vertex v has no weight in the nearest point if <v, w> is more than D
        below the largest such product. Only the products of w with differences of the
        other vertices matter. So if w is far away, it is replaced by the smallest point
        with the same products, which avoids a loss of digits.
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
        """Return the vertex with the smallest <v, g>."""
        return np.asarray(self.points[self.vertex_products(g).argmin(axis=-1)])

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are within tolerance * radius of the hull."""
        # Points with larger entries are outside, which needs no projection.
        near = np.abs(w).max(axis=-1) <= self.radius * (1.0 + 2.0 * tolerance)
        inside = np.where(near[..., None], w, 0.0)
        distance = norm2(inside - self.project(inside), axis=-1)
        return near & (distance <= tolerance * self.radius)

    def vertex_count(self, p: int) -> int:
        """Return the number m of points."""
        return len(self.vertices)

    def vertex_products(self, g: Array) -> Array:
        """Return <v, g> of the m points v in their order, shape (..., m)."""
        return np.asarray(g @ self.points.T)

    def vertex_sizes(self, bounds: Array) -> Array:
        """Return sum_j |v_j| bounds_j for every v, where 0 times infinity is 0."""
        return largest_products(self.points, bounds)

    def vertex_points(self, index: Indices, p: int) -> Array:
        """Return the points by their index, shape (B, p)."""
        return np.asarray(self.points[index])

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return a bound on |x.w|: the largest min(sum_j |v_j| R_j, norm2(v) R_2).

        The maximum is over the vertices v, because a convex function of w is largest at
        a vertex.
        """
        sums = self.vertex_sizes(columns)
        lengths = norm2(self.points, axis=-1) * norm
        return float(np.minimum(sums, lengths).max())


def hull_weights(points: Array) -> Array:
    """Return weights a >= 0 with sum 1 for which a @ points is nearest to zero.

    The result has the shape (m,).

    The u >= 0 that minimises norm2(u @ points)^2 + (sum u - 1)^2 is a multiple of a.
    For u = s a with sum a = 1 this is s^2 norm2(a @ points)^2 + (s - 1)^2, and the best
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


def _vertex_matrix(vertices: Any) -> Array:
    """Return the vertices, shape (m, p), from a list or from a file."""
    is_path = isinstance(vertices, str | Path)
    listed = (
        load_numbers(Path(vertices), "constraint.vertices") if is_path else vertices
    )
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
