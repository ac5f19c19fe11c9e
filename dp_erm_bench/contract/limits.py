"""Checks of what an algorithm comes to: without noise, and on columns of zeros."""

from __future__ import annotations

import numpy as np

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
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.base import Release
from dp_erm_bench.solvers.base import Limit

SHRINK = (64, 16, 4, 1)
"""Parts of a run at which the gap is looked at for its slope."""


def the_limit_is_reached(candidate: Candidate) -> None:
    """Reach without noise what the class states as its limits, on every problem."""
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
