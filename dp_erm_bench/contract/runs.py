"""Single runs outside the runner, with what they leave behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.shares import shared_mechanisms
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.oracles import make_oracle
from dp_erm_bench.problems.erm.problem import Problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.mechanisms import Mechanisms, make_mechanisms
from dp_erm_bench.releases.smoothness import smoothness_releases, with_constants
from dp_erm_bench.solvers.base import Solver, stack

Array = NDArray[np.float64]


@dataclass
class Run:
    """One run of a batch of trials at a given noise multiplier.

    Attributes
    ----------
    problem : Problem
    solvers : sequence of Solver
        One per trial.
    z : float
        Noise scale / sensitivity; 0 for no noise.
    identities : tuple of str
        One per trial.
    adjacency : Adjacency
    checkpoints : sequence of int, optional
        Every iteration by default.
    ahead : bool
        Whether compiled steps may be used.
    epsilon : float
        The budget of what takes a part of it (private smoothness).
    noise : tuple of str, optional
        Identities of the mechanisms, where they are not those of the schedule.
    made : callable, optional
        Called with mechanisms as soon as they are made.
    """

    problem: Problem
    solvers: Sequence[Solver]
    z: float = 5.0
    identities: tuple[str, ...] = ("a",)
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    checkpoints: Sequence[int] = ()
    ahead: bool = False
    epsilon: float = 5.0
    noise: tuple[str, ...] = ()
    made: Callable[[Mechanisms], None] = lambda mechanisms: None

    def __post_init__(self) -> None:
        """Declare the releases and make the mechanisms."""
        self.solver = stack(self.solvers)
        self.constants = (self.solver.smoothness, self.solver.smoothness_bounds)
        self.releases: tuple[Release, ...] = ()
        self.schedule: Any = None
        self.shares = smoothness_releases(self.problem, *self.constants, self.adjacency)
        epsilon = self.epsilon if self.z else np.inf
        budget = Budget(epsilon, 1e-6, self.adjacency)
        if self.shares:
            names = self.noise or self.identities
            self.mechanisms = shared_mechanisms(self.shares, budget, names)
            self.mechanisms.ahead = self.ahead
            self.made(self.mechanisms)
        else:
            self.declare()

    def declare(self) -> None:
        """Make the solver's mechanisms, from constants that are known by now."""
        if not self.checkpoints:
            length = self.solvers[0].iterations(self.problem)
            self.checkpoints = tuple(range(length + 1))
        self.schedule = self.solver.plan(self.problem, self.identities)
        self.releases = tuple(
            self.solver.releases(self.problem, self.adjacency, self.schedule)
        )
        names = self.noise or self.identities
        self.mechanisms = make_mechanisms(self.releases, self.z, names)
        self.mechanisms.ahead = self.ahead
        self.made(self.mechanisms)

    def publish(self, mechanisms: Mechanisms) -> None:
        """Publish the private constants, and add the solver's own mechanisms.

        Raises
        ------
        Unsupported
            If the solver refuses constants that are released.
        """
        self.problem = with_constants(self.problem, *self.constants, mechanisms)
        reason = self.solvers[0].refusal(self.problem)
        if reason:
            raise Unsupported(reason)
        self.declare()
        mechanisms.include(self.mechanisms)
        self.mechanisms = mechanisms

    def iterates(self, mechanisms: Mechanisms | None = None) -> list[Array]:
        """Return copies of the iterates at the checkpoints."""
        used = self.mechanisms if mechanisms is None else mechanisms
        if self.shares:
            self.publish(used)
        clipped = self.solver.clips
        oracle = make_oracle(self.problem, len(self.identities), clipped=clipped)
        steps = self.solver.iterates(oracle, used, self.checkpoints, self.schedule)
        return [w.copy() for w in steps]


def is_bounded(
    problem: Problem, solver: Solver, adjacency: Adjacency = Adjacency.REPLACE_ONE
) -> bool:
    """Return whether the sensitivities are finite, so that noise can hide them."""
    releases = Run(problem, [solver], adjacency=adjacency).releases
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
