"""Private stochastic proximal gradient descent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms, Release
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.solvers.base import Array, Limit, Solver, shape, steps_between, value
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.sampled import (
    Batches,
    SampledRun,
    batch_refusal,
    expected_batch,
)
from dp_erm_bench.solvers.sets import compiled_refusal


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

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """State that full batches reach the minimum, and samples like 1 / t."""
        length = 3_000 if problem.constraint.bounded else 600
        yield Limit(cls(batch_size="full", n_iter=length), gap=1e-8)
        if problem.penalty.strong_convexity > 0.0 and problem.penalty.quadratic:
            decay = 0.1 * curvature / float(problem.smoothness.norm) / 1.5
            for size in (1, 5):
                solver = cls(batch_size=size, n_iter=64_000, step=0.1, decay=decay)
                yield Limit(solver, gap=3e-3, slope=-0.9, trials=20)

    def unsupported(self, problem: ERM) -> str | None:
        """Refuse batches larger than the data, and penalties without projection."""
        reason = compiled_refusal(problem, "sgd")
        return reason or batch_refusal(problem, self.batch_size)

    def expected_batch(self, problem: ERM) -> int:
        """Return q n."""
        return expected_batch(problem, self.batch_size)

    def iterations(self, problem: ERM) -> int:
        """Return T, the number of steps."""
        if self.n_iter is not None:
            return self.n_iter
        return round(self.passes * problem.n / self.expected_batch(problem))

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the passes: n / (q n) steps read n records on average."""
        return iteration * self.expected_batch(problem) / problem.n

    def releases(
        self, problem: ERM, adjacency: Adjacency, schedule: Any
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
        run = StochasticRun(oracle, mechanisms, self)
        yield oracle.w
        for k in steps_between(checkpoints):
            run.advance(k)
            yield oracle.w


class StochasticRun(SampledRun):
    """The state of DP-SGD."""

    def __init__(self, oracle: Oracle, mechanisms: Mechanisms, solver: SGD) -> None:
        expected = solver.expected_batch(oracle.problem)
        given = (mechanisms["gradient"], mechanisms.ahead, solver.clip, solver.step)
        super().__init__(oracle, *given, expected)
        decay = np.asarray(solver.decay, np.float64)
        self.decay = np.broadcast_to(decay, self.step.shape)

    def step_sizes(self, k: int) -> Array:
        """Return the sizes of the next k steps, (B, k)."""
        t = np.arange(self.done, self.done + k)
        return np.asarray(self.step / (1.0 + self.decay * t))

    def make_step(self) -> None:
        """Make one step in each trial."""
        stochastic_step(self)

    def make_steps(self, trial: int, batches: Batches, noise: Array) -> None:
        """Make the next steps of one trial, compiled."""
        steps, clip = self.step_sizes(len(noise))[trial], self.clip[trial, 0]
        self.oracle.stochastic_steps(trial, batches, noise, clip, steps, self.expected)


def stochastic_step(run: StochasticRun) -> None:
    """Make one step of Algorithm 1 in each trial; the compiled one agrees."""
    (total,) = run.sums(run.oracle)
    noisy = run.sampled(total) / run.expected
    step, oracle, problem = run.step_sizes(1), run.oracle, run.oracle.problem
    moved = problem.penalty.prox(oracle.w - step * noisy, step)
    oracle.move_to(problem.constraint.project(moved))
