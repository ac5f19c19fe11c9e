"""The interface of norms from submodular functions, for penalties and constraints.

F is a set function on {0 .. p-1} with F(empty) = 0, nondecreasing, F({j}) > 0, and
submodular: F(A + i) - F(A) does not grow with A. Then Omega(w) = f(|w|) is a norm,
where f is the Lovasz extension of F. The dual norm is Omega*(s) = max_A |s|(A) / F(A),
and its unit ball is |P|(F) = {s: sum over A of |s| <= F(A) for all A}.

References
----------
Bach, "Structured sparsity-inducing norms through submodular functions", NIPS 2010;
Bach, "Learning with submodular functions: a convex optimization perspective", 2013.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.norms.extreme import extreme_sets, greedy_points, signed_points

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

ENTRIES = 2 * 10**6
"""Largest number of random numbers that are drawn at a time."""

DRAWS, ERROR = 4000, 0.004
"""Number of draws at a time for a Gaussian width, and the relative error to reach."""

# Rounding of a ratio |s|(A) / F(A).
ROUNDED = 1e-13


class SubmodularNorm(ABC):
    """The norm Omega of a submodular function F, with its dual norm.

    Attributes
    ----------
    checked : bool
        Whether F is known to be submodular and nondecreasing, so that Omega is convex.
    exact_reach : bool
        Whether ``reach`` is the maximum itself and not only a bound.
    """

    checked: ClassVar[bool] = True
    exact_reach: bool = True

    def check_features(self, p: int) -> None:  # noqa: B027
        """Raise UsageError if F is not a function on the sets of p coordinates."""

    def structure(self, w: Array) -> dict[str, Any]:
        """Return columns of the results that describe the structure of points.

        Each column has one value for each point, (B, p) to (B,).
        """
        return {}

    @abstractmethod
    def gains(self, order: Indices) -> Array:
        """Return F(A_k) - F(A_{k-1}) along an order, shape (..., p).

        A_k is the set of the first k coordinates of the order.
        """

    @abstractmethod
    def dual(self, s: Array) -> tuple[float, NDArray[np.bool_]]:
        """Return Omega*(s), and the mask of a set A with the largest |s|(A) / F(A).

        The number is a bound on Omega*(s) with a relative error of at most 1e-12. It is
        infinite if s is not 0 at a coordinate j with F({j}) = 0.

        Parameters
        ----------
        s : array of shape (p,)
        """

    @abstractmethod
    def shrink(self, z: Array, tau: float) -> Array:
        """Return argmin_u norm2(u - z)^2 / 2 + tau Omega(u) for z >= 0, tau > 0."""

    @abstractmethod
    def reach(self, p: int) -> float:
        """Return R_K, the largest euclidean norm over |P|(F), or a bound on it."""

    @abstractmethod
    def spread(self, p: int) -> float:
        """Return the largest euclidean norm over Omega(w) <= 1, or a bound on it.

        The largest norm is max_A sqrt|A| / F(A), because the extreme points are
        1_A / F(A), with signs.
        """

    def value(self, w: Array) -> Any:
        """Return Omega(w) by the greedy algorithm, shape (...) for w of (..., p)."""
        order = descending_order(w)
        sizes = np.take_along_axis(np.abs(w), order, axis=-1)
        return (sizes * self.gains(order)).sum(axis=-1)

    def maximiser(self, w: Array) -> Array:
        """Return an s in |P|(F) with the largest s.w, shape (..., p).

        This largest value is Omega(w).
        """
        order, s = descending_order(w), np.empty(w.shape)
        np.put_along_axis(s, order, self.gains(order), axis=-1)
        return np.asarray(np.copysign(s, w))

    def prox(self, z: Array, step: Array | float) -> Array:
        """Return argmin_u norm2(u - z)^2 / 2 + step Omega(u), shape (..., p).

        ``step`` is a number, or one per row, shape (..., 1). Rows of z that are not
        finite give NaN.
        """
        z = np.asarray(z, dtype=np.float64)
        rows = np.abs(z).reshape(-1, z.shape[-1])
        steps = np.broadcast_to(step, (*z.shape[:-1], 1)).reshape(-1)
        moved = np.full(rows.shape, np.nan)
        for i in np.flatnonzero(np.isfinite(rows).all(axis=1)):
            tau = float(steps[i])
            moved[i] = self.shrink(rows[i], tau) if tau > 0.0 else rows[i]
        return np.asarray(np.copysign(moved.reshape(z.shape), z))

    def project(self, z: Array, radius: float) -> Array:
        """Return the projection on ``radius`` times |P|(F), shape (..., p).

        The projection is computed by Moreau's identity.
        """
        return np.asarray(z - self.prox(z, radius))

    def slack(self, w: Array, s: Array, radius: float) -> float:
        """Return radius Omega(w) - s.w for a point s of ``radius`` times |P|(F).

        The result is >= 0. Let A_k be the level sets of |w|, and let s have the signs
        of w. The result is the sum over k of the drop of |w| after A_k, times radius
        F(A_k) - s(A_k). These terms are >= 0 up to rounding.

        Parameters
        ----------
        w : array of shape (p,)
        s : array of shape (p,)
            A point of radius |P|(F).
        radius : float
            Factor of the norm and of its dual ball.
        """
        order = descending_order(w)
        sizes = np.append(np.abs(w)[order], 0.0)
        along = (s * np.sign(w))[order]
        room = np.cumsum(radius * self.gains(order) - along)
        return float(np.maximum(room, 0.0) @ -np.diff(sizes))

    def in_order(self, z: Array, tau: float, order: Indices) -> Array:
        """Return the prox of tau Omega at z >= 0, if its entries fall in a given order.

        On points of this order Omega is linear, so the prox is an isotonic regression
        on z - tau gains.

        Parameters
        ----------
        z : array of shape (p,)
            Entries >= 0.
        tau : float
            Factor of Omega.
        order : array of int of shape (p,)
            The coordinates from the largest entry of the prox to the smallest.
        """
        # Not at the top: scipy.optimize takes long to import.
        from scipy.optimize import isotonic_regression

        goal = z[order] - tau * self.gains(order)
        fitted = np.empty(z.size)
        fitted[order] = isotonic_regression(goal, increasing=False).x
        return np.maximum(fitted, 0.0)

    def width(self, p: int) -> float:
        """Return the Gaussian width E Omega(g), g ~ N(0, I_p), by Monte Carlo."""
        return self.sampled_width(p)[0]

    def sampled_width(self, p: int, draws: int | None = None) -> tuple[float, float]:
        """Return the mean of Omega(g) over draws of a fixed seed, and its error.

        The error is the standard error of the mean. The number of draws is at least
        ``draws``. If ``draws`` is None, draws are added until the relative standard
        error is at most 0.4 %.
        """
        random, least = np.random.default_rng(0), DRAWS if draws is None else draws
        size, values = max(1, min(least, ENTRIES // p)), np.empty(0)
        while True:
            # Single precision is far finer than the error, and sorts twice as fast.
            normal: Any = random.standard_normal((size, p), dtype=np.float32)
            values = np.append(values, np.asarray(self.value(normal), np.float64))
            mean = float(values.mean())
            error = float(values.std() / math.sqrt(values.size))
            if values.size >= least and (draws or error <= ERROR * mean):
                return mean, error

    def dense_sets(self, p: int) -> NDArray[np.bool_] | None:
        """Return the sets A of the extreme points 1_A / F(A), with signs, as masks.

        A set is in the list if every further coordinate makes F(A) larger, and if the
        set is not the union of two parts whose F add up to F(A). The result is None if
        there are more than 10^5 extreme points, or if p is too large.
        """
        return extreme_sets(self.of_masks, p)

    def greedy_points(self, p: int) -> Array | None:
        """Return the extreme points of |P|(F) that are >= 0, shape (m, p).

        The result is None if there are more than 10^5 such points, counted with all
        signs, or if p is too large.
        """
        return greedy_points(self.of_masks, p)

    def vertices(self, p: int) -> Array | None:
        """Return the extreme points of |P|(F), shape (m, p), see ``greedy_points``."""
        points = self.greedy_points(p)
        return None if points is None else signed_points(points)

    def of_masks(self, masks: NDArray[np.bool_]) -> Array:
        """Return F of the sets that masks (m, p) describe, shape (m,).

        F of a set is Omega of its indicator.
        """
        return np.asarray(self.value(masks.astype(np.float64)))


def dinkelbach(
    norm: SubmodularNorm, s: Array
) -> tuple[float, NDArray[np.bool_], Array]:
    """Return max_A |s|(A) / F(A), the maximising A, and the prox there, shape (p,).

    For rho below the maximum, the prox of rho Omega at |s| is not 0, and the support of
    the prox has a larger ratio. At the maximum the prox is 0, up to its error.
    """
    size, best = np.abs(s), np.ones(s.size, dtype=bool)
    rho, left = 0.0, size
    ratio = ratio_of(norm, size, best)
    while ratio > rho * (1.0 + ROUNDED):
        rho = ratio
        left = norm.shrink(size, rho)
        chosen = left > 0.0
        if not chosen.any():
            break
        ratio = ratio_of(norm, size, chosen)
        best = chosen if ratio > rho else best
    return rho, best, left


def ratio_of(norm: SubmodularNorm, size: Array, mask: NDArray[np.bool_]) -> float:
    """Return the sum of sizes over a set, divided by F of the set.

    Parameters
    ----------
    norm : SubmodularNorm
    size : array of shape (p,)
        Sizes of the coordinates, >= 0.
    mask : array of bool of shape (p,)
        The set.
    """
    return float(size[mask].sum() / norm.of_masks(mask[None, :])[0])


def descending_order(w: Array) -> Indices:
    """Return the indices that sort |w| in descending order, shape (..., p).

    Equal entries are sorted by index.
    """
    return np.argsort(-np.abs(w), axis=-1, kind="stable")
