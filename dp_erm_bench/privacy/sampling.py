"""Poisson sampling: each record independently, with the same probability."""

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.kernels.stochastic import poisson_gaps

Indices = NDArray[np.int64]


class CoinStream:
    """An endless row of independent coins, read in pieces."""

    def __init__(self, seed: NDArray[np.uint32], rate: float) -> None:
        self._seed, self._rate = seed, rate
        self._used = 0
        self._pending = -1

    def successes(self, coins: int) -> Indices:
        """Return where the next ``coins`` coins succeed, counted from their first."""
        if self._rate == 1.0:
            return np.arange(coins)
        found: list[Indices] = []
        limit, position = coins, 0
        if self._pending >= 0:
            if self._pending >= limit:
                self._pending -= limit
                return np.empty(0, dtype=np.int64)
            found.append(np.array([self._pending], dtype=np.int64))
            position, self._pending = self._pending + 1, -1
        while self._pending < 0:
            size = int((limit - position) * self._rate * 1.1) + 64
            u = uniforms(self._seed, self._used, size)
            out = np.empty(size, dtype=np.int64)
            written, position, self._pending = poisson_gaps(
                u, position, limit, self._rate, out
            )
            self._used += written + (self._pending >= 0)
            found.append(out[:written])
        self._pending -= limit
        return np.concatenate(found)
