"""Kernels over a sparse matrix and a batch of B trials.

A matrix is a tuple (data, indices, indptr). It is stored by columns (CSC) for kernels
that walk columns, and by rows (CSR) for kernels that walk records. The derivative at a
zero entry is zero, so only the stored entries need clipping.
"""

import math
from typing import Any

import numpy as np

from dp_erm_bench.kernels import stochastic
from dp_erm_bench.kernels.compiled import (
    Array,
    Indices,
    Three,
    Two,
    compile_unfused,
    kernel,
)
from dp_erm_bench.kernels.dense import Draws, clipped_sum
from dp_erm_bench.kernels.lazy import few_entries, quiet_steps
from dp_erm_bench.kernels.losses import residuals, without_nan
from dp_erm_bench.kernels.projections import project, prox
from dp_erm_bench.kernels.stochastic import Batches, Place, Scales, Steps

Matrix = tuple[Array, Indices, Indices]
Data = tuple[Matrix, Array]  # columns, y
Records = tuple[Matrix, Array, Array]  # rows, y, norms

# Entries of a column that are gathered at once: they stay in the L1 cache.
_GATHERED = 256
# Records that are read together with those of a step.
_AHEAD = 64
# Entries in a cache line.
_LINE = 8


@compile_unfused
def clipped_gradients(columns: Matrix, r: Array, clip: Array, out: Array) -> None:
    """Write the mean of each trial's clipped gradients into ``out``.

    Entry j of trial b is mean_i clip(r_bi x_ij, +-clip_bj).

    Parameters
    ----------
    columns : (data, indices, indptr)
        The features X by columns.
    r : array of shape (B, n)
        Derivatives of the loss at each record.
    clip : array of shape (B, p)
        Clipping threshold of each coordinate.
    out : array of shape (B, p)
    """
    data, indices, indptr = columns
    n = r.shape[1]
    for b in range(r.shape[0]):
        residual = r[b]
        for j in range(out.shape[1]):
            c, total = clip[b, j], 0.0
            for k in range(indptr[j], indptr[j + 1]):
                # Unsigned: an index that may be negative costs a branch.
                i = np.uintp(indices[k])
                total += min(max(residual[i] * data[k], -c), c)
            out[b, j] = total / n


def column(columns: Matrix, j: int) -> Matrix:
    """Return column j as a matrix with one column."""
    data, indices, indptr = columns
    return data, indices, indptr[j : j + 2]


@kernel
def combinations(columns: Matrix, w: Array, out: Array) -> None:
    """Write X w of each trial into ``out``, from the columns where w is not zero.

    Parameters
    ----------
    columns : (data, indices, indptr)
        The matrix X by columns.
    w : array of shape (B, p)
        Mostly zeros.
    out : array of shape (B, n)
    """
    data, indices, indptr = columns
    out[:] = 0.0
    for b in range(w.shape[0]):
        for j in range(w.shape[1]):
            if w[b, j] != 0.0:
                _add(out[b], columns, j, w[b, j])


@kernel
def coordinate_gradients(
    loss: Any, data: Data, margins: Array, coordinates: Indices, clip: Array, out: Array
) -> None:
    """Write each trial's clipped mean derivative along its own coordinate.

    Parameters
    ----------
    loss : Loss
    data : (columns, y)
        The features by columns, and the labels, shape (n,).
    margins : array of shape (B, n)
        X w of each trial.
    coordinates : int array of shape (B,)
        The coordinate of each trial.
    clip : array of shape (B,)
        Clipping threshold at that coordinate.
    out : array of shape (B,)
    """
    columns, y = data
    buffers = np.empty((3, _GATHERED))
    for b in range(margins.shape[0]):
        j, c = coordinates[b], clip[b]
        out[b] = _coordinate_gradient(loss, columns, y, margins[b], j, c, buffers)


