"""Approximate minima perturbation."""

from dataclasses import dataclass
from typing import Any

from dp_erm_bench.solvers.base import Array, Releases, shape
from dp_erm_bench.solvers.objective_perturbation import PerturbedObjective
from dp_erm_bench.solvers.one_solve import nearest_feasible
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle


@dataclass(frozen=True)
class ApproximateMinimaPerturbation(PerturbedObjective):
    """Approximate minima perturbation (AMP): no exact minimiser is needed.

    A point whose gradient of the noisy objective has norm at most gamma is within
    gamma / m of its minimiser, m being the modulus of strong convexity. Think of the
    exact minimiser as published (objective perturbation); given it, the points of two
    neighbours differ by at most 2 gamma / m, and Gaussian noise covers that. The proof
    of the paper has gamma / m there: its output noise is too small by a factor of 2,
    which its split of the budget makes up for.

    References
    ----------
    Iyengar, Near, Song, Thakkar, Thakurta, Wang, "Towards practical differentially
    private convex optimization", IEEE S&P 2019, Algorithm 1.
    """

    gradient: float | None = shape(
        None, above=0.0, help="gamma, the norm of the gradient; null: 1 / n^2"
    )
    output_weight: float = shape(
        10.0,
        above=0.0,
        help="noise multiplier of the output / that of the objective",
    )

    def distance(self, problem: ERM) -> float:
        """Return gamma / m."""
        gamma = self.gradient or 1.0 / problem.n**2
        return gamma / self.modulus(problem)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the exact minimiser, as if published, and the point near it."""
        yield self.exact(problem, adjacency)
        reach = 2.0 * self.distance(problem)
        yield Gaussian("output", reach, 1, weight=self.output_weight)

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return a point near the minimiser of the noisy objective, plus noise."""
        problem = oracle.problem
        near = self.near(oracle, mechanisms, self.distance(problem))
        return nearest_feasible(problem, near)
