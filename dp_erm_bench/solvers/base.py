"""The contract of a solver, and its parameters."""

import dataclasses
import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError
from dp_erm_bench.penalties.base import SeparablePenalty, inseparable_sentence
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.problems.erm.objective import KINDS, SOURCES
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.base import Release
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms
from dp_erm_bench.solvers.work import StepWork, usual_step

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Counts = Sequence[int]
Releases = Iterator[Release]


def shape(default: Any, *, help: str, **limits: Any) -> Any:
    """Return a field that must be equal in a batch of trials.

    Limits: ``choices`` (allowed values), ``least`` (smallest), ``above``, ``most``.
    ``later=True`` marks a parameter that came after results had been published: it
    enters the identity of a trial only off its default, which must do what was done
    before.
    """
    metadata = {"kind": "shape", "help": help, **limits}
    return dataclasses.field(default=default, metadata=metadata)


def value(default: Any, *, help: str, **limits: Any) -> Any:
    """Return a field that may differ in a batch: stacked to shape (B, 1)."""
    return shape(default, help=help, kind="value", **limits)


def _check_parameter(field: "dataclasses.Field[Any]", value: Any) -> None:
    """Raise UsageError if a parameter has a wrong type or is out of range."""
    kind, limits = str(field.type), field.metadata
    optional, integer = "None" in kind, "int" in kind
    words = limits.get("words", ())
    if (value is None and optional) or (isinstance(value, str) and value in words):
        return
    if "choices" in limits:
        right = value in limits["choices"]
        allowed = f"one of {', '.join(map(str, limits['choices']))}"
    else:
        right = (
            isinstance(value, numbers.Integral if integer else numbers.Real)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and limits.get("least", -math.inf) <= value <= limits.get("most", math.inf)
            and value > limits.get("above", -math.inf)
        )
        allowed = "an integer" if integer else "a number"
        allowed += f" >= {limits['least']}" if "least" in limits else ""
        allowed += f" > {limits['above']:g}" if "above" in limits else ""
        allowed += f" and <= {limits['most']:g}" if "most" in limits else ""
        allowed = " or ".join([allowed, *words])
    if not right:
        null = " or null" if optional else ""
        raise UsageError(f"{field.name}={value}: must be {allowed}{null}")


@dataclass(frozen=True)
class Limit:
    """A statement about a run at epsilon = inf: how near it gets to the minimum.

    Attributes
    ----------
    solver : Solver
        The parameters for which it is made; the length of the run among them.
    gap : float
        Most that F(w) / min F - 1 may be at the end.
    slope : float or None
        Most that the slope of log(gap) against log(iterations) may be over the last
        decades of the run, as -1 where the theory says 1 / t; None: not stated.
    trials : int
        Over how many draws of the public randomness the gap is averaged.
    """

    solver: "Solver"
    gap: float
    slope: float | None = None
    trials: int = 1


