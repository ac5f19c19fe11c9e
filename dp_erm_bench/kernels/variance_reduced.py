"""The compiled steps of stochastic variance-reduced gradient descent."""

import numpy as np

from dp_erm_bench.kernels.compiled import kernel
from dp_erm_bench.kernels.dense import prox


@kernel
def clipped_derivative(loss, y, z, norm, clip):  # type: ignore[no-untyped-def]
    """Return phi'(z, y), scaled so that its product with ``norm`` is within clip."""
    r = loss.derivative(y, z)
    length = abs(r) * norm
    return r * (clip / length) if length > clip else r


@kernel
def move(w, g, mean, noise, step, expected, psi):  # type: ignore[no-untyped-def]
    """Set w to the prox of step psi along (g + noise) / expected + mean, in place."""
    for j in range(w.size):
        v = w[j] - step * ((g[j] + noise[j]) / expected + mean[j])
        w[j] = prox(v, step, psi)


@kernel
def variance_reduced_steps(  # type: ignore[no-untyped-def]
    loss, rows, y, norms, psi, w, anchor, mean, records, offsets, noise, scales
):
    """Make k proximal variance-reduced steps of one trial, in place.

    Parameters
    ----------
    rows, y, norms : arrays of shape (n, p), (n,), (n,)
    psi : array of shape (4,)
    w, anchor, mean : arrays of shape (p,)
        The iterate, changed; the snapshot, and the noisy mean gradient there.
    records, offsets : int arrays
        Step t uses ``records[offsets[t]:offsets[t + 1]]``.
    noise : array of shape (k, p)
        Added to the sum of the differences of clipped gradients.
    scales : (clip, step, expected)
        Threshold, step size, and the expected batch size q n.
    """
    clip, step, expected = scales
    g = np.empty(w.size)
    for t in range(noise.shape[0]):
        g[:] = 0.0
        for i in records[offsets[t] : offsets[t + 1]]:
            x = rows[i]
            here = there = 0.0
            for j in range(w.size):
                here += x[j] * w[j]
                there += x[j] * anchor[j]
            r = clipped_derivative(loss, y[i], here, norms[i], clip)
            r -= clipped_derivative(loss, y[i], there, norms[i], clip)
            for j in range(w.size):
                g[j] += r * x[j]
        move(w, g, mean, noise[t], step, expected, psi)


@kernel
def sparse_variance_reduced_steps(  # type: ignore[no-untyped-def]
    loss, rows, y, norms, psi, w, anchor, mean, records, offsets, noise, scales
):
    """Make the steps of ``variance_reduced_steps``, rows being (data, indices, indptr).

    The noise alone costs O(p) a step.
    """
    data, indices, indptr = rows
    clip, step, expected = scales
    g = np.empty(w.size)
    for t in range(noise.shape[0]):
        g[:] = 0.0
        for i in records[offsets[t] : offsets[t + 1]]:
            here = there = 0.0
            for k in range(indptr[i], indptr[i + 1]):
                here += data[k] * w[indices[k]]
                there += data[k] * anchor[indices[k]]
            r = clipped_derivative(loss, y[i], here, norms[i], clip)
            r -= clipped_derivative(loss, y[i], there, norms[i], clip)
            for k in range(indptr[i], indptr[i + 1]):
                g[indices[k]] += r * data[k]
        move(w, g, mean, noise[t], step, expected, psi)
