"""Poisson sampling: each record independently, with the same probability."""

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import NotSampled
from dp_erm_bench.kernels.draws import survivals
from dp_erm_bench.kernels.stochastic import poisson_gaps

Indices = NDArray[np.int64]


class SampleCount:
    """Matches the samples of a mechanism with its uses: one for one, in each trial.

    Amplification by sampling is proved for a fresh secret sample at each use. Samples
    of several steps may be drawn at once, before as many uses; noise that a compiled
    step takes ahead may come before the samples of its steps. At rate 1 all records
    are in every sum, and nothing is counted.

    Parameters
    ----------
    name : str
        Of the release.
    rate : float
        The sampling rate that it is charged for.
    batch : int
        Number of trials.
    """

    def __init__(self, name: str, rate: float, batch: int) -> None:
        self._told = f"release {name} is certified for one Poisson sample of rate "
        self._told += f"{rate:g} at each use, and"
        self._all = rate == 1.0
        # Samples that wait for their uses; negative: uses that wait for their samples.
        self._left = [0] * batch
        self._again = False

    def sampled(self, trial: int, steps: int) -> None:
        """Count the samples of a trial's next steps; what is wrong is told at a use."""
        before = self._left[trial]
        self._left[trial] += steps
        # A second sample before a use, or more samples than the noise taken ahead.
        self._again |= before > 0 or before < 0 < self._left[trial]

    def require(self, uses: int) -> None:
        """Raise NotSampled unless all trials have taken one sample for each use."""
        if self._all:
            return
        if self._again:
            raise NotSampled(f"{self._told} another one was taken before its use")
        left = min(self._left)
        if left < uses:
            found = f"has {max(left, 0)} for the next {uses}"
            raise NotSampled(f"{self._told} {found}")

    def used(self, uses: int) -> None:
        """Count uses by all trials, whose samples were taken or are all to follow.

        Raises
        ------
        NotSampled
            If they were taken for some of the uses only, or those of the uses before
            never followed.
        """
        if self._again or any(self._left):
            self.require(uses)
        self._left = [left - uses for left in self._left]

    def finish(self) -> None:
        """Raise NotSampled if samples and uses do not match at the end of a run."""
        if self._all:
            return
        if self._again:
            self.require(0)
        for left in filter(None, self._left):
            lacking = f"{-left} uses had none" if left < 0 else f"{left} had no use"
            raise NotSampled(f"{self._told} {lacking}")


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
            u = survivals(self._seed, self._used, size)
            out = np.empty(size, dtype=np.int64)
            written, position, self._pending = poisson_gaps(
                u, position, limit, self._rate, out
            )
            self._used += written + (self._pending >= 0)
            found.append(out[:written])
        self._pending -= limit
        return np.concatenate(found)
