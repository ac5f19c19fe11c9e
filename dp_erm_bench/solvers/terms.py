"""The types that appear in the signatures of solvers, imported in one place."""

from dp_erm_bench.problems.erm.objective import ERM as ERM
from dp_erm_bench.problems.erm.oracle import Oracle as Oracle
from dp_erm_bench.releases.adjacency import Adjacency as Adjacency
from dp_erm_bench.releases.base import Mechanisms as Mechanisms
from dp_erm_bench.releases.gaussian import Gaussian as Gaussian
