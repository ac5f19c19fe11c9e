"""Greedy scores of coordinates; psi = (l1, l2, lower, upper) is the penalty.

g is the derivative of the data term at coordinate w, M > 0 its smoothness.
"""

import math

from dp_erm_bench.kernels.compiled import kernel
from dp_erm_bench.kernels.dense import prox

SUBGRADIENT = 0
EXCESS = 1
STEP = 2
DECREASE = 3


@kernel
def all_scores(rule, g, w, M, psi, out):  # type: ignore[no-untyped-def]
    """Write the scores of all coordinates, minus infinity where M_j = 0.

    g, w, out: (B, p); M: (1 or B, p).
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
def excess(g, w, M, psi):  # type: ignore[no-untyped-def]
    """Return how far -g lies outside the subdifferential (negative inside).

    The subdifferential is a point, an interval (at the kink) or a ray (on the
    border of the box). In units of 1 / sqrt(M).
    """
    sign = 1.0 if w > 0.0 else -1.0
    centre = g + psi[1] * w + (0.0 if w == 0.0 else sign * psi[0])
    slack = psi[0] if w == 0.0 else 0.0
    down = centre - slack if w > psi[2] else -math.inf
    up = -centre - slack if w < psi[3] else -math.inf
    return max(down, up) / math.sqrt(M)


@kernel
def step_length(g, w, M, psi):  # type: ignore[no-untyped-def]
    """Return the length of the proximal step of size 1 / M, times sqrt(M)."""
    return math.sqrt(M) * abs(prox(w - g / M, 1.0 / M, psi) - w)


@kernel
def decrease(g, w, M, psi):  # type: ignore[no-untyped-def]
    """Return sqrt(2 q) with q the decrease of the quadratic model."""
    new = prox(w - g / M, 1.0 / M, psi)
    d = new - w
    change = psi[0] * (abs(new) - abs(w)) + 0.5 * psi[1] * d * (new + w)
    return math.sqrt(2.0 * max(-(g * d + 0.5 * M * d * d + change), 0.0))
