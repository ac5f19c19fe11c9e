"""The oracle of a dense problem."""

from functools import cached_property
from types import SimpleNamespace
from typing import Any, ClassVar

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels import coordinate, dense, stochastic, variance_reduced
from dp_erm_bench.problems.erm.oracle import Oracle


class DenseOracle(Oracle):
    """Gradients by fused kernels that read a column once for several trials."""

    kernels: ClassVar[Any] = SimpleNamespace(
        clipped_gradients=dense.clipped_gradients,
        coordinate_gradients=dense.coordinate_gradients,
        move_coordinates=dense.move_coordinates,
        coordinate_steps=coordinate.coordinate_steps,
        record_sum=stochastic.record_sum,
        stochastic_steps=stochastic.stochastic_steps,
        variance_reduced_steps=variance_reduced.variance_reduced_steps,
    )

    @cached_property
    def columns(self) -> Array:
        """Return the features, column-major, (n, p)."""
        return self.problem.dataset.X

    @cached_property
    def rows(self) -> Array:
        """Return the features, row-major, (n, p)."""
        return self.problem.dataset.rows

    def product(self, w: Array) -> Array:
        """Return X w of each row of w, (B, p) to (B, n)."""
        return w @ self.columns.T

    def transposed_product(self, r: Array) -> Array:
        """Return X' r of each row of r, (B, n) to (B, p)."""
        return r @ self.columns
