"""Run one solver on one problem for a batch of trials: declare, calibrate, run."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import Calibration, calibrate
from dp_erm_bench.accounting.shares import left_over, shared_mechanisms, with_shares
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.problems.erm.oracles import make_oracle
from dp_erm_bench.problems.erm.problem import Problem
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.mechanisms import Mechanisms, make_mechanisms
from dp_erm_bench.releases.smoothness import smoothness_releases, with_constants
from dp_erm_bench.solvers.base import Solver, stack
from dp_erm_bench.solvers.bounds import refuse_unbounded

Array = NDArray[np.float64]


@dataclass
class Recorder:
    """Rows of the trajectories, one per checkpoint, each of shape (B,)."""

    oracle: Oracle
    solver: Solver
    iteration: list[int] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    objective: list[Array] = field(default_factory=list)
    nnz: list[NDArray[np.int64]] = field(default_factory=list)
    test_objective: list[Array] = field(default_factory=list)
    test_accuracy: list[Array] = field(default_factory=list)
    w: Array = field(default_factory=lambda: np.empty(0))

    def add(self, iteration: int, seconds: float, w: Array) -> None:
        """Record the iterates of one checkpoint; ``seconds`` is per trial."""
        problem = self.oracle.problem
        self.iteration.append(iteration)
        self.passes.append(self.solver.passes_at(problem, iteration))
        self.seconds.append(seconds)
        self.objective.append(self.oracle.objective(w))
        self.nnz.append(np.count_nonzero(w, axis=1))
        self._test(w)
        self.w = w.copy()

    def _test(self, w: Array) -> None:
        data, loss = self.oracle.problem.dataset, self.oracle.problem.loss
        if data.X_test is None or data.y_test is None:
            return
        margins = w @ data.X_test.T
        penalty = self.oracle.problem.penalty.value(w)
        self.test_objective.append(
            loss.value(data.y_test, margins).mean(axis=1) + penalty
        )
        if loss.classification:
            right = np.where(margins >= 0.0, 1.0, -1.0) == data.y_test
            self.test_accuracy.append(right.mean(axis=1))


@dataclass(frozen=True, eq=False)
class Solved:
    """What a batch of trials came to.

    Attributes
    ----------
    problem : Problem
        With the smoothness constants that were used.
    solvers : tuple of Solver
        The variant that was run, of every trial.
    releases : tuple of Release
        Those of a share of the budget first.
    calibration : Calibration
    rows : Recorder
        The trajectories and the last iterates.
    """

    problem: Problem
    solvers: tuple[Solver, ...]
    releases: tuple[Release, ...]
    calibration: Calibration
    rows: Recorder


def checkpoints_of(iterations: int, count: int) -> list[int]:
    """Return at most ``count`` iteration numbers, evenly spread, ends included."""
    grid = np.linspace(0, iterations, max(count, 2))
    return sorted({round(point) for point in grid.tolist()})


def solve(
    problem: Problem,
    solvers: Sequence[Solver],
    budget: Budget,
    calibration: str,
    identities: Sequence[str],
    n_checkpoints: int,
) -> Solved:
    """Run a batch of trials that differ in value parameters and streams only.

    Parameters
    ----------
    problem : Problem
    solvers : sequence of Solver
        One per trial, of equal shape parameters.
    budget : Budget
    calibration : str
        A name of conf/calibration.
    identities : sequence of str
        One per trial; they seed the streams.
    n_checkpoints : int
        Rows of a trajectory at most; they never change the numbers.

    Raises
    ------
    Unsupported
        If the algorithm cannot serve the problem under this budget.
    """
    return ready(problem, solvers, budget, calibration, identities).run(n_checkpoints)


@dataclass(frozen=True, eq=False)
class Ready:
    """A batch of trials that is declared and calibrated, and has not begun.

    Attributes
    ----------
    problem, solvers, releases, calibration
        As in `Solved`.
    solver : Solver
        The batch's, its value fields stacked.
    mechanisms : Mechanisms
        Calibrated.
    schedule : object
        What the solver planned.
    """

    problem: Problem
    solvers: tuple[Solver, ...]
    releases: tuple[Release, ...]
    calibration: Calibration
    solver: Solver
    mechanisms: Mechanisms
    schedule: Any

    def run(self, n_checkpoints: int) -> Solved:
        """Run the batch; the mechanisms serve it once."""
        how = (self.problem, self.solver, self.mechanisms, self.schedule)
        return self.solved(_run(*how, n_checkpoints))

    def solved(self, rows: Recorder) -> Solved:
        """Return what the batch came to."""
        told = (self.problem, self.solvers, self.releases, self.calibration)
        return Solved(*told, rows)


def ready(
    problem: Problem,
    solvers: Sequence[Solver],
    budget: Budget,
    calibration: str,
    identities: Sequence[str],
) -> Ready:
    """Declare and calibrate a batch of trials; see `solve`."""
    solvers = _variants(solvers, calibration)
    solver, budget = stack(solvers), budget.resolved(problem.n)
    origin = (solver.smoothness, solver.smoothness_bounds)
    shares = smoothness_releases(problem, *origin, budget.adjacency)
    mechanisms = shared_mechanisms(shares, budget, identities)
    problem = with_constants(problem, *origin, mechanisms)
    reason = solvers[0].refusal(problem)
    if reason:
        raise Unsupported(reason)
    schedule = solver.plan(problem, identities)
    releases = tuple(solver.releases(problem, budget.adjacency, schedule))
    if np.isfinite(budget.epsilon):
        refuse_unbounded(solver, releases)
    events = tuple(release.event() for release in releases)
    rest = left_over(budget, shares)
    calibrated = calibrate(events, rest, calibration, solver.printed)
    mechanisms.include(make_mechanisms(releases, calibrated.z, identities))
    proved = with_shares(calibrated, budget, shares)
    told = (problem, tuple(solvers), (*shares, *releases), proved)
    return Ready(*told, solver, mechanisms, schedule)


def _variants(solvers: Sequence[Solver], calibration: str) -> Sequence[Solver]:
    """Return the variants of the algorithm that a calibration is meant for."""
    allowed = solvers[0].calibrations
    if calibration not in allowed:
        name = type(solvers[0]).__name__
        raise Unsupported(
            f"calibration={calibration}: must be {' or '.join(allowed)} for {name}"
        )
    if calibration == "paper":
        return [solver.printed_form() for solver in solvers]
    return solvers


def _run(
    problem: Problem,
    solver: Solver,
    mechanisms: Mechanisms,
    schedule: Any,
    n_checkpoints: int,
) -> Recorder:
    oracle = make_oracle(problem, mechanisms.batch, clipped=solver.clips)
    rows = Recorder(oracle, solver)
    checkpoints = checkpoints_of(solver.iterations(problem), n_checkpoints)
    iterates = solver.iterates(oracle, mechanisms, checkpoints, schedule)
    elapsed, start = 0.0, time.perf_counter()
    with np.errstate(over="ignore", invalid="ignore"):
        for checkpoint, w in zip(checkpoints, iterates, strict=True):
            elapsed += time.perf_counter() - start
            rows.add(checkpoint, elapsed / oracle.batch, w)
            start = time.perf_counter()
    mechanisms.finish()
    return rows
