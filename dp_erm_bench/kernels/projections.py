"""Projections on the constraints, by their code, and the prox of separable penalties.

A kernel takes a constraint as (code, radius): ``Constraint.kernel``.
"""

import math
from typing import Any

import numpy as np

from dp_erm_bench.kernels.compiled import Array, kernel
from dp_erm_bench.kernels.elementary import between

WHOLE_SPACE = 0
L2_BALL = 1
L1_BALL = 2
SIMPLEX = 3


@kernel
def prox(v: float, step: float, psi: Array) -> Any:
    """Return the prox of step psi_j at v; psi = (l1, l2, lower, upper)."""
    shrunk = max(abs(v) - step * psi[0], 0.0) / (1.0 + step * psi[1])
    if v < 0.0:
        shrunk = -shrunk
    return min(max(shrunk, psi[2]), psi[3])


# Loops, as expressions of whole arrays take seconds to compile.
@kernel
def project(constraint: tuple[int, float], w: Array) -> None:
    """Project w, shape (p,), in place; NaN stay, an unknown code raises ValueError."""
    radius = constraint[1]
    if constraint[0] == L2_BALL:
        size = math.sqrt(np.sum(w * w))
        if size > radius:
            shrink = radius / size
            for j in range(w.size):
                w[j] *= shrink
    elif constraint[0] == L1_BALL:
        if np.sum(np.abs(w)) > radius:
            signs = np.empty(w.size)
            for j in range(w.size):
                signs[j], w[j] = np.sign(w[j]), abs(w[j])
            _project_on_simplex(w, radius)
            for j in range(w.size):
                w[j] *= signs[j]
    elif constraint[0] == SIMPLEX:
        _project_on_simplex(w, radius)
    elif constraint[0] != WHOLE_SPACE:
        raise ValueError("no kernel projects on a set of this constraint's code")


@kernel
def _project_on_simplex(v: Array, radius: float) -> None:
    """Set v to max(v - theta, 0) with theta such that the sum is the radius.

    Newton's method on the sum, a convex function of theta that is piecewise linear,
    from the left (Michelot, JOTA 1986): finite and exact. A step from theta to
    theta' leaves excesses g, g' and counts s, s' of positive entries with
    g' / g + s' / s <= 1, so that one of them halves: at most log2(p) + log2(p / u)
    passes with u the unit roundoff, a handful in practice.
    """
    top = -math.inf
    for j in range(v.size):
        if v[j] > top:
            top = v[j]
    # Relative to the top large entries cost no digits of theta.
    for j in range(v.size):
        v[j] -= top
    theta, count, before = -radius, v.size + 1, v.size + 2
    while count < before:
        before, count, total = count, 0, 0.0
        for j in range(v.size):
            inside = v[j] > theta
            total += v[j] if inside else 0.0
            count += 1 if inside else 0
        theta = (total - radius) / count
    for j in range(v.size):
        v[j] = between(0.0, v[j] - theta, math.inf)
