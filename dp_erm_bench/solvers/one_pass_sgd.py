"""One pass of private stochastic subgradient descent over half of the records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.kernels.coins import failures
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.single_use_gaussian import SingleUseGaussian
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.solvers.base import Array, Indices, Releases, shape, value
from dp_erm_bench.solvers.bounds import inverse, norm_bound, projection_refusal
from dp_erm_bench.solvers.mirror_descent import PNorm
from dp_erm_bench.solvers.runs import Iterative, State, clip_field
from dp_erm_bench.solvers.sampled import CHUNK, sampled_step
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork


@dataclass(frozen=True)
class OnePassSGD(Iterative):
    """One-pass noisy stochastic subgradient descent for losses that need not be smooth.

    Records are drawn with replacement until m = ceil(n / 2) different ones have been
    drawn. A step on a record that is drawn for the first time is fresh. A record that
    is drawn again is not read, and its step adds only noise:

        w <- Pi(w - eta (g + xi)),  g the clipped subgradient of a fresh record, or 0

    The output is the mean of the iterates before the m fresh steps. The fresh records
    are the first m of a uniform random order, which is secret. The number of noise
    steps between two fresh steps is geometric and does not depend on the records. So
    these numbers are drawn in advance, as a public schedule. An iteration is a fresh
    step together with the noise steps before it.

    Let subgradients have norm at most L, let s be the noise scale, R = ``radius``, and
    tau the number of steps. Then eta is ``step`` R / sqrt(m L^2 + E[tau] p s^2). At
    step = 1 the population risk satisfies E F(w) - F(u) <= (1/m) R sqrt(m L^2 + E[tau]
    p s^2) for norm2(u - w_1) <= R (online mirror descent). The paper's step size D /
    (sqrt(n) (L + s sqrt(p))) is of this order. A proximal step for the penalty follows
    each fresh step. Privacy does not need the noise steps, and ``noise_only=off`` omits
    them.

    References
    ----------
    Arora, Marinov, Ullah, "Private stochastic convex optimization: efficient algorithms
    for non-smooth objectives", 2020, Algorithm 1; ``mirror=p_norm`` is from their
    outlook, an extension without a utility claim.
    """

    batchable: ClassVar[bool] = False
    constrained: ClassVar[bool] = True
    smooth_losses: ClassVar[bool] = False
    uses_smoothness: ClassVar[bool] = False
    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")
    exempt: ClassVar[Mapping[str, str]] = {
        "the_limit_is_reached": "one pass ends far from the minimum",
        "sensitivities_are_tight": "a record is read at one iterate only, where its "
        "subgradient may be small",
        "math.isinf(bound)": "runs only at epsilon=inf, where there is no privacy "
        "guarantee",
    }

    n_iter: int | None = shape(
        None,
        least=0,
        help="largest number of fresh steps, each of which reads a new record; null: "
        "half of the number of records, rounded up",
    )
    noise_only: str = shape(
        "on",
        choices=("on", "off"),
        help="whether a record that is drawn again causes a step that only adds noise",
    )
    order: str = shape(
        "secret",
        choices=("secret", "given"),
        help="order of the records; secret: drawn at random and not published; given: "
        "that of the dataset, without privacy amplification",
    )
    mirror: str = shape(
        "euclidean",
        choices=("euclidean", "p_norm"),
        help="mirror map; p_norm is an extension, for which no error bound is proved",
    )
    power: float = value(
        1.5,
        above=1.0,
        most=2.0,
        help="with mirror=p_norm: p of the potential norm_p(w)^2 / (2 (p - 1))",
    )
    step: float = value(
        1.0,
        above=0.0,
        help="step size, divided by the step size of the proved error bound",
    )
    radius: float | None = value(
        None,
        above=0.0,
        help="R, the distance to the minimiser that the step size assumes; null: the "
        "radius of the constraint, or 1 without a constraint",
    )
    clip: float | None = clip_field(
        "clipping threshold for the norm of a record's subgradient"
    )

    @property
    def printed_constant(self) -> str:
        """Return the name of the paper's constant for the noise."""
        return "arora2020"

    def printed_form(self) -> "OnePassSGD":
        """Return the variant that the paper describes."""
        return replace(self, noise_only="on", order="secret", mirror="euclidean")

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why the mirror map does not suit a problem, or None."""
        if self.mirror == "euclidean":
            return projection_refusal(problem, "one_pass_sgd", compiled=True)
        if problem.constraint.bounded or not problem.penalty.quadratic:
            return (
                "mirror=p_norm: this mirror map needs constraint=none, and penalty "
                "none or l2"
            )
        return None

    def iterations(self, problem: ERM) -> int:
        """Return m, the number of fresh steps: at most n / 2, rounded up."""
        half = math.ceil(problem.n / 2)
        return half if self.n_iter is None else min(self.n_iter, half)

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the number of passes over the n records."""
        return iteration / problem.n

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a fresh step and of its average number of noise steps."""
        steps = self.expected_steps(problem) / max(1, self.iterations(problem))
        calls = 0.0 if self.mirror == "euclidean" else 1.0
        noise = StepWork(calls=calls, draws=problem.p, features=problem.p)
        return sampled_step(problem, 1.0).plus(noise.times(steps))

    def expected_steps(self, problem: ERM) -> float:
        """Return E tau, the expected number of steps: sum over k < m of n / (n - k)."""
        n, m = problem.n, self.iterations(problem)
        if self.noise_only == "off":
            return float(m)
        return float((n / (n - np.arange(m))).sum())

    def plan(self, problem: ERM, identities: Sequence[str]) -> Indices:
        """Return the number of noise steps before each fresh step, shape (B, m)."""
        waits = np.zeros((len(identities), self.iterations(problem)), np.int64)
        if self.noise_only == "on":
            seeds = stream_seeds(identities, "noise_only")
            for seed, row in zip(seeds, waits, strict=True):
                failures(uniforms(seed, 0, row.size), problem.n, row)
        return waits

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield one release: the noisy subgradients of a pass, with its noise steps.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : array of shape (B, m)
            The number of noise steps before each fresh step.
        """
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        m, drawn = self.iterations(problem), self.order == "secret"
        facts: Any = {"records": problem.n, "fresh": m, "drawn": drawn}
        yield SingleUseGaussian("gradient", change, m + int(schedule.sum()), **facts)

    def start(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Indices) -> State:
        """Return the state before the first step.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : array of shape (B, m)
            The number of noise steps before each fresh step.
        """
        state = OnePassState if self.mirror == "euclidean" else PNormState
        return state(oracle, mechanisms, self, schedule[0])

    def step_size(self, problem: ERM, noise: float) -> float:
        """Return the step size eta for noise of a given scale.

        Without a bound L on subgradients, the root mean square of the gradients' norms
        at w = 0 replaces L, and the noise counts as 0.
        """
        bound = float(np.ravel(norm_bound(problem, self.clip))[0])
        if math.isinf(bound):
            bound, noise = problem.gradient_rms, 0.0
        given = self.radius if self.radius is not None else problem.constraint.radius
        radius = float(np.ravel(given)[0]) if np.isfinite(given).all() else 1.0
        with np.errstate(over="ignore"):  # the step is 0 then
            square = self.iterations(problem) * np.square(bound)
            square += self.expected_steps(problem) * problem.p * np.square(noise)
        return float(np.ravel(self.step)[0] * radius * inverse(np.sqrt([square]))[0])


