"""Run every kernel once on a tiny problem, so that numba's cache is filled."""

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.privacy.adjacency import Adjacency
from dp_erm_bench.privacy.mechanisms import make_mechanisms
from dp_erm_bench.problems.build import build_problem
from dp_erm_bench.problems.oracles import make_oracle
from dp_erm_bench.problems.problem import Problem
from dp_erm_bench.solvers.base import Solver, stack

TINY = {"n_iter": 2, "clip": 1.0}


def compile_kernels() -> None:
    """Run two steps of each algorithm with noise on four records."""
    X = np.asfortranarray([[1.0, -1.0], [0.5, 1.0], [-1.0, 0.0], [0.0, 2.0]])
    X.setflags(write=False)
    y = np.array([1.0, -1.0, 1.0, -1.0])
    y.setflags(write=False)
    data = Dataset("warm-up", X, y, None, "")
    problem = build_problem(data, "logistic", "none").with_smoothness("data")
    for name in registry.built_in("algorithm"):
        fields = registry.target("algorithm", name).__dataclass_fields__
        given = {k: v for k, v in TINY.items() if k in fields}
        _run(problem, stack([registry.build("algorithm", name, **given)]))


def _run(problem: Problem, solver: Solver) -> None:
    schedule = solver.plan(problem, ["0"])
    releases = solver.releases(problem, Adjacency.REPLACE_ONE, schedule)
    mechanisms = make_mechanisms(releases, 1.0, ["0"])
    oracle = make_oracle(problem, 1)
    for w in solver.iterates(oracle, mechanisms, [0, 2], schedule):
        oracle.objective(w)
