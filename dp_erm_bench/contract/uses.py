"""Checks of the count: what is used is what was declared and certified."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest.mock import patch

import numpy as np

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.candidate import STEPS, Candidate, Variant
from dp_erm_bench.contract.errors import ContractError, NotApplicable, require
from dp_erm_bench.contract.runs import run_at
from dp_erm_bench.errors import BudgetExhausted, Unsupported
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanism
from dp_erm_bench.run import Run
from dp_erm_bench.trust.recount import listen, recount
from dp_erm_bench.trust.twins.base import NoTwin

BUDGET = 1.0
DELTA = 1e-6
LITTLE = 0.05


def uses_are_those_declared(candidate: Candidate) -> None:
    """Use each mechanism exactly as often as declared, and no more."""
    for variant, problem in candidate.each():
        for ahead in (False, True):
            run = run_at(problem, [candidate.build(variant, clip=1.0)], ahead=ahead)
            told = candidate.told(variant, problem)
            run.iterates()
            require(run.mechanisms, f"{told} declares no release")
            for name, mechanism in run.mechanisms.items():
                used, times = mechanism.used, mechanism.release.times
                require(
                    used == times,
                    f"{told} uses release {name} {used} times and declares {times}",
                )
                _refuses_one_more(mechanism, told)


def _refuses_one_more(mechanism: Mechanism, told: str) -> None:
    try:
        mechanism.spend(1)
    except BudgetExhausted:
        return
    require(False, f"{told}: release {mechanism.release.name} is not counted")


def a_longer_run_is_stopped(candidate: Candidate) -> None:
    """Be stopped by the mechanisms in a run that is longer than declared."""
    _has_length(candidate)
    for variant, problem in candidate.first():
        run = run_at(problem, [candidate.build(variant, clip=1.0)])
        ends = (0, STEPS + 5)
        solvers = [candidate.build(variant, clip=1.0, n_iter=STEPS + 5)]
        longer = run_at(problem, solvers, checkpoints=ends)
        longer.mechanisms = run.mechanisms
        try:
            longer.iterates()
        except BudgetExhausted:
            continue
        told = candidate.told(variant, problem)
        require(False, f"{told} makes {STEPS + 5} steps on the releases of {STEPS}")


def no_iterations_return_the_start(candidate: Candidate) -> None:
    """Publish nothing and return the start if there are no iterations."""
    _has_length(candidate)
    for variant, problem in candidate.first():
        run = run_at(problem, [candidate.build(variant, clip=1.0, n_iter=0)])
        found = run.iterates()
        told = candidate.told(variant, problem)
        times = {release.name: release.times for release in run.releases}
        require(not any(times.values()), f"{told} declares {times} for no iterations")
        require(
            len(found) == 1, f"{told} yields {len(found)} iterates for no iteration"
        )
        start = problem.start(len(found[0]))
        require(np.array_equal(found[0], start), f"{told} does not start at zero")


def _has_length(candidate: Candidate) -> None:
    if "n_iter" not in candidate.parameters:
        raise NotApplicable("it has no parameter n_iter")


def without_noise_nothing_is_drawn(candidate: Candidate) -> None:
    """Draw no noise at epsilon = inf, with finite iterates."""
    for variant, problem in candidate.first():
        quiet = run_at(problem, [candidate.build(variant)], z=0.0).iterates()
        told = candidate.told(variant, problem)
        require(np.isfinite(quiet).all(), f"{told} without noise is not finite")
        run = run_at(problem, [candidate.build(variant)], z=0.0)
        with contextlib.ExitStack() as stack:
            for kind in {type(release) for release in run.releases}:
                stack.enter_context(patch.object(kind, "draw", _draw_nothing))
            same = np.array_equal(quiet, run.iterates())
        require(same, f"{told} does not repeat at epsilon = inf")


def _draw_nothing(*_: Any) -> Any:
    raise ContractError("noise is drawn at epsilon = inf")


def the_noise_is_recounted(candidate: Candidate) -> None:
    """Release what was certified: the noise and the uses of a run, counted again."""
    served = 0
    for variant, problem in candidate.first():
        for adjacency in Adjacency:
            budget = Budget(BUDGET, DELTA, adjacency)
            told = f"{candidate.told(variant, problem)}, {adjacency.value}"
            for ahead in (True, False):
                try:
                    run = calibrated_run(candidate, variant, problem, budget)
                except Unsupported:
                    continue
                try:
                    complaint = recounted(run, ahead)
                except NoTwin as reason:
                    raise NotApplicable(str(reason)) from None
                require(not complaint, f"{told}: {complaint}")
                served += 1
        _listen_to_little_noise(candidate, variant, problem)
    if not served:
        raise NotApplicable(f"it serves no problem of the check at epsilon={BUDGET:g}")


def _listen_to_little_noise(
    candidate: Candidate, variant: Variant, problem: Problem
) -> None:
    """Hear winners where noise does not drown the scores: with half of it, too."""
    run = run_at(problem, [candidate.build(variant, clip=1.0)], z=LITTLE)
    heard = listen(run.mechanisms)
    run.iterates()
    told = candidate.told(variant, problem)
    for release in run.releases:
        found, least = heard.get(release.name), LITTLE * release.weight
        enough = found is None or found.ratio >= least * (1 - 1e-6)
        require(enough, f"{told}: release {release.name} has other noise than its own")


def calibrated_run(
    candidate: Candidate,
    variant: Variant,
    problem: Problem,
    budget: Budget,
    mode: str = "certified",
    **given: Any,
) -> Run:
    """Return a run of a variant under a budget.

    Raises
    ------
    Unsupported
        If the algorithm does not serve the problem under the budget.
    """
    solvers = [candidate.build(variant, **{"clip": 1.0, **given})]
    return Run(problem, solvers, budget, mode, ("a",))


def recounted(run: Run, ahead: bool) -> str:
    """Run, and return how it departs from what is certified, empty if it does not.

    Plain steps are listened to: what the mechanisms say of themselves is not believed.
    """
    run.mechanisms.ahead = ahead
    heard = None if ahead else listen(run.mechanisms)
    run.iterates()
    proof = run.calibration
    return recount(run.mechanisms, proof, heard=heard).complaint(proof)
