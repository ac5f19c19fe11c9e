"""Philox4x32-10, a counter-based generator of random numbers.

Draw number i of a stream depends only on the stream's seed and on i. It
does not matter in which batch, process or order the draws are made.

References
----------
Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011. The code is checked against the known-answer vectors of this paper.
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
# With the exponent of 1, 52 bits are a number in [1, 2). Minus 1 - 2^-53, it is the
# middle of one of 2^52 intervals. (With 53 bits the last would round to 1.)
_LOW = np.uint64(12)
_ONE = np.uint64(0x3FF0000000000000)
_BELOW_ONE = 1.0 - 2.0**-53
CELL = 2.0**-52
"""Width of the cells; a uniform is the middle of a cell."""

# Further bits of a uniform: `_FURTHER` blocks from counter 2^63 + 16 position on, which
# the counters of the uniforms themselves never reach.
_FURTHER = 16
_FAR = -(2**63)
_UPPER_HALF = np.uint64(1 << 63)


@exact
def fill_uniforms(seed: Seed, first_block: int, out: Array) -> None:
    """Fill ``out`` with uniforms of 52 bits inside (0, 1).

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream: the key, and the upper half of the counter.
    first_block : int
        Lower half of the first counter, which counts blocks of two uniforms.
    out : array of even length
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
    """Write the words of successive counters, as two pairs per counter.

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream: the key, and the upper half of the counter.
    first : int
        Lower half of the first counter; a negative number stands for one of 64 bits
        with the highest bit set.
    pairs : uint64 array of even length
        Receives the pairs; the first word of a pair is its upper 32 bits.
    """
    upper2, upper3 = np.uint64(seed[2]), np.uint64(seed[3])
    for i in range(pairs.size // 2):
        # One counter goes through all rounds, in registers. Kept in arrays, its words
        # would not be known to have 32 bits, and products would be of 64 bits.
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
    """Return the position of a uniform within its cell, as a number in (0, 1).

    A law with a tail needs this position if the uniform with number ``position`` < 2^59
    lies in an outermost cell, which happens once in 2^51 draws. Without it no value
    beyond the middle of that cell would ever be drawn.
    """
    pairs = np.empty(2 * _FURTHER, np.uint64)
    fill_words(seed, _FURTHER * position + _FAR, pairs)
    return share(pairs)


@exact
def share(words: Words) -> float:
    """Return a uniform of 52 significant bits in (0, 1), from pairs of random words.

    The number of zeros before the first 1 in the first words is the exponent. A second
    word has the other bits. The result is at least 2^-970, so that this share of a cell
    is a normal number. The part below that is cut off has the probability 2^-970.
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
    """Return the uniforms with numbers start to start + count - 1 of a stream.

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream.
    start, count : int
        Number of the first draw, and number of draws.
    """
    lead = start % 2
    out = np.empty((count + lead + 1) // 2 * 2)
    fill_uniforms(seed, start // 2, out)
    return out[lead : lead + count]
