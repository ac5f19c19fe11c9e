"""Run an algorithm once on a tiny problem before its time is taken.

Its kernels are compiled then, or loaded from numba's cache: at once in every worker,
each of which needs them, and none that the algorithm does not use.
"""

import contextlib
import functools

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.base import Bounds, Dataset
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.problem import Problem
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver

TINY = {"n_iter": 2, "passes": 1, "clip": 1.0}
SPACES = ("none", "l1_ball")


@functools.cache
def warm_up(algorithm: str) -> None:
    """Run two steps of an algorithm with noise on four records, once per process.

    A solver of one's own is left alone: it runs in its trials and nowhere else.
    """
    if algorithm not in registry.built_in("algorithm"):
        return
    fields = registry.target("algorithm", algorithm).__dataclass_fields__
    given = {k: v for k, v in TINY.items() if k in fields}
    # What it cannot do on this problem says nothing of its trials.
    with contextlib.suppress(Exception):
        solver = registry.build("algorithm", algorithm, **given)
        Run(_tiny(solver), [solver], Budget(1.0, 1e-6), 1.0).record(2)


def _tiny(solver: Solver) -> Problem:
    """Return a problem of four records that an algorithm serves."""
    X = np.asfortranarray([[1.0, -1.0], [0.5, 1.0], [-1.0, 0.0], [0.0, 2.0]])
    X.setflags(write=False)
    y = np.array([1.0, -1.0, 1.0, -1.0])
    y.setflags(write=False)
    data = Dataset("warm-up", X, y, Bounds(np.full(2, 2.0), 2.0, 1.0), "")
    psi = {"name": "l2", "strength": 1.0}
    made = (build_problem(data, "logistic", psi, space) for space in SPACES)
    served = next(problem for problem in made if solver.refusal(problem) is None)
    return served.with_smoothness("data")
