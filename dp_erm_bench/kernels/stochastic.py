"""The compiled steps of stochastic methods, over dense rows."""

import math
from typing import Any

import numpy as np

from dp_erm_bench.kernels.compiled import Array, Indices, Three, kernel
from dp_erm_bench.kernels.dense import LARGEST, LEAST_SHARE
from dp_erm_bench.kernels.projections import WHOLE_SPACE, project, prox

Batches = tuple[Indices, Indices, Array]  # records, offsets, noise
Steps = tuple[float, Array, float]  # clip, steps, expected
Scales = tuple[float, float, float]  # clip, step, expected
Summed = tuple[Array, tuple[int, float], Array]  # w, domain, total
Place = tuple[Array, tuple[int, float]]  # w, domain

# Steps whose records are read at once, and numbers in a line of the cache.
_AHEAD = 64
_LINE = 8


@kernel
def clipped_derivative(loss: Any, y: float, z: float, norm: float, clip: float) -> Any:
    """Return phi'(z, y), scaled so that its product with ``norm`` is within clip.

    With a finite clip it is 0 where z, phi'(z, y) or the product is not finite.
    """
    r = loss.derivative(y, z)
    length = abs(r) * norm
    r = r * (clip / length) if length > clip else r
    kept = length <= clip or abs(r) >= LEAST_SHARE
    return r if (kept and abs(z) <= LARGEST) or clip == math.inf else 0.0


@kernel
def record_sum(
    loss: Any, data: Three, w: Array, records: Indices, clip: float, out: Array
) -> None:
    """Write the sum of the records' gradients, clipped in l2, into ``out`` (p,).

    data: rows (n, p) row-major, y and the euclidean norms of the rows, (n,).
    """
    rows, y, norms = data
    out[:] = 0.0
    for i in records:
        x = rows[i]
        z = 0.0
        for j in range(w.size):
            z += x[j] * w[j]
        r = clipped_derivative(loss, y[i], z, norms[i], clip)
        for j in range(w.size):
            out[j] += r * x[j]


@kernel
def stochastic_steps(
    loss: Any, data: Three, psi: Array, at: Place, draws: Batches, scales: Steps
) -> float:
    """Make k proximal stochastic gradient steps of one trial, in place.

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms), arrays of shape (n, p), (n,), (n,)
    psi : array of shape (4,)
    at : (w, (int, float))
        The iterate, shape (p,), changed; the constraint, on which each step ends with a
        projection.
    draws : (records, offsets, noise)
        Step t uses ``records[offsets[t]:offsets[t + 1]]``; its noise, of an array of
        shape (k, p), is added to the sum of the clipped gradients. An array of shape
        (0, p) stands for zeros.
    scales : (clip, steps, expected)
        Threshold, step sizes, shape (k,), and the expected batch size q n, by which
        the noisy sum is divided.

    Returns
    -------
    float
        A sum of no meaning, for which the records are read ahead (``touch``).
    """
    records, offsets, noise = draws
    clip, steps, expected = scales
    w, domain = at
    g, none = np.empty(w.size), np.zeros(w.size)
    touched = 0.0
    for first in range(0, steps.size, _AHEAD):
        last = min(first + _AHEAD, steps.size)
        touched += touch(data, records[offsets[first] : offsets[last]])
        for t in range(first, last):
            batch = records[offsets[t] : offsets[t + 1]]
            record_sum(loss, data, w, batch, clip, g)
            added = noise[t] if noise.shape[0] > 0 else none
            prox_gradient(w, g, added, steps[t], expected, psi)
            if domain[0] != WHOLE_SPACE:
                project(domain, w)
    return touched


@kernel
def averaged_steps(
    loss: Any, data: Three, psis: Any, at: Summed, draws: Batches, scales: Steps
) -> float:
    """Make steps as ``stochastic_steps``, and add up iterates for their mean.

    Parameters
    ----------
    psis : (psi, free, counted)
        Step t adds the iterate before it to the total, and has the penalty psi, where
        ``counted[t]`` holds, bool array of shape (k,); else it has the penalty free.
    at : (w, domain, total)
        As there, and the total, shape (p,), changed.
    """
    records, offsets, noise = draws
    clip, steps, expected = scales
    psi, free, counted = psis
    w, domain, total = at
    touched = 0.0
    for t in range(steps.size):
        if t % _AHEAD == 0:
            last = min(t + _AHEAD, steps.size)
            touched += touch(data, records[offsets[t] : offsets[last]])
        if counted[t]:
            total += w
        one = records, offsets[t : t + 2], noise[t : t + 1]
        size = clip, steps[t : t + 1], expected
        stochastic_steps(
            loss, data, psi if counted[t] else free, (w, domain), one, size
        )
    return touched


@kernel
def touch(data: Three, records: Indices) -> float:
    """Read one number of every line of the cache that records lie in; return the sum.

    A step waits for the one before and for its own record, which lies anywhere. Read
    for many steps at once, records arrive beside each other.
    """
    rows, y, norms = data
    end = rows.shape[1] - 1
    total = 0.0
    for i in records:
        total += y[i] + norms[i] + rows[i, end]
        for j in range(0, end, _LINE):
            total += rows[i, j]
    return total


@kernel
def prox_gradient(
    w: Array, g: Array, noise: Array, step: float, expected: float, psi: Array
) -> None:
    """Set w to the prox of step psi at w - step (g + noise) / expected, in place."""
    for j in range(w.size):
        v = w[j] - step * ((g[j] + noise[j]) / expected)
        w[j] = prox(v, step, psi)


@kernel
def move(
    w: Array, g: Array, mean: Array, noise: Array, scales: Scales, psi: Array
) -> None:
    """Set w to the prox of step psi along (g + noise) / expected + mean, in place."""
    _, step, expected = scales
    for j in range(w.size):
        v = w[j] - step * ((g[j] + noise[j]) / expected + mean[j])
        w[j] = prox(v, step, psi)


@kernel
def variance_reduced_steps(
    loss: Any, data: Three, psi: Array, at: Three, draws: Batches, scales: Scales
) -> None:
    """Make k proximal variance-reduced steps of one trial, in place.

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms), arrays of shape (n, p), (n,), (n,)
    psi : array of shape (4,)
    at : (w, snapshot, mean), arrays of shape (p,)
        The iterate, changed; the snapshot, and the noisy mean gradient there.
    draws : (records, offsets, noise)
        As of ``stochastic_steps``; the noise, of shape (k, p), is added to the sum of
        the differences of clipped gradients.
    scales : (clip, step, expected)
        Threshold, step size, and the expected batch size q n.
    """
    rows, y, norms = data
    w, snapshot, mean = at
    records, offsets, noise = draws
    clip = scales[0]
    g = np.empty(w.size)
    for t in range(noise.shape[0]):
        g[:] = 0.0
        for i in records[offsets[t] : offsets[t + 1]]:
            x = rows[i]
            here = there = 0.0
            for j in range(w.size):
                here += x[j] * w[j]
                there += x[j] * snapshot[j]
            r = clipped_derivative(loss, y[i], here, norms[i], clip)
            r -= clipped_derivative(loss, y[i], there, norms[i], clip)
            for j in range(w.size):
                g[j] += r * x[j]
        move(w, g, mean, noise[t], scales, psi)
