"""Base classes of algorithms that advance step by step."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dp_erm_bench.errors import Unsupported
from dp_erm_bench.solvers.base import Array, Counts, Releases, Solver, shape, value
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork, full_gradient

Step = Callable[[int], None]


def stack_solvers(solvers: Sequence[Solver]) -> Solver:
    """Return one solver for a batch: value fields become arrays of shape (B, 1)."""
    stacked = copy.copy(solvers[0])
    for field in dataclasses.fields(stacked):
        values = [getattr(solver, field.name) for solver in solvers]
        if field.metadata["kind"] == "value" and values[0] is not None:
            column = np.array(values, dtype=np.float64)[:, None]
            object.__setattr__(stacked, field.name, column)
    return stacked


def variants_of(solvers: Sequence[Solver], calibration: str) -> Sequence[Solver]:
    """Return the solvers, in the form of their papers if the calibration is ``paper``.

    Raises
    ------
    Unsupported
        If the algorithm does not support the calibration.
    """
    allowed = solvers[0].calibrations
    if calibration not in allowed:
        name = type(solvers[0]).__name__
        raise Unsupported(
            f"calibration={calibration}: must be {' or '.join(allowed)} for {name}"
        )
    if calibration == "paper":
        return [solver.printed_form() for solver in solvers]
    return solvers


def checkpoints_of(iterations: int, count: int) -> list[int]:
    """Return at most ``count`` evenly spaced iteration numbers, including both ends."""
    grid = np.linspace(0, iterations, min(max(count, 2), iterations + 1))
    return sorted({round(point) for point in grid.tolist()})


def steps_between(checkpoints: Counts) -> Iterator[int]:
    """Yield the number of iterations from each checkpoint to the next."""
    for before, after in zip(checkpoints[:-1], checkpoints[1:], strict=True):
        yield after - before


def clip_field(
    what: str = "clipping threshold for the norm of a record's gradient",
) -> Any:
    """Return a dataclass field for a clipping threshold."""
    return value(
        None, above=0.0, help=f"{what}; null: no clipping, which needs declared bounds"
    )


def mean_field(**how: Any) -> Any:
    """Return a dataclass field for the post-processing of noisy mean gradients."""
    return shape(
        "gaussian",
        choices=("gaussian", "projection"),
        help="gaussian: use the noisy mean gradient; projection: project it on the l1 "
        "ball that contains all means of gradients with at most s nonzero entries, "
        "where s is dataset.bounds.nonzeros (p if not declared)",
        **how,
    )


class State(ABC):
    """The state of B running trials.

    Attributes
    ----------
    oracle : Oracle
        Holds the iterates, which are the output unless ``output`` is overridden.
    """

    oracle: Oracle

    @abstractmethod
    def advance(self, k: int) -> None:
        """Make k steps in each trial."""

    def output(self) -> Array:
        """Return the output after the steps so far, of shape (B, p)."""
        return self.oracle.w


class Iterative(Solver):
    """An algorithm whose runs advance step by step."""

    @abstractmethod
    def start(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> State:
        """Return the state before the first step.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`.
        """

    def iterates(
        self, oracle: Oracle, mechanisms: Mechanisms, checkpoints: Counts, schedule: Any
    ) -> Iterator[Array]:
        """Yield the outputs, shape (B, p), at the checkpoints.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        checkpoints : sequence of int
            Increasing iteration numbers at which to yield; the first is 0.
        schedule : object
            The result of `plan`.
        """
        state = self.start(oracle, mechanisms, schedule)
        yield state.output()
        for k in steps_between(checkpoints):
            state.advance(k)
            yield state.output()


@dataclass(frozen=True)
class FullBatch(Solver):
    """An algorithm whose T steps each read all records and satisfy the constraint."""

    constrained: ClassVar[bool] = True

    n_iter: int = shape(20, least=0, help="T, the number of steps")

    @property
    def averages(self) -> bool:
        """Return whether the output is the mean of the iterates after the start."""
        return False

    def iterations(self, problem: ERM) -> int:
        """Return T, the number of steps."""
        return self.n_iter

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the number of passes over the records, one per step."""
        return float(iteration)

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a step along one coordinate, which changes all margins."""
        p, done = problem.p, StepWork(calls=1.0, draws=problem.p)
        if problem.by_moments(self.clips):
            return done._replace(features=2 * p)
        return done._replace(products=problem.entries, rows=problem.n, features=p)

    @abstractmethod
    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the function that makes step t = 0, 1, ... in each trial."""

    def iterates(
        self, oracle: Oracle, mechanisms: Mechanisms, checkpoints: Counts, schedule: Any
    ) -> Iterator[Array]:
        """Yield the iterates, or their means, at the checkpoints.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        checkpoints : sequence of int
            Increasing iteration numbers at which to yield; the first is 0.
        schedule : object
            The result of `plan`.
        """
        step, mean, done = self.stepper(oracle, mechanisms), oracle.w.copy(), 0
        yield oracle.w
        for k in steps_between(checkpoints):
            for t in range(done, done + k):
                step(t)
                if self.averages:
                    mean += (oracle.w - mean) / (t + 1)
            done += k
            yield mean if self.averages else oracle.w


@dataclass(frozen=True)
class FullGradient(FullBatch):
    """An algorithm whose steps use the noisy sum of all clipped gradients."""

    output: str = shape(
        "last",
        choices=("last", "average"),
        help="last: return the last iterate; average: return the mean of all iterates "
        "after the start",
    )
    clip: float | None = clip_field()

    @property
    def averages(self) -> bool:
        """Return whether the output is the mean of the iterates after the start."""
        return self.output == "average"

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the release of one noisy gradient sum per step.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        yield Gaussian("gradient", change, self.n_iter)

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a full gradient, its noise and a prox."""
        p, gradient = problem.p, full_gradient(problem, self.clips)
        return gradient._replace(calls=1.0, draws=p, features=3 * p)

    def noisy_mean(self, oracle: Oracle, mechanisms: Mechanisms) -> Array:
        """Publish and return the noisy mean gradient at the iterates, shape (B, p)."""
        bound = norm_bound(oracle.problem, self.clip)
        total = oracle.clipped_sum(np.broadcast_to(bound, (oracle.batch, 1)))
        noisy: Array = mechanisms["gradient"](total) / oracle.problem.n
        return noisy


def multiplier_field(where: str = "") -> Any:
    """Return a dataclass field for a noise multiplier independent of the budget."""
    what = f"{where}z, the noise scale of each release divided by its sensitivity"
    return shape(10.0, above=0.0, help=what)


class Prefixed(Iterative):
    """An algorithm with fixed noise, in which the budget limits the number of steps.

    The schedule is drawn for ``n_iter`` steps, without the data. A run makes the first
    steps of the schedule, as many as the budget pays for. Subclasses define the fields
    ``n_iter`` and ``multiplier``.

    Attributes
    ----------
    drawn : object
        The schedule to follow; None until the budget is known.
    """

    batchable: ClassVar[bool] = False
    drawn: ClassVar[Any] = None

    n_iter: int
    multiplier: float

    @abstractmethod
    def prefix(self, schedule: Any, steps: int) -> Any:
        """Return the schedule of the first ``steps`` steps."""

    @abstractmethod
    def costs(self, problem: Any, schedule: Any) -> Array:
        """Return the part of the budget that the paper charges for each step.

        The result has the shape (T,).
        """

    def follow_schedule(self, schedule: Any) -> Self:
        """Return a copy of the solver that makes all steps of a given schedule."""
        follower = copy.copy(self)
        object.__setattr__(follower, "drawn", schedule)
        return follower
