"""Which reference minimiser serves a problem."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.constraints.simplex import Simplex
from dp_erm_bench.constraints.whole_space import WholeSpace
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.problems.erm.optimum_ball import ball_gap, minimise_in_ball
from dp_erm_bench.problems.erm.optimum_face import minimise_over
from dp_erm_bench.problems.erm.optimum_gap import duality_gap
from dp_erm_bench.problems.erm.optimum_regions import (
    BoxRegion,
    CrossRegion,
    Region,
    SimplexRegion,
)
from dp_erm_bench.problems.erm.optimum_smooth import (
    free_gap,
    minimise_free,
    minimise_ridge,
)
from dp_erm_bench.problems.erm.optimum_sparse import Composite, minimise_sparse

if TYPE_CHECKING:
    from dp_erm_bench.problems.erm.problem import Problem

REGIONS: dict[str, Callable[[Constraint], Region]] = {
    "l1_ball": CrossRegion,
    "simplex": SimplexRegion,
}

# Of the set's radius: how far outside of it rounding leaves a minimiser.
INSIDE = 1e-11


def minimise(problem: Problem) -> tuple[Array, float, str]:
    """Return w, a bound on F(w) - min F, and why this bound cannot be trusted."""
    if not isinstance(problem.constraint, WholeSpace) or problem.penalty.upper < np.inf:
        return *_minimise_in_set(problem), ""
    X, y, loss = problem.dataset.X, problem.dataset.y, problem.loss
    l1, l2 = problem.penalty.l1, problem.penalty.l2
    if l1 == 0.0 and l2 == 0.0:
        return minimise_free(X, y, loss)
    if l1 == 0.0:
        w = minimise_ridge(X, y, loss, l2)
    else:
        w = minimise_sparse(X, y, loss, l1, l2)
    return w, duality_gap(X, y, loss, l1, l2, w), ""


def certified_gap(problem: Problem, w: Array) -> float:
    """Return a bound on F(w) - min F at a given point, infinite if there is none."""
    data, penalty, constraint = problem.dataset, problem.penalty, problem.constraint
    l1, l2 = penalty.l1, penalty.l2
    smooth = Composite(data.X, data.y, problem.loss, 0.0, l2)
    if not isinstance(constraint, WholeSpace):
        return _gap_in_set(smooth, constraint, w)
    if penalty.upper < np.inf:
        inside = penalty.lower <= w.min() and w.max() <= penalty.upper
        region = BoxRegion(penalty.lower, penalty.upper)
        return region.gap(w, smooth.gradient(w)) if inside else np.inf
    if l1 == 0.0 and l2 == 0.0:
        return free_gap(data.X, data.y, problem.loss, w)
    return duality_gap(data.X, data.y, problem.loss, l1, l2, w)


def _gap_in_set(smooth: Composite, constraint: Constraint, w: Array) -> float:
    if not constraint.contains(w, INSIDE):
        return np.inf
    if constraint.name == "l2_ball":
        return ball_gap(smooth, constraint.radius, w)
    g = smooth.gradient(w)
    if constraint.explicit:
        return abs(float(g @ (w - constraint.linear_minimiser(g))))
    return REGIONS[constraint.name](constraint).gap(w, g)


def _minimise_in_hull(problem: Problem) -> tuple[Array, float]:
    """Minimise over the weights of the vertices, without a penalty.

    The Frank-Wolfe gap over the weights is that over the hull.
    """
    data, m = problem.dataset, problem.constraint.vertex_count(problem.p)
    assert m is not None
    points = problem.constraint.vertex_points(np.arange(m))
    smooth = Composite(data.X @ points.T, data.y, problem.loss, 0.0, 0.0)
    weights, gap = minimise_over(smooth, SimplexRegion(Simplex(1.0)))
    return weights @ points, gap


def _minimise_in_set(problem: Problem) -> tuple[Array, float]:
    data, penalty, constraint = problem.dataset, problem.penalty, problem.constraint
    smooth = Composite(data.X, data.y, problem.loss, 0.0, penalty.l2)
    if constraint.name == "l2_ball":
        return minimise_in_ball(smooth, constraint.radius)
    if constraint.explicit:
        return _minimise_in_hull(problem)
    if constraint.name in REGIONS:
        return minimise_over(smooth, REGIONS[constraint.name](constraint))
    return minimise_over(smooth, BoxRegion(penalty.lower, penalty.upper))
