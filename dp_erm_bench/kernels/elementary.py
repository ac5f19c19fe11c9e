"""Elementary functions that the compiler can vectorise.

numba calls the C library for ``math.exp``, one number at a time. The functions here
work on the bits of the number and use a Taylor polynomial, so a loop over them
becomes vector code. Their relative error is at most 4e-16 (``tests/kernels``).
They are compiled without reordering: ``(x + big) - big`` must round.
"""

import math

import numpy as np

from dp_erm_bench.kernels.compiled import exact, kernel

_LOG2E = 1.0 / math.log(2.0)
# ln 2 in two parts. The first has 32 bits: k times it is exact for any exponent k.
_LN2_HIGH = round(math.log(2.0) * 2**32) / 2**32
_LN2_LOW = -4.2009150726810846e-11
_ROUND = 1.5 * 2.0**52
_ROUND_BITS = np.int64(np.float64(_ROUND).view(np.int64))
_ROOT_BITS = np.int64(np.float64(math.sqrt(0.5)).view(np.int64))
# Keeps the exponent non-negative, so that a logical shift (which every vector
# unit has) does the work of an arithmetic one.
_LIFT = np.int64(1100)


@kernel
def between(low: float, value: float, high: float) -> float:
    """Return the value clipped to [low, high]; NaN stays NaN, unlike with min and max.

    Parameters
    ----------
    low : float
        Lower end of the interval.
    value : float
        The number to clip.
    high : float
        Upper end of the interval.
    """
    return low if value < low else (high if value > high else value)


@exact
def exp(x: float) -> float:
    """Return exp(x) for a float64; saturates outside [-708, 708]."""
    x = min(max(x, -708.0), 708.0)
    shifted = x * _LOG2E + _ROUND
    k = shifted - _ROUND
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    s = 1.0 / 6227020800.0
    s = (s * r + 1.0 / 479001600.0) * r + 1.0 / 39916800.0
    s = (s * r + 1.0 / 3628800.0) * r + 1.0 / 362880.0
    s = (s * r + 1.0 / 40320.0) * r + 1.0 / 5040.0
    s = (s * r + 1.0 / 720.0) * r + 1.0 / 120.0
    s = (s * r + 1.0 / 24.0) * r + 1.0 / 6.0
    s = (s * r + 0.5) * r + 1.0
    s = s * r + 1.0
    exponent = np.float64(shifted).view(np.int64) - _ROUND_BITS + np.int64(1023)
    return s * np.int64(exponent << np.int64(52)).view(np.float64)


@exact
def log(x: float) -> float:
    """Return log(x) for a positive normal float64."""
    bits = np.float64(x).view(np.int64)
    lifted = np.uint64(bits - _ROOT_BITS + (_LIFT << np.int64(52)))
    exponent = np.int64(lifted >> np.uint64(52)) - _LIFT
    m = np.int64(bits - (exponent << np.int64(52))).view(np.float64)
    k = np.int64(exponent + _ROUND_BITS).view(np.float64) - _ROUND
    f = (m - 1.0) / (m + 1.0)
    z = f * f
    s = 1.0 / 23.0
    s = (s * z + 1.0 / 21.0) * z + 1.0 / 19.0
    s = (s * z + 1.0 / 17.0) * z + 1.0 / 15.0
    s = (s * z + 1.0 / 13.0) * z + 1.0 / 11.0
    s = (s * z + 1.0 / 9.0) * z + 1.0 / 7.0
    s = (s * z + 1.0 / 5.0) * z + 1.0 / 3.0
    tail = 2.0 * f * z * s
    return k * _LN2_HIGH + (k * _LN2_LOW + tail + 2.0 * f)


@exact
def cos_turns(u: float) -> float:
    """Return cos(2 pi u) for u in [0, 1]."""
    return -sin_folded(0.25 - abs(u - 0.5))


@exact
def sin_turns(u: float) -> float:
    """Return sin(2 pi u) for u in [0, 1]."""
    t = u - 0.5
    folded = 0.25 - abs(abs(t) - 0.25)
    return -sin_folded(math.copysign(folded, t))


@exact
def sin_folded(u: float) -> float:
    """Return sin(2 pi u) for u in [-1/4, 1/4] by its Taylor series."""
    x = 2.0 * math.pi * u
    z = x * x
    s = 1.0 / 51090942171709440000.0
    s = (s * z - 1.0 / 121645100408832000.0) * z + 1.0 / 355687428096000.0
    s = (s * z - 1.0 / 1307674368000.0) * z + 1.0 / 6227020800.0
    s = (s * z - 1.0 / 39916800.0) * z + 1.0 / 362880.0
    s = (s * z - 1.0 / 5040.0) * z + 1.0 / 120.0
    s = s * z - 1.0 / 6.0
    return x * (s * z + 1.0)
