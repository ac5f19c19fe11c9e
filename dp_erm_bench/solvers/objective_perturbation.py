"""Objective perturbation."""

import math
from abc import abstractmethod
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
from dp_erm_bench.releases.objective_gaussian import ObjectiveGaussian
from dp_erm_bench.releases.objective_norm_laplace import ObjectiveNormLaplace
from dp_erm_bench.solvers.base import Array, shape
from dp_erm_bench.solvers.one_solve import OneSolve, lipschitz, tolerance_field
from dp_erm_bench.solvers.sets import nearest_feasible

UNTIGHT = {
    "sensitivities_are_tight": "the gradients at the minimiser are so far apart only "
    "where the loss is linear, which the small problems are not"
}
OUTPUT: Mapping[str, tuple[type[Release], float]] = {
    "gaussian": (Gaussian, 32.0),
    "gamma": (NormLaplace, 256.0),
}
"""Law and weight W of the noise on the answer: normal noise adds 1/W^2 to the square
of what it costs, pure noise 1/W to the level, so that z grows by 0.05 % or 0.4 %."""
# Noise on a zero of the minimiser is larger once in 5e8 entries.
DEVIATIONS = 6.0


@dataclass(frozen=True)
class PerturbedObjective(OneSolve):
    """Methods that publish a point near the minimiser of F(w) + b.w / n, b secret.

    The derivation and its constants are in ``privacy.objective``: the sensitivity of
    the gradient of the sum, log(1 + beta / ridge) for the curvature, with beta = H
    R_2^2 and the ridge of the sum, n (l2 + ridge), and the noise that covers the
    distance to the minimiser.
    """

    exempt: ClassVar[Mapping[str, str]] = UNTIGHT

    @abstractmethod
    def distance(self, problem: ERM) -> float:
        """Return the distance to the minimiser that is accepted."""

    def near(self, oracle: Oracle, mechanisms: Mechanisms) -> Array:
        """Return a point near the minimiser plus noise that covers the distance."""
        problem = oracle.problem
        linear = mechanisms["objective"](problem.p) / problem.n
        found = self.minimiser(problem, linear, self.distance(problem))
        noisy: Array = mechanisms["output"](found)
        return noisy


@dataclass(frozen=True)
class ObjectivePerturbation(PerturbedObjective):
    """Objective perturbation: the minimiser of F(w) + b.w / n, b being secret noise.

    The proof of the papers is for the exact minimiser. The point that is computed is
    within ``tolerance`` of it, and noise of sensitivity 2 tolerance covers the rest.
    Entries that this noise alone explains are published as zeros where the penalty has
    an L1 part; the noisy point is projected on the set, or on a penalty's box. Both are
    free.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, JMLR 2011, Algorithm 2 (noise=gamma); Kifer, Smith,
    Thakurta, COLT 2012, Algorithm 1 (noise=gaussian); accounting: Redberg, Koskela,
    Wang, NeurIPS 2023; output noise: Iyengar et al., IEEE S&P 2019.
    """

    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")

    noise: str = shape(
        "gaussian",
        choices=tuple(OUTPUT),
        help="normal, or of density exp(-norm2), which is private at delta = 0",
    )

    tolerance: float = tolerance_field(1e-8)

    @property
    def printed(self) -> str:
        """Return the name of the paper's constant."""
        return "kifer2012" if self.noise == "gaussian" else "chaudhuri2011"

    def distance(self, problem: ERM) -> float:
        """Return the tolerance."""
        return self.tolerance

    def releases(
        self, problem: ERM, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield the exact minimiser, as if published, and the point near it."""
        if self.noise == "gamma":
            change = adjacency.of_sum(lipschitz(problem))
            bent = curvature(problem, self.modulus(problem))
            yield ObjectiveNormLaplace("objective", change, 1, curvature=bent)
        else:
            yield gaussian_objective(problem, self.modulus(problem), adjacency)
        law, weight = OUTPUT[self.noise]
        yield law("output", 2.0 * self.tolerance, 1, weight)

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the minimiser of the noisy objective, plus noise, in the set."""
        problem, w = oracle.problem, self.near(oracle, mechanisms)
        if problem.separable.l1 > 0.0:
            entry = 1.0 if self.noise == "gaussian" else math.sqrt(problem.p)
            small = DEVIATIONS * entry * mechanisms["output"].scale
            w = np.where(np.abs(w) <= small, 0.0, w)
        return nearest_feasible(problem, w)


def gaussian_objective(
    problem: ERM, modulus: float, adjacency: Adjacency
) -> ObjectiveGaussian:
    """Return the release of the minimiser of an objective with normal noise."""
    return ObjectiveGaussian(
        "objective",
        adjacency.of_sum(lipschitz(problem)),
        1,
        curvature=curvature(problem, modulus),
        terms=terms_of(adjacency),
    )


def curvature(problem: ERM, modulus: float) -> float:
    """Return log(1 + beta / ridge) on the scale of the sum, from declared bounds.

    Zero without bounds: the sensitivity is infinite then, and the problem refused.
    """
    return math.log1p(problem.record_smoothness / (problem.n * modulus))


def terms_of(adjacency: Adjacency) -> int:
    """Return by how many records' terms the objectives of neighbours differ."""
    return 2 if adjacency is Adjacency.REPLACE_ONE else 1
