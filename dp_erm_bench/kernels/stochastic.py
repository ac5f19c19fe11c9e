"""Compiled steps of stochastic methods, over dense rows."""

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

# Steps whose records are read at once, and numbers in a cache line.
_AHEAD = 64
_LINE = 8


@kernel
def clipped_derivative(loss: Any, y: float, z: float, norm: float, clip: float) -> Any:
    """Return phi'(z, y), scaled so that its product with ``norm`` is within clip.

    With a finite clip it is 0 where z, phi'(z, y) or the product is not finite.

    Parameters
    ----------
    loss : Loss
    y : float
        Label of the record.
    z : float
        Margin of the record.
    norm : float
        Norm of the record.
    clip : float
        Clipping threshold of the norm of the record's gradient.
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
    """Write the sum of the records' gradients, clipped in l2, into ``out``.

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms), arrays of shape (n, p), (n,), (n,)
        Features by rows, labels, and euclidean norms of the rows.
    w : array of shape (p,)
        The point at which the gradients are computed.
    records : int array
        Indices of the records.
    clip : float
        Clipping threshold of the norm of a record's gradient.
    out : array of shape (p,)
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
        Features by rows, labels, and euclidean norms of the rows.
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    at : (w, (code, radius))
        The iterate, shape (p,), which is changed, and the constraint. Each step ends
        with the projection on it.
    draws : (records, offsets, noise)
        Step t uses ``records[offsets[t]:offsets[t + 1]]``. Its noise, a row of an array
        of shape (k, p), is added to the sum of the clipped gradients. An array of shape
        (0, p) means no noise.
    scales : (clip, steps, expected)
        Clipping threshold, step sizes, shape (k,), and the expected batch size q n, by
        which the noisy sum is divided.

    Returns
    -------
    float
        A number without meaning. It depends on the records that are read ahead
        (``touch``), so that the compiler keeps this reading.
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
    """Make the steps of ``stochastic_steps``, and add up iterates for their mean.

    Parameters
    ----------
    loss : Loss
    data : (rows, y, norms), arrays of shape (n, p), (n,), (n,)
        Features by rows, labels, and euclidean norms of the rows.
    psis : (psi, free, counted)
        Two sets of parameters of a penalty, shape (4,), and a bool array of shape (k,).
        If ``counted[t]``, step t first adds the iterate to the total, and has the
        penalty psi; otherwise it has the penalty ``free``.
    at : (w, (code, radius), total)
        As for ``stochastic_steps``, and the total, shape (p,), which is changed.
    draws, scales : tuple
        As for ``stochastic_steps``.
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
    """Read one number of every cache line that contains records, and return the sum.

    A step waits for the step before it and for its own record, which lies anywhere in
    memory. If records are read for many steps at once, they arrive in parallel.
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
    """Make a proximal step along (g + noise) / expected, in place.

    w becomes the prox of step psi at w - step (g + noise) / expected.

    Parameters
    ----------
    w : array of shape (p,)
        The iterate, which is changed.
    g, noise : arrays of shape (p,)
        Sum of clipped gradients, and its noise.
    step : float
        Step size.
    expected : float
        Expected batch size.
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    """
    for j in range(w.size):
        v = w[j] - step * ((g[j] + noise[j]) / expected)
        w[j] = prox(v, step, psi)


@kernel
def move(
    w: Array, g: Array, mean: Array, noise: Array, scales: Scales, psi: Array
) -> None:
    """Make a proximal step along (g + noise) / expected + mean, in place.

    Parameters
    ----------
    w : array of shape (p,)
        The iterate, which is changed.
    g : array of shape (p,)
        Sum of differences of clipped gradients.
    mean : array of shape (p,)
        Noisy mean gradient at the snapshot.
    noise : array of shape (p,)
        Noise of the sum.
    scales : (clip, step, expected)
        Clipping threshold, which is not used, step size and expected batch size.
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    """
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
        Features by rows, labels, and euclidean norms of the rows.
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    at : (w, snapshot, mean), arrays of shape (p,)
        The iterate, which is changed; the snapshot, and the noisy mean gradient there.
    draws : (records, offsets, noise)
        As for ``stochastic_steps``; the noise, of shape (k, p), is added to the sum of
        the differences of clipped gradients.
    scales : (clip, step, expected)
        Clipping threshold, step size, and the expected batch size q n.
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
