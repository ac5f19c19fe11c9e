"""The noisy maximum, without drawing noise that cannot win."""

import math

import numpy as np

from dp_erm_bench.kernels.compiled import exact
from dp_erm_bench.kernels.draws import OUTSIDE, gumbel_tail
from dp_erm_bench.kernels.elementary import log
from dp_erm_bench.kernels.philox import CELL, fill_uniforms, place

_CHUNK = 512


@exact
def gumbel_argmax(seed, start, scores, scale):  # type: ignore[no-untyped-def]
    """Return argmax_j scores_j + scale * (Gumbel draw start + j of the stream).

    The same winner as by drawing all the noise: a Gumbel draw grows with its
    uniform, so a uniform with which even the largest score would not beat the
    best sum so far is passed over, and most logarithms are never taken.
    """
    top = scores.max()
    best, least = -math.inf, 0.0
    winner = 0
    lowest, highest = 0.5, 0.5
    lead = start % 2
    u = np.empty(_CHUNK)
    for first in range(-lead, scores.size, _CHUNK):
        fill_uniforms(seed, (start + first) // 2, u)
        for j in range(max(first, 0), min(first + _CHUNK, scores.size)):
            v = u[j - first]
            if v >= least:
                lowest = v if v < lowest else lowest
                highest = v if v > highest else highest
                value = scores[j] - scale * log(-log(v))
                if value > best:
                    best, winner = value, j
                    gap = (best - top) / scale
                    # A shade lower, so that rounding passes over nobody.
                    least = math.exp(-math.exp(-gap)) * (1.0 - 1e-9)
                    # Nor is the cell at 0, which reaches above its middle.
                    least = least if least > CELL else 0.0
    if lowest > CELL and highest < 1.0 - CELL:
        return winner
    # Once in 2^51 draws: the places in the outermost cells may decide.
    return _argmax_of_all(seed, start, scores, scale)


@exact
def _argmax_of_all(seed, start, scores, scale):  # type: ignore[no-untyped-def]
    best, winner = -math.inf, 0
    pair = np.empty(2)
    for j in range(scores.size):
        fill_uniforms(seed, (start + j) // 2, pair)
        v = pair[(start + j) % 2]
        noise = -log(-log(v))
        if abs(v - 0.5) > OUTSIDE:
            noise = gumbel_tail(place(seed, start + j), v < 0.5)
        if scores[j] + scale * noise > best:
            best, winner = scores[j] + scale * noise, j
    return winner
