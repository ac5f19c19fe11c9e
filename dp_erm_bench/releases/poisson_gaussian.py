"""Normal noise on the sum over a Poisson sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.additive import AdditiveMechanism, Indices
from dp_erm_bench.releases.base import Array, Release
from dp_erm_bench.releases.events import Event
from dp_erm_bench.releases.sampling import CoinStream, SampleCount
from dp_erm_bench.releases.streams import stream_seeds

Batch = tuple[Indices, Indices]


@dataclass(frozen=True, eq=False)
class PoissonGaussian(Release):
    """A sum over a Poisson sample of the records, plus normal noise.

    Parameters
    ----------
    rate : float
        The probability with which each record is in the sample. The sample is
        part of the mechanism: it stays secret.
    """

    vectors: ClassVar[bool] = True
    # Nothing is claimed by default: the sum is charged for all records.
    rate: float = 1.0
    draw = staticmethod(draws.gaussian)

    def event(self) -> Event:
        """Return the Poisson-subsampled Gaussian mechanism."""
        return Event("poisson_gaussian", self.times, self.weight, rate=self.rate)


class PoissonMechanism(AdditiveMechanism):
    """Samples records, and adds noise to a sum over the sample.

    The sample belongs to the mechanism: it is drawn from a stream of its own,
    secret like the noise. Each use takes one sample of each trial (``SampleCount``);
    at rate 1 there is nothing to sample.
    """

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        assert isinstance(release, PoissonGaussian)
        self.rate = release.rate
        seeds = stream_seeds(identities, f"{release.name}/sample")
        self._coins = [CoinStream(seed, release.rate) for seed in seeds]
        self._count = SampleCount(release.name, release.rate, len(identities))

    def sample(self, trial: int, n: int, steps: int) -> Batch:
        """Return the samples of a trial's next steps.

        Returns
        -------
        records : int array
        offsets : int array of shape (steps + 1,)
            Step t samples ``records[offsets[t]:offsets[t + 1]]``.
        """
        self._count.sampled(trial, steps)
        successes = self._coins[trial].successes(n * steps)
        ends = np.arange(steps + 1) * n
        return successes % n, np.searchsorted(successes, ends)

    def publish(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the noisy sum; NotSampled is raised unless its sample was taken."""
        self._count.require(1)
        return super().publish(value, coordinate)

    def spend(self, uses: int) -> None:
        """Count ``uses`` more, and a sample for each."""
        super().spend(uses)
        self._count.used(uses)

    def finish(self) -> None:
        """Raise NotSampled if noise was taken ahead and its samples never were."""
        self._count.finish()
