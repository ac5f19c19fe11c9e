"""Projections on constraints, and the prox of separable penalties, for kernels.

Kernels accept a constraint as the pair (code, radius), see ``Constraint.kernel``.
"""

import math
from typing import Any

import numpy as np

from dp_erm_bench.kernels.compiled import Array, exact, kernel
from dp_erm_bench.kernels.elementary import between

WHOLE_SPACE = 0
L2_BALL = 1
L1_BALL = 2
SIMPLEX = 3


@kernel
def prox(v: float, step: float, psi: Array) -> Any:
    """Return the prox of ``step`` times the penalty of one coordinate at v.

    Parameters
    ----------
    v : float
        The coordinate before the prox.
    step : float
        Step size.
    psi : array of shape (4,)
        Parameters (l1, l2, lower, upper) of the penalty.
    """
    shrunk = max(abs(v) - step * psi[0], 0.0) / (1.0 + step * psi[1])
    if v < 0.0:
        shrunk = -shrunk
    return min(max(shrunk, psi[2]), psi[3])


# Loops, because expressions of whole arrays take seconds to compile.
@kernel
def project(constraint: tuple[int, float], w: Array) -> None:
    """Project w, shape (p,), on the constraint, in place.

    NaN stay NaN; an unknown code raises ValueError.
    """
    radius = constraint[1]
    if constraint[0] == L2_BALL:
        square = np.sum(w * w)
        if not 1e-280 <= square < math.inf:
            _shrink_scaled(radius, w)
            return
        size = math.sqrt(square)
        if size > radius:
            shrink = radius / size
            for j in range(w.size):
                w[j] *= shrink
    elif constraint[0] == L1_BALL:
        size = 0.0
        for j in range(w.size):
            size += abs(w[j])
        if size > radius:
            # Most entries are zero. The threshold is not below 0: they are skipped.
            kept, count = np.empty(w.size), 0
            for j in range(w.size):
                if w[j] != 0.0:
                    kept[count] = abs(w[j])
                    count += 1
            top, theta = _find_threshold(kept, count, radius)
            for j in range(w.size):
                left = _excess_left(abs(w[j]), top, theta)
                w[j] = -left if w[j] < 0.0 else left
    elif constraint[0] == SIMPLEX:
        kept = np.empty(w.size)
        for j in range(w.size):
            kept[j] = w[j]
        top, theta = _find_threshold(kept, w.size, radius)
        for j in range(w.size):
            w[j] = _excess_left(w[j], top, theta)
    elif constraint[0] != WHOLE_SPACE:
        raise ValueError("no kernel projects on a set of this constraint's code")


@kernel
def project_all(constraint: tuple[int, float], points: Array) -> None:
    """Project the rows of points, shape (B, p), on the constraint, in place."""
    for b in range(points.shape[0]):
        project(constraint, points[b])


# Exact: if reordered, its products would overflow or vanish themselves.
@exact
def _shrink_scaled(radius: float, w: Array) -> None:
    """Project w on a euclidean ball if its squares overflow or vanish."""
    largest, scaled = 0.0, 0.0
    for j in range(w.size):
        # NaN and infinities stay, as NaN.
        w[j] += 0.0 * w[j]
        largest = max(largest, abs(w[j]))
    if largest > 0.0:
        for j in range(w.size):
            scaled += (w[j] / largest) * (w[j] / largest)
        size = math.sqrt(scaled)
        if largest > radius / size:
            for j in range(w.size):
                w[j] = (w[j] / largest) * (radius / size)


# In this order: relative to the top, large entries cost no digits of theta.
@exact
def _excess_left(v: float, top: float, theta: float) -> float:
    return between(0.0, (v - top) - theta, math.inf)


@kernel
def _find_threshold(v: Array, count: int, radius: float) -> tuple[float, float]:
    """Return max v, and theta such that max(v - max v - theta, 0) sums to the radius.

    Only the first ``count`` entries of v matter; v is overwritten. Newton's method is
    applied to the sum, a convex and piecewise linear function of theta, from the left
    (Michelot, JOTA 1986). The method is finite and exact, and an entry that is once
    below theta stays below theta. Let g, g' be the excesses before and after a step,
    and s, s' the numbers of positive entries. Then g' / g + s' / s <= 1, so one of the
    two ratios is at most 1/2. There are at most log2(p) + log2(p / u) passes, where u
    is the unit roundoff, and only a few in practice.
    """
    top = -math.inf
    for j in range(count):
        if v[j] > top:
            top = v[j]
    total, before = 0.0, count + 1
    for j in range(count):
        v[j] -= top
        total += v[j]
    # The entry at the top exceeds theta by the radius at most.
    theta = max(-radius, (total - radius) / count)
    while count < before:
        before, count, total = count, 0, 0.0
        for j in range(before):
            # Written before it is known whether it stays, which avoids a branch.
            v[count] = v[j]
            inside = v[j] > theta
            total += v[j] if inside else 0.0
            count += 1 if inside else 0
        theta = (total - radius) / count
    return top, theta
