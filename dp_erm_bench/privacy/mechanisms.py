"""Mechanisms: calibrated releases, ready to be called, and counted."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.privacy.releases import (
    Array,
    InsideNoisyMax,
    NoisyMax,
    PoissonGaussian,
    Release,
)
from dp_erm_bench.privacy.sampling import CoinStream
from dp_erm_bench.privacy.streams import stream_seeds

Indices = NDArray[np.int64]
Score = Callable[[Array], Array]
Batch = tuple[Indices, Indices]


@dataclass(frozen=True, eq=False)
class Query:
    """What the replay audit sees of one use of a mechanism.

    Attributes
    ----------
    name : str
        The release.
    value : array of shape (B,) or (B, size)
        What the noise is added to.
    sensitivity : array, broadcastable to (B, 1) or (B, size)
        Declared for this use.
    vector : bool
        Whether the sensitivity is of the euclidean norm of the whole row.
    """

    name: str
    value: Array
    sensitivity: Array
    vector: bool


class Mechanism(ABC):
    """A release with its noise, for a batch of B trials.

    Parameters
    ----------
    release : Release
    z : float
        Noise scale / sensitivity; 0 for no noise.
    identities : sequence of str
        One per trial; they seed the streams.

    Attributes
    ----------
    scale : array of shape (B, 1) or (B, p)
        The noise scale.
    used : int
        How often it was used.
    intercept : callable or None
        Where the replay audit listens: gets each query and a function that
        publishes the answer, and returns the answer that the solver is to see.
    """

    vector = False

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        self.release = release
        self.seeds = stream_seeds(identities, release.name)
        self.scale = self._scale(z * release.weight, len(identities))
        self.used = 0
        self.intercept: Callable[[Query, Callable[[], Any]], Any] | None = None

    def _scale(self, multiplier: float, batch: int) -> Array:
        sensitivity = np.atleast_2d(np.asarray(self.release.sensitivity, np.float64))
        shape = (batch, sensitivity.shape[1])
        if multiplier == 0.0:
            return np.zeros(shape)
        return multiplier * np.broadcast_to(sensitivity, shape)

    def __call__(self, *args: Any, **keys: Any) -> Any:
        """Publish the noisy answer to a query, see ``publish`` of each kind."""
        if self.intercept is None:
            return self.publish(*args, **keys)
        query = Query(
            self.release.name,
            self.query(*args, **keys),
            self.sensitivity_of(*args, **keys),
            self.vector,
        )
        return self.intercept(query, lambda: self.publish(*args, **keys))

    @abstractmethod
    def publish(self, *args: Any, **keys: Any) -> Any:
        """Return the noisy answer and count the use."""

    @abstractmethod
    def query(self, *args: Any, **keys: Any) -> Array:
        """Return what the noise is added to."""

    @abstractmethod
    def sensitivity_of(self, *args: Any, **keys: Any) -> Array:
        """Return the sensitivity that is declared for a call."""

    def spend(self, uses: int) -> int:
        """Count ``uses`` more; return how often it was used before.

        Raises
        ------
        BudgetExhausted
            If that is more often than declared.
        """
        before = self.used
        if before + uses > self.release.times:
            raise BudgetExhausted(
                f"release {self.release.name} was declared {self.release.times} times "
                f"and is asked for use {before + uses}"
            )
        self.used = before + uses
        return before

    def unit_noise(self, uses: int, size: int) -> Array:
        """Spend some uses and return their noise of scale 1, (B, uses, size)."""
        start, count = self.spend(uses) * size, uses * size
        if not self.scale.any():
            return np.zeros((len(self.seeds), uses, size))
        noise = [self.release.draw(seed, start, count) for seed in self.seeds]
        return np.stack(noise).reshape(len(self.seeds), uses, size)


class AdditiveMechanism(Mechanism):
    """Adds noise to a number of each trial, or to a vector of each trial."""

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
        if coordinate is None or self.scale.shape[1] == 1:
            return np.zeros((len(self.seeds), 1), dtype=np.int64)
        return coordinate[:, None]

    def take(self, uses: int, coordinates: Indices) -> Array:
        """Return the noise of the next uses on given coordinates, (B, uses)."""
        noise = self.unit_noise(uses, 1)[:, :, 0]
        if self.scale.shape[1] == 1:
            return noise * self.scale
        return noise * np.take_along_axis(self.scale, coordinates, axis=1)

    def take_vectors(self, uses: int, size: int) -> Array:
        """Return the noise of the next uses on vectors, (B, uses, size)."""
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
        noise = self.unit_noise(1, gradient.shape[1])[:, 0] * self.scale
        inside = isinstance(self.release, InsideNoisyMax)
        noisy = score(gradient + noise) if inside else score(gradient) + noise
        winners: Indices = noisy.argmax(axis=1)
        return winners

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
    secret like the noise.
    """

    vector = True

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        assert isinstance(release, PoissonGaussian)
        self.rate = release.rate
        seeds = stream_seeds(identities, f"{release.name}/sample")
        self._coins = [CoinStream(seed, release.rate) for seed in seeds]

    def sample(self, trial: int, n: int, steps: int) -> Batch:
        """Return the samples of a trial's next steps.

        Returns
        -------
        records : int array
        offsets : int array of shape (steps + 1,)
            Step t samples ``records[offsets[t]:offsets[t + 1]]``.
        """
        successes = self._coins[trial].successes(n * steps)
        ends = np.arange(steps + 1) * n
        return successes % n, np.searchsorted(successes, ends)


class Mechanisms(dict[str, Mechanism]):
    """The mechanisms of a trial by name.

    Attributes
    ----------
    batch : int
        B, the number of trials.
    ahead : bool
        Whether noise may be taken ahead for many uses, by a compiled step; the
        replay audit, which answers each query itself, says no.
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch
        self.ahead = True


def make_mechanisms(
    releases: Iterable[Release], z: float, identities: Sequence[str]
) -> Mechanisms:
    """Return the mechanisms of declared releases at the multiplier z."""
    made = Mechanisms(len(identities))
    for release in releases:
        made[release.name] = _kind(release)(release, z, identities)
    return made


def _kind(release: Release) -> type[Mechanism]:
    kinds: Mapping[type[Release], type[Mechanism]] = {
        NoisyMax: MaxMechanism,
        InsideNoisyMax: MaxMechanism,
        PoissonGaussian: PoissonMechanism,
    }
    for kind, mechanism in kinds.items():
        if isinstance(release, kind):
            return mechanism
    return AdditiveMechanism
