"""Stochastic gradient descent with bias-reduced means at random levels."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.solvers.base import Array, Indices, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import (
    mean_radius,
    norm_bound,
    projected_means,
    projection_refusal,
)
from dp_erm_bench.solvers.runs import (
    Prefixed,
    State,
    clip_field,
    mean_field,
    multiplier_field,
)
from dp_erm_bench.solvers.sampled import sampled_step
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork

LEAST = 4
"""Smallest number of records for which the estimator has two levels."""


class Levels(NamedTuple):
    """Schedules of B trials: levels N_t, and coins that select the output.

    Both arrays have the shape (B, T).
    """

    levels: Indices
    coins: Array


@dataclass(frozen=True)
class BiasReducedSGD(Prefixed):
    """SGD with a randomly stopped, bias-reduced estimator of the gradient.

    A step draws a level N with probability p_N proportional to 2^-N, for N = 0 .. M and
    M = floor(log2 n) - 1. It samples a set B of 2^(N+1) records without replacement,
    and one more record I. The first half of B in random order is O, and the second half
    is E. Let g be the private mean of the clipped gradients of a set. The step is

        G = (g(B) - (g(O) + g(E)) / 2) / p_N + g(I),    x <- proj(x - step G).

    The noise scale of a mean of k terms is S z / k, where S is the sensitivity of a
    sum. The multiplier z is the same for all means and levels. So g(B) at one level has
    the same law as g(O) and g(E) at the next. The sum over the levels telescopes, and
    the expectation of G is that of g on the largest batch. With ``mean=projection``, g
    is Algorithm 1. It projects the noisy mean on the l1 ball of radius sqrt(s) C. This
    ball contains all means of gradients with s non-zero entries and norm at most C.
    Without this projection, g is unbiased from the start.

    The levels are public, whereas B, O, E and I are secret samples of the mechanisms. A
    record of B is also in O or E, so the three sums together have sensitivity
    sqrt(2) S. Here S is 2 C, or C under ``zero_out``. g(I) is a separate release. A run
    makes the longest prefix of the drawn steps that the budget pays for. The
    certificate of a run is conditional on the levels.

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
    sparse gradients", NeurIPS 2024, Algorithms 3 and 4; Blanchet, Glynn, "Unbiased
    Monte Carlo for optimization and functions of expectations via multi-level
    randomization", WSC 2015.
    """

    constrained: ClassVar[bool] = True
    smooth_losses: ClassVar[bool] = False
    uses_smoothness: ClassVar[bool] = False
    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")
    exempt: ClassVar[Mapping[str, str]] = {
        "sensitivities_are_tight": "samples are random, so the few steps of a check at "
        "one level may never sample the record"
    }

    n_iter: int = shape(
        1000, least=0, help="largest number of steps; the budget may pay for fewer"
    )
    multiplier: float = multiplier_field()
    output: str = shape(
        "average",
        choices=("average", "uniform"),
        help="average: return the mean of all iterates; uniform: return an iterate "
        "drawn at random",
    )
    mean: str = mean_field()
    step: float = value(
        0.1, above=0.0, help="factor of the gradient estimate in a step"
    )
    clip: float | None = clip_field()

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield the bound on the gap without noise, for SGD on records."""
        yield Limit(cls(n_iter=400, step=0.1), gap=0.2)

    @property
    def printed_constant(self) -> str:
        """Return the name of the paper's rules for noise and stopping."""
        return "ghazi2024"

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused, or None.

        A problem is refused if it has too few records, or if its prox and projection
        cannot be combined.
        """
        if problem.n < LEAST:
            return f"n={problem.n}: bias_reduced_sgd needs at least {LEAST} records"
        return projection_refusal(problem, "bias_reduced_sgd")

    def iterations(self, problem: ERM) -> int:
        """Return the number of steps of the drawn schedule, or T before it is drawn."""
        return self.n_iter if self.drawn is None else self.drawn.levels.shape[1]

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the number of passes up to an iteration.

        A step at level N reads 2^(N+1) + 1 records. Before a schedule is drawn, the
        mean over N is used.
        """
        if self.drawn is None:
            return iteration * self.records(problem) / problem.n
        read = 2.0 ** (self.drawn.levels[0, :iteration] + 1) + 1
        return float(read.sum()) / problem.n

    def records(self, problem: ERM) -> float:
        """Return the mean number of records that a step reads."""
        p = probabilities(problem.n)
        return float(p @ 2.0 ** np.arange(1, p.size + 1)) + 1

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a step: sums over samples, four noise vectors, a prox."""
        work, p = sampled_step(problem, self.records(problem)), problem.p
        return work._replace(calls=1.0, draws=4 * p, features=12 * p)

    def plan(self, problem: ERM, identities: Sequence[str]) -> Levels:
        """Return each trial's levels and coins, drawn without the data."""
        p, T = probabilities(problem.n), self.n_iter
        drawn = [
            np.stack([uniforms(seed, 0, T) for seed in stream_seeds(identities, what)])
            for what in ("levels", "output")
        ]
        # The last sum may be below 1 by rounding.
        return Levels(np.searchsorted(np.cumsum(p)[:-1], drawn[0], "right"), drawn[1])

    def prefix(self, schedule: Levels, steps: int) -> Levels:
        """Return the part of a schedule for its first ``steps`` steps."""
        return Levels(schedule.levels[:, :steps], schedule.coins[:, :steps])

    def costs(self, problem: ERM, schedule: Levels) -> Array:
        """Return the privacy cost of each step, shape (T,), which the paper calls a_t.

        The cost of step t is a_t = (3 2^(N_t + 1) + 1) / (16 n).
        """
        return np.asarray(
            (3 * 2.0 ** (schedule.levels[0] + 1) + 1) / (16 * problem.n), np.float64
        )

    def releases(
        self, problem: ERM, adjacency: Adjacency, schedule: Levels
    ) -> Releases:
        """Yield one release of sums for each level, and one release of single records.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : Levels
            The levels and coins of the steps.
        """
        kinds = self.kinds(problem, adjacency)
        times = np.bincount(schedule.levels[0], minlength=len(kinds))
        for (level, _), used in zip(kinds, times.tolist(), strict=True):
            if used:
                yield replace(level, times=used)
        yield replace(kinds[0][1], times=schedule.levels.shape[1])

    def kinds(
        self, problem: ERM, adjacency: Adjacency
    ) -> tuple[tuple[FixedSizeGaussian, ...], ...]:
        """Return two releases for each level: of three sums and of a single record.

        A step at this level publishes both.
        """
        n, change = problem.n, adjacency.of_sum(norm_bound(problem, self.clip))
        root, zeroed = math.sqrt(2), adjacency is Adjacency.ZERO_OUT
        how: dict[str, Any] = {"weight": 1 / root, "halves": True, "zeroed": zeroed}
        single = FixedSizeGaussian("single", change, 1, rate=1 / n, zeroed=zeroed)

        def sums(level: int) -> FixedSizeGaussian:
            rate = 2 ** (level + 1) / n
            name = f"level {level}"
            return FixedSizeGaussian(name, root * change, 1, rate=rate, **how)

        return tuple((sums(level), single) for level in range(probabilities(n).size))

    def start(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Levels) -> State:
        """Return the state before the first step.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : Levels
            The levels and coins of the steps.
        """
        return BiasReducedState(oracle, mechanisms, self, schedule)


