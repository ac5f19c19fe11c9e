"""The oracles of dense problems, of sparse ones, and of unclipped least squares."""

import functools
from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.datasets.base import Array, Dataset
from dp_erm_bench.kernels import dense, sparse, stochastic
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.kernels.products import PAIR, products
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Indices, Oracle

# Steps after which the gradient is recomputed, because rounding errors add up.
REFRESH = 1000

# Entries of X times trials up to which clipping costs no more than a product.
SMALL = 2**19

# The share of non-zeros up to which a product goes by columns.
MOSTLY = 0.15


class DenseOracle(Oracle):
    """Computes gradients by fused kernels; several trials share a read of X."""

    kernels: ClassVar[Any] = SimpleNamespace(
        column=dense.column,
        clipped_gradients=dense.clipped_gradients,
        coordinate_gradients=dense.coordinate_gradients,
        move_coordinates=dense.move_coordinates,
        coordinate_steps=dense.coordinate_steps,
        record_sum=stochastic.record_sum,
        stochastic_steps=stochastic.stochastic_steps,
        averaged_steps=stochastic.averaged_steps,
        variance_reduced_steps=stochastic.variance_reduced_steps,
    )

    def product(self, w: Array) -> Array:
        """Return X w for each row of w: shape (B, n) for w of shape (B, p)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(w @ self.columns.T)

    def transposed_product(self, r: Array) -> Array:
        """Return X' r for each row of r: shape (B, p) for r of shape (B, n)."""
        return np.asarray(r @ self.columns)

    def gradient(self, clip: Array) -> Array:
        """Return the mean of the clipped gradients, shape (B, p).

        A plain product replaces the clipping if no derivative reaches its threshold.
        """
        # The constants of a user's own loss are not proved, so its derivatives are cut.
        kept = self.loss.source or self.columns.size * self.batch < SMALL
        if kept or self._may_be_clipped(clip, self._derivative_bounds[0]):
            return super().gradient(clip)
        out = self.transposed_product(self._finite_derivatives(clip)) / self.problem.n
        out[clip == 0.0] = 0.0
        return out

    @cached_property
    def _derivative_bounds(self) -> tuple[Array, float]:
        """Return L_j, and the bound on the norm of a record's gradient."""
        bounds, lipschitz = self.problem.dataset.bounds, self.problem.lipschitz
        if bounds is None or not np.isfinite(lipschitz):
            return np.full(self.problem.p, np.inf), np.inf
        return lipschitz * bounds.columns, lipschitz * bounds.norm

    def _may_be_clipped(self, clip: Array, bounds: Array | float) -> bool:
        """Return whether thresholds may be below the derivatives at the iterates.

        The bounds hold on the domain, but an extrapolated point may be outside.
        """
        return _is_below(clip, bounds) or (
            bool(np.isfinite(clip).any()) and self._is_out_of_domain()
        )

    def _is_out_of_domain(self) -> bool:
        """Return whether an iterate may be so far out that no bound holds."""
        problem, bounds = self.problem, self.problem.dataset.bounds
        # Finite only if bounds are declared.
        if not np.isfinite(problem.lipschitz) or bounds is None or bounds.label is None:
            return False
        w = np.where(bounds.columns > 0.0, self.w, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = norm2(w, axis=-1) * bounds.norm
            margins = np.minimum(np.abs(w) @ bounds.columns, lengths)
            slope = problem.loss.lipschitz_within(float(margins.max()), bounds.label)
        # A nan of one trial is out of the domain, too.
        return not slope <= problem.lipschitz * (1.0 + 1e-9)


class SparseOracle(Oracle):
    """Computes gradients from the stored entries; no matrix is made dense."""

    kernels: ClassVar[Any] = sparse

    @staticmethod
    def form(matrix: Any) -> tuple[Array, Indices, Indices]:
        """Return (data, indices, indptr) of the columns (CSC) or of the rows (CSR)."""
        return matrix.data, matrix.indices, matrix.indptr

    def product(self, w: Array) -> Array:
        """Return X w for each row of w: shape (B, n) for w of shape (B, p)."""
        out = np.empty((w.shape[0], self.problem.n))
        mostly_zero = np.count_nonzero(w) < MOSTLY * w.size
        # The rows are a second copy of the features: made where it pays.
        if mostly_zero or (w.shape[0] <= PAIR and not self.wide):
            sparse.combinations(self.columns, w, out)
        else:
            products(self.rows, np.ascontiguousarray(w), out)
        return out

    def transposed_product(self, r: Array) -> Array:
        """Return X' r for each row of r: shape (B, p) for r of shape (B, n)."""
        out = np.empty((r.shape[0], self.problem.p))
        if r.shape[0] <= PAIR and self.wide:
            sparse.combinations(self.rows, r, out)
        else:
            products(self.columns, np.ascontiguousarray(r), out)
        return out

    @property
    def wide(self) -> bool:
        """Return whether p > n; a single trial then reads rows faster than columns."""
        return self.problem.p > self.problem.n


@functools.lru_cache(maxsize=4)
def second_moments(data: Dataset) -> tuple[Array, Array]:
    """Return X'X / n and X'y / n of a dataset, shared by all its trials."""
    return np.ascontiguousarray(data.X.T @ data.X) / data.n, data.X.T @ data.y / data.n


class GramOracle(DenseOracle):
    """Computes gradients in O(p) per coordinate step, for any number of records.

    It is used for the squared loss if no derivative is clipped: at epsilon = inf, or on
    a bounded domain, where the thresholds L_j are never reached. A solver may use lower
    thresholds without declaring them (``Solver.clips``). Then gradients are clipped
    record by record.
    """

    def __init__(self, problem: ERM, batch: int) -> None:
        super().__init__(problem, batch)
        self.G, self.c = second_moments(problem.dataset)
        self._gradient: Array | None = None
        self._moves = 0

    def gradient(self, clip: Array) -> Array:
        """Return the mean of the clipped gradients, shape (B, p)."""
        if clip.size and self._may_be_clipped(clip, self._derivative_bounds[0]):
            return Oracle.gradient(self, clip)
        if self._gradient is None or self._moves >= REFRESH:
            self._gradient, self._moves = self.w @ self.G - self.c, 0
        return self._gradient.copy()

    def coordinate_gradient(self, coordinates: Indices, clip: Array) -> Array:
        """Return one entry of each trial's clipped gradient, shape (B,).

        ``coordinates`` and ``clip`` have shape (B,), too.
        """
        if self._may_be_clipped(clip, self._derivative_bounds[0][coordinates]):
            return super().coordinate_gradient(coordinates, clip)
        products: Array = np.einsum("bp,bp->b", self.G[coordinates], self.w)
        return products - self.c[coordinates]

    def clipped_sum(self, clip: Array) -> Array:
        """Return the sum of the clipped gradients, shape (B, p)."""
        if self._may_be_clipped(clip, self._derivative_bounds[1]):
            return super().clipped_sum(clip)
        return self.problem.n * self.gradient(np.empty(0))

    def _follow_step(self, coordinates: Indices, change: Array) -> None:
        self._margins = None
        if self._gradient is not None:
            self._gradient += change[:, None] * self.G[coordinates]
            self._moves += 1

    def _follow_towards(self, j: Indices, values: Array, part: Array) -> None:
        gradient = self.gradient(np.empty(0))
        columns = values[:, None] * self.G[j]
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
        if _is_below(clip, self._derivative_bounds[0]):
            super().coordinate_steps(coordinates, noise, clip, steps, total)
            self._gradient = None
            return
        data, draws = (self.G, self.c), (coordinates, noise)
        dense.gram_steps(data, self.psi, self.w, draws, steps, total)
        self.touch()

    def touch(self) -> None:
        """Record that ``w`` changed in place; margins and gradient are recomputed."""
        super().touch()
        self._gradient = None


def _is_below(clip: Array, bounds: Array | float) -> bool:
    """Return whether a positive threshold is below its bound.

    A threshold of 0 does not count, because it belongs to an empty column.
    """
    low = (clip > 0.0) & (clip < np.multiply(bounds, 1.0 - 1e-12))
    return bool(low.any())
