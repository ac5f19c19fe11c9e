"""What solvers may ask of a constraint."""

from dp_erm_bench.constraints.base import UNCOMPILED
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.solvers.base import Array


def projection_refusal(problem: ERM, solver: str) -> str | None:
    """Return why prox and projection do not make one step, or None.

    Projecting after the prox of l2 is the prox of both: over a convex set the sum
    norm2(u - v)^2 / 2 + step l2 norm2(u)^2 / 2 is, but for a constant, a multiple of
    norm2(u - v / (1 + step l2))^2.
    """
    constraint, penalty = problem.constraint, problem.penalty
    if not constraint.bounded or penalty.quadratic:
        return None
    return (
        f"constraint={constraint.name} with penalty={penalty.name}: {solver} has no "
        "step for both at once; use penalty none or l2"
    )


def compiled_refusal(problem: ERM, solver: str) -> str | None:
    """Return why there is no compiled step that ends with a projection, or None."""
    constraint = problem.constraint
    if constraint.code == UNCOMPILED:
        return (
            f"constraint={constraint.name}: {solver} has no compiled projection on it; "
            "use frank_wolfe or gd"
        )
    return projection_refusal(problem, solver)


def nearest_feasible(problem: ERM, w: Array) -> Array:
    """Return noisy points, moved into the constraint and the penalty's box.

    One of the two is the whole space, see :func:`projection_refusal`.
    """
    # A step of length 0 leaves but the box of a penalty.
    return problem.constraint.project(problem.penalty.prox(w, 0.0))


def vertex_refusal(problem: ERM, solver: str) -> str | None:
    """Return why there is no step towards a vertex, or None.

    An l2 penalty is smooth, and free of data: it is taken with the gradient.
    """
    constraint, penalty = problem.constraint, problem.penalty
    if not constraint.vertex_count(problem.p):
        return (
            f"constraint={constraint.name}: {solver} needs a set with vertices; use "
            "constraint l1_ball, simplex or polytope"
        )
    if not penalty.quadratic:
        return f"penalty={penalty.name}: {solver} needs a smooth one, none or l2"
    return None
