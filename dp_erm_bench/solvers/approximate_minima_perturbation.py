"""Approximate minima perturbation."""

from dataclasses import dataclass
from typing import Any

from dp_erm_bench.solvers.base import Array, Releases, shape
from dp_erm_bench.solvers.objective_perturbation import PerturbedObjective
from dp_erm_bench.solvers.one_solve import nearest_feasible
from dp_erm_bench.solvers.terms import ERM, Adjacency, Gaussian, Mechanisms, Oracle


@dataclass(frozen=True)
class ApproximateMinimaPerturbation(PerturbedObjective):
    """Approximate minima perturbation (AMP), which needs no exact minimiser.

    Let m be the modulus of strong convexity. If the gradient of the noisy objective has
    norm at most gamma at a point, this point is within gamma / m of the exact
    minimiser. The analysis treats the exact minimiser as published by objective
    perturbation. Given this minimiser, the points computed on two neighbouring datasets
    differ by at most 2 gamma / m, and Gaussian noise covers this difference. The proof
    in the paper uses gamma / m instead. Its output noise is therefore too small by a
    factor of 2, but its split of the budget compensates for this.

    References
    ----------
    Iyengar, Near, Song, Thakkar, Thakurta, Wang, "Towards practical differentially
    private convex optimization", IEEE S&P 2019, Algorithm 1.
    """

    gradient: float | None = shape(
        None,
        above=0.0,
        help="gamma, the largest accepted norm of the gradient of the noisy objective; "
        "null: 1 / n^2",
    )
    output_weight: float = shape(
        10.0,
        above=0.0,
        help="noise multiplier of the output, divided by that of the objective",
    )

    def distance(self, problem: ERM) -> float:
        """Return the largest distance to the exact minimiser, gamma / modulus."""
        gamma = self.gradient or 1.0 / problem.n**2
        return gamma / self.modulus(problem)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield two releases: the exact minimiser, as if published, and a noisy point.

        Parameters
        ----------
        problem : ERM
            The objective and its records.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        yield self.exact(problem, adjacency)
        reach = 2.0 * self.distance(problem)
        yield Gaussian("output", reach, 1, weight=self.output_weight)

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return a point near the minimiser of the noisy objective, plus noise.

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
        near = self.near(oracle, mechanisms, self.distance(problem))
        return nearest_feasible(problem, near)
