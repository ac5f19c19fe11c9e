"""Checks of the count: what is declared is what is used."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest.mock import patch

import numpy as np

from dp_erm_bench.contract.candidate import STEPS, Candidate
from dp_erm_bench.contract.errors import ContractError, NotApplicable, require
from dp_erm_bench.contract.runs import run_at
from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.releases.base import Mechanism


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
        start = problem.constraint.project(np.zeros_like(found[0]))
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
