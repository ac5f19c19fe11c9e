"""Runs at a noise multiplier that no budget asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver

Array = NDArray[np.float64]
DELTA = 1e-6


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


def listen(run: Run) -> dict[str, list[Array]]:
    """Return a record, filled as a run goes, of the unit noise of its releases."""
    seen: dict[str, list[Array]] = {}
    for name, mechanism in run.mechanisms.items():
        seen[name] = []
        setattr(mechanism, "unit_noise", _heard(mechanism.unit_noise, seen[name]))  # noqa: B010
    return seen


def _heard(unit_noise: Any, kept: list[Array]) -> Any:
    def listening(uses: int, size: int) -> Array:
        noise: Array = unit_noise(uses, size)
        kept.append(noise.reshape(len(noise), -1).copy())
        return noise

    return listening
