"""Kernels over a dense column-major matrix X (n, p) and a batch of B trials."""

import math
from typing import Any

import numpy as np

from dp_erm_bench.kernels.compiled import Array, Indices, Three, Two, exact, kernel
from dp_erm_bench.kernels.losses import residuals, without_nan
from dp_erm_bench.kernels.projections import prox

# Rows of a block: its parts of 4 columns and 4 residual vectors fit in the L1 cache.
_ROWS = 512

LARGEST = np.finfo(np.float64).max
LEAST_SHARE = 1e-312
"""Smallest factor of a clipped record; smaller ones have fewer than 40 bits."""

Draws = tuple[Indices, Array]  # coordinates, noise
Four = tuple[float, float, float, float]


@kernel
def all_residuals(loss: Any, y: Array, margins: Array, out: Array) -> None:
    """Write the derivatives phi'(margins, y) of B trials into ``out``, see `residuals`.

    Parameters
    ----------
    loss : Loss
    y : array of shape (n,)
        Labels.
    margins : array of shape (B, n)
        X w of each trial.
    out : array of shape (B, n)
    """
    for b in range(margins.shape[0]):
        residuals(loss, y, margins[b], out[b])


@exact
def clip_lengths(r: Array, norms: Array, clip: Array) -> None:
    """Clip derivatives so that gradients are within the thresholds, in place.

    r_bi is clipped to clip_b / norms_i in absolute value. With a finite clip_b it
    becomes 0 where r_bi norms_i is not finite.

    Parameters
    ----------
    r : array of shape (B, n)
        Derivatives of the loss at each record; they are changed.
    norms : array of shape (n,)
        Norms of the records.
    clip : array of shape (B,)
        Clipping threshold of each trial, for the norm of a record's gradient.
    """
    for b in range(r.shape[0]):
        c, row = clip[b], r[b]
        unclipped = c == math.inf
        for i in range(row.size):
            length = abs(row[i]) * norms[i]
            clipped = row[i] * (c / length if length > c else 1.0)
            kept = length <= c or abs(clipped) >= LEAST_SHARE or unclipped
            row[i] = clipped if kept else 0.0


@exact
def drop_lengths(r: Array, norms: Array, trials: Any) -> None:
    """Set derivatives to 0 where the norm of the gradient is not finite, in place.

    The norm of the gradient of record i is |r_bi| norms_i.

    Parameters
    ----------
    r : array of shape (B, n)
        Derivatives of the loss at each record; they are changed.
    norms : array of shape (n,)
        Norms of the records.
    trials : bool array of shape (B,)
        The trials to change.
    """
    for b in range(r.shape[0]):
        row = r[b]
        for i in range(row.size if trials[b] else 0):
            row[i] = row[i] if abs(row[i]) * norms[i] <= LARGEST else 0.0


@kernel
def clipped_gradients(X: Array, r: Array, clip: Array, out: Array) -> None:
    """Write the mean of each trial's clipped gradients into ``out``.

    Entry j of trial b is mean_i clip(r_bi x_ij, +-clip_bj). Four trials share one
    reading of a column; the columns of a block of rows are read once for all trials.

    Parameters
    ----------
    X : array of shape (n, p)
        Features, column-major.
    r : array of shape (B, n)
        Derivatives of the loss at each record.
    clip : array of shape (B, p)
        Clipping threshold of each coordinate.
    out : array of shape (B, p)
    """
    n, p = X.shape
    trials = r.shape[0]
    out[:] = 0.0
    for start in range(0, n, _ROWS):
        stop = min(start + _ROWS, n)
        for j in range(p):
            x = X[start:stop, j]
            quads = trials // 4 * 4
            for b in range(0, quads, 4):
                four = _four_sums(
                    x,
                    (r[b, start:stop], r[b + 1, start:stop]),
                    (r[b + 2, start:stop], r[b + 3, start:stop]),
                    (clip[b, j], clip[b + 1, j], clip[b + 2, j], clip[b + 3, j]),
                )
                for k in range(4):
                    out[b + k, j] += four[k]
            for b in range(quads, trials):
                out[b, j] += clipped_sum(x, r[b, start:stop], clip[b, j])
    out /= n


@kernel
def clipped_sum(x: Array, r: Array, c: float) -> float:
    """Return the sum of the products r_i x_i, each clipped to [-c, c].

    Parameters
    ----------
    x : array of shape (n,)
        Entries of one column.
    r : array of shape (n,)
        Derivatives of the loss at each record.
    c : float
        Clipping threshold.
    """
    total = 0.0
    for i in range(x.size):
        total += min(max(r[i] * x[i], -c), c)
    return total


@kernel
def _four_sums(x: Array, first: Two, second: Two, c: Four) -> Four:
    r0, r1 = first
    r2, r3 = second
    c0, c1, c2, c3 = c
    t0 = t1 = t2 = t3 = 0.0
    for i in range(x.size):
        t0 += min(max(r0[i] * x[i], -c0), c0)
        t1 += min(max(r1[i] * x[i], -c1), c1)
        t2 += min(max(r2[i] * x[i], -c2), c2)
        t3 += min(max(r3[i] * x[i], -c3), c3)
    return t0, t1, t2, t3


