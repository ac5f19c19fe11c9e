"""Permutation SGD and gradient descent with noise on the last iterate."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.penalties.base import SeparablePenalty, inseparable_sentence
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.solvers import one_solve, sampled
from dp_erm_bench.solvers.base import Array, Indices, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import (
    convexity_refusal,
    label_bound,
    norm_bound,
    projection_refusal,
)
from dp_erm_bench.solvers.runs import clip_field
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork, full_gradient

FARTHEST = 1e140
"""Margins and labels up to this number give finite gradients for norms up to 1e150."""


@dataclass(frozen=True)
class PermutationSGD(one_solve.SingleAnswer):
    """SGD over a random permutation, with noise only on the last iterate (bolt-on).

    Let w_t, w'_t be the iterates on neighbouring datasets, which differ in one record.
    A step on other records is w - (eta / b) times a sum of gradients of convex
    functions that are beta-smooth. This step is non-expansive for eta <= 2 / beta
    (Hardt, Recht, Singer 2016, Lemma 3.7). So is a clipped step, because the clipped
    gradient of w -> phi(x.w, y) is the gradient of a convex function that is as smooth.
    Prox and projection are non-expansive, and the prox of an l2 penalty shrinks
    distances by c_t = 1 / (1 + eta_t l2). The step on the record that differs adds at
    most eta_t s / b, where s is 2 L or L depending on the adjacency. This step comes
    once per pass, always at the same place in the pass, which is unknown:

        sensitivity = max over places, sum over passes: (eta_t s / b) prod_{u >= t} c_u

    The permutation itself may be known. A gradient that overflows at w_t or w'_t would
    break this bound. So a run is refused if public numbers permit iterates or labels of
    such a size. Without a penalty and with constant steps, the sensitivity is
    k eta s / b for k passes (Wu et al., Algorithm 1). With batch_size=full, the
    algorithm is gradient descent with output noise (Zhang et al.).

    References
    ----------
    Wu, Li, Kumar, Chaudhuri, Jha, Naughton, "Bolt-on differential privacy for scalable
    stochastic gradient descent-based analytics", SIGMOD 2017, Algorithms 1 and 2;
    Zhang, Zheng, Mou, Wang, "Efficient private ERM for smooth objectives", IJCAI 2017,
    Algorithm 1.
    """

    any_penalty: ClassVar[bool] = True
    exempt: ClassVar[Mapping[str, str]] = {
        "sensitivities_are_tight": "the last iterate moves this far only if the loss "
        "is linear along the whole run, unlike in the small problems of the check"
    }

    passes: int = shape(
        10, least=0, help="k, the number of passes over the permuted records"
    )
    batch_size: int | str = sampled.batch_field(
        "number of records in a batch; full: all n records"
    )
    noise: str = one_solve.noise_field()
    step: float = value(
        1.0,
        above=0.0,
        most=2.0,
        help="step size in units of 1 / beta, where beta = H R^2, H is the smoothness "
        "of the loss, and R is the declared bound on a record's norm",
    )
    decay: float = value(
        0.0, least=0, help="a; step t = 0, 1, .. has the size step / (1 + a t)"
    )
    clip: float | None = clip_field()

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield the bound without noise: gradient descent reaches the minimum."""
        length = 3_000 if problem.constraint.bounded else 1_500
        yield Limit(cls(passes=length, batch_size="full", step=1.0), gap=1e-8)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why the proof does not cover a problem, or None if it does.

        Declared bounds are needed because they limit the step size.
        """
        if problem.dataset.bounds is None:
            return (
                "permutation_sgd needs declared bounds (dataset.bounds) even with "
                "clipping, because its step size must be at most 2 / beta for each "
                "record"
            )
        if not isinstance(problem.penalty, SeparablePenalty):
            if self.batch_size != "full":
                return inseparable_sentence(problem.penalty)
            if reason := convexity_refusal(problem, "permutation_sgd"):
                return reason
        reason = projection_refusal(problem, "permutation_sgd", compiled=True)
        reason = reason or sampled.batch_refusal(problem, self.batch_size)
        return reason or self._overflow_refusal(problem)

    def _overflow_refusal(self, problem: ERM) -> str | None:
        """Return the reason why a gradient could overflow, or None if it cannot.

        Large iterates or labels can cause an overflow. Prox and projection are
        non-expansive. So they increase the norm of a point by at most the distance by
        which they move the origin.
        """
        bounds, sizes = problem.dataset.bounds, self.sizes(problem)
        assert bounds is not None  # checked before
        steps = float(sizes.sum()) * float(np.max(norm_bound(problem, self.clip)))
        if not math.isfinite(steps):
            return None  # at epsilon = inf alone
        moved = norm2(one_solve.nearest_feasible(problem, np.zeros((1, problem.p))))
        reach = bounds.norm * (steps + (sizes.size + 1) * moved)
        label = label_bound(problem)
        if math.isinf(label):
            return (
                f"loss={problem.loss.name}: a gradient could overflow in "
                "permutation_sgd without a declared bound on labels; declare "
                "dataset.bounds.label"
            )
        if max(reach, label) <= FARTHEST:
            return None
        return (
            "permutation_sgd: a gradient could overflow, because |x.w| can reach "
            f"{reach:.1e} and |y| can reach {label:.1e}, but both must be at most "
            f"{FARTHEST:g}; use a smaller step, a smaller clip or other units"
        )

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the number of passes over the records, all made in one iteration."""
        return float(iteration * self.passes)

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of all passes, which are one iteration."""
        n, p = problem.n, problem.p
        if self.batch_size == "full":
            gradient = full_gradient(problem, self.clips)
            done = gradient._replace(calls=1.0, features=3 * p)
        else:
            steps = math.ceil(n / self.batch(problem))
            done = sampled.sampled_step(problem, n)._replace(features=p * steps)
        # The permutation is drawn by sorting.
        return done.times(self.passes).plus(StepWork(draws=20.0 * n))

    def batch(self, problem: ERM) -> int:
        """Return the batch size b; the last batch of a pass may be smaller."""
        return sampled.expected_batch(problem, self.batch_size)

    def sizes(self, problem: ERM) -> Array:
        """Return the size of each of m steps in each of k passes, shape (k m,)."""
        beta = problem.record_smoothness
        t = np.arange(self.passes * math.ceil(problem.n / self.batch(problem)))
        decay, step = (float(np.ravel(v)[0]) for v in (self.decay, self.step))
        # If beta is 0, gradients are 0, so a step of size 0 is enough.
        first = step / beta if beta > 0.0 else 0.0
        return np.asarray(first / (1.0 + decay * t))

    def plan(self, problem: ERM, identities: Sequence[str]) -> Indices:
        """Return each trial's permutation, drawn without the data, shape (B, n)."""
        seeds = stream_seeds(identities, "permutation")
        return np.stack([np.argsort(uniforms(s, 0, problem.n)) for s in seeds])

    def growth(self, problem: ERM) -> float:
        """Return the sensitivity divided by s (the formula is in the class)."""
        sizes = self.sizes(problem)
        if not sizes.size:
            return 0.0
        log_shrink = -np.log1p(sizes * problem.penalty.strong_convexity)
        after = np.exp(np.cumsum(log_shrink[::-1])[::-1])
        visits = (sizes * after).reshape(self.passes, -1).sum(axis=0)
        return float(visits.max()) / self.batch(problem)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the release of the last iterate.

        Without a bound on gradients, the sensitivity is infinite.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        if np.isfinite(change).all():
            change = self.growth(problem) * change
        yield one_solve.LAWS[self.noise]("iterate", change, 1)

    def answer(
        self, oracle: Oracle, mechanisms: Mechanisms, schedule: Indices
    ) -> Array:
        """Return the last iterate plus noise, in the constraint.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : array of shape (B, n)
            The permutation of each trial.
        """
        problem, sizes = oracle.problem, self.sizes(oracle.problem)
        clip = float(np.ravel(norm_bound(problem, self.clip))[0])
        # Iterates on the way are private, so a separate oracle holds them.
        own = type(oracle)(problem, oracle.batch)
        if self.batch_size == "full":
            for size in sizes:
                descend_once(own, size, clip)
        else:
            walk_permutation(own, schedule[0], sizes, clip, self.batch(problem))
        return one_solve.nearest_feasible(problem, mechanisms["iterate"](own.w))


