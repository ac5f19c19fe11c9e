"""The compiled step of coordinate descent."""

import numpy as np

from dp_erm_bench.kernels.compiled import kernel
from dp_erm_bench.kernels.dense import _add, _coordinate_gradient, prox


@kernel
def coordinate_steps(  # type: ignore[no-untyped-def]
    loss, X, y, psi, w, margins, coordinates, noise, clip, steps, total
):
    """Make k proximal coordinate steps of each trial, in place.

    Parameters
    ----------
    loss : Loss
    X, y : arrays of shape (n, p), (n,)
    psi : array of shape (4,)
        The penalty's parameters.
    w, margins : arrays of shape (B, p), (B, n)
        The iterates and X w; changed.
    coordinates : int array of shape (B, k)
    noise : array of shape (B, k)
        Added to the coordinate's clipped gradient.
    clip, steps : arrays of shape (B, p)
        Thresholds C_j and step sizes gamma_j; a step of 0 leaves w_j alone.
    total : array of shape (B, p), or of no rows
        The sum of the iterates is added to it.
    """
    buffer = np.empty(512)
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
                total[b] += w[b]
