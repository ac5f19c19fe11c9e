"""Releases that are computed from secret samples of records.

A mechanism draws its samples itself and keeps them secret. The base classes serve all
kinds of samples. `PoissonMechanism` draws Poisson samples, which contain each record
independently of the others with the same probability, the *rate*.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import NotSampled, UsageError
from dp_erm_bench.kernels.coins import poisson_gaps
from dp_erm_bench.kernels.draws import survivals
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.adjacency import is_change_only
from dp_erm_bench.releases.base import Array, Mechanism, Release
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.streams import stream_seeds

Indices = NDArray[np.int64]
Batch = tuple[Indices, Indices]


class CoinStream:
    """An endless sequence of independent coin tosses, read in pieces."""

    def __init__(self, seed: NDArray[np.uint32], rate: float) -> None:
        self._seed, self._rate = seed, rate
        self._used = 0
        self._pending = -1

    def successes(self, coins: int) -> Indices:
        """Return the indices of the successes among the next ``coins`` tosses."""
        if self._rate == 1.0:
            return np.arange(coins)
        if self._pending >= coins:
            self._pending -= coins
            return np.empty(0, dtype=np.int64)
        position = self._pending + 1
        pieces = [np.arange(max(self._pending, 0), position)]
        self._pending = -1
        while self._pending < 0:
            size = int((coins - position) * self._rate * 1.1) + 64
            u = survivals(self._seed, self._used, size)
            out = np.empty(size, dtype=np.int64)
            left = poisson_gaps(u, position, coins, self._rate, out)
            written, position, self._pending = left
            self._used += written + (self._pending >= 0)
            pieces.append(out[:written])
        self._pending -= coins
        return np.concatenate(pieces)


class SamplingMechanism(AdditiveMechanism):
    """Samples records, and adds noise to a value computed from the sample.

    The mechanism draws the sample itself, from a random stream that is secret like the
    noise.

    Amplification by sampling is proved for a new secret sample at each use. So the
    mechanism checks that each trial takes exactly one sample for each use. Samples of
    several steps may be drawn at once, before as many uses. Noise that a compiled step
    draws in advance may come before the samples of its steps. At rate 1, all records
    are in every sample, and nothing is counted.

    Attributes
    ----------
    kind : str
        Name of this kind of samples in messages.
    is_secret : bool
        Whether a sample is secret. A sample that always contains all records in their
        own order is not secret.
    halved : bool
        See ``SampledRelease``.
    """

    kind: ClassVar[str]

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        assert isinstance(release, SampledRelease)
        self.rate = self._charged = release.rate
        self.halved, self.is_secret = release.halved, release.rate < 1.0
        self.sample_seeds = stream_seeds(identities, f"{release.name}/sample")
        # Samples that wait for their uses; negative: uses that wait for their samples.
        self._left = [0] * len(identities)
        self._again = False

    def sample(self, trial: int, n: int, steps: int) -> Batch:
        """Return the samples of a trial's next steps.

        If too many samples are taken, the next use raises an error.

        Parameters
        ----------
        trial : int
            Number of the trial in the batch.
        n : int
            Number of records.
        steps : int
            Number of samples, one for each step.

        Returns
        -------
        records : int array
        offsets : int array of shape (steps + 1,)
            Step t samples ``records[offsets[t]:offsets[t + 1]]``.
        """
        before = self._left[trial]
        self._left[trial] += steps
        # A second sample before a use, or more samples than the noise taken ahead.
        self._again |= before > 0 or before < 0 < self._left[trial]
        return self._draw_samples(trial, n, steps)

    def take_everyone(self) -> None:
        """Put all records into every sample from now on, for auditors."""
        self.rate = self._charged = 1.0

    @abstractmethod
    def _draw_samples(self, trial: int, n: int, steps: int) -> Batch:
        """Draw the samples that ``sample`` returns."""

    def _require_samples(self, uses: int) -> None:
        """Raise NotSampled unless all trials have taken one sample for each use."""
        if self._again:
            self._refuse_samples(
                "another sample was taken before the last one was used"
            )
        left = min(self._left)
        if left < uses:
            self._refuse_samples(
                f"there are {max(left, 0)} samples for the next {uses} uses"
            )

    def _refuse_samples(self, wrong: str) -> None:
        if self._charged < 1.0:
            raise NotSampled(
                f"release {self.release.name} is certified for one {self.kind} of rate "
                f"{self._charged:g} at each use, but {wrong}"
            )

    def publish(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the noisy sum; raise NotSampled if no sample was taken for it."""
        self._require_samples(1)
        return super().publish(value, coordinate)

    def spend(self, uses: int) -> None:
        """Count ``uses`` more uses, whose samples were all taken or will all follow.

        Raises
        ------
        NotSampled
            If samples were taken for only some of the uses, or if those of earlier uses
            never followed.
        """
        super().spend(uses)
        if self._again or any(self._left):
            self._require_samples(uses)
        self._left = [left - uses for left in self._left]

    def finish(self, early: bool = False) -> None:
        """Raise NotSampled if samples and uses do not match at the end of a run."""
        if self._again:
            self._require_samples(0)
        for left in filter(None, self._left):
            lacking = "uses had no sample" if left < 0 else "samples had no use"
            self._refuse_samples(f"{abs(left)} {lacking}")


