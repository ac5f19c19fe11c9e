"""Private proximal gradient descent."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.solvers.base import Limit, value
from dp_erm_bench.solvers.bounds import inverse, projection_refusal
from dp_erm_bench.solvers.runs import FullGradient, Step
from dp_erm_bench.solvers.terms import ERM, Mechanisms, Oracle


@dataclass(frozen=True)
class GD(FullGradient):
    """Differentially private proximal gradient descent (DP-GD).

    Each step publishes the sum of all records' clipped gradients with Gaussian noise;
    the last iterate or the mean of all after the start is returned. Each step ends
    with the projection on the constraint, which the run starts in.

    References
    ----------
    Bassily, Smith, Thakurta, "Private empirical risk minimization: efficient
    algorithms and tight error bounds", FOCS 2014, with all records in every step;
    Song, Chaudhuri, Sarwate, GlobalSIP 2013.
    """

    any_penalty: ClassVar[bool] = True

    step: float = value(1.0, above=0.0, help="step size, times 1 / beta")

    @classmethod
    def limits(cls, problem: ERM, curvature: float) -> Iterator[Limit]:
        """State linear convergence of the last iterate, 1 / t for the mean."""
        yield Limit(cls(n_iter=600), gap=1e-9)
        yield Limit(cls(n_iter=1_000, output="average"), gap=1e-2, slope=-0.9)

    def unsupported(self, problem: ERM) -> str | None:
        """Refuse penalties for which no step keeps the constraint."""
        return projection_refusal(problem, "gd")

    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return the noisy proximal gradient step."""
        problem = oracle.problem
        size = self.step * inverse(np.atleast_2d(problem.smoothness.norm))

        def step(t: int) -> None:
            noisy = self.noisy_mean(oracle, mechanisms)
            moved = problem.penalty.prox(oracle.w - size * noisy, size)
            oracle.move_to(problem.constraint.project(moved))

        return step
