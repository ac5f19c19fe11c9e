"""Products of a sparse matrix with vectors of many trials, and with itself."""

import numpy as np

from dp_erm_bench.kernels.compiled import Array, compile_unfused, kernel
from dp_erm_bench.kernels.sparse import Matrix

LANES = 4
"""Number of trials that share one reading of the matrix."""
PAIR = 2
"""Number of trials that share a reading if fewer than `LANES` are left."""


@compile_unfused
def products(matrix: Matrix, v: Array, out: Array) -> None:
    """Write M v of each trial into ``out``, for a sparse matrix M.

    M is given by its m rows. These are the rows of X for X w, and the columns of X for
    X' r. Four or two trials share one reading of an entry. The sums of each trial keep
    the order of the entries, whichever trials share the reading.

    Parameters
    ----------
    matrix : (data, indices, indptr)
        The rows of M, of length q.
    v : array of shape (B, q)
    out : array of shape (B, m)
    """
    data, indices, indptr = matrix
    (trials, q), m = v.shape, out.shape[1]
    done = width = 0
    values = sums = np.empty((0, 0))
    while trials - done > 1:
        lanes = LANES if trials - done > PAIR else PAIR
        last = min(done + lanes, trials)
        if lanes != width:
            values, sums = np.zeros((q, lanes)), np.empty((m, lanes))
            width = lanes
        _write_columns(v[done:last], values)
        if lanes == LANES:
            _four_products(matrix, values, sums)
        else:
            _two_products(matrix, values, sums)
        for b in range(done, last):
            for i in range(m):
                out[b, i] = sums[i, b - done]
        done = last
    for b in range(done, trials):
        alone = v[b]
        for i in range(m):
            total = 0.0
            for k in range(indptr[i], indptr[i + 1]):
                # Unsigned: an index that may be negative costs a branch.
                total += alone[np.uintp(indices[k])] * data[k]
            out[b, i] = total


@kernel
def _write_columns(v: Array, out: Array) -> None:
    """Write the vectors of trials, shape (B, q), into the first columns of ``out``."""
    for b in range(v.shape[0]):
        for j in range(v.shape[1]):
            out[j, b] = v[b, j]


@compile_unfused
def _two_products(matrix: Matrix, v: Array, out: Array) -> None:
    """Write M v into ``out``; v: (q, 2), out: (m, 2)."""
    data, indices, indptr = matrix
    for i in range(out.shape[0]):
        t0 = t1 = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            x, at = data[k], v[np.uintp(indices[k])]
            t0 += at[0] * x
            t1 += at[1] * x
        out[i, 0], out[i, 1] = t0, t1


@compile_unfused
def _four_products(matrix: Matrix, v: Array, out: Array) -> None:
    """Write M v into ``out``; v: (q, 4), out: (m, 4)."""
    data, indices, indptr = matrix
    for i in range(out.shape[0]):
        t0 = t1 = t2 = t3 = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            x, at = data[k], v[np.uintp(indices[k])]
            t0 += at[0] * x
            t1 += at[1] * x
            t2 += at[2] * x
            t3 += at[3] * x
        row = out[i]
        row[0], row[1], row[2], row[3] = t0, t1, t2, t3


@compile_unfused
def upper_weighted_gram(records: Matrix, weights: Array, out: Array) -> None:
    """Add sum_i q_i x_i x_i' to the upper triangle of ``out``.

    Parameters
    ----------
    records : (data, indices, indptr)
        The rows x_i; the indices of each are sorted.
    weights : array of shape (n,)
        The q_i, of any sign.
    out : array of shape (p, p)
    """
    data, indices, indptr = records
    for i in range(indptr.size - 1):
        q = weights[i]
        for first in range(indptr[i], indptr[i + 1]):
            line, x = out[np.uintp(indices[first])], q * data[first]
            for k in range(first, indptr[i + 1]):
                line[np.uintp(indices[k])] += x * data[k]
