"""The choice of an oracle, made once per batch of trials."""

from dp_erm_bench.losses.squared import Squared
from dp_erm_bench.problems.erm.dense_oracle import DenseOracle
from dp_erm_bench.problems.erm.gram_oracle import GramOracle
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.problems.erm.sparse_oracle import SparseOracle

# Above this many features X'X no longer pays (128 MB).
MOST_FEATURES = 4096


def make_oracle(problem: ERM, batch: int, *, clipped: bool = True) -> Oracle:
    """Return the oracle that serves a problem best.

    Parameters
    ----------
    problem : ERM
    batch : int
        B, the number of trials that are advanced in lock-step.
    clipped : bool
        Whether derivatives are clipped per record; if not, least squares needs
        no records.
    """
    if problem.dataset.sparse:
        return SparseOracle(problem, batch)
    small = problem.p <= min(problem.n, MOST_FEATURES)
    if isinstance(problem.loss, Squared) and small and not clipped:
        return GramOracle(problem, batch)
    return DenseOracle(problem, batch)
