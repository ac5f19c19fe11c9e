"""Private proximal gradient descent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.privacy.adjacency import Adjacency
from dp_erm_bench.privacy.mechanisms import Mechanism, Mechanisms
from dp_erm_bench.privacy.releases import Gaussian, Release
from dp_erm_bench.problems.oracle import Oracle
from dp_erm_bench.problems.problem import Problem
from dp_erm_bench.solvers.base import (
    Array,
    Solver,
    inverse,
    shape,
    steps_between,
    value,
)
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.limit import Limit
from dp_erm_bench.solvers.sets import projection_refusal


@dataclass(frozen=True)
class GD(Solver):
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

    constrained: ClassVar[bool] = True

    n_iter: int = shape(20, least=0, help="T, the number of steps")
    output: str = shape(
        "last", choices=("last", "average"), help="which iterate is returned"
    )
    step: float = value(1.0, above=0.0, help="step size, times 1 / beta")
    clip: float | None = value(
        None, above=0.0, help="bound on a gradient's norm; null: declared bounds"
    )

    @classmethod
    def limits(cls, problem: Problem, curvature: float) -> Iterator[Limit]:
        """State linear convergence of the last iterate, 1 / t for the mean."""
        length = 3_000 if problem.constraint.bounded else 600
        yield Limit(cls(n_iter=length), gap=1e-9)
        yield Limit(cls(n_iter=1_000, output="average"), gap=1e-2, slope=-0.9)

    def unsupported(self, problem: Problem) -> str | None:
        """Refuse penalties for which no step keeps the constraint."""
        return projection_refusal(problem, "gd")

    def iterations(self, problem: Problem) -> int:
        """Return T."""
        return self.n_iter

    def passes_at(self, problem: Problem, iteration: int) -> float:
        """Return the passes: one a step."""
        return float(iteration)

    def releases(
        self, problem: Problem, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield one noisy sum per step."""
        yield Gaussian(
            "gradient", adjacency.of_sum(norm_bound(problem, self.clip)), self.n_iter
        )

    def iterates(
        self,
        oracle: Oracle,
        mechanisms: Mechanisms,
        checkpoints: Sequence[int],
        schedule: Any,
    ) -> Iterator[Array]:
        """Yield the iterates, or their means, at the checkpoints."""
        problem, mean = oracle.problem, np.zeros_like(oracle.w)
        clip = np.broadcast_to(norm_bound(problem, self.clip), (oracle.batch, 1))
        size = self.step * inverse(np.atleast_2d(problem.smoothness.norm))
        yield oracle.w
        done = 0
        for k in steps_between(checkpoints):
            for _ in range(k):
                gradient_step(oracle, mechanisms["gradient"], clip, size)
                done += 1
                mean += (oracle.w - mean) / done
            yield mean if self.output == "average" else oracle.w


def gradient_step(
    oracle: Oracle, mechanism: Mechanism, clip: Array, size: Array
) -> None:
    """Make one noisy proximal gradient step in each trial."""
    problem = oracle.problem
    noisy = mechanism(oracle.clipped_sum(clip)) / problem.n
    moved = problem.penalty.prox(oracle.w - size * noisy, size)
    oracle.move_to(problem.constraint.project(moved))
