"""The noisy mean, projected on an l1 ball that contains the exact mean."""

from dataclasses import dataclass
from typing import Any

from dp_erm_bench.kernels.projections import L1_BALL, project
from dp_erm_bench.problems.base import BaseOracle
from dp_erm_bench.releases.base import Mechanisms
from dp_erm_bench.solvers.base import Array
from dp_erm_bench.solvers.mean_noise import MeanNoise


@dataclass(frozen=True)
class MeanProjection(MeanNoise):
    """The projection mechanism: the noisy mean, projected on an l1 ball.

    The mean of s-sparse records of norm2 at most L is in the l1 ball of radius
    L sqrt(s). Projecting the noisy mean on this ball costs no privacy. The projection
    is never farther from the exact mean than the noisy mean is.

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with
    sparse gradients", NeurIPS 2024, Algorithm 1.
    """

    def answer(
        self, oracle: BaseOracle, mechanisms: Mechanisms, schedule: Any
    ) -> Array:
        """Return the noisy means, projected on the l1 ball.

        Parameters
        ----------
        oracle : BaseOracle
            The iterates of B trials, and their problem.
        mechanisms : Mechanisms
            The declared releases with their noise, by name.
        schedule : object
            The result of `plan`; not used.
        """
        noisy = self.noisy_mean(oracle, mechanisms)
        for w in noisy:
            project((L1_BALL, oracle.problem.l1_radius), w)
        return noisy
