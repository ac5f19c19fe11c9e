"""Private proximal coordinate descent."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.solvers.base import Array, Indices, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import coordinate_bounds, inverse, take_entries
from dp_erm_bench.solvers.runs import Iterative, State, clip_field
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork

# Number of coordinate steps whose noise is drawn at once.
CHUNK = 1 << 14
ORDERS = ("uniform", "cyclic", "cyclic_reversed")


@dataclass(frozen=True)
class RandomCD(Iterative):
    """Differentially private proximal coordinate descent (DP-CD).

    The coordinates are chosen independently of the data: uniformly (as in the paper's
    algorithm), or in a cycle (as in the authors' figures). The privacy is the same for
    both orders. Without ``n_inner`` the last iterate is returned, as in the figures.

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi, "Differentially private coordinate descent
    for composite empirical risk minimization", ICML 2022, Algorithm 1.
    """

    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")
    printed_constant: ClassVar[str] = "mangold2022"  # Theorem 1

    passes: float = shape(
        10.0, least=0, help="number of passes, each of p coordinate steps"
    )
    n_iter: int | None = shape(
        None, least=0, help="number of coordinate steps, used instead of passes"
    )
    order: str = shape(
        "uniform",
        choices=ORDERS,
        help="order of the coordinates; uniform: drawn at random; cyclic: from first "
        "to last; cyclic_reversed: from last to first",
    )
    n_inner: int | None = shape(
        None,
        least=1,
        help="K of the paper's Algorithm 1: after every K steps, restart from the "
        "mean of the K iterates; null: no restarts",
    )
    step: float = value(
        1.0,
        above=0.0,
        help="step size in units of 1 / M_j, with the smoothness constant M_j of "
        "coordinate j",
    )
    clip: float | None = clip_field(
        "C in the clipping threshold C sqrt(M_j / sum_k M_k) of coordinate j"
    )

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield bounds without noise: last iterate and means reach the minimum."""
        p = problem.p
        for order, K in itertools.product(ORDERS, (None, 4 * p)):
            yield Limit(cls(order=order, n_iter=1600 * p, n_inner=K), gap=1e-9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why ``n_inner`` is refused, or None.

        ``n_inner`` must divide the number of coordinate steps.
        """
        if self.n_inner and self.iterations(problem) % self.n_inner:
            return (
                f"n_inner={self.n_inner}: must divide the number of coordinate steps, "
                f"which is {self.iterations(problem)}"
            )
        return None

    def iterations(self, problem: ERM) -> int:
        """Return T K, the number of coordinate steps."""
        return round(self.passes * problem.p) if self.n_iter is None else self.n_iter

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the number of passes; p coordinate steps count as one pass."""
        return iteration / problem.p

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a compiled step: one column and one noise value."""
        p, column = problem.p, problem.entries / problem.p
        if problem.by_moments(self.clips):
            done = StepWork(walked=p, draws=2.0)
        else:
            done = StepWork(walked=column, rows=0.5 * column, draws=2.0)
        return done._replace(features=p) if self.n_inner else done

    def plan(self, problem: ERM, identities: Sequence[str]) -> Indices:
        """Return the coordinates of all steps, drawn without data, shape (B, T K)."""
        count, p = self.iterations(problem), problem.p
        if self.order == "uniform":
            seeds = stream_seeds(identities, "coordinates")
            picks = [(uniforms(seed, 0, count) * p).astype(np.int64) for seed in seeds]
            return np.stack(picks)
        cycle = np.arange(count) % p
        row = p - 1 - cycle if self.order == "cyclic_reversed" else cycle
        return np.tile(row, (len(identities), 1))

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the release of one noisy derivative per coordinate step.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : array of shape (B, T K)
            The coordinates of all steps.
        """
        change = adjacency.of_mean(coordinate_bounds(problem, self.clip), problem.n)
        yield Gaussian("measure", change, schedule.shape[1])

    def start(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> State:
        """Return the state before the first step.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : array of shape (B, T K)
            The coordinates of all steps.
        """
        return CoordinateState(oracle, mechanisms, self, schedule)


class CoordinateState(State):
    """The state of Algorithm 1: the current iterate and the sum of inner iterates."""

    def __init__(
        self,
        oracle: Oracle,
        mechanisms: Mechanisms,
        solver: RandomCD,
        schedule: Indices,
    ) -> None:
        problem, full = oracle.problem, oracle.w.shape
        self.oracle, self.schedule, self.n_inner = oracle, schedule, solver.n_inner
        self.measure: Any = mechanisms["measure"]
        self.ahead = mechanisms.ahead
        bound = coordinate_bounds(problem, solver.clip)
        steps = solver.step * inverse(problem.smoothness.columns)
        self.clip = np.ascontiguousarray(np.broadcast_to(bound, full))
        self.steps = np.ascontiguousarray(np.broadcast_to(steps, full))
        # Summed only if Algorithm 1's mean is needed: a sum costs O(p) per step.
        self.total = np.zeros(full if solver.n_inner else (0, problem.p))
        self.done = 0

    def output(self) -> Array:
        """Return the iterate, or the mean of the inner iterates so far."""
        inner = self.done % self.n_inner if self.n_inner else 0
        return self.mean(inner) if inner else self.oracle.w

    def mean(self, count: int) -> Array:
        """Return the mean of ``count`` iterates, projected on the box.

        Rounding could otherwise move the mean out of the box.
        """
        penalty = self.oracle.problem.separable
        mean: Array = self.total / count
        return np.clip(mean, penalty.lower, penalty.upper)

    def advance(self, k: int) -> None:
        """Make k coordinate steps, restarting from the mean every ``n_inner`` steps."""
        while k:
            piece = min(k, CHUNK if self.ahead else 1)
            if self.n_inner:
                piece = min(piece, self.n_inner - self.done % self.n_inner)
            coordinates = self.schedule[:, self.done : self.done + piece]
            if self.ahead:
                self.make_steps(coordinates)
            else:
                self.make_step(coordinates[:, 0])
            self.done += piece
            k -= piece
            if self.n_inner and self.done % self.n_inner == 0:
                self.oracle.move_to(self.mean(self.n_inner))
                self.total[:] = 0.0

    def make_step(self, j: Indices) -> None:
        """Make one inner step of Algorithm 1 in each trial."""
        gradient = self.oracle.coordinate_gradient(j, clip=take_entries(self.clip, j))
        noisy = self.measure(gradient, coordinate=j)
        self.oracle.prox_step(j, noisy, step=take_entries(self.steps, j))
        if self.n_inner:
            self.total += self.oracle.w

    def make_steps(self, coordinates: Indices) -> None:
        """Make the next inner steps, at coordinates (B, k), in compiled code."""
        noise = self.measure.take(coordinates.shape[1], coordinates)
        constants = (self.clip, self.steps, self.total)
        self.oracle.coordinate_steps(coordinates, noise, *constants)
