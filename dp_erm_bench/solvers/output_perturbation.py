"""Output perturbation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms, Release
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.solvers.base import Array, shape
from dp_erm_bench.solvers.one_solve import OneSolve, lipschitz, tolerance_field
from dp_erm_bench.solvers.sets import nearest_feasible

LAWS: dict[str, type[Gaussian] | type[NormLaplace]] = {
    "gaussian": Gaussian,
    "gamma": NormLaplace,
}


@dataclass(frozen=True)
class OutputPerturbation(OneSolve):
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

    noise: str = shape(
        "gaussian",
        choices=tuple(LAWS),
        help="normal, or of density exp(-norm2), which is private at delta = 0",
    )

    tolerance: float = tolerance_field(1e-9)

    def releases(
        self, problem: ERM, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield the minimiser."""
        change = adjacency.of_mean(lipschitz(problem), problem.n)
        sensitivity = change / self.modulus(problem) + 2.0 * self.tolerance
        yield LAWS[self.noise]("minimiser", sensitivity, 1)

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the minimiser plus noise, in the set."""
        problem = oracle.problem
        exact = self.minimiser(problem, np.zeros(problem.p), self.tolerance)
        return nearest_feasible(problem, mechanisms["minimiser"](exact))