@dataclass(frozen=True)
class Solver(ABC):
    """An algorithm with its hyper-parameters.

    A solver declares its releases, is calibrated from outside, and then runs with
    mechanisms: it never sees a budget or a noise scale. The fields made by
    :func:`value` hold one number each, or, after ``runs.stack_solvers``, arrays of
    shape (B, 1) for a batch of B trials.

    Attributes
    ----------
    serves : type
        The class of the problems that its methods take.
    batchable : bool
        False for a solver that runs with B = 1.
    constrained : bool
        Whether it keeps its iterates in the problem's constraint.
    any_penalty : bool
        Whether it serves every penalty that has a value and a prox; False: separable
        penalties only.
    smooth_losses : bool
        Whether it needs a loss with a smoothness constant that is finite and > 0.
    linear_losses : bool
        Whether a constant of 0 will do, too.
    convex_losses : bool
        Whether its privacy rests on the convexity of the loss.
    uses_smoothness : bool
        Whether its steps follow the problem's smoothness constants.
    calibrations : tuple of str
        The choices of conf/calibration that have a meaning for it.
    uncharged : mapping
        Names of the values that it publishes by `uncharged`, which no budget pays
        for, and the reason of each.
    exempt : mapping
        Checks of ``dp-erm-bench check`` that have no meaning for it, and why.
    may_stop_early : bool
        Whether a run may make fewer uses than declared, by a rule that reads nothing
        but answers. ``dp-erm-bench check`` replays whether it does; without it such a
        run is an error, as what is certified was not run.
    worst_cases : tuple of mapping
        Parameters under which it leaks most, for the statistical audit.
    """

    serves: ClassVar[type[Problem]] = ERMProblem
    batchable: ClassVar[bool] = True
    constrained: ClassVar[bool] = False
    any_penalty: ClassVar[bool] = False
    smooth_losses: ClassVar[bool] = True
    linear_losses: ClassVar[bool] = False
    convex_losses: ClassVar[bool] = False
    uses_smoothness: ClassVar[bool] = True
    calibrations: ClassVar[tuple[str, ...]] = ("certified",)
    may_stop_early: ClassVar[bool] = False
    uncharged: ClassVar[Mapping[str, str]] = {}
    exempt: ClassVar[Mapping[str, str]] = {}
    worst_cases: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    smoothness: str = shape(
        "auto", choices=KINDS, help="where the smoothness constants come from"
    )
    smoothness_bounds: str = shape(
        "auto",
        choices=SOURCES,
        help="what smoothness=private clips each record's H x_ij^2 to: declared "
        "bounds, or the data's maxima (uncharged); auto: declared where they are",
    )

    def __post_init__(self) -> None:
        """Check every parameter against its field."""
        for field in dataclasses.fields(self):
            _check_parameter(field, getattr(self, field.name))

    @property
    def printed_constant(self) -> str | None:
        """Return the name of the constant that its paper prints."""
        return None

    @property
    def unbounded_reason(self) -> str:
        """Return why its parameters leave no finite sensitivity; empty if they do."""
        return ""

    @property
    def clips(self) -> bool:
        """Return whether derivatives are clipped per record."""
        return getattr(self, "clip", None) is not None

    def refusal(self, problem: Problem) -> str | None:
        """Return the reason why a problem is refused, None if it is served.

        A solver serves problems of its class (by name: a file may be loaded again)
        with losses that kernels compute and constraints that it keeps.
        """
        name = type(self).__name__
        if problem.kind != self.serves.kind:
            return f"{name} serves {self.serves.kind} only, not {problem.kind}"
        if self.smoothness == "private" and not self.uses_smoothness:
            return (
                f"smoothness=private: {name} uses no smoothness constants, so that a "
                "part of the budget would be lost"
            )
        reason = objective_refusal(self, problem) if isinstance(problem, ERM) else None
        return reason or self.unsupported_reason(problem)

    def unsupported_reason(self, problem: Any) -> str | None:
        """Return why its parameters or the penalty rule a problem out, or None."""
        return None

    def printed_form(self) -> "Solver":
        """Return the variant of the algorithm that the printed constant is for."""
        return self

    @classmethod
    def limits(cls, problem: Any, curvature: float) -> Iterator[Limit]:
        """Yield the theory's statements on runs without noise; the tests verify them.

        Parameters
        ----------
        problem : ERM
            Small and well conditioned, its smoothness constants known.
        curvature : float
            Modulus of strong convexity at the minimum; 0 where there is none.
        """
        yield from ()

    @abstractmethod
    def iterations(self, problem: Any) -> int:
        """Return the number of iterations."""

    @abstractmethod
    def passes_at(self, problem: Any, iteration: int) -> float:
        """Return the work of some iterations in units of n record gradients.

        0 at iteration 0; what is done once, before the first step, counts from 1 on.
        """

    def step_work(self, problem: Any) -> StepWork:
        """Return what an iteration does on average, by default what passes say."""
        return usual_step(self, problem)

    def plan(self, problem: Any, identities: Sequence[str]) -> Any:
        """Return the random part of the schedule, drawn without the data."""
        return None

    @abstractmethod
    def releases(self, problem: Any, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the declared releases with their sensitivities."""

    @abstractmethod
    def iterates(
        self, oracle: Any, mechanisms: Mechanisms, checkpoints: Counts, schedule: Any
    ) -> Iterator[Array]:
        """Yield the iterates, shape (B, p), at each checkpoint (0 is the first)."""


def objective_refusal(solver: Solver, problem: ERM) -> str | None:
    """Return why a solver refuses an objective, None if it has all that it needs."""
    reason = next(_loss_refusals(solver, problem), None)
    if reason:
        return reason
    name, constraint = type(solver).__name__, problem.constraint
    if not (solver.any_penalty or isinstance(problem.penalty, SeparablePenalty)):
        return inseparable_sentence(problem.penalty)
    if constraint.bounded and not solver.constrained:
        lost = f"does not keep its iterates in constraint={constraint.name}"
        return f"{name} {lost}; use constraint=none, or gd"
    return None


def _loss_refusals(solver: Solver, problem: ERM) -> Iterator[str]:
    name, loss = type(solver).__name__, problem.loss
    if loss.reason_not_compiled:
        yield loss.reason_not_compiled
    served = solver.linear_losses and loss.smoothness == 0.0
    if solver.smooth_losses and not (loss.is_curved or served):
        lacks = "is not smooth" if loss.smoothness else "has no curvature"
        yield (
            f"loss={loss.name} {lacks}: {name} needs a finite smoothness constant > 0, "
            "as its steps would have length 0; use a smoothed loss"
        )
    if solver.convex_losses and not loss.convex:
        yield (
            f"loss={loss.name} is not convex: the privacy of {name} is proved for "
            "convex losses only; use gd or sgd"
        )
    if loss.smoothness == 0.0 and not _is_held(problem):
        yield (
            f"loss={loss.name} has no minimum without a ridge or a bounded set: use "
            "penalty=l2 or a constraint"
        )


def _is_held(problem: ERM) -> bool:
    """Return whether a linear loss has a minimum: a ridge or a bounded domain."""
    box = problem.penalty.largest_margin(np.ones(problem.p), 1.0)
    ridge = problem.penalty.strong_convexity > 0.0
    return ridge or problem.constraint.bounded or bool(np.isfinite(box))
