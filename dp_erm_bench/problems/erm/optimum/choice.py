"""Which reference minimiser serves a problem, and those of balls and of a prox."""

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.constraints.simplex import Simplex
from dp_erm_bench.constraints.whole_space import WholeSpace
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.optimum import faces
from dp_erm_bench.problems.erm.optimum.composite import (
    Composite,
    accelerated,
    duality_gap,
)
from dp_erm_bench.problems.erm.optimum.smooth import (
    free_gap,
    minimise_free,
    minimise_ridge,
    newton,
)
from dp_erm_bench.problems.erm.optimum.sparse import minimise_sparse
from dp_erm_bench.problems.erm.smoothness import Smoothness

REGIONS: dict[str, Callable[[Constraint], faces.Region]] = {
    "l1_ball": faces.CrossRegion,
    "simplex": faces.SimplexRegion,
}

# Of the set's radius: how far outside of it rounding leaves a minimiser.
INSIDE = 1e-11

# Least multiplier of a ball's radius times radius^2, as a part of F(0).
NEGLIGIBLE = 1e-13
LEVELS = 1e-13
RATIO = 0.1

FINISHED = 1e-13
MOST_STEPS = 30_000
# Accelerated proximal steps between two looks at the gap.
CHECKED = 50


def minimise(problem: ERM) -> tuple[Array, float, str]:
    """Return w, a bound on F(w) - min F, and why this bound cannot be trusted."""
    penalty, constraint = problem.penalty, problem.constraint
    composite, region = _composite(problem), _region(problem)
    if region is not None:
        return *faces.minimise_over(composite, region), ""
    if constraint.name == "l2_ball":
        return *minimise_in_ball(composite, constraint.radius), ""
    if constraint.explicit:
        return *_minimise_in_hull(composite, constraint), ""
    if not isinstance(constraint, WholeSpace):
        project = constraint.project
        return *_minimise_by_prox(problem, lambda v, _: project(v)), ""
    if not isinstance(penalty, SeparablePenalty):
        return *_minimise_by_prox(problem, penalty.prox), ""
    if penalty.l1 == 0.0 and penalty.l2 == 0.0:
        return minimise_free(composite)
    w = minimise_sparse(composite) if penalty.l1 else minimise_ridge(composite)
    return w, duality_gap(composite, penalty, w), ""


def certified_gap(problem: ERM, w: Array) -> float:
    """Return a bound on F(w) - min F at a given point, infinite if there is none."""
    penalty, constraint = problem.penalty, problem.constraint
    composite, region = _composite(problem), _region(problem)
    if not constraint.contains(w, INSIDE):
        return np.inf
    if region is not None:
        return region.gap(w, composite.gradient(w))
    if constraint.name == "l2_ball":
        return ball_gap(composite, constraint.radius, w)
    if not isinstance(constraint, WholeSpace):
        g = composite.gradient(w)
        return abs(float(g @ (w - constraint.linear_minimiser(g))))
    if isinstance(penalty, SeparablePenalty) and penalty.l1 == penalty.l2 == 0.0:
        return free_gap(composite, w)
    return duality_gap(composite, penalty, w)


def _composite(problem: ERM) -> Composite:
    """Return the objective over the set; of another penalty, without it."""
    data, penalty = problem.dataset, problem.penalty
    composite = Composite(data.X, data.y, problem.loss)
    if isinstance(penalty, SeparablePenalty):
        return replace(composite, l1=penalty.l1, l2=penalty.l2)
    return composite


def _region(problem: ERM) -> faces.Region | None:
    """Return the box of the penalty or the constraint as a set with faces, if one."""
    penalty, constraint = problem.penalty, problem.constraint
    if isinstance(penalty, SeparablePenalty) and penalty.upper < np.inf:
        return faces.BoxRegion(penalty.lower, penalty.upper)
    kind = REGIONS.get(constraint.name)
    return kind(constraint) if kind else None


def _minimise_in_hull(
    problem: Composite, constraint: Constraint
) -> tuple[Array, float]:
    """Minimise over the weights of the vertices, without a penalty.

    The Frank-Wolfe gap over the weights is that over the hull.
    """
    m = constraint.vertex_count(problem.X.shape[1])
    assert m is not None
    points = constraint.vertex_points(np.arange(m))
    by_weights = replace(problem, X=problem.X @ points.T)
    weights, gap = faces.minimise_over(by_weights, faces.SimplexRegion(Simplex(1.0)))
    return weights @ points, gap


def _minimise_by_prox(
    problem: ERM, prox: Callable[[Array, float], Array]
) -> tuple[Array, float]:
    """Return the best point of accelerated proximal gradient steps, and its gap.

    Parameters
    ----------
    problem : ERM
    prox : callable
        Of all but the loss and l2, with the length of the step.
    """
    composite, gap = _composite(problem), functools.partial(certified_gap, problem)
    smoothness = Smoothness("data", problem.dataset, problem.loss).norm + composite.l2
    size = 1.0 / (smoothness * (1.0 + 1e-9)) if smoothness > 0.0 else 1.0

    def step(v: Array) -> Array:
        return prox(v - size * composite.gradient(v), size)

    best = prox(composite.zero, 0.0)
    least = gap(best)
    steps = itertools.islice(accelerated(step, best), MOST_STEPS)
    for w in itertools.islice(steps, CHECKED - 1, None, CHECKED):
        reached = gap(w)
        if reached < least:
            best, least = w, reached
        if least <= FINISHED * composite.value(best):
            break
    return best, least


def minimise_in_ball(problem: Composite, radius: float) -> tuple[Array, float]:
    """Return the minimiser of the smooth objective over norm2(w) <= radius.

    By Lagrange duality it minimises F(w) + (m/2) norm2(w)^2 for the m at which the
    norm is the radius, or for m = 0; the norm falls in m. Its gap is that of
    Frank-Wolfe, g.w + radius norm2(g) for the gradient g of F.

    Parameters
    ----------
    problem : Composite
        With l1 = 0.
    radius : float
    """
    w = problem.zero

    def path(m: float) -> Array:
        """Return the minimiser for a multiplier, from that of the one before."""
        nonlocal w
        w = newton(replace(problem, l2=problem.l2 + m), w)[0]
        return w

    def excess(exponent: float) -> float:
        length = float(np.linalg.norm(path(math.exp(exponent))))
        return math.log(length / radius) if length > 0.0 else -1.0

    m = 2.0 * problem.value(w) / radius**2
    least = NEGLIGIBLE * m
    if m > 0.0:
        path(m)
    while m > least and np.linalg.norm(w) < radius:
        m = max(RATIO * m, least)
        path(m)
    if np.linalg.norm(w) > radius:
        from scipy import optimize  # takes long to import

        ends = (math.log(m), math.log(m / RATIO))
        path(math.exp(optimize.brentq(excess, *ends, xtol=LEVELS)))
        w = w * (radius / np.linalg.norm(w))
    return w, ball_gap(problem, radius, w)


def ball_gap(problem: Composite, radius: float, w: Array) -> float:
    """Return g.w + radius norm2(g), a sum of terms >= 0 up to rounding."""
    g = problem.gradient(w)
    size, length = float(np.linalg.norm(g)), float(np.linalg.norm(w))
    if size == 0.0 or length == 0.0:
        return radius * size
    # norm(g) norm(w) + g.w without cancellation.
    turn = 0.5 * size * length * float(np.square(g / size + w / length).sum())
    return turn + size * max(radius - length, 0.0)
