"""Output perturbation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.solvers import one_solve
from dp_erm_bench.solvers.base import Array, Releases
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle


@dataclass(frozen=True)
class OutputPerturbation(one_solve.OneSolve):
    """Output perturbation: the minimiser plus noise.

    Let F and F' be objectives of neighbours, both m-strongly convex, with minimisers w
    and w'. Then m norm2(w - w') is at most the norm of the gradient of F - F' at w',
    which is 2 Lambda / n (replace_one) or Lambda / n (zero_out), for the penalty, the
    set and all other records are the same in both. Each point that is computed is
    within the tolerance of its minimiser, which adds twice the tolerance.

    The noisy point is projected on the set, or on a penalty's box, which is free.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, "Differentially private empirical risk
    minimization", JMLR 2011, Algorithm 1 and Corollary 8 (noise=gamma).
    """

    any_penalty: ClassVar[bool] = True
    exempt: ClassVar[Mapping[str, str]] = {
        "sensitivities_are_tight": "the minimiser moves that far only where the loss "
        "is linear for all neighbours, which the small problems are not"
    }

    noise: str = one_solve.noise_field()
    tolerance: float = one_solve.tolerance_field(1e-9)

    def releases(self, problem: ERM, adjacency: Adjacency, schedule: Any) -> Releases:
        """Yield the minimiser."""
        change = adjacency.of_mean(norm_bound(problem, None), problem.n)
        sensitivity = change / self.modulus(problem) + 2.0 * self.tolerance
        yield one_solve.LAWS[self.noise]("minimiser", sensitivity, 1)

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the minimiser plus noise, in the set."""
        problem = oracle.problem
        exact = self.minimiser(problem, np.zeros(problem.p), self.tolerance)
        return one_solve.nearest_feasible(problem, mechanisms["minimiser"](exact))
