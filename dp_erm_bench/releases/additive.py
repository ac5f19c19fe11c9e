"""The mechanism that adds noise to a number or a vector."""

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.releases.base import Array, Mechanism

Indices = NDArray[np.int64]


class AdditiveMechanism(Mechanism):
    """Adds noise to one number of each trial, or to one vector of each trial.

    A vector counts as one use only if the release covers vectors and has one noise
    scale, set by the sensitivity of the whole vector. Otherwise every entry would be a
    release of its own.
    """

    vector = True

    def publish(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the noisy value.

        Parameters
        ----------
        value : array of shape (B,) or (B, size)
            One number, or one vector, of each trial.
        coordinate : int array of shape (B,), optional
            Column of the scale for each number; needed if the scale has p columns.
        """
        if value.ndim == 1:
            return value + self.take(1, self._column_of(coordinate))[:, 0]
        return value + self.take_vectors(1, value.shape[1])[:, 0]

    def query(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the value before noise, as an array with two axes."""
        return value if value.ndim == 2 else value[:, None]

    def sensitivity_of(self, value: Array, coordinate: Indices | None = None) -> Array:
        """Return the declared sensitivity of the value, of shape (B, 1)."""
        declared = np.broadcast_to(self.release.sensitivity, self.scale.shape)
        return np.take_along_axis(declared, self._column_of(coordinate), axis=1)

    def _column_of(self, coordinate: Indices | None) -> Indices:
        if self.scale.shape[1] == 1:
            return np.zeros((len(self.seeds), 1), dtype=np.int64)
        if coordinate is None:
            raise TypeError(
                f"release {self.release.name} has one sensitivity per coordinate, so "
                "its mechanism needs the coordinate"
            )
        return coordinate[:, None]

    def take(self, uses: int, coordinates: Indices) -> Array:
        """Return the noise for the next uses, one coordinate each, shape (B, uses)."""
        noise = self.unit_noise(uses, 1)[:, :, 0]
        if self.scale.shape[1] == 1:
            return noise * self.scale
        return noise * np.take_along_axis(self.scale, coordinates, axis=1)

    def take_vectors(self, uses: int, size: int) -> Array:
        """Return noise for the next uses, one vector each, shape (B, uses, size).

        Raises
        ------
        TypeError
            If one use of the release does not cover a vector.
        """
        if size > 1 and not (self.release.vectors and self.scale.shape[1] == 1):
            raise TypeError(
                f"release {self.release.name} covers one number per use, not a vector"
            )
        noise = self.unit_noise(uses, size)
        noise *= self.scale[:, None, :]
        return noise
