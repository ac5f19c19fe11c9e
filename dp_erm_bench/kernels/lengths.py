"""Euclidean norms of any finite numbers, scaled where squares overflow or vanish."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
USUAL = (1e-140, 1e140)
"""Norms in this range are computed from plain sums of squares.

These sums exceed 1e-280.
"""
MOST = 1000
"""Largest exponent k for which 2^k and 2^-k are used."""


def norm2(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Return the euclidean norm of x, or the norms along its last axis.

    Parameters
    ----------
    x : array of any shape
    axis : {None, -1}
        None for one norm of all entries.
    keepdims : bool
        Whether the axes are kept, with length 1.

    Returns
    -------
    float or array
        The result of `numpy.linalg.norm`, to the last bit if the norm is in `USUAL`.
        Infinite where the norm exceeds the largest float; NaN where an entry is NaN.
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
    """Return whether norms are in `USUAL`, so that plain sums of squares suffice."""
    return (norms >= USUAL[0]) & (norms <= USUAL[1])


def near_one(rows: Array) -> tuple[Array, Any]:
    """Return rows scaled so that their largest entries are near 1, and the exponents.

    The rows have the shape (m, p).

    Row i is multiplied by 2^-k_i, where k_i is its exponent. Only entries that are
    negligible compared with the largest entry are rounded.
    """
    powers = powers_of(np.abs(rows).max(axis=1, initial=0.0))
    return rows * np.ldexp(1.0, -powers)[:, None], powers


def powers_of(largest: Any) -> Any:
    """Return the k with ``largest`` 2^-k in [1/2, 1); 0 where it is not finite."""
    _, powers = np.frexp(np.where(np.isfinite(largest), largest, 0.0))
    return np.clip(powers, -MOST, MOST)


def clip_to_norm(w: Array, radius: float) -> Array:
    """Return vectors, scaled down to norm ``radius`` if longer, shape (..., p)."""
    excess = np.maximum(norm2(w, axis=-1) / radius, 1.0)
    moved = w / excess[..., None]
    far = ~(excess <= USUAL[1]) & np.isfinite(w).all(axis=-1)
    if far.any():
        rows, _ = near_one(w[far])
        moved[far] = radius * (rows / np.linalg.norm(rows, axis=1, keepdims=True))
    return np.asarray(moved)
