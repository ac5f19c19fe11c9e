"""All that a solver, a loss, a penalty, a constraint or a release of one's own needs.

Files from outside the package import from here: where a name stands within the package
may change, its name here does not. docs/extending.md says what each is for.
"""

from dp_erm_bench.constraints.base import Ball, Constraint
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.kernels.compiled import exact, kernel
from dp_erm_bench.kernels.elementwise import between, exp, log, sigmoid, softplus
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.losses.base import Loss, check_finite, check_positive, check_signs
from dp_erm_bench.penalties.base import Penalty, SeparablePenalty
from dp_erm_bench.problems.base import Optimum, Problem
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanism, Mechanisms, Release
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.objective_gaussian import ObjectiveGaussian
from dp_erm_bench.releases.objective_norm_laplace import ObjectiveNormLaplace
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.solvers.base import Limit, Solver, shape, value
from dp_erm_bench.solvers.bounds import coordinate_bounds, inverse, norm_bound
from dp_erm_bench.solvers.one_solve import OneSolve
from dp_erm_bench.solvers.runs import steps_between

__all__ = [
    "AdditiveMechanism",
    "Adjacency",
    "Array",
    "Ball",
    "Constraint",
    "ERMProblem",
    "Gaussian",
    "InsideNoisyMax",
    "Laplace",
    "LaplaceNoisyMax",
    "Limit",
    "Loss",
    "Mechanism",
    "Mechanisms",
    "NoisyMax",
    "NormLaplace",
    "ObjectiveGaussian",
    "ObjectiveNormLaplace",
    "OneSolve",
    "Optimum",
    "Oracle",
    "Penalty",
    "PoissonGaussian",
    "Problem",
    "Release",
    "SeparablePenalty",
    "Solver",
    "Unsupported",
    "UsageError",
    "between",
    "check_finite",
    "check_positive",
    "check_signs",
    "coordinate_bounds",
    "exact",
    "exp",
    "inverse",
    "kernel",
    "log",
    "norm_bound",
    "shape",
    "sigmoid",
    "softplus",
    "steps_between",
    "stream_seeds",
    "uniforms",
    "value",
]
