"""The norm of the range of a set of coordinates: it selects intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError
from dp_erm_bench.norms.base import ROUNDED, Array, Indices
from dp_erm_bench.norms.sums import SumOfMaxima, largest_mean

LEVEL = 1e-9
"""Differences below this share of the largest entry are rounding errors of a prox."""


@dataclass(frozen=True)
class RangeNorm(SumOfMaxima):
    """The norm of F(A) = p - 2 + max A - min A + 1, with F = 0 for the empty set.

    F(A) is p - 2 plus the length of the interval that A spans. Without the p - 2, F
    would not be submodular. Consider the 2 (p - 1) sets {1 .. k}, k < p, and {k .. p},
    k > 1. F(A) is the number of these sets that A meets, so Omega is the sum of the
    maxima over these sets.

    References
    ----------
    Bach, "Structured sparsity-inducing norms through submodular functions", NIPS 2010,
    section 3.
    """

    def check_features(self, p: int) -> None:
        """Raise UsageError for a single coordinate, on which F is 0."""
        if p < 2:
            raise UsageError(
                "range needs at least 2 features: of one alone F({0}) = p - 2 + 1 = 0"
            )

    def gains(self, order: Indices) -> Array:
        """Return p - 1 for the first coordinate, then how much the interval grows."""
        high = np.maximum.accumulate(order, axis=-1)
        low = np.minimum.accumulate(order, axis=-1)
        return np.diff(high - low, axis=-1, prepend=1 - order.shape[-1]).astype(float)

    def structure(self, w: Array) -> dict[str, Any]:
        """Return `change_points`: how often |w| changes from one entry to the next.

        Extreme points of Omega <= 1 have a single absolute value on an interval and are
        0 outside of it.
        """
        size = np.abs(w)
        jumps = np.abs(np.diff(size)) > LEVEL * size.max(axis=1, keepdims=True)
        return {"change_points": np.count_nonzero(jumps, axis=1)}

    def value(self, w: Array) -> Any:
        """Return Omega(w), the sum of the maxima; w has shape (..., p)."""
        size = np.abs(w)
        fore = np.maximum.accumulate(size, axis=-1)[..., :-1]
        back = np.maximum.accumulate(size[..., ::-1], axis=-1)[..., :-1]
        return fore.sum(axis=-1) + back.sum(axis=-1)

    def dual(self, s: Array) -> tuple[float, NDArray[np.bool_]]:
        """Return the largest (sum of |s| over an interval) / (its length + p - 2).

        For a ratio rho the best interval is the one with the largest sum of |s| - rho.
        Its ratio becomes the next rho, until no interval has a larger one (Dinkelbach).
        """
        size, p = np.abs(s), s.size
        rho, best, interval = -1.0, 0.0, (0, p)
        while best > rho * (1.0 + ROUNDED) or rho < 0.0:
            rho, ends = best, interval
            sums = np.append(0.0, np.cumsum(size - rho))
            lowest = np.minimum.accumulate(sums[:-1])
            last = int((sums[1:] - lowest).argmax())
            first = int(sums[: last + 1].argmin())
            interval = (first, last + 1)
            best = float(size[first : last + 1].sum() / (p - 1 + last - first))
        rho, ends = max((rho, ends), (best, interval))
        mask = np.zeros(p, dtype=bool)
        mask[slice(*ends)] = True
        return rho, mask

    def sweeper(self, z: Array, tau: float) -> Callable[[int], Array]:
        """Return a function for sweeps over the two sums of maxima."""
        from dp_erm_bench.kernels.structured import range_sweeps  # compiled

        left, parts = z.copy(), np.zeros((2, z.size))

        def sweep(count: int) -> Array:
            range_sweeps(left, parts, tau, count)
            return left

        return sweep

    def reach(self, p: int) -> float:
        """Return sqrt(2) (p - 1), reached by orders that begin with both ends."""
        return math.sqrt(2.0) * (p - 1)

    def spread(self, p: int) -> float:
        """Return the largest sqrt(m) / (p - 2 + m) over intervals of m coordinates."""
        m = np.arange(1.0, p + 1.0)
        return float((np.sqrt(m) / (p - 2.0 + m)).max())

    def width(self, p: int) -> float:
        """Return the Gaussian width, 2 sum_{k<p} E max(|g_1| .. |g_k|)."""
        return 2.0 * math.fsum(largest_mean(k) for k in range(1, p))
