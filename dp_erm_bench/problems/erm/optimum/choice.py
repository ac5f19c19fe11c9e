"""Choose a reference minimiser for a problem, and minimise over euclidean balls."""

import math
from dataclasses import replace

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.constraints.sets import Simplex, WholeSpace
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.optimum import composite, faces, proximal, smooth, sparse
from dp_erm_bench.problems.erm.optimum.composite import Composite

REGIONS = {"l1_ball": faces.CrossRegion, "simplex": faces.SimplexRegion}

# Distance by which rounding may leave a minimiser outside, as a part of the radius.
INSIDE = 1e-11

# Least multiplier of a ball's radius times radius^2, as a part of F(0).
NEGLIGIBLE = 1e-13
LEVELS = 1e-13
RATIO = 0.1


def minimise_by_choice(problem: ERM) -> Array:
    """Return an approximate minimiser by the method that suits the problem.

    The result has the shape (p,).
    """
    if not problem.loss.smooth:
        return smooth.minimise_kinked(problem, _minimise_from, certified_gap)
    penalty, constraint = problem.penalty, problem.constraint
    objective, region = _composite_of(problem), _region_of(problem)
    if region is not None:
        return faces.minimise_over(objective, region)
    if constraint.name == "l2_ball":
        return minimise_in_ball(objective, constraint.radius)
    if constraint.explicit:
        return _minimise_in_hull(objective, constraint)
    if not isinstance(constraint, WholeSpace):
        project = constraint.project
        return proximal.minimise_by_prox(
            problem, objective, lambda v, _: project(v), certified_gap
        )
    if not isinstance(penalty, SeparablePenalty):
        return proximal.minimise_by_prox(
            problem, objective, penalty.prox, certified_gap
        )
    if penalty.l1 > 0.0:
        return sparse.minimise_sparse(objective)
    if penalty.l2 > 0.0:
        return smooth.minimise_ridge(objective)
    return smooth.minimise_free(objective)


def _minimise_from(problem: ERM, w: Array) -> Array:
    """Return a minimiser; if Newton's method is used, it starts at w.

    The start matters for a rounded kink: far from the minimum, its narrow parabola is a
    poor model of the loss.
    """
    penalty, free = problem.penalty, isinstance(problem.constraint, WholeSpace)
    if free and penalty.quadratic and penalty.strong_convexity > 0.0:
        return smooth.newton_minimiser(_composite_of(problem), w)[0]
    return minimise_by_choice(problem)


def certified_gap(problem: ERM, w: Array) -> tuple[float, str]:
    """Return a bound on F(w) - min F at a point, and a reason not to trust it.

    The bound is infinite if there is none; the reason is empty if the bound is a
    certificate.
    """
    if not problem.loss.smooth:
        return smooth.kinked_gap(problem, w, certified_gap)
    penalty, constraint = problem.penalty, problem.constraint
    objective, region = _composite_of(problem), _region_of(problem)
    if not constraint.contains(w, INSIDE):
        return np.inf, ""
    if region is not None:
        return region.gap(w, objective.gradient(w)), ""
    if constraint.name == "l2_ball":
        return ball_gap(objective, constraint.radius, w), ""
    if not isinstance(constraint, WholeSpace):
        g = objective.gradient(w)
        return abs(float(g @ (w - constraint.linear_minimiser(g)))), ""
    if isinstance(penalty, SeparablePenalty) and penalty.l1 == penalty.l2 == 0.0:
        return smooth.free_gap(objective, w)
    return composite.duality_gap(objective, penalty, w), ""


def _composite_of(problem: ERM) -> Composite:
    """Return the objective without its constraint and any inseparable penalty."""
    data, penalty = problem.dataset, problem.penalty
    smooth_part = Composite(data.X, data.y, problem.loss)
    if isinstance(penalty, SeparablePenalty):
        return replace(smooth_part, l1=penalty.l1, l2=penalty.l2)
    return smooth_part


def _region_of(problem: ERM) -> faces.Region | None:
    """Return the penalty's box or the constraint as a set with faces, else None."""
    penalty, constraint = problem.penalty, problem.constraint
    if isinstance(penalty, SeparablePenalty) and penalty.upper < np.inf:
        return faces.BoxRegion(penalty.lower, penalty.upper)
    kind = REGIONS.get(constraint.name)
    return kind(constraint) if kind else None


def _minimise_in_hull(problem: Composite, constraint: Constraint) -> Array:
    """Return a minimiser over a polytope, found over the weights of its vertices.

    The objective has no penalty.
    """
    m = constraint.vertex_count(problem.X.shape[1])
    assert m is not None
    points = constraint.vertex_points(np.arange(m), problem.X.shape[1])
    by_weights = replace(problem, X=problem.X @ points.T)
    weights = faces.minimise_over(by_weights, faces.SimplexRegion(Simplex(1.0)))
    return weights @ points


def minimise_in_ball(problem: Composite, radius: float) -> Array:
    """Return the minimiser of the smooth objective over norm2(w) <= radius.

    By Lagrange duality it also minimises F(w) + (m/2) norm2(w)^2 for some m >= 0. Here
    m is 0, or the m at which the norm of the minimiser equals the radius. The norm
    falls as m grows.

    Parameters
    ----------
    problem : Composite
        With l1 = 0.
    radius : float
    """
    w = problem.zero

    def path(m: float) -> Array:
        """Return the minimiser for a multiplier, starting from the previous one."""
        nonlocal w
        w = smooth.newton_minimiser(replace(problem, l2=problem.l2 + m), w)[0]
        return w

    def excess(exponent: float) -> float:
        length = float(np.linalg.norm(path(math.exp(exponent))))
        return math.log(length / radius) if length > 0.0 else -1.0

    m = 2.0 * problem.value(w) / float(np.square(radius))
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
    return w


def ball_gap(problem: Composite, radius: float, w: Array) -> float:
    """Return the Frank-Wolfe gap at w over norm2 <= radius, for the gradient g of F.

    The gap is g.w + radius norm2(g), computed as a sum of terms >= 0 up to rounding.

    Parameters
    ----------
    problem : Composite
        With l1 = 0.
    radius : float
    w : array of shape (p,)
        A point of the ball.
    """
    g = problem.gradient(w)
    size, length = float(np.linalg.norm(g)), float(np.linalg.norm(w))
    if size == 0.0 or length == 0.0:
        return radius * size
    # norm(g) norm(w) + g.w without cancellation.
    turn = 0.5 * size * length * float(np.square(g / size + w / length).sum())
    return turn + size * max(radius - length, 0.0)
