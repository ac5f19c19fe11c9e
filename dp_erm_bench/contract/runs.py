"""Runs at a noise multiplier that no budget asks for, and how checks of them end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.errors import UsageError
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver

DELTA = 1e-6


class ContractError(UsageError):
    """An algorithm breaks the contract; the message says how, in one sentence."""


class NotAllRun(ContractError):
    """What no replay ran is not checked; the message says where and what."""


class NotApplicable(UsageError):
    """A check has no meaning for an algorithm; the message is the reason."""


def require(holds: object, sentence: str) -> None:
    """Raise ContractError with a sentence unless something holds."""
    if not holds:
        raise ContractError(sentence)


def run_at(
    problem: Problem,
    solvers: Sequence[Solver],
    z: float = 5.0,
    identities: Sequence[str] = ("a",),
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    epsilon: float = 5.0,
    ahead: bool = False,
    **how: Any,
) -> Run:
    """Return a run at a given noise multiplier, by default of plain steps.

    Parameters
    ----------
    problem : Problem
    solvers : sequence of Solver
        One per trial.
    z : float
        Noise scale / sensitivity; 0 for no noise.
    identities : sequence of str
        One per trial.
    adjacency : Adjacency
    epsilon : float
        The budget of what takes a part of it (private smoothness).
    ahead : bool
        Whether compiled steps may be used.
    **how
        Of `Run`.
    """
    budget = Budget(epsilon if z else np.inf, DELTA, adjacency)
    return Run(problem, solvers, budget, z, identities, ahead=ahead, **how)


def is_bounded(
    problem: Problem, solver: Solver, adjacency: Adjacency = Adjacency.REPLACE_ONE
) -> bool:
    """Return whether the sensitivities are finite, so that noise can hide them."""
    releases = run_at(problem, [solver], adjacency=adjacency).releases
    return all(np.isfinite(release.sensitivity).all() for release in releases)
