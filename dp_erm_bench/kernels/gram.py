"""Kernels of least squares on the Gram matrix G = X'X / n and c = X'y / n."""

from dp_erm_bench.kernels.compiled import kernel
from dp_erm_bench.kernels.dense import prox


@kernel
def coordinate_steps(G, c, psi, w, coordinates, noise, steps, total):  # type: ignore[no-untyped-def]
    """Make k proximal coordinate steps of each trial, in place.

    As ``coordinate.coordinate_steps``, without clipping: O(p) a step.
    """
    for b in range(w.shape[0]):
        for k in range(coordinates.shape[1]):
            j = coordinates[b, k]
            if steps[b, j] > 0.0:
                g = _dot(G[j], w[b]) - c[j] + noise[b, k]
                w[b, j] = prox(w[b, j] - steps[b, j] * g, steps[b, j], psi)
            if total.shape[0] > 0:
                total[b] += w[b]


@kernel
def _dot(a, b):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total
