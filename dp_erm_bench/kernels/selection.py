"""The noisy maximum, without drawing noise that cannot win."""

import math

import numpy as np

from dp_erm_bench.kernels.compiled import exact
from dp_erm_bench.kernels.elementary import log
from dp_erm_bench.kernels.philox import fill_uniforms

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
    lead = start % 2
    u = np.empty(_CHUNK)
    for first in range(-lead, scores.size, _CHUNK):
        fill_uniforms(seed, (start + first) // 2, u)
        for j in range(max(first, 0), min(first + _CHUNK, scores.size)):
            v = u[j - first]
            if v >= least:
                value = scores[j] - scale * log(-log(v))
                if value > best:
                    best, winner = value, j
                    gap = (best - top) / scale
                    # A shade lower, so that rounding passes over nobody.
                    least = math.exp(-math.exp(-gap)) * (1.0 - 1e-9)
    return winner
