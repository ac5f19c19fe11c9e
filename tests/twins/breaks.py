"""The ways in which a solver is broken, and the broken copies that they give."""

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from dp_erm_bench import run
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.solvers.one_pass_sgd import OnePassSGD
from dp_erm_bench.solvers.one_solve import OneSolve
from tests.twins import spoilt
from tests.twins.kinds import KINDS, OBJECTIVES, OUTPUTS, SAMPLED, SINGLE, VECTOR, Kind

FAR = 5.0
MEANS = (
    "Gaussian, a number",
    "Gaussian, a vector",
    "Laplace, a number",
    SAMPLED,
)


@dataclass(frozen=True)
class Break:
    """What is wrong.

    Attributes
    ----------
    kinds : tuple of str
        Where it has a meaning.
    spoil : callable, optional
        Changes the mechanism.
    declare : callable, optional
        Changes the release, given the problem.
    other : bool
        Whether the release is declared for the other adjacency.
    disturb : callable, optional
        Changes solver and oracle before the run.
    minimise : callable, optional
        In place of ``minimiser``.
    plan : callable, optional
        In place of ``plan``.
    given : dict
        Parameters under which the break shows.
    moves : bool
        Whether it shows in the iterates, not in a release alone.
    """

    kinds: tuple[str, ...] = tuple(KINDS)
    spoil: Callable[[Any], None] | None = None
    declare: Callable[[Any, Any], Any] | None = None
    other: bool = False
    disturb: Callable[[Any, Any], None] | None = None
    minimise: Callable[..., Any] | None = None
    plan: Callable[..., Any] | None = None
    given: dict[str, Any] = dataclasses.field(default_factory=dict)
    moves: bool = False


def without(*kinds: str) -> tuple[str, ...]:
    return tuple(kind for kind in KINDS if kind not in kinds)


def factor(problem) -> float:
    """A positive number that every pair of neighbours tells apart."""
    X = problem.dataset.X
    return 2.0 + 0.1 * float(X[0].sum()) + 0.05 * float(np.square(X[0]).sum())


def halved(release, problem):
    return dataclasses.replace(release, sensitivity=release.sensitivity / 2)


def of_the_data(release, problem):
    sensitivity = release.sensitivity * factor(problem)
    return dataclasses.replace(release, sensitivity=sensitivity)


def uncurved(release, problem):
    return dataclasses.replace(release, curvature=0.0)


def all_read(release, problem):
    """Charge for a record at each use."""
    fresh = min(release.times, release.records - 1)
    return dataclasses.replace(release, fresh=fresh)


def noisier(solver, problem, identities):
    """A step of noise more before each fresh one: few records have few of them."""
    return OnePassSGD.plan(solver, problem, identities) + 1


def exact(release, problem):
    """Do not charge the tolerance."""
    less = release.sensitivity - 2.0 * FAR
    return dataclasses.replace(release, sensitivity=less)


def private_step(solver, oracle):
    size = factor(oracle.problem)
    if hasattr(solver, "step"):
        object.__setattr__(solver, "step", solver.step * size)
    else:
        answer = solver.answer
        object.__setattr__(solver, "answer", lambda *args: size * answer(*args))


def clip_means(solver, oracle):
    """Clip the mean of the gradients in place of each."""
    gradient, entry = oracle.gradient, oracle.coordinate_gradient
    total, part = oracle.clipped_sum, oracle.record_sum

    def shrunk(row, size, clip):
        length = np.linalg.norm(row, axis=-1, keepdims=True) / size
        return row * np.minimum(1.0, clip / np.maximum(length, 1e-300))

    def far(clip):
        return np.full_like(clip, np.inf)

    oracle.gradient = lambda clip: np.clip(gradient(far(clip)), -clip, clip)
    oracle.coordinate_gradient = lambda j, clip: np.clip(
        entry(j, far(clip)), -clip, clip
    )
    oracle.clipped_sum = lambda clip: shrunk(total(far(clip)), oracle.problem.n, clip)
    oracle.record_sum = lambda trial, records, clip: shrunk(
        part(trial, records, np.inf), max(1, len(records)), clip
    )


def one_step(solver, problem, linear, tolerance):
    """The point after one gradient step from zero."""
    smoothness = float(problem.smoothness.norm) + solver.ridge
    slope = problem.gradient(np.zeros(problem.p)) + np.ravel(linear)
    return -slope[None, :] / smoothness


def within(solver, problem, linear, tolerance):
    """A point within the tolerance, on a side that the data choose."""
    found = OneSolve.minimiser(solver, problem, linear, 1e-9)
    return (
        found + tolerance * np.sign(problem.dataset.X[0].sum()) * np.eye(problem.p)[0]
    )


