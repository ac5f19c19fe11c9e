"""Objective perturbation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.releases.objective_gaussian import ObjectiveGaussian
from dp_erm_bench.releases.objective_norm_laplace import ObjectiveNormLaplace
from dp_erm_bench.solvers import one_solve
from dp_erm_bench.solvers.base import Array, Releases
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.terms import ERM, Adjacency, Mechanisms, Oracle

WEIGHTS = {"gaussian": 32.0, "gamma": 256.0}
"""Weight W of the noise on the answer. Gaussian noise adds a fraction 1/W^2 to the
square of the privacy cost, and gamma noise a fraction 1/W to epsilon. The noise
multiplier grows by 0.05 % or 0.4 %."""
# Noise on a zero entry of the minimiser exceeds this once in 5e8 entries.
DEVIATIONS = 6.0


@dataclass(frozen=True)
class PerturbedObjective(one_solve.OneSolve):
    """A method that publishes a point near the minimiser of F(w) + b.w / n.

    The noise b is secret. The derivation is in ``releases.objective_gaussian``. The
    privacy cost has three parts. They are for the sensitivity of the gradient of the
    sum, for the curvature (log(1 + beta / ridge)), and for the distance to the
    minimiser, which noise covers. Here beta = H R_2^2, and the ridge in this logarithm
    is that of the sum, n (l2 + ``ridge``).
    """

    any_penalty: ClassVar[bool] = True
    exempt: ClassVar[Mapping[str, str]] = {
        "sensitivities_are_tight": "the gradients at the minimiser differ this much "
        "only if the loss is linear, unlike in the small problems of the check"
    }

    def curvature(self, problem: ERM) -> float:
        """Return the curvature term log(1 + beta / ridge), on the scale of the sum.

        beta is computed from declared bounds. Without them the term is 0, but the
        sensitivity is infinite, and the problem is refused.
        """
        return math.log1p(
            problem.record_smoothness / (problem.n * self.modulus(problem))
        )

    def exact(self, problem: ERM, adjacency: Adjacency) -> ObjectiveGaussian:
        """Return the release of the minimiser of an objective with Gaussian noise."""
        return ObjectiveGaussian(
            "objective",
            adjacency.of_sum(norm_bound(problem, None)),
            1,
            curvature=self.curvature(problem),
            # The objectives of neighbours differ by the terms of this many records.
            terms=2 if adjacency is Adjacency.REPLACE_ONE else 1,
        )

    def near(self, oracle: Oracle, mechanisms: Mechanisms, distance: float) -> Array:
        """Return a point near the minimiser, plus noise that covers the distance.

        Parameters
        ----------
        oracle : Oracle
            Holds the iterates of B trials and answers queries about the records.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        distance : float
            Largest accepted distance to the minimiser.
        """
        problem = oracle.problem
        linear = mechanisms["objective"](problem.p) / problem.n
        point = self.minimiser(problem, linear, distance)
        noisy: Array = mechanisms["output"](point)
        return noisy


@dataclass(frozen=True)
class ObjectivePerturbation(PerturbedObjective):
    """Objective perturbation: the minimiser of F(w) + b.w / n, with secret noise b.

    The proofs in the papers are for the exact minimiser. The computed point is within
    ``tolerance`` of the minimiser, and noise for a sensitivity of 2 tolerance covers
    the difference. If the penalty has an L1 part or is a structured norm, entries that
    this noise alone could explain are published as zeros. The noisy point is projected
    on the constraint or on the penalty's box. With postprocess=prox, the prox of the
    penalty's norm is applied first. These last steps cost no privacy.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, JMLR 2011, Algorithm 2 (noise=gamma); Kifer, Smith,
    Thakurta, COLT 2012, Algorithm 1 (noise=gaussian); accounting: Redberg, Koskela,
    Wang, NeurIPS 2023; output noise: Iyengar et al., IEEE S&P 2019.
    """

    calibrations: ClassVar[tuple[str, ...]] = ("certified", "paper")

    noise: str = one_solve.noise_field()
    tolerance: float = one_solve.tolerance_field(1e-8)
    postprocess: str = one_solve.postprocess_field()

    @property
    def printed_constant(self) -> str:
        """Return the name of the paper's constant for the noise."""
        return "kifer2012" if self.noise == "gaussian" else "chaudhuri2011"

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
        if self.noise == "gamma":
            change = adjacency.of_sum(norm_bound(problem, None))
            bent = self.curvature(problem)
            yield ObjectiveNormLaplace("objective", change, 1, curvature=bent)
        else:
            yield self.exact(problem, adjacency)
        reach, weight = 2.0 * self.tolerance, WEIGHTS[self.noise]
        yield one_solve.LAWS[self.noise]("output", reach, 1, weight)

    def answer(self, oracle: Oracle, mechanisms: Mechanisms, schedule: Any) -> Array:
        """Return the minimiser of the noisy objective, plus noise, in the constraint.

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
        w = self.near(oracle, mechanisms, self.tolerance)
        psi = problem.penalty
        if not isinstance(psi, SeparablePenalty) or psi.l1 > 0.0:
            entry = 1.0 if self.noise == "gaussian" else math.sqrt(problem.p)
            small = DEVIATIONS * entry * mechanisms["output"].scale
            w = np.where(np.abs(w) <= small, 0.0, w)
        if self.postprocess == "prox":
            w = one_solve.norm_prox(problem, w)
        return one_solve.nearest_feasible(problem, w)
