"""What a replay knows of mechanisms: whom they sample, how scores spread."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.contract.cases import Case
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.sampling import PoissonMechanism

Array = NDArray[np.float64]
Batch = tuple[NDArray[np.int64], NDArray[np.int64]]


def spread_of(
    release: InsideNoisyMax, gradient: Array, score: Callable[[Array], Array]
) -> float:
    """Return max_i s_i / min_j s_j for the slopes of scores, times sensitivities.

    A score is the absolute value of an affine function less a constant: far out it is a
    line, and its slope is read off there.
    """
    size = np.broadcast_to(np.asarray(release.sensitivity), gradient.shape)
    far = 1e3 * (1.0 + np.abs(gradient))
    slopes = np.abs(score(gradient + 2.0 * far) - score(gradient + far)) / far
    moved = slopes * size
    moved = np.where(np.isfinite(moved) & (moved > 0.0), moved, np.nan)
    if np.isnan(moved).all():
        return 1.0
    return float(np.nanmax(np.nanmax(moved, axis=1) / np.nanmin(moved, axis=1)))


class Coins:
    """Samples in which the exchanged record is present or not, by a public pattern.

    Every outcome has a positive probability, so that what holds for all of them holds
    whatever comes: nobody but the record, everybody, as the coins fall.
    """

    def __init__(
        self, mechanism: PoissonMechanism, case: Case, record: int, side: int
    ) -> None:
        self.plain = mechanism.sample
        self.rate, self.record = mechanism.rate, record
        self.name = mechanism.release.name
        self.turned = case.toggled is not None and side == 1
        self.done = [0] * case.trials

    def __call__(self, trial: int, n: int, steps: int) -> Batch:
        """Return the samples of a trial's next steps, as the mechanism does."""
        self.plain(trial, n, steps)
        samples = []
        for use in range(self.done[trial], self.done[trial] + steps):
            rng = np.random.default_rng([zlib.crc32(self.name.encode()), trial, use])
            rate = (0.0, 1.0, self.rate, self.rate)[int(rng.integers(4))]
            chosen = rng.random(n) < rate
            chosen[self.record] = present(self.name, trial, use) != self.turned
            samples.append(np.flatnonzero(chosen))
        self.done[trial] += steps
        offsets = np.cumsum([0, *(sample.size for sample in samples)])
        return np.concatenate(samples).astype(np.int64), offsets.astype(np.int64)


def present(name: str, trial: int, use: int) -> bool:
    """Return whether the exchanged record is in a sample of D."""
    # Not a checksum, which is linear: two names would get equal or opposite coins.
    return sha256(f"{name}/{trial}/{use}".encode()).digest()[0] & 1 == 1