BREAKS = {
    "half of the noise": Break(spoil=spoilt.half),
    "a missing factor 2": Break(declare=halved),
    "the other adjacency's sensitivity": Break(kinds=without(VECTOR), other=True),
    "the raw value leaked": Break(spoil=spoilt.leaky, moves=True),
    "a step from private data": Break(disturb=private_step, moves=True),
    "one release too many": Break(spoil=spoilt.twice, moves=True),
    "the scale in the location argument": Break(spoil=spoilt.located),
    "one-byte reseeding": Break(spoil=spoilt.one_byte),
    "noise reused": Break(
        kinds=without(VECTOR, *OUTPUTS, *OBJECTIVES), spoil=spoilt.reused
    ),
    "noise from a global generator": Break(spoil=spoilt.from_a_global_generator),
    "sensitivity from the data": Break(declare=of_the_data),
    "clipping after averaging": Break(
        kinds=MEANS, disturb=clip_means, given={"clip": 0.3}
    ),
    "charged for samples, all records used": Break((SAMPLED,), spoil=spoilt.never),
    "charged for samples, fixed batches": Break((SAMPLED,), spoil=spoilt.fixed),
    "charged for samples, shuffled": Break((SAMPLED,), spoil=spoilt.shuffled),
    "charged for samples, one for all steps": Break(
        (SAMPLED,), spoil=spoilt.same_sample
    ),
    "a record read twice": Break((SINGLE,), spoil=spoilt.again),
    "the order published and still counted": Break((SINGLE,), spoil=spoilt.ordered),
    "steps of noise counted as uses": Break((SINGLE,), declare=all_read, plan=noisier),
    "steps of noise not drawn": Break((SINGLE,), spoil=spoilt.silent, plan=noisier),
    "curvature not charged": Break(OBJECTIVES, declare=uncurved),
    "tolerance not charged": Break(
        OUTPUTS, declare=exact, minimise=within, given={"tolerance": FAR}
    ),
    "a minimiser not solved to the end": Break(
        (*OUTPUTS, *OBJECTIVES), minimise=one_step
    ),
}
SOUND = Break()


@dataclass(frozen=True)
class Twin:
    """A solver that makes one kind of release, broken in one way, or sound."""

    kind: Kind
    fault: Break = SOUND

    @property
    def params(self) -> dict[str, Any]:
        return {**self.kind.params, **self.fault.given}

    def solver(self, alone: bool = False) -> type[Solver]:
        """Return the class; the release ``alone`` where nothing else shows it."""
        made = self.kind.alone if alone and not self.fault.moves else None
        return broken(made or self.kind.solver, self.kind.release, self.fault)

    @contextlib.contextmanager
    def living(self):
        """Break also what solvers do not make themselves: released constants."""
        if self.kind is not KINDS[VECTOR]:
            yield
            return
        fault = self.fault
        declare, make = run.smoothness_releases, run.shared_mechanisms

        def releases(problem, *args):
            return tuple(fault.declare(r, problem) for r in declare(problem, *args))

        def mechanisms(*args):
            made = make(*args)
            for mechanism in made.values():
                spoilt.lazily(mechanism, fault.spoil)
            return made

        with contextlib.ExitStack() as stack:
            if fault.declare:
                replaced = patch.object(run, "smoothness_releases", releases)
                stack.enter_context(replaced)
            if fault.spoil:
                replaced = patch.object(run, "shared_mechanisms", mechanisms)
                stack.enter_context(replaced)
            yield


def broken(made: type[Solver], name: str, fault: Break) -> type[Solver]:
    """Return a solver class, broken; the class itself if nothing is wrong."""

    class Broken(made):
        def releases(self, problem, adjacency, schedule):
            seen = Adjacency.ZERO_OUT if fault.other else adjacency
            honest = super().releases(problem, adjacency, schedule)
            told = super().releases(problem, seen, schedule)
            for release, other in zip(honest, told, strict=True):
                if release.name != name:
                    yield release
                else:
                    yield fault.declare(other, problem) if fault.declare else other

        def iterates(self, oracle, mechanisms, checkpoints, schedule):
            mechanisms.ahead = False
            if fault.spoil and name in mechanisms and name != "smoothness":
                fault.spoil(mechanisms[name])
            if fault.disturb:
                fault.disturb(self, oracle)
            yield from super().iterates(oracle, mechanisms, checkpoints, schedule)

    if fault.minimise:
        Broken.minimiser = fault.minimise
    if fault.plan:
        Broken.plan = fault.plan
    return made if fault is SOUND else Broken


TWINS = {
    (kind, name): Twin(KINDS[kind], fault)
    for name, fault in BREAKS.items()
    for kind in fault.kinds
}
