"""Checks of what an algorithm declares about itself, and of whether runs comply."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import itertools
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.candidate import (
    DELTA,
    STEPS,
    Candidate,
    NotApplicable,
    require,
    run_at,
)
from dp_erm_bench.errors import BudgetExhausted, Unsupported, UsageError
from dp_erm_bench.plugins.names import source_files
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.bounds import complaint_of_solver
from dp_erm_bench.trust.recount import listen_to_run, recount, watch_runs
from dp_erm_bench.trust.twins.base import NoTwin

FORBIDDEN = {"epsilon", "delta", "sigma", "Budget", "calibrate"}
"""Names of a budget or a noise scale, which a solver must not use.

A solver declares its releases; their noise is calibrated outside the solver.
"""
BUDGET = 1.0
LITTLE = 0.05


def declaration(candidate: Candidate) -> None:
    """Check that the solver is a frozen dataclass with documentation and References."""
    lacking = complaint_of_solver(candidate.solver)
    require(lacking is None, str(lacking))
    solver = candidate.build()
    name = next(iter(candidate.parameters))
    with contextlib.suppress(dataclasses.FrozenInstanceError):
        setattr(solver, name, getattr(solver, name))
        require(False, f"parameter {name} can be changed: the dataclass is not frozen")


def no_noise_scale_in_the_source(candidate: Candidate) -> None:
    """Check that the source and the parameters name no budget and no noise scale."""
    for module, file in source_files(inspect.getfile(candidate.solver)).items():
        named = ", ".join(
            sorted(_names_in_source(ast.parse(file.read_bytes())) & FORBIDDEN)
        )
        require(not named, f"module {module} names {named}: noise is fixed outside")
    for name in candidate.parameters:
        budget = any(word.lower() in name for word in FORBIDDEN)
        require(not budget, f"parameter {name} is a budget or a noise scale")


def _names_in_source(tree: ast.AST) -> set[str]:
    """Return every name in a source, including imports and arguments."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.alias(name=name):
                names.add(name.rpartition(".")[2])
    return names


def wrong_parameters_are_refused(candidate: Candidate) -> None:
    """Check that a wrong type or value of a parameter raises a clear error.

    The message must be one sentence that names the parameter and its value.
    """
    usual = candidate.build()
    for name, field in candidate.parameters.items():
        for value in _wrong_values(field):
            message = ""
            try:
                dataclasses.replace(usual, **{name: value})
            except UsageError as error:
                message = str(error)
            require(message, f"parameter {name}={value} is accepted")
            fits = (
                message.startswith(f"{name}={value}: must be ") and "\n" not in message
            )
            require(fits, f"parameter {name}={value} is refused with: {message}")


def _wrong_values(field: dataclasses.Field[Any]) -> Iterator[Any]:
    limits, kind = field.metadata, str(field.type)
    yield from (object(), [1], float("nan"), float("inf"), "no such word")
    for key, steps in (("least", (-1,)), ("above", (-1, 0)), ("most", (1,))):
        yield from (limits[key] + step for step in steps if key in limits)
    if not isinstance(field.default, bool):
        yield True
    if "int" in kind:
        yield 1.5
    if "None" not in kind:
        yield None


def uses_are_those_declared(candidate: Candidate) -> None:
    """Check that each mechanism is used exactly as often as declared.

    An algorithm that may stop early may use a mechanism less often. Replays compare
    the numbers of uses.
    """
    early = candidate.solver.may_stop_early
    for on, ahead in itertools.product(candidate.each(), (False, True)):
        run = on.run(ahead=ahead)
        run.iterates()
        require(run.mechanisms, f"{on.title} declares no release")
        for name, mechanism in run.mechanisms.items():
            used, times = mechanism.used, mechanism.release.times
            require(
                used == times or (early and used < times),
                f"{on.title} uses release {name} {used} times and declares {times}",
            )
            with contextlib.suppress(BudgetExhausted):
                mechanism.spend(times - used + 1)
                require(False, f"{on.title}: release {name} is not counted")


