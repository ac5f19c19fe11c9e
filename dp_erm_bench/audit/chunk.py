"""The units of work of an audit: chunks of runs on one side."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.claim import Claim, claim_of
from dp_erm_bench.audit.pairs import Pair, audited_solver, worst_pair
from dp_erm_bench.audit.statistic import statistics
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.base import Solver

Array = NDArray[np.float64]

BATCH = 2000


@dataclass(frozen=True, eq=False)
class Case:
    """What is audited: a solver on its worst-case neighbours, and the claim."""

    solver: Solver
    pair: Pair
    claim: Claim

    def run(self, side: int, runs: int, identity: str) -> Array:
        """Return the statistics of some runs on one side, see ``audit_chunk``."""
        names = [f"{identity}/{side}/{i}" for i in range(runs)]
        size = BATCH if self.solver.batchable else 1
        parts = [names[start : start + size] for start in range(0, runs, size)]
        found = [
            statistics(self.solver, self.pair, self.claim, side, part) for part in parts
        ]
        return np.concatenate(found) if found else np.empty(0)


def audit_chunk(
    algorithm: str,
    params: Mapping[str, Any],
    adjacency: Adjacency | str,
    budget: Budget,
    side: int,
    runs: int,
    identity: str,
) -> Array:
    """Return the statistics of some runs on one of the worst-case neighbours.

    Parameters
    ----------
    algorithm : str
        A name of conf/algorithm.
    params : mapping
        One of ``pairs.variants(algorithm)``, or others.
    adjacency : Adjacency or str
        Replaces that of the budget.
    budget : Budget
    side : {0, 1}
        Which of the two neighbours is run on.
    runs : int
        How many; independent of each other.
    identity : str
        Of the chunk; run i has the identity ``identity/side/i``. Chunks of different
        identities are independent, so they may be run in any order and resumed.

    Returns
    -------
    array of shape (runs,)
        See ``statistic``.
    """
    case = audited_case(algorithm, params, adjacency, budget)
    return case.run(side, runs, identity)


def audited_case(
    algorithm: str,
    params: Mapping[str, Any],
    adjacency: Adjacency | str,
    budget: Budget,
) -> Case:
    """Return the solver of an audit, its neighbours and its claim; kept for reuse."""
    text = json.dumps(dict(params), sort_keys=True)
    relation = Adjacency(adjacency)
    return _case(algorithm, text, relation, budget.epsilon, budget.delta)


@functools.lru_cache(maxsize=64)
def _case(
    algorithm: str,
    params: str,
    adjacency: Adjacency,
    epsilon: float,
    delta: float | str,
) -> Case:
    solver = audited_solver(algorithm, json.loads(params))
    return case_of(solver, Budget(epsilon, delta, adjacency))


def case_of(solver: Solver, budget: Budget) -> Case:
    """Return the case of a solver as it is given."""
    pair = worst_pair(solver, budget.adjacency)
    return Case(solver, pair, claim_of(solver, pair.first, budget))