def descend_once(oracle: Oracle, size: float, clip: float) -> None:
    """Make one step of gradient descent without noise.

    Parameters
    ----------
    oracle : Oracle
        Holds the iterate, which the step moves.
    size : float
        The step size.
    clip : float
        Clipping threshold of a record's gradient, in norm2.
    """
    problem = oracle.problem
    gradient = oracle.clipped_sum(np.array([[clip]])) / problem.n
    moved = problem.penalty.prox(oracle.w - size * gradient, size)
    oracle.move_to(problem.constraint.project(moved))


def walk_permutation(
    oracle: Oracle, permutation: Indices, sizes: Array, clip: float, batch: int
) -> None:
    """Make the noiseless steps of all passes over a permutation in compiled code.

    Parameters
    ----------
    oracle : Oracle
        Holds the iterate, which the steps move.
    permutation : array of shape (n,)
        The order of the records in each pass.
    sizes : array of shape (k m,)
        The size of every step.
    clip : float
        Clipping threshold of a record's gradient, in norm2.
    batch : int
        Number of records b of a step; the last batch of a pass may be smaller.
    """
    n = permutation.size
    batches = permutation, np.append(np.arange(0, n, batch), n)
    quiet = np.zeros((0, oracle.problem.p))
    for steps in sizes.reshape(-1, batches[1].size - 1):
        oracle.stochastic_steps(0, batches, quiet, clip, steps, float(batch))
    oracle.touch()
