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

from dp_erm_bench.kernels.compiled import Array, Seed, exact

Word = np.uint64
Words = NDArray[np.uint64]

_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_M0 = np.uint64(0xD2511F53)
_M1 = np.uint64(0xCD9E8D57)
_W0 = np.uint64(0x9E3779B9)
_W1 = np.uint64(0xBB67AE85)
# 52 bits below the exponent of 1 are a number in [1, 2); less 1 - 2^-53 they are
# the middle of one of 2^52 intervals. (With 53 bits the last would round to 1.)
_LOW = np.uint64(12)
_ONE = np.uint64(0x3FF0000000000000)
_BELOW_ONE = 1.0 - 2.0**-53
CELL = 2.0**-52
"""Width of the cells of which a uniform is the middle."""

# Further bits of a uniform: `_FURTHER` blocks from counter 2^63 + 16 position on, where
# the counters of the uniforms themselves never come.
_FURTHER = 16
_FAR = -(2**63)
_UPPER_HALF = np.uint64(1 << 63)


@exact
def fill_uniforms(seed: Seed, first_block: int, out: Array) -> None:
    """Fill ``out``, of even length, with uniforms of 52 bits inside (0, 1).

    The 128-bit seed (four words) is the key and the upper half of the counter;
    the lower half counts blocks of two uniforms.
    """
    pairs = out.view(np.uint64)
    fill_words(seed, first_block, pairs)
    for i in range(out.size):
        out[i] = _unit(pairs[i])


@exact
def _unit(bits: Word) -> float:
    return np.uint64(bits >> _LOW | _ONE).view(np.float64) - _BELOW_ONE


@exact
def fill_words(seed: Seed, first: int, pairs: Words) -> None:
    """Write the words of the counters from ``first`` on, as two pairs a counter.

    ``first`` is the counter's lower half; negative, its highest bit is set. A pair is
    64 bits, its first word the upper 32.
    """
    upper2, upper3 = np.uint64(seed[2]), np.uint64(seed[3])
    for i in range(pairs.size // 2):
        # One counter through all rounds, in registers: kept in arrays between rounds,
        # its words would not be known to have 32 bits, and 64-bit products be taken.
        # The rounds are unrolled, and the loop over counters is vector code.
        count = np.uint64(first + i)
        w0, w1, w2, w3 = count & _MASK, count >> _SHIFT, upper2, upper3
        k0, k1 = np.uint64(seed[0]), np.uint64(seed[1])
        for _ in range(10):
            high, low = _M0 * w0, _M1 * w2
            w0, w1 = (low >> _SHIFT) ^ w1 ^ k0, low & _MASK
            w2, w3 = (high >> _SHIFT) ^ w3 ^ k1, high & _MASK
            k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
        pairs[2 * i] = w0 << _SHIFT | w1
        pairs[2 * i + 1] = w2 << _SHIFT | w3


@exact
def place(seed: Seed, position: int) -> float:
    """Return the place of a uniform in its cell, as a share of it in (0, 1).

    A law with a tail asks for it where the uniform number ``position`` < 2^59 lies in
    an outermost cell, beyond which nothing would ever be drawn: once in 2^51 draws.
    """
    pairs = np.empty(2 * _FURTHER, np.uint64)
    fill_words(seed, _FURTHER * position + _FAR, pairs)
    return share(pairs)


@exact
def share(words: Words) -> float:
    """Return a uniform of 52 significant bits in (0, 1), from pairs of random words.

    The zeros that lead the first words, up to the first 1, give the exponent, a second
    word the rest. It is at least 2^-970, so that the cell's part below is a normal
    number; what is cut off has the probability 2^-970.
    """
    zeros, last = 0, words.size - 2
    for i in range(0, words.size, 2):
        last = i
        if words[i] != 0:
            break
        zeros += 64
    first = words[last]
    while first != 0 and first < _UPPER_HALF:
        first <<= np.uint64(1)
        zeros += 1
    exponent = np.uint64(max(1022 - zeros, 53))
    return np.uint64(exponent << np.uint64(52) | words[last + 1] >> _LOW).view(
        np.float64
    )


def uniforms(seed: Seed, start: int, count: int) -> Array:
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
