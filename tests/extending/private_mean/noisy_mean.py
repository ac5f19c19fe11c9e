"""A user's solver: the Gaussian mechanism on the mean of bounded records."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from bounded_records import BoundedRecords

from dp_erm_bench.extend import Gaussian, Solver


@dataclass(frozen=True)
class NoisyMean(Solver):
    """The mean of the records plus normal noise.

    References
    ----------
    Dwork, Kenthapadi, McSherry, Mironov, Naor, "Our data, ourselves: privacy via
    distributed noise generation", EUROCRYPT 2006.
    """

    serves: ClassVar[type] = BoundedRecords
    uses_smoothness: ClassVar[bool] = False

    def iterations(self, problem):
        return 1

    def passes_at(self, problem, iteration):
        return float(iteration)

    def releases(self, problem, adjacency, schedule):
        yield Gaussian("mean", adjacency.of_mean(problem.radius, problem.n), 1)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        yield oracle.w
        for _ in checkpoints[1:]:
            mean = np.tile(oracle.problem.mean, (oracle.batch, 1))
            oracle.move_to(mechanisms["mean"](mean))
            yield oracle.w