def column(X: Array, j: int) -> Array:
    """Return column j as a matrix of shape (n, 1)."""
    return X[:, j : j + 1]


@kernel
def coordinate_gradients(
    loss: Any, data: Two, margins: Array, coordinates: Indices, clip: Array, out: Array
) -> None:
    """Write the mean of each trial's clipped derivatives along its own coordinate.

    Parameters
    ----------
    loss : Loss
    data : (X, y), arrays of shape (n, p), (n,)
    margins : array of shape (B, n)
        X w of each trial.
    coordinates : int array of shape (B,)
        The coordinate of each trial.
    clip : array of shape (B,)
        Clipping threshold at that coordinate.
    out : array of shape (B,)
    """
    X, y = data
    buffer = np.empty(_ROWS)
    for b in range(margins.shape[0]):
        out[b] = _coordinate_gradient(
            loss, X[:, coordinates[b]], y, margins[b], clip[b], buffer
        )


@kernel
def _coordinate_gradient(
    loss: Any, x: Array, y: Array, z: Array, c: float, buffer: Array
) -> float:
    total = 0.0
    for start in range(0, y.size, _ROWS):
        stop = min(start + _ROWS, y.size)
        r = buffer[: stop - start]
        residuals(loss, y[start:stop], z[start:stop], r)
        part = clipped_sum(x[start:stop], r, c)
        if part != part and c < math.inf:
            without_nan(r)
            part = clipped_sum(x[start:stop], r, c)
        total += part
    return total / y.size


@kernel
def move_coordinates(
    X: Array, margins: Array, coordinates: Indices, deltas: Array
) -> None:
    """Update each trial's margins for a change of one coordinate of w, in place.

    The margins of trial b change by deltas_b X[:, j_b].

    Parameters
    ----------
    X : array of shape (n, p)
        Features, column-major.
    margins : array of shape (B, n)
        X w of each trial; they are changed.
    coordinates : int array of shape (B,)
        The coordinate j_b of each trial.
    deltas : array of shape (B,)
        Change of w at that coordinate.
    """
    for b in range(margins.shape[0]):
        if deltas[b] != 0.0:
            _add(margins[b], X[:, coordinates[b]], deltas[b])


@kernel
def _add(z: Array, x: Array, delta: float) -> None:
    for i in range(z.size):
        z[i] += delta * x[i]


@kernel
def coordinate_steps(
    loss: Any, data: Two, psi: Array, at: Three, draws: Draws, scales: Two
) -> None:
    """Make k proximal coordinate steps of each trial, in place.

    Parameters
    ----------
    loss : Loss
    data : (X, y), arrays of shape (n, p), (n,)
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
    X, y = data
    w, margins, total = at
    coordinates, noise = draws
    clip, steps = scales
    buffer = np.empty(_ROWS)
    for b in range(w.shape[0]):
        for k in range(coordinates.shape[1]):
            j = coordinates[b, k]
            if steps[b, j] > 0.0:
                x = X[:, j]
                g = _coordinate_gradient(loss, x, y, margins[b], clip[b, j], buffer)
                old = w[b, j]
                g += noise[b, k]
                w[b, j] = prox(old - steps[b, j] * g, steps[b, j], psi)
                if w[b, j] != old:
                    _add(margins[b], x, w[b, j] - old)
            if total.shape[0] > 0:
                for i in range(w.shape[1]):
                    total[b, i] += w[b, i]


@kernel
def gram_steps(
    moments: Two, psi: Array, w: Array, draws: Draws, steps: Array, total: Array
) -> None:
    """Make k proximal coordinate steps of each trial for least squares, in place.

    The steps are those of ``coordinate_steps`` without clipping. They are computed from
    moments of the data, in O(p) a step.

    Parameters
    ----------
    moments : (G, c), arrays of shape (p, p), (p,)
        G = X'X / n and c = X'y / n.
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    w : array of shape (B, p)
        The iterates; they are changed.
    draws : (coordinates, noise), arrays of shape (B, k)
        The noise is added to the coordinate's gradient.
    steps : array of shape (B, p)
        Step sizes gamma_j; a step of 0 does not change w_j.
    total : array of shape (B, p), or of no rows
        The total to which the sum of the iterates is added, unless it has no rows.
    """
    G, c = moments
    coordinates, noise = draws
    for b in range(w.shape[0]):
        for k in range(coordinates.shape[1]):
            j = coordinates[b, k]
            if steps[b, j] > 0.0:
                g = _dot(G[j], w[b]) - c[j] + noise[b, k]
                w[b, j] = prox(w[b, j] - steps[b, j] * g, steps[b, j], psi)
            if total.shape[0] > 0:
                for i in range(w.shape[1]):
                    total[b, i] += w[b, i]


@kernel
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total