class PoissonMechanism(SamplingMechanism):
    """Samples each record independently."""

    kind = "Poisson sample"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self._coins = [CoinStream(seed, self.rate) for seed in self.sample_seeds]

    def _draw_samples(self, trial: int, n: int, steps: int) -> Batch:
        successes = self._coins[trial].successes(n * steps)
        step = successes // n
        sizes = np.bincount(step, minlength=steps)
        return successes - step * n, np.concatenate([[0], np.cumsum(sizes)])


@dataclass(frozen=True)
class SampledLaw(Law):
    """The law of a noisy value computed from a sample.

    Attributes
    ----------
    rate : float
        The probability that a record is in a sample, in (0, 1). At rate 1, the law of
        the mechanism on all records takes its place.
    """

    rate: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for a rate outside (0, 1)."""
        super().__post_init__()
        if not 0 < self.rate < 1:
            raise ValueError(f"rate={self.rate}: must be in (0, 1)")

    def sampling_rate(self) -> float:
        """Return the rate, the probability that one use reads a given record."""
        return self.rate


@dataclass(frozen=True, eq=False)
class SampledRelease(Release):
    """A noisy sum over a Poisson sample of the records.

    Given all earlier answers and the sample of the other records, let the sum be s
    without the record in which neighbours differ, s + v with it in D, and s + v' with
    it in D'. Its coin is secret, so that the answer has the law
    (1 - q) N_s + q N_(s + v) in D and (1 - q) N_s + q N_(s + v') in D', N_a being the
    noise around a. The sum s is the same in D and D', as long as nothing changes with a
    record that is not in the sample. An amplified law bounds this pair by the norms of
    v and v', and not by that of v - v':

    - ``zero_out``: v' = 0, and norm(v) is at most the sensitivity.
    - ``replace_one``: norm(v) and norm(v') are at most half of the sensitivity, which
      bounds norm(v - v') too. The reverse fails: terms of one sign, as in a count, may
      have v = 1, v' = 0 at a sensitivity of 1. The pair is then that of a removed
      record, at the whole sensitivity: one use calibrated for epsilon = 1 at q = 0.1,
      delta = 1e-6 has an epsilon of 3.8. So declare twice the largest term as the
      sensitivity. The same holds for positive semidefinite terms, of which one may be
      1/sqrt(2) of the largest change (``Adjacency.of_sum``). Declaring that change as
      the sensitivity raises an error.

    v is the change of the query when only the record's coin changes. `check` flips that
    coin (``samples_are_those_charged``). At rate 1 nothing is amplified, and a bound on
    the change is enough.

    Parameters
    ----------
    rate : float
        The probability with which each record is in the sample. The sample is part of
        the mechanism, and stays secret.

    Attributes
    ----------
    halved : bool
        Whether a record's own term must be at most half of the sensitivity under
        ``replace_one``, as explained above.
    """

    mechanism: ClassVar[type[Mechanism]] = PoissonMechanism
    halved: ClassVar[bool] = True
    # No amplification is claimed by default: the sum is charged for all records.
    rate: float = 1.0

    def __post_init__(self) -> None:
        """Raise UsageError if ``positive=True`` set the sensitivity at a rate < 1."""
        if self.halved and self.rate < 1 and is_change_only(self.sensitivity):
            raise UsageError(
                f"release {self.name}: with Poisson samples, the term of each record "
                "must be at most half of the sensitivity, which of_sum(bound, "
                "positive=True) does not ensure; declare of_sum(bound)"
            )
