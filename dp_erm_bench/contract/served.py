"""Checks through the runner: a problem is served within the budget, or refused."""

from __future__ import annotations

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.candidate import Candidate
from dp_erm_bench.contract.errors import require
from dp_erm_bench.contract.problems import objectives, problem_of
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.run import Run

EPSILON = 1.0


def served_within_the_budget_or_refused(candidate: Candidate) -> None:
    """Keep the budget on every problem, or refuse it in one sentence."""
    served = 0
    for parts in objectives(constrained=True):
        problem = problem_of(*parts)
        for adjacency in Adjacency:
            solved = _solved(candidate, problem, adjacency)
            if solved is not None:
                _keeps(solved, f"{candidate.name} on {problem.title}")
                served += 1
    require(served, f"{candidate.name} serves no problem at epsilon={EPSILON}")


def _solved(
    candidate: Candidate, problem: ERMProblem, adjacency: Adjacency
) -> Run | None:
    """Return what a run comes to, None if it is refused as it should be."""
    budget = Budget(EPSILON, 1e-6, adjacency)
    told = f"{candidate.name} on {problem.title}"
    kept = problem.constraint.bounded and not candidate.solver.constrained
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
