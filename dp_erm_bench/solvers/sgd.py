"""Private stochastic proximal gradient descent."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.allocation_gaussian import AllocationGaussian
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.solvers.base import Array, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import (
    mean_radius,
    norm_bound,
    projected_means,
    projection_refusal,
)
from dp_erm_bench.solvers.runs import State, clip_field, mean_field
from dp_erm_bench.solvers.sampled import Batches, Sampled, SampledState, batch_field
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork


@dataclass(frozen=True)
class SGD(Sampled):
    """Differentially private stochastic proximal gradient descent (DP-SGD).

    Each record is in a step's batch with probability q, independently (Poisson
    sampling). With random allocation, each record is in one batch of each round of
    t = 1 / q steps. The step is drawn anew for each record and round. Gaussian noise is
    added to the sum of the clipped gradients, and the result is divided by the expected
    batch size q n. So an empty batch is a step of pure noise.

    ``mean=projection`` projects this mean on an l1 ball, as in ``gd``. The mean of a
    batch that is larger than expected may lie outside the ball even without noise, and
    is shortened. If all gradients are equal, .825 of the mean is left on average with 5
    records per batch, and .97 with 200. The run starts in the constraint, and each step
    ends with a projection on it.

    References
    ----------
    Bassily, Smith, Thakurta, FOCS 2014; Abadi et al., "Deep learning with
    differential privacy", CCS 2016, Algorithm 1, with a proximal step for psi; Chua et
    al., "Balls-and-bins sampling for DP-SGD", 2024 (allocation); Ghazi, Guzman, Kamath,
    Kumar, Manurangsi, NeurIPS 2024, Algorithm 1 (projection).
    """

    constrained: ClassVar[bool] = True
    smooth_losses: ClassVar[bool] = False
    calibrations: ClassVar[tuple[str, ...]] = ("certified", "authors")

    passes: float = shape(10.0, least=0, help="number of passes over the n records")
    n_iter: int | None = shape(
        None, least=0, help="number of steps, used instead of passes"
    )
    batch_size: int | str = batch_field()
    step: float = value(
        1.0,
        above=0.0,
        help="step size in units of 1 / beta, with smoothness constant beta; for a "
        "loss without curvature, in units of 1 over the bound on a gradient's norm",
    )
    decay: float = value(
        0.0, least=0, help="a; step t = 0, 1, .. has the size step / (1 + a t)"
    )
    clip: float | None = clip_field()
    output: str = shape(
        "last",
        choices=("last", "average"),
        later=True,
        help="last: return the last iterate; average: return the mean of all iterates "
        "after the start",
    )
    mean: str = mean_field(later=True)
    sampling: str = shape(
        "poisson",
        choices=("poisson", "allocation"),
        later=True,
        help="poisson: each batch contains each record with probability batch_size / "
        "n; allocation: each record is in one batch of each round of n / batch_size "
        "steps",
    )

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield bounds without noise, for full batches and for samples."""
        length = 1_000 if problem.constraint.bounded else 300
        yield Limit(cls(batch_size="full", n_iter=length), gap=1e-8)
        if problem.penalty.strong_convexity > 0.0 and problem.penalty.quadratic:
            decay = 0.1 * curvature / float(problem.smoothness.norm) / 1.5
            for size in (1, 5):
                solver = cls(batch_size=size, n_iter=64_000, step=0.1, decay=decay)
                yield Limit(solver, gap=3e-3, slope=-0.9, trials=20)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused, or None.

        A problem is refused if it has too few records, or if its prox and projection
        cannot be combined.
        """
        reason = projection_refusal(problem, "sgd", compiled=True)
        return reason or super().unsupported_reason(problem)

    def iterations(self, problem: ERM) -> int:
        """Return T, the number of steps."""
        if self.n_iter is not None:
            return self.n_iter
        return round(self.passes * problem.n / self.expected_batch(problem))

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the number of passes; 1 / q steps read n records on average."""
        return iteration * self.expected_batch(problem) / problem.n

    def expected_batch(self, problem: ERM) -> float:
        """Return the expected batch size q n.

        For random allocation it is n / t, where t is n / batch_size rounded to an
        integer.
        """
        size = super().expected_batch(problem)
        if self.sampling == "poisson":
            return size
        return problem.n / max(1, round(problem.n / size))

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a step; steps with projected means are not compiled."""
        work = super().step_work(problem)
        return work if self.mean == "gaussian" else work._replace(calls=1.0)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the release of one noisy sum per step, over a sample of the records.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        change, q = adjacency.of_sum(norm_bound(problem, self.clip)), self.rate(problem)
        kind = PoissonGaussian if self.sampling == "poisson" else AllocationGaussian
        yield kind("gradient", change, self.iterations(problem), rate=q)

    def start(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> State:
        """Return the state before the first step.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`; not used.
        """
        return StochasticState(oracle, mechanisms, self)


class StochasticState(SampledState):
    """The state of DP-SGD."""

    def __init__(self, oracle: Oracle, mechanisms: Mechanisms, solver: SGD) -> None:
        super().__init__(oracle, mechanisms, "gradient", solver)
        self.radius = mean_radius(oracle.problem, solver.clip)
        self.projects = solver.mean == "projection"
        # No compiled step projects the mean.
        self.ahead &= not self.projects
        decay = np.asarray(solver.decay, np.float64)
        self.decay = np.broadcast_to(decay, self.step.shape)
        self.averages = solver.output == "average"
        # The sum of the iterates before each step, minus the start.
        self.total = -oracle.w if self.averages else np.zeros((0, 0))

    def output(self) -> Array:
        """Return the last iterates, or the mean of all iterates after the start."""
        if not (self.averages and self.done):
            return self.oracle.w
        return np.asarray((self.total + self.oracle.w) / self.done)

    def step_sizes(self, trials: slice, k: int) -> Array:
        """Return the sizes of the next k steps of given trials, shape (trials, k)."""
        t = np.arange(self.done, self.done + k)
        return np.asarray(self.step[trials] / (1.0 + self.decay[trials] * t))

    def make_step(self) -> None:
        """Make one step of Algorithm 1 in each trial."""
        (total,) = self.sums(self.oracle)
        noisy = self.sampled(total) / self.expected
        if self.projects:
            noisy = projected_means(noisy, self.radius)
        step, oracle = self.step_sizes(slice(None), 1), self.oracle
        problem = oracle.problem
        if self.averages:
            self.total += oracle.w
        moved = problem.penalty.prox(oracle.w - step * noisy, step)
        oracle.move_to(problem.constraint.project(moved))

    def make_steps(self, trial: int, batches: Batches, noise: Array) -> None:
        """Make the next k steps of one trial in compiled code.

        Parameters
        ----------
        trial : int
            Index of the trial in the batch.
        batches : (records, offsets)
            Step t uses ``records[offsets[t]:offsets[t + 1]]``.
        noise : array of shape (k, p)
            The noise of each step.
        """
        (steps,) = self.step_sizes(slice(trial, trial + 1), len(noise))
        clip, summed = self.clip[trial, 0], None
        if self.averages:
            summed = self.total[trial], np.ones(len(noise), np.bool_)
        self.oracle.stochastic_steps(
            trial, batches, noise, clip, steps, self.expected, summed
        )
