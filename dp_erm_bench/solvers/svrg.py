"""Private stochastic variance-reduced proximal gradient descent."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.solvers.base import Array, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.runs import State, clip_field
from dp_erm_bench.solvers.sampled import Batches, Sampled, SampledState, batch_field
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork, full_gradient


@dataclass(frozen=True)
class SVRG(Sampled):
    """Differentially private stochastic variance-reduced gradient descent (DP-SVRG).

    An epoch publishes the noisy gradient over all records at a snapshot u. It then
    makes m proximal steps along this gradient plus a noisy correction. The correction
    is the sum, over a Poisson sample of rate q, of clip(grad_i(w)) - clip(grad_i(u)),
    divided by q n. With a clipping threshold C, the sum at u has sensitivity C
    (zero_out) or 2 C (replace_one). A record's term in a correction has norm at most
    2 C, or C if phi(., y) is monotone (:func:`correction_bound`). S epochs have S
    Gaussian mechanisms and S m Gaussian mechanisms over Poisson samples. These are
    calibrated together, with a ratio of their noise multipliers that is fixed in
    advance.

    The estimator and the snapshot at the last inner iterate (option I) are by Johnson
    and Zhang. Wang, Ye and Xu propose the private proximal SVRG with which Mangold et
    al. compare. Their method is for Lipschitz losses. It adds noise to the whole
    direction of each inner step, with a constant that is not specified, and averages
    the inner iterates. Clipping, separate noise for snapshots and corrections, and
    Poisson sampling with its accounting are not part of their method.

    References
    ----------
    Johnson and Zhang, "Accelerating stochastic gradient descent using predictive
    variance reduction", NIPS 2013; Wang, Ye, Xu, "Differentially private empirical
    risk minimization revisited: faster and more general", NIPS 2017.
    """

    # A correction leaks only where derivatives at iterate and snapshot differ.
    worst_cases: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"n_inner": 10, "snapshot_weight": 50.0, "step": 1e6},
    )

    passes: float = shape(10.0, least=0, help="number of passes over the n records")
    n_epochs: int | None = shape(
        None, least=0, help="S, the number of epochs, used instead of passes"
    )
    n_iter: int | None = shape(
        None,
        least=0,
        help="number of inner steps, used instead of passes and n_epochs",
    )
    n_inner: int | None = shape(
        None,
        least=1,
        help="m, the number of inner steps of an epoch; null: 2 n / batch_size",
    )
    batch_size: int | str = batch_field()
    snapshot_weight: float | None = shape(
        None,
        above=0.0,
        help="noise multiplier of snapshots, divided by that of inner steps; null: the "
        "ratio that minimises the noise of an epoch",
    )
    step: float = value(
        1.0,
        above=0.0,
        help="step size in units of 1 / beta, with smoothness constant beta",
    )
    clip: float | None = clip_field()

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield bounds without noise: constant steps reach the minimum."""
        yield Limit(cls(batch_size="full", n_epochs=400), gap=1e-8)
        yield Limit(cls(batch_size=10, n_epochs=80, step=0.2), gap=1e-8)

    def epoch_length(self, problem: ERM) -> int:
        """Return m, the number of inner steps of an epoch, by default 2 / q.

        Johnson and Zhang use this default for q = 1/n.
        """
        if self.n_inner is not None:
            return self.n_inner
        return max(1, round(2 * problem.n / self.expected_batch(problem)))

    def iterations(self, problem: ERM) -> int:
        """Return the number of inner steps, by ``n_iter``, ``n_epochs`` or ``passes``.

        The last epoch may be shorter.
        """
        m = self.epoch_length(problem)
        if self.n_iter is not None:
            return self.n_iter
        if self.n_epochs is not None:
            return self.n_epochs * m
        work = 2 * self.rate(problem)
        epochs, rest = divmod(self.passes + 1e-9, 1 + work * m)
        return int(epochs) * m + max(0, math.floor((rest - 1) / work))

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the number of passes up to an iteration.

        A snapshot needs n gradients, and an inner step needs 2 q n gradients on
        average.
        """
        snapshots = epochs_begun(iteration, self.epoch_length(problem))
        return snapshots + 2 * self.rate(problem) * iteration

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a step at two points, plus its part of a snapshot."""
        step, snapshot = super().step_work(problem), full_gradient(problem, self.clips)
        often = step._replace(draws=0.0).plus(step)
        length = min(self.epoch_length(problem), max(self.iterations(problem), 1))
        return often.plus(snapshot._replace(calls=1.0).times(1.0 / length))

    def weight(self, problem: ERM) -> float:
        """Return the ratio z0 / z1 of noise multipliers: snapshots to corrections.

        Over an epoch, the m steps add m times the snapshot's noise, of variance (z0
        C / n)^2. They also add m independent noises of variance (z1 a C / (q n))^2,
        with a = 1 or 2. A Gaussian approximation of an epoch's privacy cost is 1/z0^2 +
        m q^2/z1^2. For a given cost, m^2 z0^2 + m (z1 a / q)^2 is smallest at
        z0/z1 = sqrt(a / m) / q. The ratio only splits the budget, so every ratio is
        equally private. If q is so small that z1 < 1, sampling amplifies privacy less
        than in this approximation, and a smaller ratio is better.
        """
        if self.snapshot_weight is not None:
            return self.snapshot_weight
        ratio = correction_bound(problem) / self.epoch_length(problem)
        return math.sqrt(ratio) / self.rate(problem)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield two releases: one for the snapshots and one for the inner steps.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        bound, q = norm_bound(problem, self.clip), self.rate(problem)
        T, m = self.iterations(problem), self.epoch_length(problem)
        snapshot = adjacency.of_sum(bound)
        correction = adjacency.of_sum(correction_bound(problem) * bound)
        weight = self.weight(problem)
        yield Gaussian("snapshot", snapshot, epochs_begun(T, m), weight=weight)
        yield PoissonGaussian("correction", correction, T, rate=q)

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
        return VarianceReducedState(oracle, mechanisms, self)


