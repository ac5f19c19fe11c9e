"""Run a solver on a batch of trials, from the declaration of releases to the results.

The steps are: declare, publish constants, calibrate, make mechanisms, iterate and
record. Only this module defines their order. A sweep, a single fit, the warm-up, the
checks of `dp-erm-bench check` and the statistical audit all use a `Run`. Options of a
`Run` allow callers to listen to the mechanisms or to fix the noise.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import (
    Calibration,
    budget_left,
    calibrate,
    label_without_twins,
    shared_mechanisms,
    with_shares,
)
from dp_erm_bench.accounting.repeated import LIU_TALWAR, calibrated_prefix, printed_runs
from dp_erm_bench.errors import NotUsed, Unsupported
from dp_erm_bench.problems.base import BaseOracle, Problem
from dp_erm_bench.releases.base import Mechanisms, Release, make_mechanisms
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelectMechanism
from dp_erm_bench.releases.smoothness import smoothness_releases, with_constants
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.bounds import refuse_unbounded
from dp_erm_bench.solvers.private import UnchargedUses, publish_by_declaration
from dp_erm_bench.solvers.runs import (
    Prefixed,
    checkpoints_of,
    stack_solvers,
    variants_of,
)

Array = NDArray[np.float64]


@dataclass
class Recorder:
    """The trajectories of a batch of B trials: one row per checkpoint, of shape (B,).

    Measures are nan for iterates that are not finite. ``finite`` marks the trials whose
    iterates were all finite.
    """

    oracle: BaseOracle
    solver: Solver
    iteration: list[int] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    objective: list[Array] = field(default_factory=list)
    nnz: list[NDArray[np.int64]] = field(default_factory=list)
    measures: dict[str, list[Array]] = field(default_factory=dict)
    w: Array = field(default_factory=lambda: np.empty(0))
    finite: NDArray[np.bool_] = field(default_factory=lambda: np.ones(1, np.bool_))

    def add(self, iteration: int, seconds: float, w: Array) -> None:
        """Record the iterates at one checkpoint and measure them.

        Parameters
        ----------
        iteration : int
            Number of the iteration.
        seconds : float
            Time since the start, per trial.
        w : array of shape (B, p)
            The iterates.
        """
        problem = self.oracle.problem
        finite = np.isfinite(w).all(axis=1)
        self.finite = self.finite & finite
        self.iteration.append(iteration)
        self.passes.append(self.solver.passes_at(problem, iteration))
        self.seconds.append(seconds)
        self.objective.append(np.where(finite, self.oracle.objective(w), np.nan))
        self.nnz.append(np.count_nonzero(w, axis=1))
        for name, values in (problem.measures(w) | self.oracle.told).items():
            measured = np.where(finite, values, np.nan)
            self.measures.setdefault(name, []).append(measured)
        self.w = w.copy()

    @property
    def has_diverged(self) -> bool:
        """Return whether each trial has an iterate or objective that is not finite."""
        return not (self.finite & np.isfinite(self.objective[-1])).any()

    def finish_rows(self) -> None:
        """Record the measures of the last checkpoint; earlier checkpoints get nan."""
        for name, values in self.oracle.problem.last_measures(self.w).items():
            before = [np.nan * values] * (len(self.iteration) - 1)
            self.measures[name] = [*before, np.where(self.finite, values, np.nan)]


@dataclass(eq=False)
class Run:
    """A batch of trials that differ only in value parameters and random streams.

    Private smoothness constants are released before the solver can declare its
    releases. With such constants, ``mechanisms`` contains only their release until
    ``declare`` is called, at the first iterate.

    Parameters
    ----------
    problem : Problem
        The problem. After ``declare`` it has the smoothness constants that are used.
    solvers : sequence of Solver
        The solver of each trial, with equal shape parameters.
    budget : Budget
        The privacy budget of each trial.
    noise : str or float
        A name of conf/calibration, or a noise multiplier z = scale / sensitivity, where
        0 means no noise. With a multiplier nothing is proved, sensitivities may be
        infinite, and smoothness=auto uses the problem's own constants.
    identities : sequence of str
        The identity of each trial, which seeds its streams.
    checkpoints : sequence of int, optional
        Iterations whose iterates are recorded; all by default.
    ahead : bool
        Whether compiled steps may draw noise ahead of its use.
    streams : sequence of str, optional
        Identities of the mechanisms, if they differ from those of the schedule.
    listen : callable, optional
        Hook for an auditor, which is called with mechanisms as soon as they are made.
    uses : UnchargedUses, optional
        Hook for an auditor, for the values that the solver publishes by `uncharged`.

    Attributes
    ----------
    solver : Solver
        The solver of the batch, in which value fields are arrays over trials.
    shares : tuple of Release
        The releases that take a fixed share of the budget.
    mechanisms : Mechanisms
        All mechanisms of the run.
    schedule : object
        The solver's plan, drawn without the data. For a `Prefixed` solver, the schedule
        is cut where the budget is spent.
    releases : tuple of Release
        The releases that the solver declares.
    calibration : Calibration
        The noise and the certified epsilon, including the shares.
    rows : Recorder
        The trajectories and the last iterates, after ``record``.

    Raises
    ------
    Unsupported
        On construction or in ``declare``, if the algorithm cannot solve the problem
        with these settings.
    """

    problem: Problem
    solvers: Sequence[Solver]
    budget: Budget
    noise: str | float = "certified"
    identities: Sequence[str] = ("0",)
    checkpoints: Sequence[int] | None = None
    ahead: bool = True
    streams: Sequence[str] = ()
    listen: Callable[[Mechanisms], None] = lambda mechanisms: None
    uses: UnchargedUses | None = None
    schedule: Any = field(default=None, init=False)
    releases: tuple[Release, ...] = field(default=(), init=False)
    calibration: Calibration = field(init=False)
    rows: Recorder = field(init=False)

    def __post_init__(self) -> None:
        """Make mechanisms for private constants; without any, call ``declare``."""
        if isinstance(self.noise, str):
            self.solvers = variants_of(self.solvers, self.noise)
        self.solver = stack_solvers(self.solvers)
        self.uses = self.uses or UnchargedUses(self.solver.uncharged)
        self.budget = self.budget.resolve_delta(self.problem.n)
        self.streams = self.streams or self.identities
        self._constants = (self.solver.smoothness, self.solver.smoothness_bounds)
        public = (*self._constants, self.budget.adjacency)
        self.shares = smoothness_releases(self.problem, *public)
        self.mechanisms = shared_mechanisms(self.shares, self.budget, self.streams)
        self.mechanisms.ahead = self.ahead
        self.listen(self.mechanisms)
        self._declared = False
        if not self.shares:
            self.declare()

    def declare(self) -> Run:
        """Publish constants, calibrate the declared releases, make their mechanisms.

        The result is the run itself. Only the first call has an effect.
        """
        if self._declared:
            return self
        self._declared = True
        if isinstance(self.noise, str) or self.solver.smoothness != "auto":
            release = (*self._constants, self.mechanisms)
            self.problem = with_constants(self.problem, *release)
        if reason := self.solvers[0].refusal(self.problem):
            raise Unsupported(reason)
        self.schedule = self.solver.plan(self.problem, self.identities)
        self.releases = tuple(self._declared_releases(self.schedule))
        self.calibration = self._calibrate_noise()
        mechanisms = make_mechanisms(self.releases, self.calibration.z, self.streams)
        for mechanism in mechanisms.values():
            if isinstance(mechanism, RepeatAndSelectMechanism):
                mechanism.afresh = self._begin_run
        self.mechanisms.include(mechanisms)
        self.listen(mechanisms)
        return self

    def _declared_releases(self, schedule: Any) -> Iterator[Release]:
        return self.solver.releases(self.problem, self.budget.adjacency, schedule)

    def _calibrate_noise(self) -> Calibration:
        if not isinstance(self.noise, str):
            return Calibration(self.noise, self.budget, "none", math.inf, "given")
        if math.isfinite(self.budget.epsilon):
            refuse_unbounded(self.solver, self.releases, self.problem)
        rest = budget_left(self.budget, self.shares)
        if isinstance(self.solver, Prefixed):
            own = self._cut_schedule(self.solver, rest, self.noise)
        elif self.noise == "paper" and self.solver.printed_constant == LIU_TALWAR:
            self.releases, own = printed_runs(self.releases, rest)
        else:
            laws = tuple(release.law() for release in self.releases)
            own = calibrate(laws, rest, self.noise, self.solver.printed_constant)
        return label_without_twins(
            with_shares(own, self.budget, self.shares), self.releases
        )

    def _cut_schedule(self, solver: Prefixed, budget: Budget, mode: str) -> Calibration:
        """Cut the schedule where the budget is spent, and return the calibration."""

        def laws(count: int) -> tuple[Law, ...]:
            released = self._declared_releases(solver.prefix(self.schedule, count))
            return tuple(release.law() for release in released)

        costs, z = solver.costs(self.problem, self.schedule), solver.multiplier
        count, own = calibrated_prefix(
            laws, costs, z, budget, mode, solver.printed_constant
        )
        self.schedule = solver.prefix(self.schedule, count)
        self.solver = solver.follow_schedule(self.schedule)
        self.releases = tuple(self._declared_releases(self.schedule))
        return own

    def steps(self, oracle: BaseOracle, checkpoints: Sequence[int]) -> Iterator[Array]:
        """Yield the iterates at checkpoints, shape (B, p); later steps may modify them.

        The mechanisms allow one run of the solver only. At its end they check how often
        they were used.
        """
        mechanisms, schedule = self.mechanisms, self.schedule
        iterates = self.solver.iterates(oracle, mechanisms, checkpoints, schedule)
        w = np.zeros(0)
        assert self.uses is not None
        while True:
            with publish_by_declaration(self.uses):
                following = next(iterates, None)
            if following is None:
                break
            yield (w := following)
        mechanisms.finish(self.solver.may_stop_early or not np.isfinite(w).all())

    def oracle(self) -> BaseOracle:
        """Return a new oracle of the problem for the batch."""
        batch, clipped = self.mechanisms.batch, self.solver.clips
        return self.declare().problem.oracle(batch, clipped=clipped)

    def _begin_run(self) -> tuple[BaseOracle, Any]:
        """Return a new oracle and schedule, for one of several repeated runs."""
        batch, clipped = self.mechanisms.batch, self.solver.clips
        oracle = copy.copy(self.problem).oracle(batch, clipped=clipped)
        return oracle, copy.deepcopy(self.schedule)

    def iterates(self) -> list[Array]:
        """Return copies of the iterates at the checkpoints, each of shape (B, p)."""
        oracle = self.oracle()
        if self.checkpoints is None:
            self.checkpoints = range(self.solver.iterations(self.problem) + 1)
        return [w.copy() for w in self.steps(oracle, self.checkpoints)]

    def record(self, n_checkpoints: int) -> Run:
        """Run the batch, record at most ``n_checkpoints`` rows, and return the run."""
        problem = self.declare().problem  # the solver may need its constants
        iterations = self.solver.iterations(problem)
        for _ in self.record_stepwise(checkpoints_of(iterations, n_checkpoints)):
            pass
        self.rows.finish_rows()
        return self

    def record_stepwise(self, checkpoints: Sequence[int]) -> Iterator[Recorder]:
        """Run the batch, and yield ``rows`` after each recorded checkpoint.

        Raises
        ------
        NotUsed
            If a mechanism was used less often than declared, although the run reached
            its last iteration and at least one trial did not diverge.
        """
        oracle = self.oracle()
        self.rows = Recorder(oracle, self.solver)
        elapsed, start = 0.0, time.perf_counter()
        steps = self.steps(oracle, checkpoints)
        with np.errstate(over="ignore", invalid="ignore"):
            for checkpoint, w in zip(checkpoints, steps, strict=True):
                elapsed += time.perf_counter() - start
                self.rows.add(checkpoint, elapsed / oracle.batch, w)
                yield self.rows
                start = time.perf_counter()
        ended = checkpoints[-1] == self.solver.iterations(self.problem)
        if ended and not (self.solver.may_stop_early or self.rows.has_diverged):
            if lacking := self.mechanisms.shortfall():
                raise NotUsed(lacking)
