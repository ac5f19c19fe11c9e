"""Mechanisms: calibrated releases, ready to be called, and counted."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.privacy.base import Intercept as Intercept
from dp_erm_bench.privacy.base import Mechanism as Mechanism
from dp_erm_bench.privacy.base import Query as Query
from dp_erm_bench.privacy.perturbation import (
    ObjectiveGaussian,
    ObjectiveMechanism,
    ObjectiveNormLaplace,
)
from dp_erm_bench.privacy.releases import (
    Array,
    InsideNoisyMax,
    NoisyMax,
    PoissonGaussian,
    Release,
)
from dp_erm_bench.privacy.sampling import CoinStream, SampleCount
from dp_erm_bench.privacy.streams import stream_seeds

Indices = NDArray[np.int64]
Score = Callable[[Array], Array]
Batch = tuple[Indices, Indices]


class AdditiveMechanism(Mechanism):
    """Adds noise to a number of each trial, or to a vector of each trial.

    A vector is one use only if its noise is Gaussian and of one scale, that of its
    euclidean sensitivity; else every entry would be a release of its own.
    """

    vector = True

    def publish(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the noisy value.

        Parameters
        ----------
        value : array of shape (B,) or (B, size)
        coordinate : int array of shape (B,), optional
            Which entry of the scale applies, where the scale has p columns.
        """
        if value.ndim == 1:
            return value + self.take(1, self._column(coordinate))[:, 0]
        return value + self.take_vectors(1, value.shape[1])[:, 0]

    def query(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the value."""
        return value if value.ndim == 2 else value[:, None]

    def sensitivity_of(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the sensitivity of the value, (B, 1)."""
        declared = np.broadcast_to(self.release.sensitivity, self.scale.shape)
        return np.take_along_axis(declared, self._column(coordinate), axis=1)

    def _column(self, coordinate: Indices | None) -> Indices:
        if self.scale.shape[1] == 1:
            return np.zeros((len(self.seeds), 1), dtype=np.int64)
        if coordinate is None:
            raise TypeError(
                f"release {self.release.name} has a sensitivity per coordinate: "
                "its mechanism must be told the coordinate"
            )
        return coordinate[:, None]

    def take(self, uses: int, coordinates: Indices) -> Array:
        """Return the noise of the next uses on given coordinates, (B, uses)."""
        noise = self.unit_noise(uses, 1)[:, :, 0]
        if self.scale.shape[1] == 1:
            return noise * self.scale
        return noise * np.take_along_axis(self.scale, coordinates, axis=1)

    def take_vectors(self, uses: int, size: int) -> Array:
        """Return the noise of the next uses on vectors, (B, uses, size).

        Raises
        ------
        TypeError
            If the release does not cover a vector with one use.
        """
        if size > 1 and not (self.release.vectors and self.scale.shape[1] == 1):
            raise TypeError(
                f"release {self.release.name} covers one number a use, not a vector"
            )
        return self.unit_noise(uses, size) * self.scale[:, None, :]


class MaxMechanism(Mechanism):
    """Publishes the index of the largest noisy score."""

    def _scale(self, multiplier: float, batch: int) -> Array:
        scale = super()._scale(multiplier, batch)
        if isinstance(self.release, InsideNoisyMax):
            return scale
        widest: Array = scale.max(axis=1, keepdims=True)
        return widest

    def publish(self, gradient: Array, score: Score) -> Indices:
        """Return the winner of each trial, (B,).

        Parameters
        ----------
        gradient : array of shape (B, p)
        score : callable
            Maps a gradient to scores, (B, p); minus infinity excludes.
        """
        if isinstance(self.release, NoisyMax):
            return self._winners(score(gradient))
        noise = self.unit_noise(1, gradient.shape[1])[:, 0] * self.scale
        winners: Indices = score(gradient + noise).argmax(axis=1)
        return winners

    def _winners(self, scores: Array) -> Indices:
        assert isinstance(self.release, NoisyMax)
        self.spend(1)
        start, self._drawn = self._drawn, self._drawn + scores.shape[1]
        trials = zip(self.seeds, scores, self.scale[:, 0], strict=True)
        return np.array([self.release.winner(s, start, x, b) for s, x, b in trials])

    def query(self, gradient: Array, score: Score) -> Array:
        """Return what the noise is added to: the gradient or its scores."""
        inside = isinstance(self.release, InsideNoisyMax)
        return gradient if inside else score(gradient)

    def sensitivity_of(self, gradient: Array, score: Score) -> Array:
        """Return the sensitivity of each entry of the query."""
        return np.atleast_2d(np.asarray(self.release.sensitivity, np.float64))


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


class Mechanisms(dict[str, Mechanism]):
    """The mechanisms of a trial by name.

    Attributes
    ----------
    batch : int
        B, the number of trials.
    ahead : bool
        Whether noise may be taken ahead for many uses, by a compiled step; the
        replay audit, which answers each query itself, says no.
    intercept : callable or None
        Where an audit listens to all of them, see ``Mechanism``.
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch
        self.ahead = True
        self.intercept: Intercept | None = None

    def include(self, others: "Mechanisms") -> None:
        """Add mechanisms that are made later; an audit hears them too."""
        for name, mechanism in others.items():
            if name in self:
                raise ValueError(f"two releases are named {name}")
            mechanism.intercept = self.intercept
            self[name] = mechanism

    def finish(self) -> None:
        """Raise if a run that has ended did not keep to what is certified of it."""
        for mechanism in self.values():
            mechanism.finish()


def make_mechanisms(
    releases: Iterable[Release], z: float, identities: Sequence[str]
) -> Mechanisms:
    """Return the mechanisms of declared releases at the multiplier z."""
    made = Mechanisms(len(identities))
    for release in releases:
        if release.name in made:
            raise ValueError(f"two releases are named {release.name}")
        made[release.name] = _kind(release)(release, z, identities)
    return made


def _kind(release: Release) -> type[Mechanism]:
    kinds: Mapping[type[Release], type[Mechanism]] = {
        ObjectiveGaussian: ObjectiveMechanism,
        ObjectiveNormLaplace: ObjectiveMechanism,
        NoisyMax: MaxMechanism,
        InsideNoisyMax: MaxMechanism,
        PoissonGaussian: PoissonMechanism,
    }
    for kind, mechanism in kinds.items():
        if isinstance(release, kind):
            return mechanism
    return AdditiveMechanism
