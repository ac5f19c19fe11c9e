"""Which reference minimiser serves a problem."""

import functools
from collections.abc import Callable

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.constraints.simplex import Simplex
from dp_erm_bench.constraints.whole_space import WholeSpace
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.optimum_ball import ball_gap, minimise_in_ball
from dp_erm_bench.problems.erm.optimum_face import minimise_over
from dp_erm_bench.problems.erm.optimum_gap import duality_gap
from dp_erm_bench.problems.erm.optimum_proximal import minimise_proximal
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
from dp_erm_bench.problems.erm.smoothness import Smoothness

REGIONS: dict[str, Callable[[Constraint], Region]] = {
    "l1_ball": CrossRegion,
    "simplex": SimplexRegion,
}

# Of the set's radius: how far outside of it rounding leaves a minimiser.
INSIDE = 1e-11


def minimise(problem: ERM) -> tuple[Array, float, str]:
    """Return w, a bound on F(w) - min F, and why this bound cannot be trusted."""
    data, loss, penalty = problem.dataset, problem.loss, problem.penalty
    if not isinstance(penalty, SeparablePenalty):
        return *_minimise_by_prox(problem, 0.0, penalty.prox), ""
    if not isinstance(problem.constraint, WholeSpace) or penalty.upper < np.inf:
        return *_minimise_in_set(problem, penalty), ""
    X, y, l1, l2 = data.X, data.y, penalty.l1, penalty.l2
    if l1 == 0.0 and l2 == 0.0:
        return minimise_free(X, y, loss)
    if l1 == 0.0:
        w = minimise_ridge(X, y, loss, l2)
    else:
        w = minimise_sparse(X, y, loss, l1, l2)
    return w, duality_gap(X, y, loss, penalty, w), ""


def certified_gap(problem: ERM, w: Array) -> float:
    """Return a bound on F(w) - min F at a given point, infinite if there is none."""
    data, loss, penalty = problem.dataset, problem.loss, problem.penalty
    if isinstance(penalty, SeparablePenalty):
        smooth = Composite(data.X, data.y, loss, 0.0, penalty.l2)
        if not isinstance(problem.constraint, WholeSpace):
            return _gap_in_set(smooth, problem.constraint, w)
        if penalty.upper < np.inf:
            inside = penalty.lower <= w.min() and w.max() <= penalty.upper
            region = BoxRegion(penalty.lower, penalty.upper)
            return region.gap(w, smooth.gradient(w)) if inside else np.inf
        if penalty.l1 == 0.0 and penalty.l2 == 0.0:
            return free_gap(data.X, data.y, loss, w)
    return duality_gap(data.X, data.y, loss, penalty, w)


def _minimise_by_prox(
    problem: ERM, l2: float, prox: Callable[[Array, float], Array]
) -> tuple[Array, float]:
    """Minimise a problem of which a prox alone is known, that of all but l2."""
    data, loss = problem.dataset, problem.loss
    smooth = Composite(data.X, data.y, loss, 0.0, l2)
    smoothness = Smoothness("data", data, loss).norm + l2
    gap = functools.partial(certified_gap, problem)
    return minimise_proximal(smooth, smoothness, prox, gap)


def _gap_in_set(smooth: Composite, constraint: Constraint, w: Array) -> float:
    if not constraint.contains(w, INSIDE):
        return np.inf
    if constraint.name == "l2_ball":
        return ball_gap(smooth, constraint.radius, w)
    g = smooth.gradient(w)
    if constraint.name in REGIONS:
        return REGIONS[constraint.name](constraint).gap(w, g)
    return abs(float(g @ (w - constraint.linear_minimiser(g))))


def _minimise_in_hull(problem: ERM) -> tuple[Array, float]:
    """Minimise over the weights of the vertices, without a penalty.

    The Frank-Wolfe gap over the weights is that over the hull.
    """
    data, m = problem.dataset, problem.constraint.vertex_count(problem.p)
    assert m is not None
    points = problem.constraint.vertex_points(np.arange(m))
    smooth = Composite(data.X @ points.T, data.y, problem.loss, 0.0, 0.0)
    weights, gap = minimise_over(smooth, SimplexRegion(Simplex(1.0)))
    return weights @ points, gap


def _minimise_in_set(problem: ERM, penalty: SeparablePenalty) -> tuple[Array, float]:
    data, constraint = problem.dataset, problem.constraint
    smooth = Composite(data.X, data.y, problem.loss, 0.0, penalty.l2)
    if isinstance(constraint, WholeSpace):
        return minimise_over(smooth, BoxRegion(penalty.lower, penalty.upper))
    if constraint.name == "l2_ball":
        return minimise_in_ball(smooth, constraint.radius)
    if constraint.name in REGIONS:
        return minimise_over(smooth, REGIONS[constraint.name](constraint))
    if constraint.explicit:
        return _minimise_in_hull(problem)
    return _minimise_by_prox(problem, penalty.l2, lambda v, _: constraint.project(v))
