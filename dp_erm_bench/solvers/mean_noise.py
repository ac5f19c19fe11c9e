"""The mean of the records plus noise."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.problems.base import BaseOracle, Problem
from dp_erm_bench.problems.mean import MeanEstimation
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.l1_laplace import L1Laplace
from dp_erm_bench.solvers.base import Array, Releases, shape
from dp_erm_bench.solvers.one_solve import SingleAnswer
from dp_erm_bench.solvers.work import StepWork

NOISES = ("gaussian", "laplace")


@dataclass(frozen=True)
class MeanSolver(SingleAnswer):
    """A method that publishes one noisy answer about the mean of bounded records.

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
    sparse gradients", NeurIPS 2024, section 3.
    """

    serves: ClassVar[type[Problem]] = MeanEstimation
    batchable: ClassVar[bool] = True

    def step_work(self, problem: MeanEstimation) -> StepWork:
        """Return the work of noise and of ten elementwise operations per coordinate."""
        p = problem.p
        return StepWork(calls=1.0, walked=problem.entries, draws=p, features=10.0 * p)

    def noisy_mean(self, oracle: BaseOracle, mechanisms: Mechanisms) -> Array:
        """Return the mean of the records plus the noise of each trial, shape (B, p)."""
        mean = np.broadcast_to(oracle.problem.mean, oracle.w.shape)
        noisy: Array = mechanisms["mean"](mean)
        return noisy


@dataclass(frozen=True)
class MeanNoise(MeanSolver):
    """The Gaussian or the Laplace mechanism on the mean.

    Records have norm2 at most L and at most s non-zeros. One of n records changes the
    mean by at most 2 L / n (replace_one) or L / n (zero_out) in the l2 norm. In the l1
    norm the change is at most sqrt(s) times that, because norm1(z) <= sqrt(s) norm2(z)
    for each of the two records.

    References
    ----------
    Dwork, McSherry, Nissim, Smith, "Calibrating noise to sensitivity in private data
    analysis", TCC 2006; Dwork, Kenthapadi, McSherry, Mironov, Naor, "Our data,
    ourselves: privacy via distributed noise generation", EUROCRYPT 2006.
    """

    noise: str = shape(
        "gaussian",
        choices=NOISES,
        help="distribution of the noise; laplace gives privacy with delta = 0",
    )

    def releases(
        self, problem: MeanEstimation, adjacency: Adjacency, schedule: Any
    ) -> Releases:
        """Yield the release of the mean.

        Parameters
        ----------
        problem : MeanEstimation
            The records and their bounds.
        adjacency : Adjacency
            The relation between neighbouring datasets.
        schedule : object
            The result of `plan`; not used.
        """
        if self.noise == "laplace":
            change = adjacency.of_mean(problem.l1_radius, problem.n)
            yield L1Laplace("mean", change, 1)
        else:
            yield Gaussian("mean", adjacency.of_mean(problem.radius, problem.n), 1)

    def answer(
        self, oracle: BaseOracle, mechanisms: Mechanisms, schedule: Any
    ) -> Array:
        """Return the noisy mean.

        Parameters
        ----------
        oracle : BaseOracle
            The iterates of B trials, and their problem.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`; not used.
        """
        return self.noisy_mean(oracle, mechanisms)