def probabilities(n: int) -> Array:
    """Return the level probabilities p_k = C 2^-k, k = 0 .. floor(log2 n) - 1."""
    weights = 2.0 ** -np.arange(n.bit_length() - 1)
    return np.asarray(weights / weights.sum())


class BiasReducedState(State):
    """The state of one trial, and the output so far."""

    def __init__(
        self,
        oracle: Oracle,
        mechanisms: Mechanisms,
        solver: BiasReducedSGD,
        schedule: Levels,
    ) -> None:
        problem = oracle.problem
        self.oracle, self.solver, self.schedule = oracle, solver, schedule
        self.mechanisms: Mapping[str, Any] = mechanisms
        self.p = probabilities(problem.n)
        self.clip = float(np.ravel(norm_bound(problem, solver.clip))[0])
        self.radius = float(mean_radius(problem, solver.clip)[0, 0])
        self.step = np.atleast_2d(solver.step)
        self.kept, self.done = oracle.w.copy(), 0

    def output(self) -> Array:
        """Return the mean of the iterates x_0 .. x_t, or one iterate at random."""
        return self.kept

    def advance(self, k: int) -> None:
        """Make k steps of Algorithm 4."""
        oracle, problem = self.oracle, self.oracle.problem
        for t in range(self.done, self.done + k):
            slope = self.estimate_mean(int(self.schedule.levels[0, t]))
            moved = problem.penalty.prox(oracle.w - self.step * slope, self.step)
            oracle.move_to(problem.constraint.project(moved))
            if self.solver.output == "average":
                self.kept = self.kept + (oracle.w - self.kept) / (t + 2)
            elif self.schedule.coins[0, t] * (t + 2) < 1.0:
                self.kept = oracle.w.copy()
        self.done += k

    def estimate_mean(self, level: int) -> Array:
        """Return the bias-reduced estimate of the gradient at a level, shape (1, p)."""
        half = 2**level
        records = self.sample_records(f"level {level}")
        one, other = self.total(records[:half]), self.total(records[half:])
        query = np.concatenate([one + other, one, other], axis=1)
        noisy = np.split(self.mechanisms[f"level {level}"](query), 3, axis=1)
        sizes = (2 * half, half, half)
        both, one, other = map(self.mean, noisy, sizes)
        single = self.mechanisms["single"](self.total(self.sample_records("single")))
        gained = (both - (one + other) / 2) / self.p[level]
        return np.asarray(gained + self.mean(single, 1))

    def mean(self, noisy: Array, size: int) -> Array:
        """Return the private mean, shape (1, p), from a noisy sum of ``size`` terms."""
        if self.solver.mean == "projection":
            return projected_means(noisy / size, self.radius)
        return noisy / size

    def sample_records(self, name: str) -> Indices:
        """Return the records that a mechanism samples for one use."""
        records: Indices = self.mechanisms[name].sample(0, self.oracle.problem.n, 1)[0]
        return records

    def total(self, records: Indices) -> Array:
        """Return the sum of the clipped gradients of given records, shape (1, p)."""
        return self.oracle.record_sum(0, records, self.clip)[None]
