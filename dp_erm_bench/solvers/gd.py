"""Private proximal gradient descent."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.solvers.base import Limit, value
from dp_erm_bench.solvers.bounds import (
    inverse,
    mean_radius,
    projected_means,
    projection_refusal,
)
from dp_erm_bench.solvers.runs import FullGradient, Step, mean_field
from dp_erm_bench.solvers.terms import ERM, Mechanisms, Oracle


@dataclass(frozen=True)
class GD(FullGradient):
    """Differentially private proximal gradient descent (DP-GD).

    Each step publishes the sum of all records' clipped gradients with Gaussian noise.
    The output is the last iterate or the mean of all iterates after the start. With
    ``mean=projection``, a step first projects the noisy mean on the l1 ball of radius
    sqrt(s) C. This ball contains all means of gradients with s non-zero entries and
    norm at most C. The projection costs no privacy, because it reads only the published
    mean. The run starts in the constraint set, and each step ends with a projection on
    it.

    References
    ----------
    Bassily, Smith, Thakurta, "Private empirical risk minimization: efficient
    algorithms and tight error bounds", FOCS 2014, with all records in every step;
    Song, Chaudhuri, Sarwate, GlobalSIP 2013; Ghazi, Guzman, Kamath, Kumar, Manurangsi,
    "Differentially private optimization with sparse gradients", NeurIPS 2024, Algorithm
    1 (the projection).
    """

    any_penalty: ClassVar[bool] = True

    step: float = value(
        1.0,
        above=0.0,
        help="step size in units of 1 / beta, with smoothness constant beta",
    )
    mean: str = mean_field(later=True)

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """Yield bounds without noise: linear convergence, or 1 / t for the mean."""
        yield Limit(cls(n_iter=300), gap=1e-9)
        yield Limit(cls(n_iter=500, output="average"), gap=1e-2, slope=-0.9)

    def unsupported_reason(self, problem: ERM) -> str | None:
        """Return the reason why penalty and constraint cannot be combined, or None."""
        return projection_refusal(problem, "gd")

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the function that makes a noisy proximal gradient step."""
        problem = oracle.problem
        radius = mean_radius(problem, self.clip)
        size = self.step * inverse(np.atleast_2d(problem.smoothness.norm))

        def step(t: int) -> None:
            noisy = self.noisy_mean(oracle, mechanisms)
            if self.mean == "projection":
                noisy = projected_means(noisy, radius)
            moved = problem.penalty.prox(oracle.w - size * noisy, size)
            oracle.move_to(problem.constraint.project(moved))

        return step
