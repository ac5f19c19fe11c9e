"""Output perturbation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import keep_for_dataset
from dp_erm_bench.plugins.names import origin_digest
from dp_erm_bench.releases.l1_laplace import L1Laplace
from dp_erm_bench.solvers import one_solve
from dp_erm_bench.solvers.base import Array, Releases, shape
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle

LAWS = {**one_solve.LAWS, "l1_laplace": L1Laplace}
KEPT = 8
"""Minimisers of a dataset that are kept, of other ridges."""
PROJECTIONS = ("l2", "linf", "none")


@dataclass(frozen=True)
class OutputPerturbation(one_solve.OneSolve):
    """Output perturbation: the minimiser plus noise.

    Let F and F' be objectives of neighbours, both m-strongly convex, with minimisers w
    and w'. Then m norm2(w - w') is at most the norm of the gradient of F - F' at w',
    which is 2 Lambda / n (replace_one) or Lambda / n (zero_out), for the penalty, the
    set and all other records are the same in both. Each point that is computed is
    within the tolerance of its minimiser, which adds twice the tolerance.

    In the l1 norm (noise=l1_laplace), over R^p without an l1 part: m (w - w') is minus
    the change of the mean gradient from w to w', plus the changed record's. Gradients
    are multiples of records, of norm1 at most sqrt(s) times their norm2, s being the
    declared number of non-zeros. One record's changes by at most H norm2(w - w') in
    norm2, H = phi'' norm2(x)^2. So with d = norm2's bound above, m norm1(w - w') is at
    most sqrt(s) ((n - 1) / n H d + m d); it is at most sqrt(p) m d, too. A distance of
    the tolerance in norm2 is sqrt(p) times that in norm1.

    The noisy point is moved into the set, or into a penalty's box, which is free: to
    the nearest point in norm2, or in the max norm, which keeps more of what Gaussian
    noise on many coordinates leaves. So is the prox of a structured norm, which makes
    structure of what the noise has undone (postprocess=prox).

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
    sparse gradients", NeurIPS 2024, Algorithm 6 (projection=linf, noise=l1_laplace; its
    constant is larger);
    Chaudhuri, Monteleoni, Sarwate, "Differentially private empirical risk
    minimization", JMLR 2011, Algorithm 1 and Corollary 8 (noise=gamma).
    """

    any_penalty: ClassVar[bool] = True
    linear_losses: ClassVar[bool] = True
    exempt: ClassVar[Mapping[str, str]] = {
        "sensitivities_are_tight": "the minimiser moves that far only where the loss "
        "is linear for all neighbours, which the small problems are not",
        "bounds is None": "at epsilon=inf only: without bounds nothing is private",
        "not problem.is_fixed or any(origin_digest(type(one)) for one in made_of)": (
            "solves anew what may have changed in place"
        ),
    }

    noise: str = shape(
        "gaussian",
        choices=("gaussian", "gamma", "l1_laplace"),
        help="normal; of density exp(-norm2) or exp(-norm1), private at delta = 0",
    )
    tolerance: float = one_solve.tolerance_field(1e-9)
    projection: str = shape(
        "l2",
        choices=PROJECTIONS,
        later=True,
        help="the norm in which the noisy point is moved into the set, if it is",
    )
    postprocess: str = one_solve.postprocess_field()

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Refuse as `OneSolve`, and what is not proved or not known of a set."""
        constraint, penalty = problem.constraint, problem.penalty
        if self.noise == "l1_laplace" and not (
            penalty.quadratic and not constraint.bounded
        ):
            posed = f"constraint={constraint.name}, penalty={penalty.name}"
            return (
                f"noise=l1_laplace: needs constraint none, penalty none or l2: {posed}"
            )
        known = type(constraint).project_linf is not Constraint.project_linf
        if self.projection == "linf" and not known:
            return f"constraint={constraint.name}: has no projection=linf, use l2"
        return super().unsupported_reason(problem)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the minimiser."""
        modulus, slack = self.modulus(problem), 2.0 * self.tolerance
        change = adjacency.of_mean(norm_bound(problem, None), problem.n)
        if self.noise == "l1_laplace":
            change = change * self.spread(problem, modulus)
            slack *= math.sqrt(problem.p)
        yield LAWS[self.noise]("minimiser", change / modulus + slack, 1)

    def spread(self, problem: ERM, modulus: float) -> float:
        """Return a bound on norm1(w - w') / (d / m), the l1 norm's part."""
        n, bounds = problem.n, problem.dataset.bounds
        declared = None if bounds is None else bounds.nonzeros
        curvature = (n - 1) / n * problem.record_smoothness / modulus
        sparse = math.sqrt(problem.p if declared is None else declared)
        return min(sparse * (curvature + 1.0), math.sqrt(problem.p))

    def exact(self, problem: ERM) -> Array:
        """Return the minimiser without noise, (1, p): of all seeds, solved once."""

        def solve_problem() -> Array:
            return self.minimiser(problem, np.zeros(problem.p), self.tolerance)

        made_of = self, problem.loss, problem.penalty, problem.constraint
        # What is a user's own may hold what can be changed in place.
        if not problem.is_fixed or any(origin_digest(type(one)) for one in made_of):
            return solve_problem()
        key = problem.key, repr(self)
        return np.asarray(
            keep_for_dataset(problem.dataset, type(self), key, solve_problem, KEPT)
        )

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the minimiser plus noise, in the set."""
        problem = oracle.problem
        noisy: Array = mechanisms["minimiser"](self.exact(problem))
        if self.postprocess == "prox":
            noisy = one_solve.norm_prox(problem, noisy)
        if self.projection == "none":
            return noisy
        if self.projection == "linf":
            return problem.constraint.project_linf(problem.penalty.prox(noisy, 0.0))
        return one_solve.nearest_feasible(problem, noisy)
