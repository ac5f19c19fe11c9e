"""The mechanism that adds noise to a number or a vector."""

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.releases.base import Array, Mechanism

Indices = NDArray[np.int64]


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
            return value + self.take(1, self._column_of(coordinate))[:, 0]
        return value + self.take_vectors(1, value.shape[1])[:, 0]

    def query(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the value."""
        return value if value.ndim == 2 else value[:, None]

    def sensitivity_of(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the sensitivity of the value, (B, 1)."""
        declared = np.broadcast_to(self.release.sensitivity, self.scale.shape)
        return np.take_along_axis(declared, self._column_of(coordinate), axis=1)

    def _column_of(self, coordinate: Indices | None) -> Indices:
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
        noise = self.unit_noise(uses, size)
        noise *= self.scale[:, None, :]
        return noise
