"""What first-order methods share whose every step reads all records."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms, Release
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.solvers.base import Array, Solver, shape, steps_between, value
from dp_erm_bench.solvers.bounds import norm_bound

Step = Callable[[int], None]


@dataclass(frozen=True)
class FullBatch(Solver):
    """T steps in the problem's constraint, each of which reads all records."""

    constrained: ClassVar[bool] = True

    n_iter: int = shape(20, least=0, help="T, the number of steps")

    @property
    def averages(self) -> bool:
        """Return whether the mean of the iterates after the start is returned."""
        return False

    def iterations(self, problem: ERM) -> int:
        """Return T."""
        return self.n_iter

    def passes_at(self, problem: ERM, iteration: int) -> float:
        """Return the passes: one a step."""
        return float(iteration)

    @abstractmethod
    def stepper(self, oracle: Oracle, mechanisms: Mechanisms) -> Step:
        """Return what makes step t = 0, 1, ... in each trial."""

    def iterates(
        self,
        oracle: Oracle,
        mechanisms: Mechanisms,
        checkpoints: Sequence[int],
        schedule: Any,
    ) -> Iterator[Array]:
        """Yield the iterates, or their means, at the checkpoints."""
        step, mean, done = self.stepper(oracle, mechanisms), oracle.w.copy(), 0
        yield oracle.w
        for k in steps_between(checkpoints):
            for t in range(done, done + k):
                step(t)
                if self.averages:
                    mean += (oracle.w - mean) / (t + 1)
            done += k
            yield mean if self.averages else oracle.w


@dataclass(frozen=True)
class FullGradient(FullBatch):
    """Steps along the sum of all clipped gradients, published with Gaussian noise."""

    output: str = shape(
        "last", choices=("last", "average"), help="which iterate is returned"
    )
    clip: float | None = value(
        None, above=0.0, help="bound on a gradient's norm; null: declared bounds"
    )

    @property
    def averages(self) -> bool:
        """Return whether the mean of the iterates after the start is returned."""
        return self.output == "average"

    def releases(
        self, problem: ERM, adjacency: Adjacency, schedule: Any
    ) -> Iterator[Release]:
        """Yield one noisy sum per step."""
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        yield Gaussian("gradient", change, self.n_iter)

    def noisy_mean(self, oracle: Oracle, mechanisms: Mechanisms) -> Array:
        """Publish the noisy mean gradient at the iterates, (B, p)."""
        bound = norm_bound(oracle.problem, self.clip)
        total = oracle.clipped_sum(np.broadcast_to(bound, (oracle.batch, 1)))
        noisy: Array = mechanisms["gradient"](total) / oracle.problem.n
        return noisy
