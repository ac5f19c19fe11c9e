"""Names for writing your own solver, loss, penalty, constraint or release.

Files outside the package import these names from here. The place of a name inside the
package may change, but its name in this module does not. docs/extend.md lists all
names.
"""

from dp_erm_bench.constraints.base import Ball as Ball
from dp_erm_bench.constraints.base import Constraint as Constraint
from dp_erm_bench.datasets.base import Array as Array
from dp_erm_bench.errors import Unsupported as Unsupported
from dp_erm_bench.errors import UsageError as UsageError
from dp_erm_bench.kernels.compiled import exact as exact
from dp_erm_bench.kernels.compiled import kernel as kernel
from dp_erm_bench.kernels.elementwise import between as between
from dp_erm_bench.kernels.elementwise import exp as exp
from dp_erm_bench.kernels.elementwise import log as log
from dp_erm_bench.kernels.elementwise import sigmoid as sigmoid
from dp_erm_bench.kernels.elementwise import softplus as softplus
from dp_erm_bench.kernels.philox import uniforms as uniforms
from dp_erm_bench.losses.base import Loss as Loss
from dp_erm_bench.losses.base import check_finite as check_finite
from dp_erm_bench.losses.base import check_positive as check_positive
from dp_erm_bench.losses.base import check_signs as check_signs
from dp_erm_bench.penalties.base import Penalty as Penalty
from dp_erm_bench.penalties.base import SeparablePenalty as SeparablePenalty
from dp_erm_bench.problems.base import Optimum as Optimum
from dp_erm_bench.problems.base import Problem as Problem
from dp_erm_bench.problems.erm.oracle import Oracle as Oracle
from dp_erm_bench.problems.erm.problem import ERMProblem as ERMProblem
from dp_erm_bench.problems.erm.second_order import Geometry as Geometry
from dp_erm_bench.problems.erm.second_order import curvatures as curvatures
from dp_erm_bench.problems.erm.second_order import label_products as label_products
from dp_erm_bench.problems.erm.second_order import matrix_refusal as matrix_refusal
from dp_erm_bench.problems.erm.second_order import outer_products as outer_products
from dp_erm_bench.problems.erm.second_order import pack_symmetric as pack_symmetric
from dp_erm_bench.problems.erm.second_order import secants as secants
from dp_erm_bench.problems.erm.second_order import solve_system as solve_system
from dp_erm_bench.problems.erm.second_order import unpack_symmetric as unpack_symmetric
from dp_erm_bench.releases.additive import AdditiveMechanism as AdditiveMechanism
from dp_erm_bench.releases.adjacency import Adjacency as Adjacency
from dp_erm_bench.releases.allocation_gaussian import (
    AllocationGaussian as AllocationGaussian,
)
from dp_erm_bench.releases.base import Mechanism as Mechanism
from dp_erm_bench.releases.base import Mechanisms as Mechanisms
from dp_erm_bench.releases.base import Release as Release
from dp_erm_bench.releases.fixed_size_gaussian import (
    FixedSizeGaussian as FixedSizeGaussian,
)
from dp_erm_bench.releases.gaussian import Gaussian as Gaussian
from dp_erm_bench.releases.gaussian import divide_mu as divide_mu
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax as InsideNoisyMax
from dp_erm_bench.releases.l1_laplace import L1Laplace as L1Laplace
from dp_erm_bench.releases.laplace import Laplace as Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax as LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax as NoisyMax
from dp_erm_bench.releases.norm_laplace import NormLaplace as NormLaplace
from dp_erm_bench.releases.objective_gaussian import (
    ObjectiveGaussian as ObjectiveGaussian,
)
from dp_erm_bench.releases.objective_norm_laplace import (
    ObjectiveNormLaplace as ObjectiveNormLaplace,
)
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian as PoissonGaussian
from dp_erm_bench.releases.repeat_and_select import RepeatAndSelect as RepeatAndSelect
from dp_erm_bench.releases.single_use_gaussian import (
    SingleUseGaussian as SingleUseGaussian,
)
from dp_erm_bench.releases.sketched_gaussian import SketchedGaussian as SketchedGaussian
from dp_erm_bench.releases.streams import stream_seeds as stream_seeds
from dp_erm_bench.rules.public import PublicNumbers as PublicNumbers
from dp_erm_bench.rules.settings import Rule as Rule
from dp_erm_bench.solvers.base import Limit as Limit
from dp_erm_bench.solvers.base import Solver as Solver
from dp_erm_bench.solvers.base import shape as shape
from dp_erm_bench.solvers.base import value as value
from dp_erm_bench.solvers.bounds import bounds_refusal as bounds_refusal
from dp_erm_bench.solvers.bounds import column_bounds as column_bounds
from dp_erm_bench.solvers.bounds import coordinate_bounds as coordinate_bounds
from dp_erm_bench.solvers.bounds import inverse as inverse
from dp_erm_bench.solvers.bounds import label_bound as label_bound
from dp_erm_bench.solvers.bounds import moments_change as moments_change
from dp_erm_bench.solvers.bounds import norm_bound as norm_bound
from dp_erm_bench.solvers.bounds import outer_change as outer_change
from dp_erm_bench.solvers.bounds import record_bound as record_bound
from dp_erm_bench.solvers.one_solve import OneSolve as OneSolve
from dp_erm_bench.solvers.private import once as once
from dp_erm_bench.solvers.private import private_call as private_call
from dp_erm_bench.solvers.private import uncharged as uncharged
from dp_erm_bench.solvers.runs import steps_between as steps_between
from dp_erm_bench.solvers.work import StepWork as StepWork

__all__ = [name for name in dir() if not name.startswith("_")]
