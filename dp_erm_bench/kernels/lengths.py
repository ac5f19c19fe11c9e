"""Euclidean norms of all finite numbers: scaled where squares overflow or vanish."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
USUAL = (1e-140, 1e140)
"""Norms between these are computed by plain sums of squares, from 1e-280 on."""
MOST = 1000
"""Powers of 2 that are finite, as are their inverses."""


def norm2(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Return euclidean norms, of all of x or along its last axis.

    Parameters
    ----------
    x : array of any shape
    axis : {None, -1}
    keepdims : bool
        Whether the axes are kept, of length 1.

    Returns
    -------
    float or array
        As `numpy.linalg.norm`, to the bit where the norm is usual. Infinite where it is
        beyond the largest float; NaN where an entry is.
    """
    x = np.asarray(x, np.float64)
    with np.errstate(over="ignore", under="ignore"):
        plain = np.asarray(np.linalg.norm(x, axis=axis, keepdims=keepdims))
    odd = ~are_usual(plain)
    if not odd.any():
        return plain[()]
    rows = x.reshape(1, -1) if axis is None else x.reshape(-1, x.shape[-1])
    scaled, powers = near_one(rows[np.ravel(odd)])
    with np.errstate(over="ignore"):
        plain[odd] = np.ldexp(np.linalg.norm(scaled, axis=1), powers)
    return plain[()]


def are_usual(norms: Any) -> Any:
    """Return whether norms are usual, so that plain sums of squares gave them."""
    return (norms >= USUAL[0]) & (norms <= USUAL[1])


def near_one(rows: Array) -> tuple[Array, Any]:
    """Return rows, (m, p), times 2^-k_i, and the k_i: their largest entries are near 1.

    Only entries that are negligible beside the largest are rounded.
    """
    powers = powers_of(np.abs(rows).max(axis=1, initial=0.0))
    return rows * np.ldexp(1.0, -powers)[:, None], powers


def powers_of(largest: Any) -> Any:
    """Return k for which largest 2^-k is in [1/2, 1), 0 of what is not finite."""
    _, powers = np.frexp(np.where(np.isfinite(largest), largest, 0.0))
    return np.clip(powers, -MOST, MOST)


def clip_to_norm(w: Array, radius: float) -> Array:
    """Return vectors, (..., p), scaled to norm2 = radius where they are longer."""
    excess = np.maximum(norm2(w, axis=-1) / radius, 1.0)
    moved = w / excess[..., None]
    far = ~(excess <= USUAL[1]) & np.isfinite(w).all(axis=-1)
    if far.any():
        rows, _ = near_one(w[far])
        moved[far] = radius * (rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return np.asarray(moved)
