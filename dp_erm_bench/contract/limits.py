"""Checks of a solver's results: its limit without noise, empty columns, the budget."""

from __future__ import annotations

import itertools

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.candidate import (
    DELTA,
    Candidate,
    NotApplicable,
    Subject,
    require,
    run_at,
)
from dp_erm_bench.contract.outside import is_foreign
from dp_erm_bench.contract.problems import (
    curved_losses,
    objectives,
    relative_excess,
    small_problem,
    well_conditioned_problem,
)
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Release
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Limit

SHRINK = (64, 16, 4, 1)
"""The slope of the gap is fitted at the iterations length / k for these k."""
EPSILON = 1.0
LOW, MANY = 0.1, 500
"""A small epsilon and a number of records for which papers' constants are valid."""


def the_limit_is_reached(candidate: Candidate) -> None:
    """Check that without noise the solver reaches the limits that its class states."""
    _require_risks(candidate)
    stated = 0
    curved = curved_losses()
    for parts in objectives(candidate.solver.constrained):
        if parts[0] not in curved:
            continue  # no rate is stated for other losses
        problem = well_conditioned_problem(*parts).with_smoothness("data")
        assert problem.optimum.w is not None
        hessian = problem.hessian(problem.optimum.w) / problem.n
        least = np.linalg.eigvalsh(hessian)[0] + problem.penalty.strong_convexity
        for limit in candidate.solver.limits(problem, float(least)):
            if limit.solver.refusal(problem) is None:
                _require_limit(limit, problem)
                stated += 1
    require(
        stated,
        f"{candidate.solver.__name__} states no limit: its classmethod `limits` "
        "yields what its theory says without noise",
    )


