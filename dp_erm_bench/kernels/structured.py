"""Dual block coordinate descent for norms that are sums of maxima over groups.

The prox of tau sum_G w_G max_G |.| at z >= 0 is z - sum_G xi_G. Each xi_G is zero
outside of G and is in the L1 ball of radius tau w_G. A sweep sets each xi_G, one after
the other, to the projection of z minus all other xi.

References
----------
Jenatton, Mairal, Obozinski, Bach, "Proximal methods for hierarchical sparse coding",
JMLR 2011, Algorithm 1: for groups that are nested or disjoint, one sweep is exact.
"""

import numpy as np

from dp_erm_bench.kernels.compiled import Array, Indices, kernel
from dp_erm_bench.kernels.projections import L1_BALL, project


@kernel
def group_sweeps(
    left: Array, parts: Array, groups: tuple[Indices, Indices], caps: Array, sweeps: int
) -> None:
    """Make sweeps of block coordinate descent over groups, in place.

    Parameters
    ----------
    left : array of shape (p,)
        z - sum_G xi_G.
    parts : array of shape (m,)
        The xi_G one after the other.
    groups : pair of int arrays
        The coordinates of all groups, shape (m,), and the start of each group, followed
        by m.
    caps : array of shape (number of groups,)
        tau w_G > 0.
    sweeps : int
    """
    index, starts = groups
    for _ in range(sweeps):
        for g in range(caps.size):
            first, last = starts[g], starts[g + 1]
            goal = np.empty(last - first)
            for k in range(first, last):
                goal[k - first] = left[index[k]] + parts[k]
            moved = goal.copy()
            project((L1_BALL, caps[g]), moved)
            for k in range(first, last):
                parts[k] = moved[k - first]
                left[index[k]] = goal[k - first] - moved[k - first]


@kernel
def range_sweeps(left: Array, parts: Array, tau: float, sweeps: int) -> None:
    """Make sweeps for sum_{k<p} max(w_1 .. w_k) + sum_{k>1} max(w_k .. w_p), in place.

    The groups of each sum are nested, so each sum is one block.

    Parameters
    ----------
    left : array of shape (p,)
        z minus the two parts.
    parts : array of shape (2, p)
        The dual points of both sums.
    tau : float
        Factor of the norm in the prox.
    sweeps : int
    """
    p = left.size
    for _ in range(sweeps):
        for side in range(2):
            goal = left + parts[side]
            w = goal.copy()
            if side == 0:
                _nested_prox(w, tau)
            else:
                backwards = w[::-1].copy()
                _nested_prox(backwards, tau)
                w[:] = backwards[::-1]
            for j in range(p):
                parts[side, j], left[j] = goal[j] - w[j], w[j]


@kernel
def _nested_prox(w: Array, tau: float) -> None:
    """Set w >= 0 to the prox of tau sum_{k<p} max(w_1 .. w_k).

    For one k after the other, the largest entries so far are lowered to a common level,
    by tau in total. The blocks of equal entries are kept in increasing order.
    """
    p, used = w.size, 0
    level, count, tops = np.empty(p), np.empty(p), np.empty(p)
    for k in range(p - 1):
        place = used
        while place > 0 and level[place - 1] > w[k]:
            level[place], count[place] = level[place - 1], count[place - 1]
            place -= 1
        level[place], count[place] = w[k], 1.0
        used, budget = used + 1, tau
        while budget > 0.0:
            below = level[used - 2] if used > 1 else 0.0
            need = (level[used - 1] - below) * count[used - 1]
            if need > budget:
                level[used - 1] -= budget / count[used - 1]
                budget = 0.0
            elif used == 1:
                level[0], budget = 0.0, 0.0
            else:
                budget -= need
                count[used - 2] += count[used - 1]
                used -= 1
        tops[k] = level[used - 1]
    least = np.inf
    for k in range(p - 2, -1, -1):
        least = min(least, tops[k])
        w[k] = min(w[k], least)
