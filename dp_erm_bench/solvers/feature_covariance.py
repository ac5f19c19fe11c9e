"""Private gradient descent, preconditioned by a covariance that is published once."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.kernels.lengths import USUAL
from dp_erm_bench.problems.erm.second_order import (
    Geometry,
    check_regular,
    eigen_decomposition,
    lift_eigenvalues,
    matrix_refusal,
    outer_products,
    unpack_symmetric,
)
from dp_erm_bench.releases.gaussian import divide_mu
from dp_erm_bench.solvers.base import Array, Limit, Releases, shape, value
from dp_erm_bench.solvers.bounds import (
    ZEROS,
    bounds_refusal,
    norm_bound,
    outer_change,
    record_bound,
)
from dp_erm_bench.solvers.runs import FullGradient, Step
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle
from dp_erm_bench.solvers.work import StepWork, full_gradient, matrix_work


@dataclass(frozen=True)
class FeatureCovariance(FullGradient):
    """Gradient descent preconditioned by X'X, which is published once (DP-FC).

    A step is w - step Q Q' g, where Q Q' = (A H / n + l2 I)^-1. A is X'X plus noise of
    standard deviation s, with eigenvalues raised to at least ``floor`` s sqrt(p). H is
    the smoothness constant of the loss. So, apart from noise, Q Q' is no larger than
    the inverse of any Hessian. Steps of length 1 without noise then never raise the
    objective. g is the noisy mean of clipped gradients plus the penalty's gradient.

    ``clip_in=euclidean`` (as in the paper) clips gradients to C in the Euclidean norm
    and adds noise before scaling by Q. ``clip_in=covariance`` (our variant) clips
    Q'g_i to C and adds noise after the scaling. Q is computed from published values.
    Given Q, a sum of vectors of norm at most C has sensitivity ``adjacency.of_sum(C)``
    as usual. Without a threshold, C is G R |Q| >= norm2(Q'g_i), which no record
    exceeds. This C is known only after A is published, so the sum is published in units
    of C, with sensitivity of_sum(1).

    Without noise there is no floor, and a singular A is refused.

    References
    ----------
    Mehta, Krichene, Thakurta, Kurakin, Cutkosky, "Differentially private image
    classification from features", TMLR 2023 (DP-FC; arXiv 2211.13403).
    """

    constrained: ClassVar[bool] = False
    uses_smoothness: ClassVar[bool] = False
    exempt: ClassVar[Mapping[str, str]] = {"columns_of_zeros_are_harmless": ZEROS}
    leaks_by: ClassVar[str] = "orthogonal"

    clip_in: str = shape(
        "euclidean",
        choices=("euclidean", "covariance"),
        help="norm of a record's gradient g that clip limits; euclidean: |g|; "
        "covariance: |Q'g|, where Q Q' is the preconditioner",
    )
    share: float = shape(
        0.1,
        above=0.0,
        most=0.99,
        help="share of the privacy budget mu^2 that is spent on X'X",
    )
    floor: float = value(
        1.0,
        above=0.0,
        help="lower limit of the eigenvalues of the noisy X'X, divided by s sqrt(p), "
        "where s is the standard deviation of the noise",
    )
    step: float = value(
        1.0, above=0.0, help="step size; 1 is the full preconditioned step"
    )

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield bounds without noise: linear convergence for both ``clip_in``."""
        yield Limit(cls(n_iter=600), gap=1e-9)
        yield Limit(cls(n_iter=600, clip_in="covariance"), gap=1e-9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem is refused, or None.

        Penalties, bounds and the number of features are checked.
        """
        name = type(self).__name__
        if not problem.penalty.quadratic:
            return f"penalty={problem.penalty.name}: {name} needs penalty none or l2"
        return bounds_refusal(problem, self) or matrix_refusal(problem)

    def step_work(self, problem: ERM) -> StepWork:
        """Return the work of a step: a full gradient and its part of the covariance."""
        p, gradient = problem.p, full_gradient(problem, True)
        step = gradient._replace(calls=1.5, draws=p, features=3 * p + p * p)
        once = matrix_work(problem).times(1.0 / max(self.n_iter, 1))
        return step.plus(once)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the releases of the covariance and of the gradient sums.

        The covariance is published once, and one sum of gradients per step. Each sum is
        divided by the bound C on a gradient, so its sensitivity does not depend on C.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        # Without steps no covariance is needed.
        once = min(self.n_iter, 1)
        covariance = Gaussian("covariance", outer_change(problem, adjacency), once)
        bound = norm_bound(problem, self.clip)
        unit = np.where(np.isfinite(bound), np.sign(bound), np.inf)
        gradient = Gaussian("gradient", adjacency.of_sum(unit), self.n_iter)
        yield from divide_mu([(covariance, self.share), (gradient, 1.0 - self.share)])

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the function that makes a step; its first call publishes X'X."""
        problem, column = oracle.problem, (oracle.batch, 1)
        l2 = problem.penalty.strong_convexity
        charged = np.isfinite(norm_bound(problem, self.clip))
        made = functools.cache(lambda: self.geometry(oracle, mechanisms))

        def step(t: int) -> None:
            Q, sums, bound = made()
            # The sum in units of C is private for any C in the usual range of floats.
            C = np.where(charged, np.clip(bound, *USUAL), bound)
            C = np.broadcast_to(C, column)
            unit = np.where(charged, C, 1.0)
            total = mechanisms["gradient"](sums(C) / unit) * unit
            if self.clip_in == "euclidean":
                total = (total[:, None] @ Q)[:, 0]
            g = total / problem.n + l2 * (oracle.w[:, None] @ Q)[:, 0]  # Q'g
            oracle.move_to(oracle.w - self.step * (Q @ g[..., None])[..., 0])

        return step

    def geometry(
        self, oracle: Oracle, mechanisms: Mechanisms
    ) -> tuple[Array, Callable[[Array], Array], Array]:
        """Publish the covariance, and return Q, a function that sums gradients, and C.

        The function clips the gradients and sums them. Q has shape (B, p, p). Q is 0 if
        the records are declared to be 0, because they then have no effect.
        """
        problem, n, p = oracle.problem, oracle.problem.n, oracle.problem.p
        covariance = mechanisms["covariance"]
        noisy = covariance(outer_products(oracle))
        floors = self.floor * covariance.scale * math.sqrt(p)
        floors = np.broadcast_to(floors, (oracle.batch, 1))[:, 0]
        H, l2 = problem.loss.smoothness, problem.penalty.strong_convexity
        Q = np.zeros((oracle.batch, p, p))
        longest = np.zeros((oracle.batch, 1))
        for b, row in enumerate(noisy if record_bound(problem) > 0.0 else ()):
            values, vectors = eigen_decomposition(unpack_symmetric(row, p))
            d = H * lift_eigenvalues(values, floors[b]) / n + l2
            check_regular(d, "X'X")
            Q[b] = vectors / np.sqrt(d)
            longest[b] = 1.0 / math.sqrt(d.min())
        bound = norm_bound(problem, self.clip)
        if self.clip_in == "euclidean":
            return Q, oracle.clipped_sum, bound
        if self.clip is None:
            with np.errstate(over="ignore"):  # a step clips the bound
                bound = bound * longest
        return Q, Geometry(oracle, Q).clipped_sum, bound