@kernel
def _coordinate_gradient(
    loss: Any, columns: Matrix, y: Array, z: Array, j: int, c: float, buffers: Array
) -> float:
    # Gathered first: derivatives of contiguous entries are vector code.
    data, indices, indptr = columns
    # Unpacked at once, they would count as strided and give no vector code.
    labels, margins, r = buffers[0], buffers[1], buffers[2]
    total, stop = 0.0, indptr[j + 1]
    for start in range(indptr[j], stop, _GATHERED):
        count = min(stop - start, _GATHERED)
        for k in range(count):
            i = np.uintp(indices[start + k])
            labels[k], margins[k] = y[i], z[i]
        residuals(loss, labels[:count], margins[:count], r)
        part = clipped_sum(data[start : start + count], r, c)
        if part != part and c < math.inf:
            without_nan(r[:count])
            part = clipped_sum(data[start : start + count], r, c)
        total += part
    return total / y.size


@kernel
def move_coordinates(
    columns: Matrix, margins: Array, coordinates: Indices, deltas: Array
) -> None:
    """Update each trial's margins for a change of one coordinate of w, in place.

    The margins of trial b change by deltas_b X[:, j_b].

    Parameters
    ----------
    columns : (data, indices, indptr)
        The features X by columns.
    margins : array of shape (B, n)
        X w of each trial; they are changed.
    coordinates : int array of shape (B,)
        The coordinate j_b of each trial.
    deltas : array of shape (B,)
        Change of w at that coordinate.
    """
    for b in range(margins.shape[0]):
        if deltas[b] != 0.0:
            _add(margins[b], columns, coordinates[b], deltas[b])


@compile_unfused
def _add(z: Array, columns: Matrix, j: int, delta: float) -> None:
    data, indices, indptr = columns
    for k in range(indptr[j], indptr[j + 1]):
        z[np.uintp(indices[k])] += delta * data[k]


@kernel
def coordinate_steps(
    loss: Any, data: Data, psi: Array, at: Three, draws: Draws, scales: Two
) -> None:
    """Make k proximal coordinate steps of each trial, in place.

    Parameters
    ----------
    loss : Loss
    data : (columns, y)
        The features by columns, and the labels, shape (n,).
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    at : (w, margins, total), arrays of shape (B, p), (B, n), (B, p)
        The iterates and X w, both changed. The sum of the iterates is added to the
        total, unless it has no rows.
    draws : (coordinates, noise), arrays of shape (B, k)
        The noise is added to the coordinate's clipped gradient.
    scales : (clip, steps), arrays of shape (B, p)
        Clipping thresholds C_j and step sizes gamma_j; a step of 0 does not change w_j.
    """
    columns, y = data
    w, margins, total = at
    coordinates, noise = draws
    clip, steps = scales
    buffers = np.empty((3, _GATHERED))
    for b in range(w.shape[0]):
        for k in range(coordinates.shape[1]):
            j = coordinates[b, k]
            if steps[b, j] > 0.0:
                z, c, old, step = margins[b], clip[b, j], w[b, j], steps[b, j]
                g = _coordinate_gradient(loss, columns, y, z, j, c, buffers)
                w[b, j] = prox(old - step * (g + noise[b, k]), step, psi)
                if w[b, j] != old:
                    _add(margins[b], columns, j, w[b, j] - old)
            if total.shape[0] > 0:
                for i in range(w.shape[1]):
                    total[b, i] += w[b, i]


@kernel
def record_sum(
    loss: Any, data: Records, w: Array, records: Indices, clip: float, out: Array
) -> None:
    """Write the sum of the records' gradients, clipped in l2, into ``out``.

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms)
        The features by rows; their labels and the norms of the rows, shape (n,).
    w : array of shape (p,)
        The point at which the gradients are computed.
    records : int array
        Indices of the records.
    clip : float
        Clipping threshold of the norm of a record's gradient.
    out : array of shape (p,)
    """
    (entries, indices, indptr), y, norms = data
    out[:] = 0.0
    for i in records:
        z = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            z += entries[k] * w[np.uintp(indices[k])]
        r = stochastic.clipped_derivative(loss, y[i], z, norms[i], clip)
        for k in range(indptr[i], indptr[i + 1]):
            out[np.uintp(indices[k])] += r * entries[k]


