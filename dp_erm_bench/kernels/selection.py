"""Greedy selection: scores of coordinates, and the noisy maximum.

Notation: psi = (l1, l2, lower, upper) are the parameters of the penalty, w is one
coordinate of the iterate, g the derivative of the data term there, and M > 0 its
smoothness constant.
"""

import math
from typing import Any

import numpy as np

from dp_erm_bench.kernels.compiled import Array, Seed, exact, kernel
from dp_erm_bench.kernels.draws import OUTSIDE, gumbel_tail
from dp_erm_bench.kernels.elementary import log
from dp_erm_bench.kernels.philox import CELL, fill_uniforms, place
from dp_erm_bench.kernels.projections import prox

_CHUNK = 512

SUBGRADIENT = 0
EXCESS = 1
STEP = 2
DECREASE = 3


@kernel
def all_scores(rule: int, g: Array, w: Array, M: Array, psi: Array, out: Array) -> None:
    """Write the scores of all coordinates, minus infinity where M_j = 0.

    Parameters
    ----------
    rule : int
        Code of the score: SUBGRADIENT, EXCESS, STEP or DECREASE; others raise
        ValueError.
    g, w : arrays of shape (B, p)
        Derivatives of the data term, and iterates.
    M : array of shape (B, p) or (1, p)
        Smoothness constants.
    psi : array of shape (4,)
        Parameters of the penalty.
    out : array of shape (B, p)
    """
    for b in range(g.shape[0]):
        m = M[b if M.shape[0] > 1 else 0]
        if rule == SUBGRADIENT:
            for j in range(g.shape[1]):
                out[b, j] = max(excess(g[b, j], w[b, j], m[j], psi), 0.0)
        elif rule == EXCESS:
            for j in range(g.shape[1]):
                out[b, j] = excess(g[b, j], w[b, j], m[j], psi)
        elif rule == STEP:
            for j in range(g.shape[1]):
                out[b, j] = step_length(g[b, j], w[b, j], m[j], psi)
        elif rule == DECREASE:
            for j in range(g.shape[1]):
                out[b, j] = decrease(g[b, j], w[b, j], m[j], psi)
        else:
            raise ValueError("no kernel has this rule's code")
        for j in range(g.shape[1]):
            if m[j] <= 0.0:
                out[b, j] = -math.inf


@kernel
def excess(g: float, w: float, M: float, psi: Array) -> float:
    """Return the signed distance from -g to the subdifferential, over sqrt(M).

    The distance is negative if -g is inside the subdifferential. The subdifferential of
    the penalty is a point, an interval (at the kink) or a ray (on the border of the
    box).

    Parameters
    ----------
    g, w, M : float
        Derivative, coordinate and smoothness constant.
    psi : array of shape (4,)
        Parameters of the penalty.
    """
    sign = 1.0 if w > 0.0 else -1.0
    centre = g + psi[1] * w + (0.0 if w == 0.0 else sign * psi[0])
    slack = psi[0] if w == 0.0 else 0.0
    down = centre - slack if w > psi[2] else -math.inf
    up = -centre - slack if w < psi[3] else -math.inf
    return max(down, up) / math.sqrt(M)


@kernel
def step_length(g: float, w: float, M: float, psi: Array) -> Any:
    """Return the length of the proximal step of size 1 / M, times sqrt(M).

    Parameters
    ----------
    g, w, M : float
        Derivative, coordinate and smoothness constant.
    psi : array of shape (4,)
        Parameters of the penalty.
    """
    return math.sqrt(M) * abs(prox(w - g / M, 1.0 / M, psi) - w)


@kernel
def decrease(g: float, w: float, M: float, psi: Array) -> float:
    """Return sqrt(2 q), where a proximal step lowers the quadratic model by q.

    Parameters
    ----------
    g, w, M : float
        Derivative, coordinate and smoothness constant.
    psi : array of shape (4,)
        Parameters of the penalty.
    """
    new = prox(w - g / M, 1.0 / M, psi)
    d = new - w
    change = psi[0] * (abs(new) - abs(w)) + 0.5 * psi[1] * d * (new + w)
    return math.sqrt(2.0 * max(-(g * d + 0.5 * M * d * d + change), 0.0))


@exact
def gumbel_argmax(seed: Seed, start: int, scores: Array, scale: float) -> int:
    """Return argmax_j scores_j + scale * (Gumbel draw start + j of the stream).

    The winner is the same as if all the noise were drawn. A Gumbel draw grows with its
    uniform. A uniform is therefore skipped if it would not beat the best sum so far,
    even with the largest score. So most logarithms are never computed.

    Parameters
    ----------
    seed : array of shape (4,), uint32
        The 128 bits of the stream.
    start : int
        Number of the draw that is added to the first score.
    scores : array of shape (p,)
    scale : float
        Factor of the noise, positive.
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
                    # Slightly lower, so that rounding skips no winner.
                    least = math.exp(-math.exp(-gap)) * (1.0 - 1e-9)
                    # The cell at 0 is not skipped, because it reaches above its middle.
                    least = least if least > CELL else 0.0
    if lowest > CELL and highest < 1.0 - CELL:
        return winner
    # Once in 2^51 draws: the places in the outermost cells may decide.
    return _argmax_of_all(seed, start, scores, scale)


@exact
def _argmax_of_all(seed: Seed, start: int, scores: Array, scale: float) -> int:
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
