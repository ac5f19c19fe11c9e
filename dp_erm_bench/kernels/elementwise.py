"""Elementwise functions for the formulas of losses, on numbers and on arrays.

Called from Python, the functions use numpy. Inside a kernel they become vector code of
the package (``kernels.losses``). Besides these functions, numba knows the operators,
`abs`, `min`, `max` and `math`.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def between(low: float, x: Array, high: float) -> Array:
    """Return x clipped to [low, high]; NaN stays NaN.

    Parameters
    ----------
    low : float
        Lower end of the interval.
    x : array
        Of any shape.
    high : float
        Upper end of the interval.
    """
    return np.asarray(np.clip(x, low, high))


def exp(x: Array) -> Array:
    """Return exp(x); in kernels it saturates outside [-708, 708]."""
    return np.asarray(np.exp(x))


def log(x: Array) -> Array:
    """Return log(x) of a positive number."""
    return np.asarray(np.log(x))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x)) without overflow."""
    return np.asarray(np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x))))


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)) without overflow."""
    decay = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0.0, decay, 1.0) / (1.0 + decay))
