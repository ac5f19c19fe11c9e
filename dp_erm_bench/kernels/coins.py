"""Simulate long rows of independent coins by the gaps between successes."""

import math
from typing import Any

import numpy as np

from dp_erm_bench.kernels.compiled import Array, Indices, exact, kernel
from dp_erm_bench.kernels.elementary import log


@kernel
def poisson_gaps(
    uniforms: Array, position: Any, limit: int, rate: float, out: Indices
) -> tuple[int, Any, Any]:
    """Find the successes among coins of probability ``rate`` by drawing gaps.

    The gaps between successes are geometric: floor(log u / log(1 - rate)).

    Parameters
    ----------
    uniforms : array
        Uniform random numbers, one per success.
    position : int
        The coin after the last success.
    limit : int
        Successes at or beyond this coin end the walk.
    rate : float
        Probability of a success, below 1.
    out : int array
        Receives the coins that succeeded.

    Returns
    -------
    written : int
        Number of successes written. Unless all uniforms were used, one more uniform was
        used for the success beyond the limit, which is not written.
    position : int
        The coin after the last success written.
    pending : int
        The success beyond the limit, or -1.
    """
    scale = 1.0 / math.log1p(-rate)
    for i in range(uniforms.size):
        success = position + np.int64(log(uniforms[i]) * scale)
        if success >= limit:
            return i, position, success
        out[i] = success
        position = success + 1
    return uniforms.size, position, -1


@exact
def failures(uniforms: Array, total: int, out: Indices) -> None:
    """Write random numbers of failures before a success of probability 1 - k / total.

    These numbers are geometric. Entry k of ``out`` is floor(log u_k / log(k / total))
    for the uniform u_k, and 0 for k = 0.

    Parameters
    ----------
    uniforms : array
        Uniform random numbers, one for each entry of ``out``.
    total : int
        At least the length of ``out``.
    out : int array
    """
    out[:1] = 0
    for k in range(1, out.size):
        out[k] = np.int64(log(uniforms[k]) / log(k / total))
