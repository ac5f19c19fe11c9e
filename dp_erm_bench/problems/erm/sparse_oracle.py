"""The oracle of a sparse problem: columns and rows both kept, nothing densified."""

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels import sparse
from dp_erm_bench.problems.erm.oracle import Oracle

Compressed = tuple[Any, Any, Any]


def compressed(matrix: Any) -> Compressed:
    """Return (data, indices, indptr) of a compressed sparse array."""
    return matrix.data, matrix.indices, matrix.indptr


class SparseOracle(Oracle):
    """Gradients by a walk along the stored entries of the columns."""

    kernels: ClassVar[Any] = sparse

    @cached_property
    def columns(self) -> Compressed:
        """Return the columns (CSC)."""
        return compressed(self.problem.dataset.X)

    @cached_property
    def rows(self) -> Compressed:
        """Return the rows (CSR), which only the stochastic methods need."""
        return compressed(self.problem.dataset.rows)

    def product(self, w: Array) -> Array:
        """Return X w of each row of w, (B, p) to (B, n)."""
        out = np.empty((w.shape[0], self.problem.n))
        sparse.products(self.columns, w, out)
        return out

    def transposed_product(self, r: Array) -> Array:
        """Return X' r of each row of r, (B, n) to (B, p)."""
        out = np.empty((r.shape[0], self.problem.p))
        sparse.weighted_sums(self.columns, r, out)
        return out
