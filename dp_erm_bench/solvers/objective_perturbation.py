"""Objective perturbation."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from dp_erm_bench.privacy.adjacency import Adjacency
from dp_erm_bench.privacy.mechanisms import Mechanisms
from dp_erm_bench.privacy.perturbation import ObjectiveGaussian, ObjectiveNormLaplace
from dp_erm_bench.privacy.releases import Release
from dp_erm_bench.problems.oracle import Oracle
from dp_erm_bench.problems.problem import Problem
from dp_erm_bench.solvers.base import Array, shape
from dp_erm_bench.solvers.one_solve import OneSolve, lipschitz, tolerance_field

SECRET = (
    "what is published is a minimiser, no noisy query: the replay audit and the count "
    "of noise by query do not apply; the law of the minimiser is tested exactly"
)


AUDITS = ("replay_audit", "sensitivities_are_tight", "private_constants_are_audited")


@dataclass(frozen=True)
class ObjectivePerturbation(OneSolve):
    """Objective perturbation: the minimiser of F(w) + b.w / n, b being secret noise.

    The derivation and its constants are in ``privacy.objective``: the sensitivity of
    the gradient of the sum, and log(1 + beta / ridge) for the curvature, with
    beta = H R_2^2 and the ridge of the sum, n (l2 + ridge). The proof is for the exact
    minimiser: a distance to it is verified, down to rounding.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, JMLR 2011, Algorithm 2 (noise=gamma); Kifer, Smith,
    Thakurta, COLT 2012, Algorithm 1 (noise=gaussian); accounting: Redberg, Koskela,
    Wang, NeurIPS 2023.
    """

    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")
    exempt: ClassVar[Mapping[str, str]] = dict.fromkeys(AUDITS, SECRET)

    noise: str = shape(
        "gaussian",
        choices=("gaussian", "gamma"),
        help="normal, or of density exp(-norm2), which is private at delta = 0",
    )

    tolerance: float = tolerance_field(1e-8)

    @property
    def printed(self) -> str:
        """Return the name of the paper's constant."""
        return "kifer2012" if self.noise == "gaussian" else "chaudhuri2011"

    def releases(
        self, problem: Problem, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield the minimiser of the noisy objective."""
        change = adjacency.of_sum(lipschitz(problem))
        bent = {"curvature": curvature(problem, self.modulus(problem))}
        if self.noise == "gamma":
            yield ObjectiveNormLaplace("objective", change, 1, **bent)
        else:
            terms = terms_of(adjacency)
            yield ObjectiveGaussian("objective", change, 1, **bent, terms=terms)

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the minimiser of the noisy objective."""
        problem = oracle.problem
        linear = mechanisms["objective"](problem.p) / problem.n
        return self.minimiser(problem, linear, self.tolerance)


def curvature(problem: Problem, modulus: float) -> float:
    """Return log(1 + beta / ridge) on the scale of the sum, from declared bounds.

    Zero without bounds: the sensitivity is infinite then, and the problem refused.
    """
    bounds = problem.dataset.bounds
    norm = 0.0 if bounds is None else bounds.norm
    return math.log1p(problem.loss.smoothness * norm**2 / (problem.n * modulus))


def terms_of(adjacency: Adjacency) -> int:
    """Return by how many records' terms the objectives of neighbours differ."""
    return 2 if adjacency is Adjacency.REPLACE_ONE else 1
