"""A user's solver: descent along noisy sums over secret samples, with delta = 0."""

from dataclasses import dataclass

from sampled_vector import SampledVector

from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.sgd import SGD


@dataclass(frozen=True)
class SampledDescent(SGD):
    """DP-SGD with norm-Laplace noise.

    References
    ----------
    Balle, Barthe, Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018.
    """

    calibrations = ("certified",)

    def releases(self, problem, adjacency, schedule):
        change = adjacency.of_sum(norm_bound(problem, self.clip))
        rate = self.expected_batch(problem) / problem.n
        yield SampledVector("gradient", change, self.iterations(problem), rate=rate)
