"""The interface of solvers, and functions that declare their hyper-parameters."""

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
    """Return a dataclass field for a parameter that all trials of a batch share.

    The ``limits`` are ``choices`` (allowed values) and ``words`` (strings allowed
    besides numbers). For numbers they are ``least`` and ``most`` (smallest and largest
    value), and ``above`` (an exclusive lower bound). ``later=True`` marks a parameter
    that was added after results had been published. It is part of the identity of a
    trial only if it differs from its default. Its default must therefore give the same
    results as the algorithm without the parameter.
    """
    metadata = {"kind": "shape", "help": help, **limits}
    return dataclasses.field(default=default, metadata=metadata)


def value(default: Any, *, help: str, **limits: Any) -> Any:
    """Return a dataclass field for a parameter that may differ between trials.

    A batch stacks the values of its trials into an array of shape (B, 1).
    """
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
    """A theoretical bound on how close a run at epsilon = inf comes to the minimum.

    Attributes
    ----------
    solver : Solver
        The solver with the parameters to which the bound applies, including the length
        of the run.
    gap : float
        The largest allowed value of F(w) / min F - 1 at the end.
    slope : float or None
        The largest allowed slope of log(gap) against log(iterations) over the last
        decades of the run. For example, it is -1 if the theory says 1 / t. It is None
        if no slope is stated.
    trials : int
        The number of draws of the public randomness over which the gap is averaged.
    """

    solver: "Solver"
    gap: float
    slope: float | None = None
    trials: int = 1


