"""The small problems that algorithms are checked on; the yaml files list them."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench import registry
from dp_erm_bench.datasets.base import Bounds, Dataset
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.releases.adjacency import Adjacency

Array = NDArray[np.float64]
Parts = tuple[str, str, str]
RADIUS = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 0.3])
CORNERS = RADIUS[:4]


def objectives(constrained: bool = False) -> list[Parts]:
    """Return the names of losses and penalties, each with each; with constraints too.

    A constraint goes with every loss, alone. The losses without a constant that steps
    follow, which few algorithms serve, take turns: those with a kink over the
    penalties and the sets, linear ones and those that are not convex with a ridge and
    in a set. A penalty that is not separable, and costs more, goes with two losses, if
    there is one for any p.
    """
    losses, free = curved_losses(), ["none"]
    others = [name for name in registry.names("loss") if name not in losses]
    linear = [name for name in others if registry.build("loss", name).smooth]
    kinked = itertools.cycle(name for name in others if name not in linear)
    penalties = separable_penalties()
    names = list(itertools.product(losses, penalties, free))
    names += [(next(kinked), penalty, "none") for penalty in penalties]
    names += [(name, "l2", "none") for name in linear]
    for k, other in enumerate(sorted({*registry.names("penalty")} - {*penalties})):
        if registry.target("penalty", other).everywhere:
            turn = [losses[k % len(losses)], losses[(k + 1) % len(losses)]]
            names += itertools.product(turn, [other], free)
    if constrained:
        sets = [name for name in registry.names("constraint") if name not in free]
        names += itertools.product(losses, free, sets)
        names += [(next(kinked), "none", name) for name in sets]
        names += [(name, "none", sets[0]) for name in linear]
    return names


def curved_losses() -> list[str]:
    """Return the names of the convex losses whose smoothness constant steps follow."""
    built = {name: registry.build("loss", name) for name in registry.names("loss")}
    return [name for name, loss in built.items() if loss.curved and loss.convex]


@functools.cache
def separable_penalties() -> tuple[str, ...]:
    """Return the names of the penalties that compiled kernels take."""
    names = registry.names("penalty")
    kinds = {name: registry.target("penalty", name) for name in names}
    return tuple(n for n, kind in kinds.items() if issubclass(kind, SeparablePenalty))


def objective_problem(
    data: Dataset,
    loss: str,
    penalty: str,
    constraint: str = "none",
    strength: float = 0.02,
    **box: float,
) -> ERMProblem:
    """Return the problem of an objective, its penalty of some strength."""
    psi = registry.build("penalty", penalty)
    values: dict[str, Any] = psi.example(data.p)
    values |= {"strength": strength} if hasattr(psi, "strength") else {}
    values = dict(box) if penalty == "box" else values
    size = registry.target("constraint", constraint).example(data.p)
    space = {"name": constraint, **size}
    return build_problem(data, loss, {"name": penalty, **values}, space)


@functools.cache
def problem_of(
    loss: str,
    penalty: str,
    constraint: str = "none",
    n: int = 40,
    p: int = 6,
    dead: int | None = 2,
) -> ERMProblem:
    """Return a small problem with declared bounds and one column that is all zero."""
    rng = np.random.default_rng(3)
    radius = RADIUS[:p].copy()
    X = rng.uniform(-1.0, 1.0, (n, p)) * radius
    if dead is not None:
        X[:, dead], radius[dead] = 0.0, 0.0
    y = np.where(X @ rng.normal(size=p) + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    bounds = Bounds(radius, float(np.linalg.norm(radius)), 1.0)
    data = dataset_from_arrays(X, y, bounds=bounds)
    return objective_problem(data, loss, penalty, constraint)


@functools.cache
def neighbours(
    adjacency: Adjacency, parts: Parts, strength: float = 0.02
) -> tuple[tuple[ERMProblem, ERMProblem], ...]:
    """Return pairs of problems that differ in the first record, at the extremes.

    All records sit at corners of the declared bounds. The first one has one
    coordinate flipped, or all; or it is zero.
    """
    rng = np.random.default_rng(0)
    X = CORNERS * np.sign(rng.normal(size=(8, 4)))
    y = np.sign(rng.normal(size=8))
    X[0], y[0] = CORNERS * [1.0, 1.0, -1.0, 1.0], 1.0
    bounds = Bounds(CORNERS, float(np.linalg.norm(CORNERS)), 1.0)
    signs = [*(1.0 - 2.0 * np.eye(4)), -np.ones(4)]
    if adjacency is Adjacency.ZERO_OUT:
        signs = [np.zeros(4)]
    problems = []
    for sign in (np.ones(4), *signs):
        records = np.vstack([X[0] * sign, X[1:]])
        data = dataset_from_arrays(records, y, bounds=bounds)
        problem = objective_problem(data, *parts, strength=strength)
        problems.append(problem.with_smoothness("public"))
    return tuple((problems[0], other) for other in problems[1:])


@functools.cache
def instance(
    loss: str, penalty: str, constraint: str = "none", noise: float = 2.0
) -> ERMProblem:
    """Return a well conditioned problem, by noisy labels far from separable."""
    rng, p = np.random.default_rng(11), 8
    X = rng.normal(size=(200, p)) * np.linspace(0.8, 1.3, p)
    w = rng.normal(size=p) * (np.arange(p) < 5)
    y = np.where(X @ w + noise * rng.normal(size=200) > 0.0, 1.0, -1.0)
    strength = 0.05 if penalty == "l1" else 0.1
    box = {"lower": -0.1, "upper": 0.2}  # minima lie on its border
    widest, longest = np.abs(X).max(axis=0), float(np.linalg.norm(X, axis=1).max())
    data = dataset_from_arrays(X, y, bounds=Bounds(widest, longest, 1.0))
    problem = objective_problem(data, loss, penalty, constraint, strength, **box)
    assert problem.optimum.value is not None
    return problem


def gap(problem: ERMProblem, w: Array) -> Array:
    """Return F(w) / min F - 1, of each row."""
    best = problem.optimum.value
    assert best is not None
    return np.asarray(problem.value(w) / best - 1.0)