def _require_limit(limit: Limit, problem: ERMProblem) -> None:
    solver, length = limit.solver, limit.solver.iterations(problem)
    parts = [length // part for part in SHRINK] if limit.slope is not None else [length]
    run = run_at(
        problem,
        [solver] * limit.trials,
        z=0.0,
        identities=tuple(f"seed {k}" for k in range(limit.trials)),
        checkpoints=sorted({0, *parts}),
        ahead=True,
    )
    gaps = [float(relative_excess(problem, w).mean()) for w in run.iterates()]
    name = f"{solver} on {problem.title}"
    near = abs(gaps[-1]) <= limit.gap
    require(near, f"{name} ends at {gaps[-1]:.2g} from the minimum, not {limit.gap:g}")
    if limit.slope is not None:
        slope = float(np.polyfit(np.log(parts), np.log(gaps[1:]), 1)[0])
        require(slope <= limit.slope, f"{name} falls like t^{slope:.2f}")


def columns_of_zeros_are_harmless(candidate: Candidate) -> None:
    """Check that iterates are finite, and do not move along a column of zeros.

    Noise on whole gradients does move iterates along such a column. In this case only
    finiteness is checked.
    """
    _require_risks(candidate)
    clips = (1.0, None) if "clip" in candidate.parameters else (None,)
    for on, clip, smoothness, ahead in itertools.product(
        candidate.each(), clips, ("public", "data"), (False, True)
    ):
        bounded = clip is not None or np.isfinite(on.problem.lipschitz)
        moved = on._replace(problem=on.problem.with_smoothness(smoothness))
        z = 100.0 if bounded else 0.0
        run = moved.run({"clip": clip}, z=z, ahead=ahead)
        last = run.iterates()[-1]
        how = f"clip={clip}, smoothness={smoothness}, noise multiplier {z:g}"
        require(np.isfinite(last).all(), f"{on.title} is not finite with {how}")
        if not noise_on_vectors(run.releases):
            require(last[0, 2] == 0.0, f"{on.title} moves along a column of zeros")
            require(last.any(), f"{on.title} does not move at all")


def _require_risks(candidate: Candidate) -> None:
    if candidate.foreign:
        kind = candidate.foreign.kind
        raise NotApplicable(f"it is about features and minima, not about {kind}")


def noise_on_vectors(releases: tuple[Release, ...]) -> bool:
    """Return whether noise is added to whole gradients, including columns of zeros."""
    return any(
        release.vectors and np.atleast_2d(release.sensitivity).shape[1] == 1
        for release in releases
    )


def nothing_to_learn_moves_nothing(candidate: Candidate) -> None:
    """Check that a run stays at the start if the only column is zero."""
    on = Subject(candidate, {}, small_problem("logistic", "none", p=1, dead=0))
    if reason := on.solver().refusal(on.problem):
        raise NotApplicable(reason)
    run = on.run(z=0.0)
    moved = np.any(run.iterates())
    if moved and any(one.selects or is_foreign(one) for one in run.releases):
        raise NotApplicable("of zeros it is told another answer than 0, without noise")
    require(
        not moved,
        f"{candidate.name} moves on a problem of zeros, where all constants are 0; "
        "divide by a constant with `inverse`",
    )


def served_within_the_budget_or_refused(candidate: Candidate) -> None:
    """Check that each problem is solved within the budget, or refused with a reason."""
    served = 0
    for parts in candidate.objectives() if candidate.foreign else objectives(True):
        problem = candidate.problem(parts)
        name = f"{candidate.name} on {problem.title}"
        unkept = parts[2] != "none" and not candidate.solver.constrained
        for adjacency in Adjacency:
            budget = Budget(EPSILON, DELTA, adjacency)
            try:
                run = Run(problem, [candidate.build()], budget).record(5)
            except Unsupported as reason:
                message = str(reason)
                require(message and "\n" not in message, f"{name} refuses: {message}")
                continue
            require(not unkept, f"{name} is served, yet the class is not `constrained`")
            _complaint_of_run(run, name)
            served += 1
    require(served, f"{candidate.name} serves no problem at epsilon={EPSILON}")


def _complaint_of_run(run: Run, name: str) -> None:
    proved, w = run.calibration.epsilon_certified, run.rows.w
    require(proved <= EPSILON * (1 + 1e-9), f"{name} spends {proved:.4g} of {EPSILON}")
    require(np.isfinite(w).all(), f"{name} is not finite")
    require(run.problem.contains(w).all(), f"{name} leaves the constraint")
    passes = run.rows.passes
    told = f"{name}: passes_at counts {', '.join(f'{x:g}' for x in passes)} passes"
    require(passes[0] == 0.0, f"{told}: the first, at iteration 0, must be 0")
    require(min(np.diff(passes), default=0.0) >= 0.0, f"{told}: they must not fall")
    for release in (*run.shares, *run.releases):
        finite = np.isfinite(release.sensitivity).all() and release.times >= 0
        require(finite, f"{name}: release {release.name} has no sensitivity")


def calibrations_are_served(candidate: Candidate) -> None:
    """Check that a solver runs with exactly the calibrations that its class names."""
    problems = candidate.problems(candidate.variants[0])
    ons = [Subject(candidate, {}, problem) for problem in problems]
    for calibration in registry.names("calibration"):
        name = f"{candidate.name} with calibration={calibration}"
        reasons = [_refusal_of_calibration(on, calibration) for on in ons]
        if calibration in candidate.solver.calibrations:
            if None not in reasons and not candidate.foreign:
                # A printed constant may need many records and a small budget.
                many = small_problem(*candidate.objectives()[0], n=MANY)
                reasons.append(
                    _refusal_of_calibration(
                        ons[0]._replace(problem=many), calibration, LOW
                    )
                )
            require(None in reasons, f"{name} serves no problem: {reasons[0]}")
        else:
            require(all(reasons), f"{name} runs, yet the class does not name it")


def _refusal_of_calibration(
    on: Subject, calibration: str, epsilon: float = EPSILON
) -> str | None:
    """Return the reason why a calibration is refused; None if the solver runs."""
    try:
        on.run_within_budget(Budget(epsilon, DELTA), calibration).record(5)
    except Unsupported as reason:
        return str(reason)
    return None