@dataclass(frozen=True)
class Solver(ABC):
    """An algorithm with its hyper-parameters.

    A solver declares its releases. Their noise is calibrated elsewhere, and the solver
    then runs with the resulting mechanisms. It never sees a budget or a noise scale.
    Each field made by :func:`value` contains one number. For a batch of B trials,
    ``runs.stack_solvers`` replaces this number by an array of shape (B, 1).

    Attributes
    ----------
    serves : type
        The class of problems on which the solver runs.
    batchable : bool
        Whether several trials may run as one batch; if False, B = 1.
    constrained : bool
        Whether the iterates always satisfy the problem's constraint.
    any_penalty : bool
        Whether the solver supports every penalty with a value and a prox. If False, it
        supports separable penalties only.
    smooth_losses : bool
        Whether the solver needs a loss with a finite smoothness constant > 0.
    linear_losses : bool
        Whether the solver also accepts a loss with a smoothness constant of 0.
    convex_losses : bool
        Whether the privacy proof needs a convex loss.
    uses_smoothness : bool
        Whether the step sizes depend on the problem's smoothness constants.
    calibrations : tuple of str
        The choices of conf/calibration that the solver supports.
    uncharged : mapping
        Maps the name of each value that the solver publishes through `uncharged` to the
        reason for doing so. No budget pays for these values.
    exempt : mapping
        Maps each check of ``dp-erm-bench check`` that does not apply to the solver to
        the reason for this.
    may_stop_early : bool
        Whether a run may use its mechanisms less often than declared, if the decision
        depends only on their answers. ``dp-erm-bench check`` tests this by a replay. If
        False, such a run is an error, because it is not the run that was certified.
    worst_cases : tuple of mapping
        Parameter settings that leak most, for the statistical audit.
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
        "auto",
        choices=KINDS,
        help="source of the smoothness constants; public: the declared bounds; data: "
        "the records, which no budget covers; private: a noisy release; auto: public "
        "if bounds are declared, else data",
    )
    smoothness_bounds: str = shape(
        "auto",
        choices=SOURCES,
        help="bounds that smoothness=private uses: the declared ones, or the largest "
        "entries of the data, which no budget covers; auto: the declared ones if there "
        "are any",
    )

    def __post_init__(self) -> None:
        """Raise UsageError if a parameter has a wrong type or is out of range."""
        for field in dataclasses.fields(self):
            _check_parameter(field, getattr(self, field.name))

    @property
    def printed_constant(self) -> str | None:
        """Return the name of the paper's constant for the noise, or None."""
        return None

    @property
    def unbounded_reason(self) -> str:
        """Return the reason why a sensitivity is infinite, or an empty string.

        Only reasons that lie in the solver's parameters count.
        """
        return ""

    @property
    def clips(self) -> bool:
        """Return whether the gradient of each record is clipped."""
        return getattr(self, "clip", None) is not None

    def refusal(self, problem: Problem) -> str | None:
        """Return the reason why the solver cannot run on a problem, or None if it can.

        A solver runs on problems of the class ``serves``, with losses that have kernels
        and with constraints that the solver supports. Classes are compared by their
        ``kind``, because the file of a class may be loaded twice.
        """
        name = type(self).__name__
        if problem.kind != self.serves.kind:
            return f"{name} is for {self.serves.kind} only, not for {problem.kind}"
        if self.smoothness == "private" and not self.uses_smoothness:
            return (
                f"smoothness=private: {name} uses no smoothness constants, so this "
                "setting would waste a part of the budget"
            )
        reason = objective_refusal(self, problem) if isinstance(problem, ERM) else None
        return reason or self.unsupported_reason(problem)

    def unsupported_reason(self, problem: Any) -> str | None:
        """Return the reason why a parameter or penalty rules out a problem, or None.

        Subclasses override this method.
        """
        return None

    def printed_form(self) -> "Solver":
        """Return the variant of the algorithm to which the paper's constant applies."""
        return self

    @classmethod
    def limits(cls, problem: Any, curvature: float) -> Iterator[Limit]:
        """Yield bounds on the result of runs without noise, for the tests to verify.

        Parameters
        ----------
        problem : ERM
            A small, well-conditioned problem with known smoothness constants.
        curvature : float
            Modulus of strong convexity at the minimum; 0 if there is none.
        """
        yield from ()

    @abstractmethod
    def iterations(self, problem: Any) -> int:
        """Return the number of iterations."""

    @abstractmethod
    def passes_at(self, problem: Any, iteration: int) -> float:
        """Return the work up to an iteration, in units of n record gradients.

        The work is 0 at iteration 0. Work that is done once, before the first step, is
        counted from iteration 1 on.
        """

    def step_work(self, problem: Any) -> StepWork:
        """Return the work of an average iteration, by default based on `passes_at`."""
        return usual_step(self, problem)

    def plan(self, problem: Any, identities: Sequence[str]) -> Any:
        """Return the public schedule: random choices that are made without the data.

        Samples and orders that must stay secret are drawn by mechanisms.
        """
        return None

    @abstractmethod
    def releases(self, problem: Any, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the declared releases with their sensitivities.

        Parameters
        ----------
        problem : Problem
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`.
        """

    @abstractmethod
    def iterates(
        self, oracle: Any, mechanisms: Mechanisms, checkpoints: Counts, schedule: Any
    ) -> Iterator[Array]:
        """Yield the iterates, shape (B, p), at each checkpoint.

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


def objective_refusal(solver: Solver, problem: ERM) -> str | None:
    """Return the reason why a solver cannot run on an objective, or None if it can."""
    reason = next(_loss_refusals(solver, problem), None)
    if reason:
        return reason
    name, constraint = type(solver).__name__, problem.constraint
    if not (solver.any_penalty or isinstance(problem.penalty, SeparablePenalty)):
        return inseparable_sentence(problem.penalty)
    if constraint.bounded and not solver.constrained:
        return (
            f"constraint={constraint.name}: {name} does not keep its iterates in this "
            "set; use constraint=none or algorithm=gd"
        )
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
            "because its steps would have length 0 otherwise; use a smoothed loss"
        )
    if solver.convex_losses and not loss.convex:
        yield (
            f"loss={loss.name} is not convex: the privacy of {name} is proved for "
            "convex losses only; use gd or sgd"
        )
    if loss.smoothness == 0.0 and not _is_held(problem):
        yield (
            f"loss={loss.name} has no minimum without a ridge or a bounded set; use "
            "penalty=l2 or a constraint"
        )


def _is_held(problem: ERM) -> bool:
    """Return whether the problem has a minimum although its loss is linear.

    A ridge or a bounded domain ensures this.
    """
    box = problem.penalty.largest_margin(np.ones(problem.p), 1.0)
    ridge = problem.penalty.strong_convexity > 0.0
    return ridge or problem.constraint.bounded or bool(np.isfinite(box))