class OnePassState(State):
    """The state of a trial, with the number of noise steps before each fresh step."""

    def __init__(
        self, oracle: Oracle, mechanisms: Mechanisms, solver: OnePassSGD, waits: Indices
    ) -> None:
        self.oracle, self.waits = oracle, waits
        self.gradient: Any = mechanisms["gradient"]
        self.noise = float(self.gradient.scale.max())
        self.size = solver.step_size(oracle.problem, self.noise)
        self.clip = float(np.ravel(norm_bound(oracle.problem, solver.clip))[0])
        self.compiled = mechanisms.ahead
        self.total, self.first = np.zeros(oracle.problem.p), oracle.w.copy()
        self.done = 0

    def output(self) -> Array:
        """Return the mean of the iterates before the fresh steps made, shape (1, p)."""
        return self.total[None] / self.done if self.done else self.first

    def advance(self, k: int) -> None:
        """Make k fresh steps and the noise steps before them."""
        waits = self.waits[self.done : self.done + k]
        if not self.noise:  # Projecting again would change the last bits.
            self.gradient.spend(int(waits.sum()))
            waits = np.zeros_like(waits)
        fresh = np.zeros(k + int(waits.sum()), np.bool_)
        fresh[np.cumsum(waits + 1) - 1] = True
        most = max(1, CHUNK // self.oracle.problem.p) if self.compiled else 1
        for begin in range(0, fresh.size, most):
            part = fresh[begin : begin + most]
            if self.compiled:
                self.make_steps(part)
            else:
                self.make_step(bool(part[0]))
        self.done += k

    def make_step(self, fresh: bool) -> None:
        """Make one fresh step or one noise step, as the compiled code does."""
        oracle, problem = self.oracle, self.oracle.problem
        moved = oracle.w - self.size * self.noisy(fresh)
        prox = problem.penalty.prox
        moved = prox(moved, self.size) if fresh else np.clip(moved, *oracle.psi[2:])
        oracle.move_to(problem.constraint.project(moved))

    def noisy(self, fresh: bool) -> Array:
        """Publish the next record's subgradient (or 0) plus noise, shape (1, p)."""
        oracle, gradient = self.oracle, np.zeros(self.total.size)
        if fresh:
            self.total += oracle.w[0]
            record = self.gradient.next_records(0, 1)
            gradient = oracle.record_sum(0, record, self.clip)
        return np.asarray(self.gradient(gradient[None]))

    def make_steps(self, fresh: NDArray[np.bool_]) -> None:
        """Make the given steps in compiled code; noise steps have empty batches."""
        noise = self.gradient.take_vectors(fresh.size, self.total.size)[0]
        records = self.gradient.next_records(0, int(fresh.sum()))
        batches = records, np.concatenate([[0], np.cumsum(fresh)])
        sizes, summed = np.full(fresh.size, self.size), (self.total, fresh)
        self.oracle.stochastic_steps(0, batches, noise, self.clip, sizes, 1.0, summed)
        self.oracle.touch()


class PNormState(OnePassState):
    """The state of a trial whose steps are in the dual space of a p-norm."""

    def __init__(
        self, oracle: Oracle, mechanisms: Mechanisms, solver: OnePassSGD, waits: Indices
    ) -> None:
        super().__init__(oracle, mechanisms, solver, waits)
        self.compiled = False
        self.map = Potential(oracle.problem, oracle.w)
        self.map.q = float(np.ravel(solver.power)[0])

    def make_step(self, fresh: bool) -> None:
        """Make one step in the dual space, with the gradient of an l2 penalty."""
        oracle, noisy = self.oracle, self.noisy(fresh)
        if fresh:
            noisy = noisy + oracle.problem.penalty.strong_convexity * oracle.w
        oracle.move_to(self.map.step(noisy, np.array([[self.size]])))


class Potential(PNorm):
    """Phi = norm_p(w)^2 / (2 (p - 1)), 1-strongly convex in norm_p for 1 < p <= 2."""

    def pull_gradient(self, g: Array) -> Array:
        """Return the gradient times p - 1, as `primal` is for norm_p(w)^2 / 2."""
        return (self.q - 1.0) * g
