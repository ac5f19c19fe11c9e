"""Why an objective is refused: what a solver says that it needs is not there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dp_erm_bench.penalties.base import SeparablePenalty, inseparable
from dp_erm_bench.solvers.terms import ERM

if TYPE_CHECKING:
    from dp_erm_bench.solvers.base import Solver


def objective_refusal(solver: Solver, problem: ERM) -> str | None:
    """Return why a solver refuses an objective, None if it has all that it needs."""
    reason = next(_loss_refusals(solver, problem), None)
    if reason:
        return reason
    name, constraint = type(solver).__name__, problem.constraint
    if not (solver.any_penalty or isinstance(problem.penalty, SeparablePenalty)):
        return inseparable(problem.penalty)
    if constraint.bounded and not solver.constrained:
        lost = f"does not keep its iterates in constraint={constraint.name}"
        return f"{name} {lost}; use constraint=none, or gd"
    return None


def _loss_refusals(solver: Solver, problem: ERM) -> Iterator[str]:
    name, loss = type(solver).__name__, problem.loss
    if loss.uncompiled:
        yield loss.uncompiled
    served = solver.linear_losses and loss.smoothness == 0.0
    if solver.smooth_losses and not (loss.curved or served):
        lacks = "is not smooth" if loss.smoothness else "has no curvature"
        yield (
            f"loss={loss.name} {lacks}: {name} needs a finite smoothness constant > 0, "
            "as its steps would have length 0; use a smoothed loss"
        )
    if solver.convex_losses and not loss.convex:
        yield (
            f"loss={loss.name} is not convex: the privacy of {name} is proved for "
            "convex losses only; use gd or sgd"
        )
    if loss.smoothness == 0.0 and not _is_held(problem):
        yield (
            f"loss={loss.name} has no minimum without a ridge or a bounded set: use "
            "penalty=l2 or a constraint"
        )


def _is_held(problem: ERM) -> bool:
    """Return whether a linear loss has a minimum: a ridge or a bounded domain."""
    box = problem.penalty.largest_margin(np.ones(problem.p), 1.0)
    ridge = problem.penalty.strong_convexity > 0.0
    return ridge or problem.constraint.bounded or bool(np.isfinite(box))
