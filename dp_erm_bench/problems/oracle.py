"""First-order oracle over a batch of trials, dense features, margins kept."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels import dense
from dp_erm_bench.kernels.residuals import loss_sum
from dp_erm_bench.kernels.stochastic import record_sum
from dp_erm_bench.problems.problem import Problem

Indices = NDArray[np.int64]


class DenseOracle:
    """Gradients and steps at the iterates of B trials, which start at zero.

    Parameters
    ----------
    problem : Problem
    batch : int
        B, the number of trials that are advanced in lock-step.

    Attributes
    ----------
    w : array of shape (B, p)
        The iterates.
    """

    def __init__(self, problem: Problem, batch: int) -> None:
        self.problem = problem
        self.X = problem.dataset.X
        self.y = problem.dataset.y
        self.w = np.zeros((batch, problem.p))
        self._margins: Array | None = np.zeros((batch, problem.n))

    @property
    def batch(self) -> int:
        """Return B."""
        return int(self.w.shape[0])

    @property
    def margins(self) -> Array:
        """Return X w of each trial, shape (B, n), computed anew where stale."""
        if self._margins is None:
            self._margins = self.w @ self.X.T
        return self._margins

    @cached_property
    def _residuals(self) -> Array:
        return np.empty((self.batch, self.problem.n))

    def residuals(self) -> Array:
        """Return phi'(x_i.w, y_i), shape (B, n); valid until the next call."""
        code = self.problem.loss.code
        dense.all_residuals(code, self.y, self.margins, self._residuals)
        return self._residuals

    def gradient(self, clip: Array) -> Array:
        """Return mean_i clip(grad_j loss_i(w), +-clip_bj), shape (B, p).

        ``clip`` has shape (B, p); infinite where no clipping is wanted.
        """
        out = np.empty_like(self.w)
        dense.clipped_gradients(self.X, self.residuals(), clip, out)
        return out

    def coordinate_gradient(self, coordinates: Indices, clip: Array) -> Array:
        """Return entry j_b of each trial's clipped gradient; all of shape (B,)."""
        out = np.empty(self.batch)
        dense.coordinate_gradients(
            self.problem.loss.code,
            self.X,
            self.y,
            self.margins,
            coordinates,
            np.ascontiguousarray(clip),
            out,
        )
        return out

    def clipped_sum(self, clip: Array) -> Array:
        """Return sum_i of the gradients clipped in l2 to clip_b, shape (B, p).

        ``clip`` has shape (B, 1).
        """
        r = self.residuals()
        lengths = np.abs(r) * self.problem.dataset.row_norms
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.where(lengths > clip, clip / lengths, 1.0)
        return (r * factor) @ self.X

    def record_sum(self, trial: int, records: Indices, clip: float) -> Array:
        """Return the sum of some records' clipped gradients of one trial, (p,)."""
        data, out = self.problem.dataset, np.empty(self.problem.p)
        code, w = self.problem.loss.code, self.w[trial]
        record_sum(code, data.rows, self.y, data.row_norms, w, records, clip, out)
        return out

    def prox_step(self, coordinates: Indices, value: Array, step: Array) -> None:
        """Set w_j to prox_{step psi_j}(w_j - step value) at each trial's j.

        All arguments have shape (B,); the margins follow.
        """
        trials, margins = np.arange(self.batch), self.margins
        old = self.w[trials, coordinates]
        new = self.problem.penalty.prox(old - step * value, step)
        self.w[trials, coordinates] = new
        dense.move_coordinates(self.X, margins, coordinates, new - old)

    def move_to(self, w: Array) -> None:
        """Set the iterates, shape (B, p); the margins become stale."""
        self.w = np.array(w, dtype=np.float64, order="C")
        self._margins = None

    def touch(self) -> None:
        """Declare the margins stale, after ``w`` was changed in place."""
        self._margins = None

    def objective(self, w: Array) -> Array:
        """Return F at some points, (B, p) to (B,); free of a product at ``self.w``."""
        margins = self.margins if w is self.w else w @ self.X.T
        code = self.problem.loss.code
        sums = [loss_sum(code, self.y, z) for z in margins]
        means: Array = np.array(sums) / self.problem.n
        total: Array = means + self.problem.penalty.value(w)
        return total
