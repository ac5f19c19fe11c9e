"""Philox4x32-10, a counter-based generator.

Draw number i of a stream is a function of the stream's seed and of i alone: it
does not matter in which batch, process or order the draws are made.

References
----------
Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011. Checked against the known-answer vectors published with it.
"""

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.kernels.compiled import exact

_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
_ULP = 2.0**-53


@exact
def block(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """Return the four 32-bit words of a counter under a key (all uint64)."""
    for _ in range(10):
        high, low = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (low >> _SHIFT) ^ c1 ^ k0,
            low & _MASK,
            (high >> _SHIFT) ^ c3 ^ k1,
            high & _MASK,
        )
        k0 = (k0 + _W0) & _MASK
        k1 = (k1 + _W1) & _MASK
    return c0, c1, c2, c3


@exact
def fill_uniforms(seed, first_block, out):  # type: ignore[no-untyped-def]
    """Fill ``out``, of even length, with uniforms of 53 bits inside (0, 1).

    The 128-bit seed (four words) is the key and the upper half of the counter;
    the lower half counts blocks of two uniforms.
    """
    k0, k1 = np.uint64(seed[0]), np.uint64(seed[1])
    c2, c3 = np.uint64(seed[2]), np.uint64(seed[3])
    for i in range(out.size // 2):
        count = np.uint64(first_block + i)
        a, b, c, d = block(count & _MASK, count >> _SHIFT, c2, c3, k0, k1)
        out[2 * i] = (np.int64((a << _SHIFT | b) >> np.uint64(11)) + 0.5) * _ULP
        out[2 * i + 1] = (np.int64((c << _SHIFT | d) >> np.uint64(11)) + 0.5) * _ULP


def uniforms(seed: NDArray[np.uint32], start: int, count: int) -> NDArray[np.float64]:
    """Return the uniforms number start .. start + count - 1 of a stream.

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream.
    start, count : int
        Position and number of the draws.
    """
    lead = start % 2
    out = np.empty((count + lead + 1) // 2 * 2)
    fill_uniforms(seed, start // 2, out)
    return out[lead : lead + count]
