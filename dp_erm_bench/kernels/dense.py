"""Kernels over a dense column-major matrix X (n, p) and a batch of B trials."""

import numpy as np

from dp_erm_bench.kernels.compiled import kernel
from dp_erm_bench.kernels.losses import residuals

# Rows of a block: 4 columns and 4 residual vectors of it stay in the L1 cache.
_ROWS = 512


@kernel
def all_residuals(loss, y, margins, out):  # type: ignore[no-untyped-def]
    """Write phi'(margins, y) into ``out``; margins, out: (B, n)."""
    for b in range(margins.shape[0]):
        residuals(loss, y, margins[b], out[b])


@kernel
def clipped_gradients(X, r, clip, out):  # type: ignore[no-untyped-def]
    """Write mean_i clip(r_bi x_ij, +-clip_bj) into ``out``; clip, out: (B, p).

    Four trials share one reading of a column; the columns of a block of rows
    are read once for all trials.
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
                out[b, j] += _one_sum(x, r[b, start:stop], clip[b, j])
    out /= n


@kernel
def _one_sum(x, r, c):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(x.size):
        total += min(max(r[i] * x[i], -c), c)
    return total


@kernel
def _four_sums(x, first, second, c):  # type: ignore[no-untyped-def]
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


@kernel
def coordinate_gradients(loss, X, y, margins, coordinates, clip, out):  # type: ignore[no-untyped-def]
    """Write the clipped mean derivative of each trial at its own coordinate.

    coordinates, clip, out: (B,).
    """
    buffer = np.empty(_ROWS)
    for b in range(margins.shape[0]):
        out[b] = _coordinate_gradient(
            loss, X[:, coordinates[b]], y, margins[b], clip[b], buffer
        )


@kernel
def _coordinate_gradient(loss, x, y, z, c, buffer):  # type: ignore[no-untyped-def]
    total = 0.0
    for start in range(0, y.size, _ROWS):
        stop = min(start + _ROWS, y.size)
        r = buffer[: stop - start]
        residuals(loss, y[start:stop], z[start:stop], r)
        total += _one_sum(x[start:stop], r, c)
    return total / y.size


@kernel
def move_coordinates(X, margins, coordinates, deltas):  # type: ignore[no-untyped-def]
    """Add deltas_b X[:, j_b] to the margins of each trial, in place."""
    for b in range(margins.shape[0]):
        if deltas[b] != 0.0:
            _add(margins[b], X[:, coordinates[b]], deltas[b])


@kernel
def _add(z, x, delta):  # type: ignore[no-untyped-def]
    for i in range(z.size):
        z[i] += delta * x[i]


@kernel
def prox(v, step, psi):  # type: ignore[no-untyped-def]
    """Return the prox of step psi_j at v; psi = (l1, l2, lower, upper)."""
    shrunk = max(abs(v) - step * psi[0], 0.0) / (1.0 + step * psi[1])
    if v < 0.0:
        shrunk = -shrunk
    return min(max(shrunk, psi[2]), psi[3])
