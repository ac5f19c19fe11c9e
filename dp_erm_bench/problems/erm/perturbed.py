"""Minimisers of perturbed objectives, with a verified distance to the exact one."""

import math
from dataclasses import replace

import numpy as np

from dp_erm_bench.constraints.sets import WholeSpace
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.penalties.separable import L2
from dp_erm_bench.penalties.structured import norm_part
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.optimum.smooth import newton_minimiser
from dp_erm_bench.problems.erm.optimum.steps import (
    MAX_STEPS,
    Minimiser,
    PerturbedSteps,
    nearest_point,
)


def minimise_perturbed(
    problem: ERM,
    linear: Array,
    ridge: float,
    tolerance: float,
    start: Array | None = None,
) -> Minimiser:
    """Minimise F(w) + (ridge/2) norm2(w)^2 + linear.w over the problem's set.

    Parameters
    ----------
    problem : ERM
        A constraint other than the whole space needs a penalty without L1 part and
        box.
    linear : array of shape (p,)
        Gradient of the linear term.
    ridge : float
        Strength of the added l2 term. Together with the penalty's own modulus it must
        be positive.
    tolerance : float
        The distance that is sought. The result states the distance reached, which may
        be larger, in ``distance``.
    start : array of shape (p,), optional
        Where the search starts; None for zero.

    Returns
    -------
    Minimiser
        The best point found, with its distance. If the objective is smooth, Newton's
        method runs until rounding, or nearly so for sparse features. Otherwise proximal
        Newton steps are made if these are cheaper. If needed, accelerated proximal
        gradient steps with restarts follow (``composite.accelerated_points``). Their
        momentum is not derived from strong convexity, which would be that of the ridge
        and says little on a face of the set.
    """
    steps = PerturbedSteps(problem, linear, ridge)
    w = np.zeros(problem.p) if start is None else start
    if not (isinstance(problem.constraint, WholeSpace) and problem.penalty.quadratic):
        if steps.newton_pays:
            near = steps.take_newton_steps(w, tolerance)
            if near.distance <= tolerance:
                return near
            w = near.w
        return steps.take_accelerated_steps(w, tolerance)
    w, _ = newton_minimiser(replace(steps.smooth, l2=steps.modulus), w, linear)
    g = steps.gradient(w) + problem.penalty.strong_convexity * w
    at = Minimiser(w, float(norm2(g)) / steps.modulus)
    best = nearest_point(steps.point_after(w), at)
    if best.distance <= tolerance:
        return best
    return nearest_point(best, steps.take_accelerated_steps(best.w, tolerance))


def without_norm(problem: ERM) -> ERM:
    """Return the problem with only the l2 part of its penalty."""
    if problem.penalty.quadratic:
        return problem
    return replace(problem, penalty=L2(problem.penalty.strong_convexity))


def maximise_shifted_dual(
    problem: ERM, linear: Array, ridge: float, gap: float = 1e-13
) -> tuple[Array, Array]:
    """Solve the dual problem of a perturbed objective with a norm penalty.

    The objective is F(w) + (ridge/2) norm2(w)^2 + linear.w. Let F = L + kappa Omega,
    where L includes the penalty's l2 part and the ridge, and let K = kappa |P|(F). The
    dual is the maximum over u in K + linear of min_w L(w) + u.w. Hence linear = b / n
    shifts the set of u by b / n. Contrary to the paper, the maximiser is not the
    unshifted maximiser plus b / n.

    Parameters
    ----------
    problem : ERM
        On the whole space; its penalty is a norm and an l2 part.
    linear : array of shape (p,)
        Gradient of the linear term.
    ridge : float
        Strength of the added l2 term.
    gap : float
        The gap between primal and dual value at which accelerated projected steps end.

    Returns
    -------
    u, theta : array of shape (p,)
        The maximiser, and the minimiser of L(w) + u.w and of the perturbed problem.

    References
    ----------
    Kumar, Deisenroth, "Differentially private empirical risk minimization with
    sparsity-inducing norms", 2019, Proposition 2.
    """
    part = norm_part(problem.penalty)
    if part is None:
        raise Unsupported(
            f"penalty={problem.penalty.name}: must be a norm, alone or with an l2 part"
        )
    (norm, kappa), inner = part, without_norm(problem)
    pace = ridge + inner.penalty.strong_convexity
    theta = s = ahead = np.zeros(problem.p)
    momentum = 1.0
    for _ in range(MAX_STEPS):
        theta = minimise_perturbed(inner, ahead + linear, ridge, 0.0, theta).w
        moved = norm.project(ahead + pace * theta, kappa)
        # Restarted where the momentum leads downhill.
        later = 0.5 + math.sqrt(0.25 + momentum**2) if theta @ (moved - s) >= 0 else 1.0
        ahead = moved + (momentum - 1.0) / later * (moved - s)
        s, momentum = moved, later
        theta = minimise_perturbed(inner, s + linear, ridge, 0.0, theta).w
        if norm.slack(theta, s, kappa) <= gap:
            break
    return s + linear, theta