def a_longer_run_is_stopped(candidate: Candidate) -> None:
    """Check that the mechanisms stop a run with more uses than declared.

    A longer run of the solver is tried only if that run declares more uses. The number
    of steps that read no data is not limited; `replay_audit` finds undeclared steps
    that read data.
    """
    _require_length(candidate)
    served = 0
    for on in candidate.first():
        more = vars(on.solver(n_iter=STEPS + 5))["n_iter"]  # or the most allowed
        few = STEPS if more > STEPS else more // 2
        longer = on.run({"n_iter": more}, checkpoints=(0, more))
        shorter = on.run({"n_iter": few})
        times = {release.name: release.times for release in shorter.releases}
        if all(one.times <= times.get(one.name, 0) for one in longer.releases):
            continue
        served += 1
        longer.mechanisms = shorter.mechanisms
        with contextlib.suppress(BudgetExhausted):
            longer.iterates()
            early = candidate.solver.may_stop_early and longer.mechanisms.shortfall()
            require(early, f"{on.title} makes {more} steps on the releases of {few}")
    if not served:
        raise NotApplicable("no more is declared for a longer run")


def no_iterations_return_the_start(candidate: Candidate) -> None:
    """Check that a run without iterations publishes nothing and returns its start."""
    _require_length(candidate)
    for on in candidate.first():
        run, title = on.run({"n_iter": 0}), on.title
        if least := vars(run.solver)["n_iter"]:
            raise NotApplicable(f"it makes at least {least} iterations")
        ends = run.iterates()
        times = {release.name: release.times for release in run.releases}
        require(
            not any(times.values()),
            f"{title} declares {times} for no iterations; declare min(1, self.n_iter) "
            "uses, or name no_iterations_return_the_start in `exempt` with a reason",
        )
        require(len(ends) == 1, f"{title} yields {len(ends)} iterates for no iteration")
        still = np.array_equal(ends[0], on.problem.start(len(ends[0])))
        require(still, f"{title} does not start at zero")


def _require_length(candidate: Candidate) -> None:
    if "n_iter" not in candidate.parameters:
        raise NotApplicable("it has no parameter n_iter")


def without_noise_nothing_is_drawn(candidate: Candidate) -> None:
    """Check that at epsilon = inf no noise is drawn and all iterates are finite."""
    for on in candidate.first():
        solvers = [candidate.build(on.variant)]
        quiet = run_at(on.problem, solvers, z=0.0).iterates()
        require(np.isfinite(quiet).all(), f"{on.title} without noise is not finite")
        run = run_at(on.problem, solvers, z=0.0)
        with contextlib.ExitStack() as stack:
            for kind in {type(release) for release in run.releases}:
                stack.enter_context(patch.object(kind, "draw", _draw_nothing))
            same = np.array_equal(quiet, run.iterates())
        require(same, f"{on.title} does not repeat at epsilon = inf")


def _draw_nothing(*_: Any) -> None:
    require(False, "noise is drawn at epsilon = inf")


def the_noise_is_recounted(candidate: Candidate) -> None:
    """Check that the noise and the number of uses in a run are the certified ones.

    In runs with uncompiled steps the noise is recovered from the answers; what the
    mechanisms report about themselves is not trusted. The winner of a noisy selection
    is evidence only if the noise does not dominate the scores, so there is another run
    with little noise.
    """
    served = 0
    for number, on in enumerate(candidate.first()):
        for place, adjacency in enumerate(Adjacency):
            # Later variants run uncompiled under one adjacency, compiled under the
            # other.
            for ahead in (True, False) if number < 2 else ((number + place) % 2 == 0,):
                try:
                    run = on.run_within_budget(Budget(BUDGET, DELTA, adjacency))
                except Unsupported:
                    continue
                run.mechanisms.ahead = ahead
                watch_runs(run.mechanisms)
                heard = None if ahead else listen_to_run(run.mechanisms)
                run.iterates()
                try:
                    counted = recount(run.mechanisms, run.calibration, witnesses=heard)
                except NoTwin as reason:
                    raise NotApplicable(str(reason)) from None
                lack = counted.complaint(
                    run.calibration, candidate.solver.may_stop_early
                )
                require(not lack, f"{on.title}, {adjacency.value}: {lack}")
                served += 1
        quiet = on.run(z=LITTLE)
        winners = listen_to_run(quiet.mechanisms)
        quiet.iterates()
        for name, witness in winners.items():
            title = f"{on.title}: release {name} has other noise than its own"
            require(witness.is_as_loud(LITTLE), title)
    if not served:
        raise NotApplicable(f"it serves no problem of the check at epsilon={BUDGET:g}")
