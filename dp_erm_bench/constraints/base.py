"""The interface of a constraint: a closed convex set with a projection."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError, real_number

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
UNCOMPILED = 4
"""Code of all constraints on which compiled kernels cannot project."""


class Constraint(ABC):
    """A closed convex set that contains the iterates.

    Attributes
    ----------
    name : str
        Name of the constraint's yaml file.
    code : int
        The number of this kind of set in compiled kernels (``kernels.projections``).
    bounded : bool
        Whether the set is bounded.
    explicit : bool
        Whether the set is given by its vertices.
    dense_vertices : bool
        Whether vertices may have several entries that are not zero.
    radius : float
        Size of the set; infinite for the whole space.
    """

    name: ClassVar[str]
    code: ClassVar[int] = UNCOMPILED
    bounded: ClassVar[bool] = True
    explicit: ClassVar[bool] = False
    dense_vertices: ClassVar[bool] = False
    radius: float = math.inf

    @classmethod
    @abstractmethod
    def example(cls, p: int, size: float = 1.0) -> dict[str, Any]:
        """Return parameters of a set in R^p of the given size, 1 by default."""

    def check_features(self, p: int) -> None:  # noqa: B027
        """Raise UsageError if the set is not in R^p."""

    @property
    def kernel(self) -> tuple[int, float]:
        """Return (code, radius), the form in which kernels accept the set."""
        return self.code, float(self.radius)

    @abstractmethod
    def project(self, w: Array) -> Array:
        """Return the euclidean projections on the set, shape (..., p)."""

    def project_linf(self, w: Array) -> Array:
        """Return the nearest points of the set in the max norm, shape (..., p).

        Raises
        ------
        NotImplementedError
            If the class does not implement this projection.
        """
        raise NotImplementedError(f"constraint={self.name}: no projection in linf")

    @abstractmethod
    def linear_minimiser(self, g: Array) -> Array:
        """Return a point of the set with the smallest <g, s>, shape (..., p).

        If the set has vertices, the point is a vertex, and of several the one with the
        lowest index.
        """

    @abstractmethod
    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether points are in the set, up to tolerance * radius."""

    @abstractmethod
    def vertex_count(self, p: int) -> int | None:
        """Return the number of extreme points in R^p; None if they are not listed.

        The points are not listed if there are infinitely many or too many.
        """

    def vertex_products(self, g: Array) -> Array:
        """Return <v, g> for each of the m vertices v, shape (..., m)."""
        raise NotImplementedError(f"constraint={self.name} has no list of vertices")

    def vertex_sizes(self, bounds: Array) -> Array:
        """Return the largest <v, g> over |g_j| <= bounds_j for each vertex v.

        The result has the shape (..., m).

        This implementation is for vertices with a single entry that is not zero.
        """
        return np.abs(self.vertex_products(bounds))

    def vertex_points(self, index: Indices, p: int) -> Array:
        """Return vertices, shape (B, p), by index, for sets with ``dense_vertices``."""
        raise NotImplementedError(f"constraint={self.name} has no list of vertices")

    def vertex_entries(self, index: Indices, p: int) -> tuple[Indices, Array]:
        """Return the index and value of a vertex's only nonzero entry, each (B,)."""
        raise NotImplementedError(f"constraint={self.name} has no list of vertices")

    @abstractmethod
    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return a bound on |x.w| over the set and over records x.

        Parameters
        ----------
        columns : array of shape (p,)
            R_j, bounds on |x_j|.
        norm : float
            R_2, a bound on the euclidean norm of x.
        """


@dataclass(frozen=True)
class Ball(Constraint):
    """A bounded set with a parameter radius, which is 1 by default."""

    radius: float = 1.0

    @classmethod
    def example(cls, p: int, size: float = 1.0) -> dict[str, Any]:
        """Return the parameters of a ball: its radius."""
        return {"radius": size}

    def __post_init__(self) -> None:
        """Check the radius."""
        radius = real_number(self.radius)
        if not 0.0 < radius < math.inf:
            raise UsageError(
                f"constraint.radius={self.radius} of {self.name}: must be a finite "
                "number > 0"
            )
        object.__setattr__(self, "radius", radius)


def largest_products(points: Array, bounds: Array) -> Array:
    """Return the largest <v, g> over |g_j| <= bounds_j, where 0 times infinity is 0.

    Parameters
    ----------
    points : array of shape (m, p)
        The vectors v.
    bounds : array of shape (..., p)
    """
    sizes, unbounded = np.abs(points).T, np.isinf(bounds)
    total = np.where(unbounded, 0.0, bounds) @ sizes
    return np.where(unbounded @ sizes > 0.0, np.inf, total)


def project_on_kernel(constraint: tuple[int, float], w: Array) -> Array:
    """Return the nearest points of a set that is given for kernels, shape (..., p).

    ``constraint`` is the pair (code, radius) of ``Constraint.kernel``.

    References
    ----------
    Michelot, "A finite algorithm for finding the projection of a point onto the
    canonical simplex of R^n", Journal of Optimization Theory and Applications 1986.
    """
    from dp_erm_bench.kernels.projections import project_all  # compiled

    moved = np.array(w, dtype=np.float64, order="C")
    project_all(constraint, moved.reshape(-1, moved.shape[-1]))
    return moved
