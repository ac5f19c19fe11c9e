"""The oracle of least squares without clipping: all from X'X / n."""

import functools
from functools import cached_property

import numpy as np

from dp_erm_bench.datasets.base import Array, Dataset
from dp_erm_bench.kernels import gram
from dp_erm_bench.problems.erm.dense_oracle import DenseOracle
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Indices

# Steps after which the gradient is computed anew, against rounding.
REFRESH = 1000


@functools.lru_cache(maxsize=4)
def moments(data: Dataset) -> tuple[Array, Array]:
    """Return X'X / n and X'y / n of a dataset, shared by all its trials."""
    return np.ascontiguousarray(data.X.T @ data.X) / data.n, data.X.T @ data.y / data.n


class GramOracle(DenseOracle):
    """Gradients in O(p) a coordinate step, whatever the number of records.

    For the squared loss where no derivative is clipped: at epsilon = inf, or on a
    bounded domain, on which the thresholds L_j are never reached. Lower thresholds,
    which a solver may have without saying so (``Solver.clips``), are kept record by
    record.
    """

    def __init__(self, problem: ERM, batch: int) -> None:
        super().__init__(problem, batch)
        self.G, self.c = moments(problem.dataset)
        self._gradient: Array | None = None
        self._moves = 0

    @cached_property
    def _bounds(self) -> tuple[Array, float]:
        """Return L_j, and the bound on the norm of a record's gradient."""
        bounds, p = self.problem.dataset.bounds, self.problem.p
        if bounds is None:
            return np.full(p, np.inf), np.inf
        lipschitz = self.problem.lipschitz
        if not np.isfinite(lipschitz):
            return np.full(p, np.inf), np.inf
        return lipschitz * bounds.columns, lipschitz * bounds.norm

    def _reached(self, clip: Array, bounds: Array | float) -> bool:
        """Return whether thresholds are below what derivatives come to at the iterates.

        The bounds hold on the domain; an extrapolated point may lie outside.
        """
        return _reached(clip, bounds) or (bool(np.isfinite(clip).any()) and self._out())

    def _out(self) -> bool:
        """Return whether a derivative may exceed the bound that holds on the domain."""
        problem = self.problem
        declared = problem.dataset.bounds
        if declared is None or declared.label is None:
            return False
        if not np.isfinite(problem.lipschitz):
            return False
        w = np.where(declared.columns > 0.0, self.w, 0.0)
        margins = np.minimum(
            np.abs(w) @ declared.columns, np.linalg.norm(w, axis=1) * declared.norm
        )
        slope = problem.loss.lipschitz_within(float(margins.max()), declared.label)
        return bool(slope > problem.lipschitz * (1.0 + 1e-9))

    def gradient(self, clip: Array) -> Array:
        """Return the mean of the clipped gradients, (B, p)."""
        if clip.size and self._reached(clip, self._bounds[0]):
            return super().gradient(clip)
        if self._gradient is None or self._moves >= REFRESH:
            self._gradient, self._moves = self.w @ self.G - self.c, 0
        return self._gradient.copy()

    def coordinate_gradient(self, coordinates: Indices, clip: Array) -> Array:
        """Return entry j_b of each trial's clipped gradient; all of shape (B,)."""
        if self._reached(clip, self._bounds[0][coordinates]):
            return super().coordinate_gradient(coordinates, clip)
        products: Array = np.einsum("bp,bp->b", self.G[coordinates], self.w)
        return products - self.c[coordinates]

    def clipped_sum(self, clip: Array) -> Array:
        """Return sum_i of the clipped gradients, (B, p)."""
        if self._reached(clip, self._bounds[1]):
            return super().clipped_sum(clip)
        return self.problem.n * self.gradient(np.empty(0))

    def prox_step(self, coordinates: Indices, value: Array, step: Array) -> None:
        """Set w_j to prox_{step psi_j}(w_j - step value) at each trial's j."""
        trials = np.arange(self.batch)
        old = self.w[trials, coordinates]
        new = self.problem.separable.prox(old - step * value, step)
        self.w[trials, coordinates] = new
        self._margins = None
        if self._gradient is not None:
            self._gradient += (new - old)[:, None] * self.G[coordinates]
            self._moves += 1

    def move_towards(self, coordinates: Indices, values: Array, part: Array) -> None:
        """Set w to (1 - part) w + part v, v having one entry other than zero."""
        gradient = self.gradient(np.empty(0))
        self.w *= 1.0 - part[:, None]
        self.w[np.arange(self.batch), coordinates] += part * values
        columns = values[:, None] * self.G[coordinates]
        gradient += part[:, None] * (columns - gradient - self.c)
        self._margins, self._gradient = None, gradient
        self._moves += 1

    def coordinate_steps(
        self,
        coordinates: Indices,
        noise: Array,
        clip: Array,
        steps: Array,
        total: Array,
    ) -> None:
        """Make k noisy proximal coordinate steps of each trial."""
        if _reached(clip, self._bounds[0]):
            super().coordinate_steps(coordinates, noise, clip, steps, total)
            self._gradient = None
            return
        gram.coordinate_steps(
            self.G, self.c, self.psi, self.w, coordinates, noise, steps, total
        )
        self.touch()

    def move_to(self, w: Array) -> None:
        """Set the iterates, shape (B, p)."""
        super().move_to(w)
        self._gradient = None

    def touch(self) -> None:
        """Declare margins and gradient stale, after ``w`` was changed in place."""
        super().touch()
        self._gradient = None


def _reached(clip: Array, bounds: Array | float) -> bool:
    """Return whether thresholds are below the bounds; 0 is that of an empty column."""
    low = (clip > 0.0) & (clip < np.multiply(bounds, 1.0 - 1e-12))
    return bool(low.any())
