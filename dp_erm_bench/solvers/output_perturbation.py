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
"""Number of minimisers (for different ridges) that are cached per dataset."""
PROJECTIONS = ("l2", "linf", "none")


@dataclass(frozen=True)
class OutputPerturbation(one_solve.OneSolve):
    """Output perturbation: the minimiser plus noise.

    Let F and F' be the objectives of neighbouring datasets, both m-strongly convex,
    with minimisers w and w'. Then m norm2(w - w') is at most the norm of the gradient
    of F - F' at w'. This norm is at most 2 Lambda / n (replace_one) or Lambda / n
    (zero_out), because the penalty, the constraint and all other records are the same
    in both. Each computed point is within the tolerance of its minimiser, which adds
    twice the tolerance.

    For the l1 norm (noise=l1_laplace), there is no constraint and the penalty has no l1
    part. Then m (w - w') is the sum of two changes of the mean gradient from w to w'.
    One is in the part of the other records, and one is in the part of the one record.
    Gradients are multiples of records, so their norm1 is at most sqrt(s) times their
    norm2, where s is the declared number of non-zeros. One record's gradient changes by
    at most H norm2(w - w') in norm2, where H = phi'' norm2(x)^2. With d the bound on
    norm2(w - w') from above, m norm1(w - w') is at most sqrt(s) ((n - 1) / n H d + m
    d), and also at most sqrt(p) m d. A distance within the tolerance in norm2 is at
    most sqrt(p) times the tolerance in norm1.

    The noisy point is moved to the nearest point in the constraint or in a penalty's
    box, which costs no privacy. Nearest means in norm2 or in the max norm. The max norm
    preserves more of the signal that Gaussian noise on many coordinates leaves. The
    prox of a structured norm (postprocess=prox) costs no privacy either. It restores
    structure that the noise has destroyed.

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
        "sensitivities_are_tight": "the minimiser moves this far only if the loss is "
        "linear for all neighbours, unlike in the small problems of the check",
        "bounds is None": "runs only at epsilon=inf, because nothing is private "
        "without bounds",
        "not problem.is_fixed or any(origin_digest(type(one)) for one in made_of)": (
            "solves again a problem that may have changed in place"
        ),
    }

    noise: str = shape(
        "gaussian",
        choices=("gaussian", "gamma", "l1_laplace"),
        help="distribution of the noise; gamma has a density proportional to "
        "exp(-norm2 / scale), l1_laplace to exp(-norm1 / scale); both give privacy "
        "with delta = 0",
    )
    tolerance: float = one_solve.tolerance_field(1e-9)
    projection: str = shape(
        "l2",
        choices=PROJECTIONS,
        later=True,
        help="norm in which the noisy point is projected on the constraint set; none: "
        "no projection",
    )
    postprocess: str = one_solve.postprocess_field()

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why a problem, noise or projection is refused, or None."""
        constraint, penalty = problem.constraint, problem.penalty
        if self.noise == "l1_laplace" and not (
            penalty.quadratic and not constraint.bounded
        ):
            posed = f"constraint={constraint.name}, penalty={penalty.name}"
            return (
                "noise=l1_laplace needs constraint none and penalty none or l2, not "
                f"{posed}"
            )
        known = type(constraint).project_linf is not Constraint.project_linf
        if self.projection == "linf" and not known:
            return (
                f"constraint={constraint.name}: there is no projection in the linf "
                "norm; use projection=l2"
            )
        return super().unsupported_reason(problem)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the release of the minimiser.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        modulus, slack = self.modulus(problem), 2.0 * self.tolerance
        change = adjacency.of_mean(norm_bound(problem, None), problem.n)
        if self.noise == "l1_laplace":
            change = change * self.spread(problem, modulus)
            slack *= math.sqrt(problem.p)
        yield LAWS[self.noise]("minimiser", change / modulus + slack, 1)

    def spread(self, problem: ERM, modulus: float) -> float:
        """Return a bound on norm1(w - w') / d, where d bounds norm2(w - w')."""
        n, bounds = problem.n, problem.dataset.bounds
        declared = None if bounds is None else bounds.nonzeros
        curvature = (n - 1) / n * problem.record_smoothness / modulus
        sparse = math.sqrt(problem.p if declared is None else declared)
        return min(sparse * (curvature + 1.0), math.sqrt(problem.p))

    def exact(self, problem: ERM) -> Array:
        """Return the exact minimiser, shape (1, p), computed once for all seeds."""

        def solve_problem() -> Array:
            return self.minimiser(problem, np.zeros(problem.p), self.tolerance)

        made_of = self, problem.loss, problem.penalty, problem.constraint
        # Objects of classes that users wrote may have been changed in place.
        if not problem.is_fixed or any(origin_digest(type(one)) for one in made_of):
            return solve_problem()
        key = problem.key, repr(self)
        return np.asarray(
            keep_for_dataset(problem.dataset, type(self), key, solve_problem, KEPT)
        )

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the minimiser plus noise, in the constraint.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`; not used.
        """
        problem = oracle.problem
        noisy: Array = mechanisms["minimiser"](self.exact(problem))
        if self.postprocess == "prox":
            noisy = one_solve.norm_prox(problem, noisy)
        if self.projection == "none":
            return noisy
        if self.projection == "linf":
            return problem.constraint.project_linf(problem.penalty.prox(noisy, 0.0))
        return one_solve.nearest_feasible(problem, noisy)
