"""Private stochastic proximal gradient descent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.privacy.adjacency import Adjacency
from dp_erm_bench.privacy.mechanisms import Mechanisms, PoissonMechanism
from dp_erm_bench.privacy.releases import PoissonGaussian, Release
from dp_erm_bench.problems.oracle import Oracle
from dp_erm_bench.problems.problem import Problem
from dp_erm_bench.solvers.base import (
    Array,
    Solver,
    inverse,
    norm_bound,
    shape,
    steps_between,
    value,
)

# Numbers of noise drawn at once per trial (2 MB).
CHUNK = 1 << 18


@dataclass(frozen=True)
class SGD(Solver):
    """Differentially private stochastic proximal gradient descent (DP-SGD).

    Each record is in a step's batch with probability q, independently (Poisson
    sampling); the sum of the clipped gradients gets Gaussian noise and is divided
    by the expected batch size q n, so that an empty batch is a step of pure noise.
    Each step ends with the projection on the constraint, which the run starts in.

    References
    ----------
    Bassily, Smith, Thakurta, FOCS 2014; Abadi et al., "Deep learning with
    differential privacy", CCS 2016, Algorithm 1, with a proximal step for psi.
    """

    constrained: ClassVar[bool] = True
    calibrations: ClassVar[tuple[str, ...]] = ("certified", "authors")

    passes: float = shape(10.0, least=0, help="passes over the n records")
    n_iter: int | None = shape(
        None, least=0, help="number of steps, in place of passes"
    )
    batch_size: int | str = shape(
        1, least=1, words=("full",), help="expected batch size q n, or full (q = 1)"
    )
    step: float = value(1.0, above=0.0, help="step size, times 1 / beta")
    decay: float = value(0.0, least=0, help="a: the step size falls like 1 / (1 + a t)")
    clip: float | None = value(
        None, above=0.0, help="bound on a gradient's norm; null: declared bounds"
    )

    def unsupported(self, problem: Problem) -> str | None:
        """Refuse batches larger than the data, and penalties without projection.

        Projecting after the prox of l2 is the prox of both: over a convex set the
        sum norm2(u - v)^2 / 2 + step l2 norm2(u)^2 / 2 is, but for a constant, a
        multiple of norm2(u - v / (1 + step l2))^2.
        """
        if self.batch_size != "full" and int(self.batch_size) > problem.n:
            return (
                f"batch_size={self.batch_size}: must be at most n={problem.n}, or full"
            )
        constraint, penalty = problem.constraint.name, problem.penalty
        if problem.constraint.bounded and not penalty.quadratic:
            return (
                f"constraint={constraint} with penalty={penalty.name}: sgd has no "
                "step for both at once; use penalty none or l2"
            )
        return None

    def expected_batch(self, problem: Problem) -> int:
        """Return q n."""
        return problem.n if self.batch_size == "full" else int(self.batch_size)

    def iterations(self, problem: Problem) -> int:
        """Return T, the number of steps."""
        if self.n_iter is not None:
            return self.n_iter
        return round(self.passes * problem.n / self.expected_batch(problem))

    def passes_at(self, problem: Problem, iteration: int) -> float:
        """Return the passes: n / (q n) steps read n records on average."""
        return iteration * self.expected_batch(problem) / problem.n

    def releases(
        self, problem: Problem, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield one noisy sum over a Poisson sample per step."""
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        rate = self.expected_batch(problem) / problem.n
        yield PoissonGaussian("gradient", change, self.iterations(problem), rate=rate)

    def iterates(
        self,
        oracle: Oracle,
        mechanisms: Mechanisms,
        checkpoints: Sequence[int],
        schedule: Any,
    ) -> Iterator[Array]:
        """Yield the iterates at the checkpoints."""
        if oracle.problem.constraint.bounded:
            oracle.move_to(oracle.problem.constraint.project(oracle.w))
        run = StochasticRun(oracle, mechanisms, self)
        yield oracle.w
        for k in steps_between(checkpoints):
            run.advance(k)
            yield oracle.w


class StochasticRun:
    """The state of a run: where in the schedule each trial is."""

    def __init__(self, oracle: Oracle, mechanisms: Mechanisms, solver: SGD) -> None:
        self.oracle, self.ahead = oracle, mechanisms.ahead
        mechanism = mechanisms["gradient"]
        assert isinstance(mechanism, PoissonMechanism)
        self.gradient = mechanism
        problem, column = oracle.problem, (oracle.batch, 1)
        self.expected = float(solver.expected_batch(problem))
        self.clip = np.broadcast_to(norm_bound(problem, solver.clip), column)
        beta = np.atleast_2d(problem.smoothness.norm)
        self.first = np.broadcast_to(solver.step * inverse(beta), column)
        self.decay = np.broadcast_to(np.asarray(solver.decay, np.float64), column)
        self.done = 0

    def step_sizes(self, k: int) -> Array:
        """Return the sizes of the next k steps, (B, k)."""
        t = np.arange(self.done, self.done + k)
        return np.asarray(self.first / (1.0 + self.decay * t))

    def advance(self, k: int) -> None:
        """Make k steps, compiled for small batches, else one by one."""
        compiled = self.ahead and self.gradient.rate < 1.0
        most = max(1, CHUNK // self.oracle.problem.p) if compiled else 1
        while k:
            piece = min(k, most)
            if compiled:
                self._compiled(piece)
            else:
                stochastic_step(self)
            self.done += piece
            k -= piece
        self.oracle.touch()

    def _compiled(self, k: int) -> None:
        problem = self.oracle.problem
        noise = self.gradient.take_vectors(k, problem.p)
        steps = self.step_sizes(k)
        for b in range(self.oracle.batch):
            batches, clip = self.gradient.sample(b, problem.n, k), self.clip[b, 0]
            self.oracle.stochastic_steps(
                b, batches, noise[b], clip, steps[b], self.expected
            )

    def sampled_sum(self) -> Array:
        """Return the sum of the clipped gradients over each trial's sample, (B, p)."""
        oracle = self.oracle
        if self.gradient.rate == 1.0:
            return oracle.clipped_sum(self.clip)
        samples = [
            self.gradient.sample(b, oracle.problem.n, 1)[0] for b in range(oracle.batch)
        ]
        sums = [
            oracle.record_sum(b, records, float(self.clip[b, 0]))
            for b, records in enumerate(samples)
        ]
        return np.stack(sums)


def stochastic_step(run: StochasticRun) -> None:
    """Make one step of Algorithm 1 in each trial; the compiled one agrees."""
    noisy = run.gradient(run.sampled_sum()) / run.expected
    step, oracle, problem = run.step_sizes(1), run.oracle, run.oracle.problem
    moved = problem.penalty.prox(oracle.w - step * noisy, step)
    oracle.move_to(problem.constraint.project(moved))
