"""The choice of an oracle, made once per batch of trials."""

from dp_erm_bench.problems.dense_oracle import DenseOracle
from dp_erm_bench.problems.oracle import Oracle
from dp_erm_bench.problems.problem import Problem
from dp_erm_bench.problems.sparse_oracle import SparseOracle


def make_oracle(problem: Problem, batch: int) -> Oracle:
    """Return the oracle that serves a problem best.

    Parameters
    ----------
    problem : Problem
    batch : int
        B, the number of trials that are advanced in lock-step.
    """
    made = SparseOracle if problem.dataset.sparse else DenseOracle
    return made(problem, batch)
