"""Base classes of methods that publish one answer or solve a problem accurately."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.errors import NotSolved
from dp_erm_bench.penalties.structured import norm_part
from dp_erm_bench.problems.erm.optimum.steps import Minimiser
from dp_erm_bench.problems.erm.perturbed import minimise_perturbed
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.solvers.base import Array, Counts, Limit, Solver, shape
from dp_erm_bench.solvers.bounds import convexity_refusal, projection_refusal
from dp_erm_bench.solvers.private import private_call, uncharged
from dp_erm_bench.solvers.terms import ERM, Gaussian, Mechanisms
from dp_erm_bench.solvers.work import StepWork, full_gradient

LAWS: dict[str, type[Gaussian] | type[NormLaplace]] = {
    "gaussian": Gaussian,
    "gamma": NormLaplace,
}


NEWTON, PROXIMAL = 8, 400
"""Measured numbers of Newton and of proximal steps that a typical problem needs."""

HESSIAN, CONJUGATE = 0.2, 8.0
"""Numbers of products with the features.

The first is per column of a Hessian. The second is per linear system that is solved
without a Hessian.
"""


def noise_field() -> Any:
    """Return a dataclass field for the distribution of the noise on a vector."""
    words = "distribution of the noise; gamma has a density proportional to "
    words += "exp(-norm2 / scale), and gives privacy with delta = 0"
    return shape("gaussian", choices=tuple(LAWS), help=words)


def tolerance_field(default: float) -> Any:
    """Return a dataclass field for the accepted distance to the exact minimiser."""
    most = "largest accepted distance between the computed and the exact minimiser"
    return shape(default, above=0.0, help=most)


def postprocess_field() -> Any:
    """Return a dataclass field for the post-processing of a noisy answer."""
    return shape(
        "none",
        choices=("none", "prox"),
        later=True,
        help="prox: apply the proximal operator of the penalty's norm to the noisy "
        "point, without reading data; no effect if the penalty has no norm",
    )


@dataclass(frozen=True)
class SingleAnswer(Solver):
    """A method that publishes one vector, at the end of a run.

    The trajectory of a run has two rows: the start and the answer.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, JMLR 2011, for the idea.
    """

    batchable: ClassVar[bool] = False
    constrained: ClassVar[bool] = True
    convex_losses: ClassVar[bool] = True
    uses_smoothness: ClassVar[bool] = False

    def iterations(self, problem: Any) -> int:
        """Return 1, because the only iteration computes the answer."""
        return 1

    def passes_at(self, problem: Any, iteration: int) -> float:
        """Return the number of answers; each counts as one pass."""
        return float(iteration)

    def iterates(
        self, oracle: Any, mechanisms: Mechanisms, checkpoints: Counts, schedule: Any
    ) -> Iterator[Array]:
        """Yield the start and the answer.

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
        yield oracle.w
        for _ in checkpoints[1:]:
            yield self.answer(oracle, mechanisms, schedule)

    @abstractmethod
    def answer(self, oracle: Any, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the published vectors, of shape (B, p).

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`.
        """


@dataclass(frozen=True)
class StronglyConvex(Solver):
    """A method that solves strongly convex problems to a verified tolerance.

    Intermediate iterates are not published. The distance of a solution to the exact
    minimiser is verified. If this distance exceeds the tolerance, the run ends with an
    error and without an answer.
    """

    batchable: ClassVar[bool] = False
    constrained: ClassVar[bool] = True
    uses_smoothness: ClassVar[bool] = False
    uncharged: ClassVar[Mapping[str, str]] = {
        "solved": "a run ends with an error if its minimiser cannot be verified"
    }

    ridge: float = shape(
        0.0, least=0, help="strength of an l2 penalty that is added to the objective"
    )

    def modulus(self, problem: ERM) -> float:
        """Return the modulus of strong convexity of the penalty plus the ridge."""
        return problem.penalty.strong_convexity + self.ridge

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of one solution, by Newton or proximal steps."""
        n, p, entries = problem.n, problem.p, problem.entries
        if problem.constraint.bounded or not problem.penalty.quadratic:
            done = full_gradient(problem, True)._replace(calls=2.0, features=3 * p)
            return done.times(PROXIMAL)
        # The Hessian, or conjugate gradients in its place.
        system = HESSIAN * min(n, p) if entries == n * p else CONJUGATE
        step = StepWork(calls=10.0, products=(2.0 + system) * entries, rows=10 * n)
        return step.times(NEWTON)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused, or None.

        A problem is refused if it is not strongly convex, or if its prox and projection
        cannot be combined.
        """
        name, penalty = type(self).__name__, problem.penalty
        if self.modulus(problem) <= 0.0:
            own = ", set penalty.l2" if hasattr(penalty, "l2") else ""
            return (
                f"{name} needs strong convexity, but penalty={penalty.name} has none; "
                f"use penalty l2 or elastic_net{own}, or set the parameter ridge"
            )
        return projection_refusal(problem, name)

    def minimiser(
        self,
        problem: ERM,
        linear: Array,
        tolerance: float,
        start: Array | None = None,
    ) -> Array:
        """Return the minimiser of F + (ridge/2) norm2^2 + linear.w, shape (1, p).

        Parameters
        ----------
        problem : ERM
            The objective F and its records.
        linear : array of shape (p,) or (1, p)
            The linear term.
        tolerance : float
            Largest accepted distance to the exact minimiser.
        start : array of shape (p,), optional
            Starting point of the search; None means zero.

        Raises
        ------
        NotSolved
            If the point cannot be verified to be within the tolerance.
        """
        how = self.ridge, tolerance, start
        failed = Minimiser(np.zeros(problem.p), np.inf)
        # An overflow shows in the distance.
        with np.errstate(over="ignore", invalid="ignore"):
            near: Minimiser = private_call(
                minimise_perturbed, problem, np.ravel(linear), *how, instead=failed
            )
        if not uncharged(near.distance <= tolerance, "solved"):
            raise NotSolved(
                f"{type(self).__name__}: the computed minimiser is not verified to lie "
                f"within {tolerance:g} of the exact one; nothing is published"
            )
        return near.w[None, :]


@dataclass(frozen=True)
class OneSolve(StronglyConvex, SingleAnswer):
    """A method that solves one strongly convex problem and publishes only its solution.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, JMLR 2011, for the idea.
    """

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield the bound without noise: the answer is the minimiser."""
        yield Limit(cls(), gap=1e-9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused, or None.

        The reasons are those of the base class, and a penalty that may not be convex.
        """
        reason = super().unsupported_reason(problem)
        return reason or convexity_refusal(problem, type(self).__name__)


def norm_prox(problem: ERM, w: Array) -> Array:
    """Return the prox of kappa Omega at a point w, where Omega is the penalty's norm.

    The prox is argmin_u norm2(u - w)^2 / 2 + kappa Omega(u). If the penalty has no
    norm, the result is w.
    """
    part = norm_part(problem.penalty)
    return w if part is None else part[0].prox(w, part[1])


def nearest_feasible(problem: ERM, w: Array) -> Array:
    """Return noisy points, projected on the constraint and on the penalty's box.

    One of these two sets is the whole space, see ``bounds.projection_refusal``.
    """
    # The prox of a step of length 0 only projects on the penalty's box.
    return problem.constraint.project(problem.penalty.prox(w, 0.0))