def epochs_begun(iteration: int, length: int) -> int:
    """Return the number of epochs that have begun after a number of inner steps."""
    return -(-iteration // length)


def correction_bound(problem: ERM) -> float:
    """Return a bound on norm2(clip(grad_i(w)) - clip(grad_i(u))) / C.

    Both gradients are multiples s x_i of the same record with |s| norm2(x_i) <= C, so
    the bound is 2 in general. If phi(., y) is monotone, both factors s have the same
    sign, which clipping does not change. Then the factors differ by at most
    C / norm2(x_i), and the bound is 1. The sum moves by one such term under zero_out,
    and by two under replace_one (``Adjacency.of_sum``).
    """
    return 1.0 if problem.loss.monotone else 2.0


class VarianceReducedState(SampledState):
    """The state of DP-SVRG: the snapshot and the position in its epoch."""

    def __init__(self, oracle: Oracle, mechanisms: Mechanisms, solver: SVRG) -> None:
        super().__init__(oracle, mechanisms, "correction", solver)
        self.snapshot = mechanisms["snapshot"]
        self.anchor = type(oracle)(oracle.problem, oracle.batch)
        self.length = solver.epoch_length(oracle.problem)
        self.mean: Array = np.zeros_like(oracle.w)

    def prepare_step(self) -> int:
        """Publish a gradient if an epoch begins; return the steps left in it."""
        inner = self.done % self.length
        if inner == 0:
            self.anchor.move_to(self.oracle.w)
            total = self.snapshot(self.anchor.clipped_sum(self.clip))
            self.mean = total / self.oracle.problem.n
        return self.length - inner

    def make_step(self) -> None:
        """Make one inner step in each trial."""
        here, there = self.sums(self.oracle, self.anchor)
        noisy = self.sampled(here - there) / self.expected + self.mean
        moved = self.oracle.w - self.step * noisy
        self.oracle.move_to(self.oracle.problem.penalty.prox(moved, self.step))

    def make_steps(self, trial: int, batches: Batches, noise: Array) -> None:
        """Make the next k inner steps of one trial in compiled code.

        Parameters
        ----------
        trial : int
            Index of the trial in the batch.
        batches : (records, offsets)
            Step t uses ``records[offsets[t]:offsets[t + 1]]``.
        noise : array of shape (k, p)
            The noise of each step.
        """
        at = (self.anchor.w[trial], self.mean[trial])
        scales = (self.clip[trial, 0], self.step[trial, 0], self.expected)
        self.oracle.variance_reduced_steps(trial, at, batches, noise, scales)