@kernel
def stochastic_steps(
    loss: Any, data: Records, psi: Array, at: Place, draws: Batches, scales: Steps
) -> float:
    """Make k proximal stochastic gradient steps of one trial, in place.

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms)
        The features by rows; their labels and the norms of the rows, shape (n,).
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    at, draws, scales : tuple
        As for ``stochastic.stochastic_steps``.

    Returns
    -------
    float
        A number without meaning, as in ``stochastic.stochastic_steps``.
    """
    records, offsets, noise = draws
    clip, steps, expected = scales
    w, domain = at
    if noise.shape[0] == 0 and few_entries(data[0], w.size, offsets):
        quiet_steps(loss, data, psi, at, (records, offsets), scales)
        return 0.0
    g, none = np.empty(w.size), np.zeros(w.size)
    touched, read = 0.0, offsets[0]
    for t in range(steps.size):
        if offsets[t + 1] > read:
            ahead = records[read : offsets[t + 1] + _AHEAD]
            touched += touch(data, ahead)
            read += ahead.size
        batch = records[offsets[t] : offsets[t + 1]]
        record_sum(loss, data, w, batch, clip, g)
        added = noise[t] if noise.shape[0] > 0 else none
        stochastic.prox_gradient(w, g, added, steps[t], expected, psi)
        project(domain, w)
    return touched


@kernel
def touch(data: Records, records: Indices) -> float:
    """Read one number of each cache line of the records, and return the sum.

    Parameters are those of ``stochastic.touch``.
    """
    (entries, indices, indptr), y, norms = data
    total = 0.0
    for i in records:
        total += y[i] + norms[i]
        for k in range(indptr[i], indptr[i + 1], _LINE):
            total += entries[k] + indices[k]
    return total


@kernel
def averaged_steps(
    loss: Any, data: Records, psis: Any, at: Any, draws: Batches, scales: Steps
) -> None:
    """Make the steps of ``stochastic_steps``, and add up iterates for their mean.

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms)
        The features by rows; their labels and the norms of the rows, shape (n,).
    psis, at, draws, scales : tuple
        As for ``stochastic.averaged_steps``.
    """
    records, offsets, noise = draws
    clip, steps, expected = scales
    psi, free, counted = psis
    w, domain, total = at
    for t in range(steps.size):
        if counted[t]:
            total += w
        # Without the records of later steps: each step would read them again.
        one = records[: offsets[t + 1]], offsets[t : t + 2], noise[t : t + 1]
        size = clip, steps[t : t + 1], expected
        stochastic_steps(
            loss, data, psi if counted[t] else free, (w, domain), one, size
        )


@kernel
def variance_reduced_steps(
    loss: Any, data: Records, psi: Array, at: Three, draws: Batches, scales: Scales
) -> None:
    """Make k proximal variance-reduced steps of one trial, in place.

    Because of the noise, a step costs O(p).

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms)
        The features by rows; their labels and the norms of the rows, shape (n,).
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    at, draws, scales : tuple
        As for ``stochastic.variance_reduced_steps``.
    """
    (entries, indices, indptr), y, norms = data
    w, snapshot, mean = at
    records, offsets, noise = draws
    clip = scales[0]
    g = np.empty(w.size)
    for t in range(noise.shape[0]):
        g[:] = 0.0
        for i in records[offsets[t] : offsets[t + 1]]:
            here = there = 0.0
            for k in range(indptr[i], indptr[i + 1]):
                j = np.uintp(indices[k])
                here += entries[k] * w[j]
                there += entries[k] * snapshot[j]
            r = stochastic.clipped_derivative(loss, y[i], here, norms[i], clip)
            r -= stochastic.clipped_derivative(loss, y[i], there, norms[i], clip)
            for k in range(indptr[i], indptr[i + 1]):
                g[np.uintp(indices[k])] += r * entries[k]
        stochastic.move(w, g, mean, noise[t], scales, psi)


@compile_unfused
def upper_gram(records: Matrix, out: Array) -> None:
    """Add sum_i x_i x_i' to the upper triangle of ``out``, shape (p, p).

    The indices of each record must be sorted.
    """
    data, indices, indptr = records
    for i in range(indptr.size - 1):
        for first in range(indptr[i], indptr[i + 1]):
            line, x = out[np.uintp(indices[first])], data[first]
            for k in range(first, indptr[i + 1]):
                line[np.uintp(indices[k])] += x * data[k]
