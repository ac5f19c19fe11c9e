"""Norms that are sums of maxima over groups."""

import functools
import math
from abc import abstractmethod
from collections.abc import Callable

import numpy as np

from dp_erm_bench.norms.base import ROUNDED, Array, SubmodularNorm
from dp_erm_bench.norms.cardinality import CardinalityNorm

CHECKED, MOST_SWEEPS = 8, 40_000
"""Number of sweeps between two checks of the gap, and largest number in total."""

GAP, NEAR = 1e-15, 1e-20
"""Limits on two parts of the duality gap at which a prox ends.

Both limits are relative to norm2(z)^2.
"""


class SumOfMaxima(SubmodularNorm):
    """A norm whose prox is computed by sweeps over the groups of a sum of maxima."""

    @abstractmethod
    def sweeper(self, z: Array, tau: float) -> Callable[[int], Array]:
        """Return a function that makes sweeps and returns z minus the dual point.

        The argument of the function is the number of sweeps. The sweeps start where the
        last call ended.
        """

    def shrink(self, z: Array, tau: float) -> Array:
        """Return the prox, by sweeps and an isotonic regression in their order.

        The sweeps end when the regression is the prox. For the result w of the
        regression and the dual point s = z - left, the duality gap is tau Omega(w) -
        s.w + norm2(w - left)^2 / 2.
        """
        sweep, before, best = self.sweeper(z, tau), z, (math.inf, z)
        size = float(z @ z)
        for _ in range(MOST_SWEEPS // CHECKED):
            left = sweep(CHECKED)
            w = self.in_order(z, tau, np.argsort(-left, kind="stable"))
            slack = self.slack(w, z - left, tau)
            apart = 0.5 * float(np.square(w - left).sum())
            settled = np.abs(w - before).max() <= ROUNDED * z.max(initial=0.0)
            best = min(best, (slack + apart, w), key=lambda one: one[0])
            if settled and slack <= GAP * size and apart <= NEAR * size:
                return w
            before = w
        return best[1]


@functools.lru_cache(maxsize=4096)
def largest_mean(count: int) -> float:
    """Return the mean of the largest |g| among ``count`` standard normal numbers."""
    return float(CardinalityNorm("one").width(count))
