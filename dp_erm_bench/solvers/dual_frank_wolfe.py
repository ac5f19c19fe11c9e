"""Private Frank-Wolfe on the dual of a structured norm."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.norms.base import SubmodularNorm
from dp_erm_bench.norms.extreme import MOST
from dp_erm_bench.penalties.base import SeparablePenalty, inseparable_sentence
from dp_erm_bench.penalties.structured import norm_part
from dp_erm_bench.problems.erm.perturbed import without_norm
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.solvers import one_solve
from dp_erm_bench.solvers.base import Array, Counts, Limit, Releases, shape
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.runs import steps_between
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork

PARTS = {"2/(t+2)": (2.0, 2.0), "1/(t+2)": (1.0, 3.0)}
"""Constants a, b of the step size a / (t + b), t = 0, 1, ... (from 1 in the paper)."""
ENOUGH = 1e-6
"""Width of the interval around the maximum at which a line search stops."""


@dataclass(frozen=True)
class DualFrankWolfe(one_solve.StronglyConvex):
    """Frank-Wolfe on the dual of min_w L(w) + kappa Omega(w), Omega a structured norm.

    L is the mean loss plus the ridge and the penalty's l2 part. The last two terms
    alone make L D-strongly convex. The curvature of the data does not count, because a
    neighbouring dataset may lack it. With K = kappa |P|(F), the dual is the maximum
    over s in K of min_w L(w) + s.w, and a step is

        theta(s) = argmin_w L(w) + s.w,
        s <- s + part (s_bar - s),   s_bar = argmax_{s in K} s.theta(s).

    Let theta, theta' be the minimisers on neighbouring datasets for the same s. As
    g = L + s.w is D-strongly convex, D norm2(theta - theta') is at most the norm of the
    gradient of L - L' at theta'. This norm is at most 2 Lambda / n (replace_one) or
    Lambda / n (zero_out) for losses of Lipschitz constant Lambda, because both
    objectives contain s.w. Each computed point is within the tolerance of its theta,
    which adds twice the tolerance. Let S be the resulting bound on the distance.

    With release=gaussian, T noisy points theta(s_t) are published. s_bar is computed
    from the noisy point, so s_(t+1) depends only on published values. The answer is the
    mean of the noisy points. For a penalty without a norm, K = {0}.

    With release=selection, s_bar is a noisy maximum over the vertices v of K. One
    record changes the score v.theta by at most norm2(v) S. (The paper also subtracts
    s_t.theta, which is the same for all scores.) Computing theta(s_T) reads the data
    again, and the paper does not charge for this (equation 13). Here theta(s_T) is
    published once, with noise for the sensitivity S.

    The gap kappa Omega(theta) - s.theta at theta = theta(s_t), before noise, is a bound
    on the excess of the objective at theta(s_t) over its minimum. The results table
    contains the gap in the column `dual_gap`, which is not released.

    References
    ----------
    Kumar, Deisenroth, "Differentially private empirical risk minimization with
    sparsity-inducing norms", 2019, Algorithms 1 and 2; the printed sensitivity of
    Algorithm 2 has 1 / n instead of 2 / (D n), see docs/errata.md.
    """

    any_penalty: ClassVar[bool] = True
    convex_losses: ClassVar[bool] = True
    exempt: ClassVar[Mapping[str, str]] = {
        "sensitivities_are_tight": "the minimiser moves this far only if the loss is "
        "linear for all neighbours, unlike in the small problems of the check",
        "self.steps in PARTS": "line_search is refused at a finite epsilon",
        "line_search": "runs only at epsilon=inf, where there is no privacy guarantee",
    }

    n_iter: int = shape(10, least=0, help="T, the number of steps")
    steps: str = shape(
        "2/(t+2)",
        choices=("2/(t+2)", "1/(t+2)", "line_search"),
        help="step size, the fraction of the way to s_bar; 1/(t+2) with t = 1, 2, .. "
        "is that of the paper; line_search reads the data and needs epsilon=inf",
    )
    release: str = shape(
        "gaussian",
        choices=("gaussian", "selection"),
        help="gaussian: publish noisy points; selection: publish noisy maxima over the "
        "vertices, and one noisy point",
    )
    recovery_weight: float = shape(
        1.0,
        above=0.0,
        help="with release=selection: noise multiplier of the point, divided by that "
        "of the maxima",
    )
    tolerance: float = one_solve.tolerance_field(1e-9)

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield the bound on the answer without noise: at the minimiser, or near it."""
        if problem.penalty.quadratic:
            yield Limit(cls(n_iter=1), gap=1e-9)
        else:
            yield Limit(cls(n_iter=200), gap=0.05)

    @property
    def unbounded_reason(self) -> str:
        """Return the reason to refuse a finite epsilon; empty without a line search."""
        if self.steps != "line_search":
            return ""
        return (
            "steps=line_search: the privacy budget does not cover the data that the "
            "line search reads; at a finite epsilon, steps must be one of "
            f"{', '.join(PARTS)}"
        )

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused, or None.

        A problem is refused if it is not strongly convex, or if its penalty is not
        supported.
        """
        penalty = problem.penalty
        if norm_part(penalty) is not None:
            reason = super().unsupported_reason(problem)
            return reason or self._reason_unlisted(problem)
        if not isinstance(penalty, SeparablePenalty):
            return inseparable_sentence(penalty)
        return (
            f"penalty={penalty.name}: dual_frank_wolfe needs penalty none, l2, l1, "
            "elastic_net, cardinality, groups, range or submodular, without a box"
        )

    def _reason_unlisted(self, problem: ERM) -> str | None:
        if self.release == "gaussian" or vertices_of(problem) is not None:
            return None
        return (
            f"release=selection: penalty={problem.penalty.name} has no norm with a "
            f"list of 2 to {MOST} vertices for p={problem.p}; use release=gaussian"
        )

    def iterations(self, problem: ERM) -> int:
        """Return T, the number of steps."""
        return self.n_iter

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the number of minimisations so far; each counts as one pass."""
        return float(iteration)

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of solving the problem without the norm once."""
        return super().step_work(without_norm(problem))

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield T noisy points, or T selections of vertices and one noisy point.

        With a line search the sensitivity is infinite.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        inner = without_norm(problem)
        change = adjacency.of_mean(norm_bound(inner, None), problem.n)
        moves = change / self.modulus(problem) + 2.0 * self.tolerance
        moves = np.full_like(moves, np.inf) if self.unbounded_reason else moves
        if self.release == "gaussian":
            yield Gaussian("minimiser", moves, self.n_iter)
            return
        points = vertices_of(problem)
        assert points is not None  # checked before
        sizes = norm2(points, axis=-1)
        yield NoisyMax("vertex", sizes * moves, self.n_iter)
        once = min(self.n_iter, 1)
        yield Gaussian("minimiser", moves, once, weight=self.recovery_weight)

    def iterates(
        self, oracle: Oracle, mechanisms: Mechanisms, checkpoints: Counts, schedule: Any
    ) -> Iterator[Array]:
        """Yield the current answer, projected on the constraint, at each checkpoint.

        With release=selection, the only answer comes after the last step. At earlier
        checkpoints, the start is yielded.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        checkpoints : sequence of int
            Increasing iteration numbers at which to yield; the first is 0.
        schedule : object
            The result of `plan`; not used.
        """
        problem, inner = oracle.problem, without_norm(oracle.problem)
        part = norm_part(problem.penalty)
        assert part is not None  # checked before
        norm, kappa = part
        points = vertices_of(problem) if self.release == "selection" else None
        s, theta, answer = np.zeros(problem.p), None, oracle.w.copy()

        def scores(w: Array) -> Array:
            assert points is not None
            return w @ points.T

        told, done = oracle.told if kappa > 0.0 else {}, 0
        told["dual_gap"] = np.full(1, np.nan)
        yield oracle.w
        for k in steps_between(checkpoints):
            for t in range(done, done + k):
                theta = self.minimiser(inner, s, self.tolerance, theta)[0]
                told["dual_gap"] = np.array([norm.slack(theta, s, kappa)])
                if points is None:
                    noisy = mechanisms["minimiser"](theta[None, :])
                    answer += (noisy - answer) / (t + 1)
                    s_bar = kappa * norm.maximiser(noisy[0])
                else:
                    (chosen,) = mechanisms["vertex"](theta[None, :], scores)
                    s_bar = points[chosen]
                towards = s_bar - s
                s = s + self.part(t, inner, s, towards, theta) * towards
            done += k
            if points is not None and k and done == self.n_iter:
                theta = self.minimiser(inner, s, self.tolerance, theta)[0]
                answer = mechanisms["minimiser"](theta[None, :])
            yield problem.constraint.project(answer)

    def part(self, t: int, inner: ERM, s: Array, towards: Array, theta: Array) -> float:
        """Return the step size of step t, the fraction of the way from s to s_bar.

        Parameters
        ----------
        t : int
            Number of the step, from 0 on.
        inner : ERM
            The problem without the norm.
        s : array of shape (p,)
            The dual point.
        towards : array of shape (p,)
            The direction s_bar - s.
        theta : array of shape (p,)
            theta(s), the starting point of searches for minimisers.
        """
        if self.steps in PARTS:
            over, shift = PARTS[self.steps]
            return over / (t + shift)
        return self.line_search(inner, s, towards, theta)

    def line_search(self, inner: ERM, s: Array, towards: Array, theta: Array) -> float:
        """Return the step size in [0, 1] with the largest dual value.

        The derivative of the dual value in the step size is theta.towards. The dual is
        concave, so the derivative falls, and bisection finds its zero.

        Parameters
        ----------
        inner : ERM
            The problem without the norm.
        s : array of shape (p,)
            The dual point.
        towards : array of shape (p,)
            The direction s_bar - s.
        theta : array of shape (p,)
            theta(s), the starting point of searches for minimisers.
        """
        low, high = 0.0, 1.0
        if self._slope_at(inner, s, towards, theta, 1.0) >= 0.0:
            return 1.0
        while high - low > ENOUGH:
            middle = 0.5 * (low + high)
            rises = self._slope_at(inner, s, towards, theta, middle) > 0.0
            low, high = (middle, high) if rises else (low, middle)
        return low

    def _slope_at(
        self, inner: ERM, s: Array, towards: Array, theta: Array, part: float
    ) -> float:
        at = s + part * towards
        return float(self.minimiser(inner, at, self.tolerance, theta)[0] @ towards)


def vertices_of(problem: ERM) -> Array | None:
    """Return the vertices of the dual set K, shape (m, p), or None.

    None means that there is no list of vertices, or that K = {0}.
    """
    part = norm_part(problem.penalty)
    assert part is not None  # checked before
    if part[1] == 0.0:
        return None
    points = _vertices_of(part[0], problem.p)
    return None if points is None else part[1] * points


@functools.lru_cache(maxsize=8)
def _vertices_of(norm: SubmodularNorm, p: int) -> Array | None:
    return norm.vertices(p)
