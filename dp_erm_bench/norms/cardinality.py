"""Norms of functions of the number of coordinates."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import real_number, value_error
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.norms.base import Array, Indices, SubmodularNorm, descending_order
from dp_erm_bench.norms.extreme import MOST

FUNCTIONS: dict[str, Callable[[Array, float], Array]] = {
    "count": lambda k, cap: k,
    "one": lambda k, cap: np.minimum(k, 1.0),
    "sqrt": lambda k, cap: np.sqrt(k),
    "capped": lambda k, cap: np.minimum(k, cap),
    "log1p": lambda k, cap: np.log1p(k),
}
"""Concave nondecreasing functions g with g(0) = 0, by name."""

PANELS, NODES, BEYOND = 64, 16, 9.0
"""Parameters of the quadrature of a Gaussian width.

These are the number of panels, the number of nodes, and a margin. The margin places the
end of the quadrature beyond all entries that a draw ever has.
"""


@dataclass(frozen=True)
class CardinalityNorm(SubmodularNorm):
    """The norm of F(A) = g(|A|): Omega(w) = sum_k (g(k) - g(k - 1)) |w|_(k).

    |w|_(k) is the k-th largest entry of |w|.

    Parameters
    ----------
    function : {'count', 'one', 'sqrt', 'capped', 'log1p'}
        The function g. For these names, g(k) is k, min(k, 1), sqrt(k), min(k, cap) and
        log(1 + k), respectively.
    cap : float, optional
        A number >= 1, for ``capped`` only.
    """

    function: str = "count"
    cap: float | None = None

    def __post_init__(self) -> None:
        """Check the name and the cap."""
        if not isinstance(self.function, str) or self.function not in FUNCTIONS:
            raise value_error(
                "function", self.function, f"one of {', '.join(FUNCTIONS)}"
            )
        if self.function != "capped":
            if self.cap is not None:
                only = f"null with function={self.function}, which has none"
                raise value_error("cap", self.cap, only)
            return
        cap = real_number(self.cap)
        if not 1.0 <= cap < np.inf:
            raise value_error(
                "cap", self.cap, "a finite number >= 1 with function=capped"
            )
        object.__setattr__(self, "cap", cap)

    def totals(self, p: int) -> Array:
        """Return g(1) .. g(p)."""
        counts = np.arange(1.0, p + 1.0)
        return np.asarray(FUNCTIONS[self.function](counts, self.cap or np.inf))

    def levels(self, p: int) -> Array:
        """Return g(k) - g(k - 1) for k = 1 .. p."""
        return _levels_of(self, p)

    def gains(self, order: Indices) -> Array:
        """Return the levels; they are the gains in every order."""
        return np.broadcast_to(self.levels(order.shape[-1]), order.shape)

    def value(self, w: Array) -> Array:
        """Return Omega(w), shape (...); the L1 norm and maximum need no sort."""
        size = np.abs(w)
        if self.function == "count":
            return np.asarray(size.sum(axis=-1))
        if self.function == "one":
            return np.asarray(size.max(axis=-1))
        levels = self.levels(w.shape[-1]).astype(size.dtype)
        return np.asarray(np.sort(size, axis=-1) @ levels[::-1])

    def greedy_points(self, p: int) -> Array | None:
        """Return the extreme points >= 0: the levels in all orders."""
        levels = self.levels(p)
        if not levels[1:].any():
            return np.eye(p) * levels[0] if p <= MOST // 2 else None
        equal = np.unique(levels.round(12), return_counts=True)[1]
        orders = math.lgamma(p + 1) - sum(math.lgamma(k + 1) for k in equal)
        if orders + math.log(2.0) * np.count_nonzero(levels) > math.log(MOST) + 1e-6:
            return None
        return levels[None, :].copy() if equal.size == 1 else super().greedy_points(p)

    def dual(self, s: Array) -> tuple[float, NDArray[np.bool_]]:
        """Return the largest (sum of the k largest |s|) / g(k), and their mask."""
        order = descending_order(s)
        ratios = np.cumsum(np.abs(s)[order]) / self.totals(s.size)
        best, mask = int(ratios.argmax()), np.zeros(s.size, dtype=bool)
        mask[order[: best + 1]] = True
        return float(ratios[best]), mask

    def shrink(self, z: Array, tau: float) -> Array:
        """Return the prox by one isotonic regression, as it keeps the order of z."""
        return self.in_order(z, tau, np.argsort(-z))

    def reach(self, p: int) -> float:
        """Return the norm of the levels; all vertices are permutations of them."""
        return float(norm2(self.levels(p)))

    def spread(self, p: int) -> float:
        """Return max_k sqrt(k) / g(k)."""
        return float((np.sqrt(np.arange(1.0, p + 1.0)) / self.totals(p)).max())

    def width(self, p: int) -> float:
        """Return the Gaussian width: the integral over t > 0 of E g(N).

        N is the number of entries of a standard normal vector above t in absolute
        value. N is binomial, and the mean of the k-th largest absolute value is the
        integral of P(N >= k).
        """
        from scipy.special import gammaln as log_factorial
        from scipy.special import log_ndtr, xlog1py, xlogy  # takes long to import

        totals, counts = np.append(0.0, self.totals(p)), np.arange(p + 1.0)
        ways = log_factorial(p + 1.0) - log_factorial(counts + 1.0)
        ways -= log_factorial(p - counts + 1.0)
        nodes, weights = np.polynomial.legendre.leggauss(NODES)
        side, total = (np.sqrt(2.0 * np.log(p + 1.0)) + BEYOND) / PANELS, 0.0
        for panel in range(PANELS):
            t = side * (panel + 0.5 * (nodes + 1.0))
            q = np.minimum(2.0 * np.exp(log_ndtr(-t)), 1.0)[:, None]
            chance = np.exp(ways + xlogy(counts, q) + xlog1py(p - counts, -q))
            total += float(0.5 * side * weights @ (chance @ totals))
        return total

    def dense_sets(self, p: int) -> NDArray[np.bool_] | None:
        """Return the sets of extreme points; for L1, all single coordinates."""
        if self.function == "count":
            return np.eye(p, dtype=bool) if 2 * p <= MOST else None
        return super().dense_sets(p)


@functools.lru_cache(maxsize=64)
def _levels_of(norm: CardinalityNorm, p: int) -> Array:
    levels = np.diff(norm.totals(p), prepend=0.0)
    levels.flags.writeable = False
    return levels
