"""The queries that solvers may make: gradients and steps for a batch of trials."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels.dense import all_residuals, clip_lengths, drop_lengths
from dp_erm_bench.kernels.losses import loss_sum, without_nan
from dp_erm_bench.problems import base
from dp_erm_bench.problems.erm.objective import ERM

Indices = NDArray[np.int64]

EXTREME = 1e100
"""Entries and labels up to this size give finite gradients at usual iterates."""


class Oracle(base.BaseOracle, ABC):
    """Computes gradients and makes steps at the iterates of B trials.

    The iterates start at zero, or at the point of the domain that is nearest to it. The
    kind of the oracle (dense, sparse, Gram) is chosen once, by ``ERMProblem.oracle``.

    **Values that are not finite.** With a finite clipping threshold, a record
    contributes 0 to a query if its margin, its derivative or the norm of its gradient
    is not a finite float. Its contribution depends only on the record, the iterate and
    the threshold, and zero is within every threshold. Sensitivities are therefore those
    of clipped contributions, both for records that are replaced and for records that
    are removed. Without a threshold nothing is private, and a run that overflows is
    seen to diverge.

    Parameters
    ----------
    problem : ERM
    batch : int
        The number B of trials that are advanced in lock-step.

    Attributes
    ----------
    w : array of shape (B, p)
        The iterates.
    kernels : namespace
        The kernels over this kind of matrix.
    columns, rows
        The features, in the forms that kernels read by column and by record.
    """

    problem: ERM
    kernels: ClassVar[Any]

    def __init__(self, problem: ERM, batch: int) -> None:
        super().__init__(problem, problem.start(batch))
        self.y = problem.dataset.y
        self.loss = problem.loss
        self._margins: Array | None = None
        self._residuals = np.empty((batch, problem.n))

    @staticmethod
    def form(matrix: Any) -> Any:
        """Return a matrix in the form that kernels accept."""
        return matrix

    @cached_property
    def columns(self) -> Any:
        """Return the features for kernels that read columns."""
        return self.form(self.problem.dataset.X)

    @cached_property
    def rows(self) -> Any:
        """Return the features for kernels that read records (stochastic methods)."""
        return self.form(self.problem.dataset.rows)

    @property
    def margins(self) -> Array:
        """Return X w of each trial, shape (B, n), recomputed if w has changed."""
        if self._margins is None:
            self._margins = self.product(self.w)
        return self._margins

    @cached_property
    def psi(self) -> Array:
        """Return (l1, l2, lower, upper) of the penalty, if it is separable."""
        return self.problem.separable.parameters()

    def residuals(self) -> Array:
        """Return phi'(x_i.w, y_i), shape (B, n); valid until the next call.

        An entry is 0 where the derivative or the margin is not finite.
        """
        r = self._compute_derivatives()
        without_nan(r.ravel())
        return r

    def _compute_derivatives(self) -> Array:
        all_residuals(self.loss, self.y, self.margins, self._residuals)
        return self._residuals

    @cached_property
    def _may_overflow(self) -> bool:
        """Return whether entries or labels are so large that gradients may overflow."""
        X = self.problem.dataset.X
        entries = X if isinstance(X, np.ndarray) else X.data
        ends = [
            (part.max(initial=0.0), -part.min(initial=0.0))
            for part in (entries, self.y)
        ]
        return bool(np.max(ends) > EXTREME)

    def clipped_sum(self, clip: Array) -> Array:
        """Return the sum of the gradients, each clipped in l2 to clip_b, shape (B, p).

        ``clip`` has shape (B, 1).
        """
        r, clips = self._compute_derivatives(), np.ascontiguousarray(clip[:, 0])
        clip_lengths(r, self.problem.dataset.row_norms, clips)
        return self.transposed_product(r)

    def prox_step(self, coordinates: Indices, value: Array, step: Array) -> None:
        """Make a proximal step of one coordinate j of each trial.

        w_j becomes prox_{step psi_j}(w_j - step value), and the margins follow.

        Parameters
        ----------
        coordinates : int array of shape (B,)
            The coordinate j of each trial.
        value : array of shape (B,)
            The derivative along that coordinate.
        step : array of shape (B,)
            The step size.
        """
        at = np.arange(self.batch), coordinates
        old = self.w[at]
        new = self.problem.separable.prox(old - step * value, step)
        self._follow_step(coordinates, new - old)
        self.w[at] = new

    def _follow_step(self, coordinates: Indices, change: Array) -> None:
        """Update the margins, or what replaces them, before ``w`` changes."""
        self.kernels.move_coordinates(self.columns, self.margins, coordinates, change)

    def move_towards(self, coordinates: Indices, values: Array, part: Array) -> None:
        """Move each trial's w towards a point v that has one entry other than zero.

        w becomes (1 - part) w + part v, and the margins follow in O(n).

        Parameters
        ----------
        coordinates : int array of shape (B,)
            The coordinate of the entry of v, in each trial.
        values : array of shape (B,)
            The value of this entry.
        part : array of shape (B,)
            The weight of v.
        """
        self._follow_towards(coordinates, values, part)
        self.w *= 1.0 - part[:, None]
        self.w[np.arange(self.batch), coordinates] += part * values

    def _follow_towards(self, j: Indices, values: Array, part: Array) -> None:
        margins = self.margins
        margins *= 1.0 - part[:, None]
        self.kernels.move_coordinates(self.columns, margins, j, part * values)

    def move_to(self, w: Array) -> None:
        """Set the iterates, shape (B, p); margins are recomputed when needed."""
        super().move_to(w)
        self.touch()

    def touch(self) -> None:
        """Record that ``w`` was changed in place, so that margins are recomputed."""
        self._margins = None

    def objective(self, w: Array) -> Array:
        """Return F, shape (B,), at given points of shape (B, p).

        The margins of ``self.w`` are known and not computed again.
        """
        margins = self.margins if w is self.w else self.product(w)
        sums = [loss_sum(self.loss, self.y, z) for z in margins]
        means = np.array(sums) / self.problem.n
        return np.asarray(means + self.problem.penalty.value(w))

    @abstractmethod
    def product(self, w: Array) -> Array:
        """Return X w for each row of w: shape (B, n) for w of shape (B, p)."""

    @abstractmethod
    def transposed_product(self, r: Array) -> Array:
        """Return X' r for each row of r: shape (B, p) for r of shape (B, n)."""

    def gradient(self, clip: Array) -> Array:
        """Return the mean of the gradients, each clipped by coordinate, shape (B, p).

        An entry is mean_i clip(grad_j loss_i(w), +-clip_bj). ``clip`` has shape (B, p)
        and is infinite where nothing is to be clipped.
        """
        out = np.empty_like(self.w)
        self.kernels.clipped_gradients(
            self.columns, self._finite_derivatives(clip), clip, out
        )
        return out

    def _finite_derivatives(self, clip: Array) -> Array:
        """Return the derivatives; 0 where a gradient to clip is not finite."""
        r, clipped = self._compute_derivatives(), np.isfinite(clip).all(axis=1)
        drop_lengths(r, self.problem.dataset.row_norms, clipped)
        return r

    def coordinate_gradient(self, coordinates: Indices, clip: Array) -> Array:
        """Return one entry of each trial's clipped gradient, shape (B,).

        ``coordinates`` and ``clip`` have shape (B,), too.
        """
        out, clip = np.empty(self.batch), np.ascontiguousarray(clip)
        if self._may_overflow:
            r = self._finite_derivatives(clip[:, None])
            for b, j in enumerate(coordinates):
                column, one = self.kernels.column(self.columns, j), slice(b, b + 1)
                entry = out[one, None], clip[one, None]
                self.kernels.clipped_gradients(column, r[one], entry[1], entry[0])
            return out
        data, margins, j = (self.columns, self.y), self.margins, coordinates
        self.kernels.coordinate_gradients(self.loss, data, margins, j, clip, out)
        return out

    def record_sum(self, trial: int, records: Indices, clip: float) -> Array:
        """Return the sum of the l2-clipped gradients of given records, for one trial.

        Parameters
        ----------
        trial : int
            Index of the trial in the batch.
        records : int array
            Indices of the records.
        clip : float
            Clipping threshold of the norm of a record's gradient.

        Returns
        -------
        array of shape (p,)
        """
        out = np.empty(self.problem.p)
        data, w = self._rows_with_norms, self.w[trial]
        self.kernels.record_sum(self.loss, data, w, records, clip, out)
        return out

    def coordinate_steps(
        self,
        coordinates: Indices,
        noise: Array,
        clip: Array,
        steps: Array,
        total: Array,
    ) -> None:
        """Make k noisy proximal coordinate steps of each trial.

        Parameters
        ----------
        coordinates : int array of shape (B, k)
            The coordinate of each step.
        noise : array of shape (B, k)
            The noise, which is added to the coordinate's clipped gradient.
        clip, steps : arrays of shape (B, p)
            Clipping thresholds and step sizes of the coordinates.
        total : array of shape (B, p), or of no rows
            The total to which the sum of the iterates is added.
        """
        if self._may_overflow:
            trials = np.arange(self.batch)
            for j, drawn in zip(coordinates.T, noise.T, strict=True):
                noisy = self.coordinate_gradient(j, clip[trials, j]) + drawn
                self.prox_step(j, noisy, steps[trials, j])
                total += self.w[: len(total)]
            return
        data, at = (self.columns, self.y), (self.w, self.margins, total)
        draws, scales = (coordinates, noise), (clip, steps)
        self.kernels.coordinate_steps(self.loss, data, self.psi, at, draws, scales)

    def stochastic_steps(
        self,
        trial: int,
        batches: tuple[Indices, Indices],
        noise: Array,
        clip: float,
        steps: Array,
        expected: float,
        summed: tuple[Array, NDArray[np.bool_]] | None = None,
    ) -> None:
        """Make k noisy proximal stochastic steps of one trial; then call ``touch``.

        Each step ends with the projection on the constraint.

        Parameters
        ----------
        trial : int
            Index of the trial in the batch.
        batches : (records, offsets)
            Step t uses ``records[offsets[t]:offsets[t + 1]]``.
        noise : array of shape (k, p), or (0, p) for none; else ValueError
            The noise, which is added to the sum of clipped gradients.
        clip : float
            Clipping threshold of the norm of a record's gradient.
        steps : array of shape (k,)
            Step sizes.
        expected : float
            Expected batch size, by which the noisy sum is divided.
        summed : (array of shape (p,), bool array of shape (k,)), optional
            A total, and the steps before which the iterate is added to it. The other
            steps leave out the l1 and l2 of the penalty. None to add up nothing.
        """
        if len(noise) not in (0, len(steps)):
            raise ValueError(f"{len(noise)} rows of noise for {len(steps)} steps")
        draws, scales = (*batches, noise), (clip, steps, expected)
        data, at = (
            self._rows_with_norms,
            (self.w[trial], self.problem.constraint.kernel),
        )
        if summed is None:
            self.kernels.stochastic_steps(self.loss, data, self.psi, at, draws, scales)
        else:
            psis = self.psi, self.psi * [0.0, 0.0, 1.0, 1.0], summed[1]
            both, step = (*at, summed[0]), self.kernels.averaged_steps
            step(self.loss, data, psis, both, draws, scales)

    def variance_reduced_steps(
        self,
        trial: int,
        anchor: tuple[Array, Array],
        batches: tuple[Indices, Indices],
        noise: Array,
        scales: tuple[float, float, float],
    ) -> None:
        """Make k noisy variance-reduced steps of one trial; then call ``touch``.

        Parameters
        ----------
        trial : int
            Index of the trial in the batch.
        anchor : (array of shape (p,), array of shape (p,))
            The snapshot, and the noisy mean gradient there.
        batches : (records, offsets)
            Step t uses ``records[offsets[t]:offsets[t + 1]]``.
        noise : array of shape (k, p)
            The noise, which is added to the sum of differences of clipped gradients.
        scales : (clip, step, expected)
            Clipping threshold, step size, and expected batch size.
        """
        data, at = self._rows_with_norms, (self.w[trial], *anchor)
        steps, draws = self.kernels.variance_reduced_steps, (*batches, noise)
        steps(self.loss, data, self.psi, at, draws, scales)

    @property
    def _rows_with_norms(self) -> tuple[Any, Array, Array]:
        """Return the rows, their labels and their norms."""
        return self.rows, self.y, self.problem.dataset.row_norms
