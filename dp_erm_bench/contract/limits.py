"""Checks of what an algorithm comes to: its limit, columns of zeros, the budget."""

from __future__ import annotations

from typing import Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.candidate import STEPS, Candidate
from dp_erm_bench.contract.errors import ContractError, NotApplicable, require
from dp_erm_bench.contract.problems import (
    curvature,
    gap,
    instance,
    objectives,
    problem_of,
)
from dp_erm_bench.contract.runs import run_at
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Release
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Limit

SHRINK = (64, 16, 4, 1)
"""Parts of a run at which the gap is looked at for its slope."""
EPSILON = 1.0


def the_limit_is_reached(candidate: Candidate) -> None:
    """Reach without noise what the class states as its limits, on every problem."""
    _require_risks(candidate)
    stated = 0
    for parts in objectives(candidate.solver.constrained):
        problem = instance(*parts).with_smoothness("data")
        for limit in candidate.solver.limits(problem, curvature(problem)):
            if limit.solver.refusal(problem) is None:
                _reached(limit, problem)
                stated += 1
    if not stated:
        raise ContractError(
            f"{candidate.solver.__name__} states no limit: its classmethod `limits` "
            "yields what its theory says without noise"
        )


def _reached(limit: Limit, problem: ERMProblem) -> None:
    solver, length = limit.solver, limit.solver.iterations(problem)
    parts = [length // part for part in SHRINK] if limit.slope is not None else [length]
    names = tuple(f"seed {k}" for k in range(limit.trials))
    run = run_at(
        problem,
        [solver] * limit.trials,
        z=0.0,
        identities=names,
        checkpoints=sorted({0, *parts}),
        ahead=True,
    )
    found = [float(gap(problem, w).mean()) for w in run.iterates()]
    told = f"{solver} on {problem.title}"
    near = abs(found[-1]) <= limit.gap
    require(near, f"{told} ends at {found[-1]:.2g} from the minimum, not {limit.gap:g}")
    if limit.slope is not None:
        slope = float(np.polyfit(np.log(parts), np.log(found[1:]), 1)[0])
        require(slope <= limit.slope, f"{told} falls like t^{slope:.2f}")


def columns_of_zeros_are_harmless(candidate: Candidate) -> None:
    """Stay finite on columns of zeros, and leave them if noise does."""
    _require_risks(candidate)
    clips = (1.0, None) if "clip" in candidate.parameters else (None,)
    for variant, problem in candidate.each():
        for clip in clips:
            bounded = clip is not None or np.isfinite(problem.lipschitz)
            for smoothness in ("public", "data"):
                known = problem.with_smoothness(smoothness)
                solver = candidate.build(variant, clip=clip)
                z = 100.0 if bounded else 0.0
                for ahead in (False, True):
                    run = run_at(known, [solver], z=z, ahead=ahead)
                    last = run.iterates()[-1]
                    told = candidate.told(variant, problem)
                    require(np.isfinite(last).all(), f"{told} is not finite")
                    if not noise_on_vectors(run.releases):
                        still = last[0, 2] == 0.0
                        require(still, f"{told} moves along a column of zeros")
                        require(last.any(), f"{told} does not move at all")


def _require_risks(candidate: Candidate) -> None:
    if candidate.foreign:
        kind = candidate.foreign.kind
        raise NotApplicable(f"it is about features and minima, not about {kind}")


def noise_on_vectors(releases: tuple[Release, ...]) -> bool:
    """Return whether noise falls on whole gradients: it spares no column of zeros."""
    return any(
        release.vectors and np.atleast_2d(release.sensitivity).shape[1] == 1
        for release in releases
    )


def nothing_to_learn_moves_nothing(candidate: Candidate) -> None:
    """Stay at the start on a problem whose only column is zero."""
    problem = problem_of("logistic", "none", p=1, dead=0)
    solver = candidate.build(clip=1.0, n_iter=STEPS)
    reason = solver.refusal(problem)
    if reason:
        raise NotApplicable(reason)
    moved = np.any(run_at(problem, [solver], z=0.0).iterates())
    require(not moved, f"{candidate.name} moves on a problem of zeros")


def served_within_the_budget_or_refused(candidate: Candidate) -> None:
    """Keep the budget on every problem, or refuse it in one sentence."""
    served = 0
    names = candidate.objectives() if candidate.foreign else objectives(True)
    for parts in names:
        problem = candidate.problem(parts)
        for adjacency in Adjacency:
            solved = _solved(candidate, problem, parts[2], adjacency)
            if solved is not None:
                _keeps(solved, f"{candidate.name} on {problem.title}")
                served += 1
    require(served, f"{candidate.name} serves no problem at epsilon={EPSILON}")


def _solved(
    candidate: Candidate, problem: Any, constraint: str, adjacency: Adjacency
) -> Run | None:
    """Return what a run comes to, None if it is refused as it should be."""
    budget = Budget(EPSILON, 1e-6, adjacency)
    told = f"{candidate.name} on {problem.title}"
    kept = constraint != "none" and not candidate.solver.constrained
    try:
        solved = Run(problem, [candidate.build()], budget).record(5)
    except Unsupported as reason:
        require(str(reason) and "\n" not in str(reason), f"{told} refuses: {reason}")
        return None
    require(not kept, f"{told} is served, yet the class is not `constrained`")
    return solved


def _keeps(solved: Run, told: str) -> None:
    proved = solved.calibration.epsilon_certified
    require(proved <= EPSILON * (1 + 1e-9), f"{told} spends {proved:.4g} of {EPSILON}")
    require(np.isfinite(solved.rows.w).all(), f"{told} is not finite")
    problem = solved.problem
    inside = problem.contains(solved.rows.w).all()
    require(inside, f"{told} leaves the constraint")
    passes = [solved.rows.passes[0], *np.diff(solved.rows.passes)]
    grows = solved.rows.passes[0] == 0.0 and min(passes) >= 0.0
    require(grows, f"{told} counts passes that do not grow from 0: {passes}")
    for release in (*solved.shares, *solved.releases):
        known = np.isfinite(release.sensitivity).all() and release.times >= 0
        require(known, f"{told}: release {release.name} has no sensitivity")


def calibrations_are_served(candidate: Candidate) -> None:
    """Run with every calibration that the class names, and no other."""
    problems = candidate.problems(candidate.variants[0])
    for calibration in registry.names("calibration"):
        named = calibration in candidate.solver.calibrations
        told = f"{candidate.name} with calibration={calibration}"
        reasons = [_refused(candidate, calibration, problem) for problem in problems]
        if named:
            require(None in reasons, f"{told} serves no problem: {reasons[0]}")
        else:
            require(all(reasons), f"{told} runs, yet the class does not name it")


def _refused(candidate: Candidate, calibration: str, problem: ERMProblem) -> str | None:
    """Return why a calibration is refused on a problem, None if it runs."""
    solver, budget = candidate.build(clip=1.0), Budget(EPSILON, 1e-6)
    try:
        Run(problem, [solver], budget, calibration).record(5)
    except Unsupported as reason:
        return str(reason)
    return None
