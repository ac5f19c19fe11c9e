"""The ball of a structured norm."""

import dataclasses
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints.base import Array, Ball, Indices, largest_products
from dp_erm_bench.errors import UsageError
from dp_erm_bench.norms.base import SubmodularNorm
from dp_erm_bench.norms.cardinality import FUNCTIONS
from dp_erm_bench.norms.extreme import signed_vectors
from dp_erm_bench.norms.named import PARAMETERS, named_norm

MOST_ENTRIES = 2 * 10**7
"""Largest number of entries of all listed vertices together."""

CLOSE = 1e-15


@dataclass(frozen=True)
class NormBall(Ball):
    """The points with Omega(w) <= radius, where Omega is a structured norm.

    Omega is the norm of a submodular function F. The extreme points are +-radius / F(A)
    on certain sets A and 0 elsewhere. Any further coordinate makes F(A) larger, and A
    does not split into two parts whose F add up to F(A). The points are listed if there
    are at most 10^5.

    References
    ----------
    Kumar, Deisenroth, "Differentially private empirical risk minimization with
    sparsity-inducing norms", 2019, problems (8) and (23).
    """

    name: ClassVar[str] = "norm_ball"
    dense_vertices: ClassVar[bool] = True

    norm: str = field(
        default="cardinality",
        metadata={"help": f"structured norm: {', '.join(PARAMETERS)}"},
    )
    function: str = field(
        default="count",
        metadata={"help": f"with norm=cardinality: g, one of {', '.join(FUNCTIONS)}"},
    )
    cap: float | None = field(
        default=None, metadata={"help": "with function=capped: K in g(k) = min(k, K)"}
    )
    groups: Any = field(
        default=None, metadata={"help": "with norm=groups: lists of feature indices"}
    )
    weights: Any = field(
        default=None,
        metadata={"help": "with norm=groups: one weight per group, as [[w_1,w_2,..]]"},
    )
    values: Any = field(
        default=None,
        metadata={"help": "with norm=submodular: all 2^p values of F, or a file"},
    )

    def __post_init__(self) -> None:
        """Check the radius, and build the norm if all its parameters are given."""
        super().__post_init__()
        if self.norm not in ("groups", "submodular") or self._has_norm:
            with of_the_constraint():
                norm = self.omega
            for key in set(PARAMETERS[self.norm]) - {"function"}:
                if getattr(self, key) is not None:
                    object.__setattr__(self, key, getattr(norm, key))

    @property
    def _has_norm(self) -> bool:
        return self.groups is not None or self.values is not None

    @functools.cached_property
    def omega(self) -> SubmodularNorm:
        """Return the norm Omega."""
        own = [f for f in dataclasses.fields(self) if f.name not in ("radius", "norm")]
        given = {f.name: getattr(self, f.name) for f in own}
        norm: SubmodularNorm = named_norm(
            self.norm, given, {f.name: f.default for f in own}
        )
        return norm

    def check_features(self, p: int) -> None:
        """Raise UsageError if the norm is not on R^p."""
        with of_the_constraint():
            self.omega.check_features(p)

    def gauge(self, w: Array) -> Array:
        """Return the smallest t >= 0 such that w is in t times the ball."""
        return np.asarray(self.omega.value(w) / self.radius)

    def project(self, w: Array) -> Array:
        """Return the nearest points of the ball, shape (..., p).

        A point w inside the ball stays. Otherwise the result is the prox of t Omega at
        w, for the t at which it is on the border of the ball.

        A t with Omega(prox) = radius exists, because Omega of the prox falls from
        Omega(w) at t = 0 to 0 at t = Omega*(w).
        """
        w = np.asarray(w, dtype=np.float64)
        rows = w.reshape(-1, w.shape[-1])
        finite = np.asarray(np.isfinite(rows).all(axis=1))
        nearest = np.full(rows.shape, np.nan)
        for i in np.flatnonzero(finite):
            outside = float(self.gauge(rows[i])) > 1.0
            nearest[i] = self._nearest_point(rows[i]) if outside else rows[i]
        return nearest.reshape(w.shape)

    def _nearest_point(self, z: Array) -> Array:
        # Not at the top: scipy.optimize takes long to import.
        from scipy.optimize import brentq

        def excess(t: float) -> float:
            return float(self.gauge(self.omega.prox(z, t))) - 1.0

        most, _ = self.omega.dual(z)
        t = brentq(excess, 0.0, most, xtol=CLOSE * most, rtol=4 * np.finfo(float).eps)
        moved = self.omega.prox(z, t)
        size = float(self.gauge(moved))
        return np.asarray(moved / size if size > 1.0 else moved)

    def linear_minimiser(self, g: Array) -> Array:
        """Return a point of the ball with the smallest <g, s>.

        The point is -radius sign(g) 1_A / F(A), for the A with the largest |g|(A) /
        F(A).
        """
        g = np.asarray(g, dtype=np.float64)
        rows = g.reshape(-1, g.shape[-1])
        masks = np.array([self.omega.dual(row)[1] for row in rows])
        sizes = self.radius / self.omega.of_masks(masks)
        return np.asarray(-np.copysign(masks * sizes[:, None], rows).reshape(g.shape))

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the ball, up to tolerance * radius."""
        return self.gauge(w) <= 1.0 + tolerance

    def vertex_count(self, p: int) -> int | None:
        """Return the number of extreme points; None if they are not listed."""
        points = self._dense_points(p)
        return None if points is None else len(points)

    def vertex_products(self, g: Array) -> Array:
        """Return <v, g> for each of the m extreme points v, shape (..., m)."""
        return np.asarray(g @ self._listed_points(g.shape[-1]).T)

    def vertex_sizes(self, bounds: Array) -> Array:
        """Return sum_j |v_j| bounds_j for every v, where 0 times infinity is 0."""
        return largest_products(self._listed_points(bounds.shape[-1]), bounds)

    def vertex_points(self, index: Indices, p: int) -> Array:
        """Return extreme points by their index, shape (B, p)."""
        return np.asarray(self._listed_points(p)[index])

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return a bound on |x.w| over the ball and over records x.

        The bound is radius min(Omega*(R), R_2 max_A sqrt|A| / F(A)), or a bound on this
        number.
        """
        by_entries, _ = self.omega.dual(columns)
        return self.radius * min(by_entries, norm * self.omega.spread(columns.size))

    def _listed_points(self, p: int) -> Array:
        points = self._dense_points(p)
        if points is None:
            raise NotImplementedError(f"constraint={self.name} has no list of vertices")
        return points

    def _dense_points(self, p: int) -> Array | None:
        return _vertices_of(self, p)


@functools.lru_cache(maxsize=4)
def _vertices_of(ball: NormBall, p: int) -> Array | None:
    masks = ball.omega.dense_sets(p)
    if masks is None or np.exp2(masks.sum(axis=1)).sum() * p > MOST_ENTRIES:
        return None
    sizes = ball.radius / ball.omega.of_masks(masks)
    points = signed_vectors(masks) * np.repeat(sizes, 2 ** masks.sum(axis=1))[:, None]
    points.flags.writeable = False
    return points


@contextmanager
def of_the_constraint() -> Iterator[None]:
    """Prefix the messages of a norm's UsageErrors with ``constraint.``."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"constraint.{error}") from None
