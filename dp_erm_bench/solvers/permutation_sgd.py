"""Permutation SGD and gradient descent with noise on the last iterate."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms, Release
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.solvers.base import Array, Indices, Limit, shape, value
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.one_solve import SingleAnswer
from dp_erm_bench.solvers.output_perturbation import LAWS
from dp_erm_bench.solvers.sampled import CHUNK, batch_refusal, expected_batch
from dp_erm_bench.solvers.sets import compiled_refusal, nearest_feasible


@dataclass(frozen=True)
class PermutationSGD(SingleAnswer):
    """SGD over a permutation without noise, and noise on its last iterate (bolt-on).

    Let w_t, w'_t be the iterates on neighbours that differ in one record. A step on
    other records is w - (eta / b) sum of gradients of convex functions that are
    beta-smooth: it does not expand distances for eta <= 2 / beta (Hardt, Recht, Singer
    2016, Lemma 3.7), nor does a clipped one: for x.w -> phi(x.w, y) the clipped
    gradient is that of a convex function as smooth. Prox and projection do not expand,
    the prox of an l2 penalty shrinks by c_t = 1 / (1 + eta_t l2). The step on the
    record that differs adds at most eta_t s / b, s = 2 L or L by the adjacency. It
    comes once a pass, always at the same place, which is not known:

        sensitivity = max over places, sum over passes: (eta_t s / b) prod_{u >= t} c_u

    and the permutation may be known. Without penalty and with constant steps that is
    k eta s / b for k passes (Wu et al., Algorithm 1); with batch_size=full it is
    gradient descent with output noise (Zhang et al.).

    References
    ----------
    Wu, Li, Kumar, Chaudhuri, Jha, Naughton, "Bolt-on differential privacy for scalable
    stochastic gradient descent-based analytics", SIGMOD 2017, Algorithms 1 and 2;
    Zhang, Zheng, Mou, Wang, "Efficient private ERM for smooth objectives", IJCAI 2017,
    Algorithm 1.
    """

    exempt: ClassVar[Mapping[str, str]] = {
        "sensitivities_are_tight": "the last iterate moves so far only where the loss "
        "is linear along the whole run, which the small problems are not"
    }

    passes: int = shape(10, least=0, help="k, passes over the permuted records")
    batch_size: int | str = shape(
        1, least=1, words=("full",), help="records of a step, or full"
    )
    noise: str = shape(
        "gaussian",
        choices=tuple(LAWS),
        help="normal, or of density exp(-norm2), which is private at delta = 0",
    )
    step: float = value(
        1.0, above=0.0, most=2.0, help="step size, times 1 / beta, beta = H R_2^2"
    )
    decay: float = value(0.0, least=0, help="a: the step size falls like 1 / (1 + a t)")
    clip: float | None = value(
        None, above=0.0, help="bound on a gradient's norm; null: declared bounds"
    )

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """State that gradient descent reaches the minimum, and SGD comes near it."""
        length = 3_000 if problem.constraint.bounded else 1_500
        yield Limit(cls(passes=length, batch_size="full", step=1.0), gap=1e-8)

    def unsupported(self, problem: ERM) -> str | None:
        """Refuse problems without declared bounds: they limit the step size."""
        if problem.dataset.bounds is None:
            return (
                "permutation_sgd needs declared bounds, clipping or not: its step size "
                "must be at most 2 / beta for each record"
            )
        reason = compiled_refusal(problem, "permutation_sgd")
        return reason or batch_refusal(problem, self.batch_size)

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the passes of the one answer."""
        return float(iteration * self.passes)

    def steps_per_pass(self, problem: ERM) -> int:
        """Return m; the last batch is smaller where b does not divide n."""
        return math.ceil(problem.n / expected_batch(problem, self.batch_size))

    def sizes(self, problem: ERM) -> Array:
        """Return the step size of every step, (k m,)."""
        beta = problem.record_smoothness
        t = np.arange(self.passes * self.steps_per_pass(problem))
        decay, step = (float(np.ravel(v)[0]) for v in (self.decay, self.step))
        # Without data nothing moves, and any step is none.
        first = step / beta if beta > 0.0 else 0.0
        return np.asarray(first / (1.0 + decay * t))

    def plan(self, problem: ERM, identities: Sequence[str]) -> Indices:
        """Return each trial's permutation, drawn without the data, (B, n)."""
        seeds = stream_seeds(identities, "permutation")
        return np.stack([np.argsort(uniforms(s, 0, problem.n)) for s in seeds])

    def growth(self, problem: ERM) -> float:
        """Return the sensitivity over s, from the formula above."""
        sizes = self.sizes(problem)
        if not sizes.size:
            return 0.0
        log_shrink = -np.log1p(sizes * problem.penalty.strong_convexity)
        after = np.exp(np.cumsum(log_shrink[::-1])[::-1])
        visits = (sizes * after).reshape(self.passes, -1).sum(axis=0)
        return float(visits.max()) / expected_batch(problem, self.batch_size)

    def releases(
        self, problem: ERM, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield the last iterate."""
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        yield LAWS[self.noise]("iterate", self.growth(problem) * change, 1)

    def answer(
        self, oracle: Oracle, mechanisms: Mechanisms, schedule: Indices
    ) -> Array:
        """Return the last iterate plus noise, in the set."""
        problem, sizes = oracle.problem, self.sizes(oracle.problem)
        clip = float(np.ravel(norm_bound(problem, self.clip))[0])
        if self.batch_size == "full":
            for size in sizes:
                descend(oracle, size, clip)
        else:
            batch = expected_batch(problem, self.batch_size)
            walk(
                oracle, batches_of(schedule[0], batch, self.passes), sizes, clip, batch
            )
        return nearest_feasible(problem, mechanisms["iterate"](oracle.w))


def descend(oracle: Oracle, size: float, clip: float) -> None:
    """Make one step of gradient descent."""
    problem = oracle.problem
    gradient = oracle.clipped_sum(np.array([[clip]])) / problem.n
    moved = problem.penalty.prox(oracle.w - size * gradient, size)
    oracle.move_to(problem.constraint.project(moved))


def batches_of(
    permutation: Indices, batch: int, passes: int
) -> Iterator[tuple[Indices, Indices]]:
    """Yield the batches of some passes as (records, offsets), a few steps at once."""
    n = permutation.size
    most = max(1, CHUNK // batch)
    starts = np.arange(0, n, batch)
    for _ in range(passes):
        for first in range(0, starts.size, most):
            ends = np.append(starts[first : first + most], n)
            ends[-1] = min(n, int(ends[-2]) + batch)
            yield permutation[ends[0] : ends[-1]], ends - ends[0]


def walk(
    oracle: Oracle,
    batches: Iterator[tuple[Indices, Indices]],
    sizes: Array,
    clip: float,
    batch: int,
) -> None:
    """Make the steps of all batches, compiled, without noise."""
    done, most = 0, max(1, CHUNK // oracle.problem.p)
    for records, offsets in batches:
        for first in range(0, offsets.size - 1, most):
            piece = offsets[first : first + most + 1]
            k = piece.size - 1
            part = records[piece[0] : piece[-1]], piece - piece[0]
            quiet = np.zeros((k, oracle.problem.p))
            steps = sizes[done : done + k]
            oracle.stochastic_steps(0, part, quiet, clip, steps, float(batch))
            done += k
    oracle.touch()
