"""Find problems and parameters that each algorithm supports.

So tests over all algorithms need no list of exceptions. Frank-Wolfe needs a set with
vertices, methods with one answer have no length, and so on. The classes are asked, and
nothing is listed here.
"""

import dataclasses
import functools

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.constraints.base import UNCOMPILED, Ball
from dp_erm_bench.contract.problems import small_problem
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.solvers.runs import Prefixed

ALGORITHMS = registry.names("algorithm")
RISKS = [
    name
    for name in ALGORITHMS
    if issubclass(ERMProblem, registry.target("algorithm", name).serves)
]
"""The algorithms of empirical risk minimisation."""
SETS = [name for name in registry.names("constraint") if name != "none"]
KINDS = {name: registry.target("constraint", name) for name in SETS}
BALLS = [n for n, c in KINDS.items() if issubclass(c, Ball) and c.code != UNCOMPILED]
"""The sets that are given by a radius, on which kernels project."""


@functools.cache
def parameters(algorithm):
    """The names of an algorithm's parameters."""
    kind = registry.target("algorithm", algorithm)
    return frozenset(field.name for field in dataclasses.fields(kind))


def known(algorithm, **given):
    """Those of some parameters that the algorithm has."""
    return {name: x for name, x in given.items() if name in parameters(algorithm)}


def built(algorithm, **given):
    """An algorithm with those of some parameters that it has."""
    return registry.build("algorithm", algorithm, **known(algorithm, **given))


@functools.cache
def fits_noise(algorithm):
    """Whether a budget fixes the noise, and not the length of a run."""
    return not issubclass(registry.target("algorithm", algorithm), Prefixed)


@functools.cache
def constraint_of(algorithm):
    """No constraint where that is served, else the first one that is."""
    solver = registry.build("algorithm", algorithm)
    sets = ["none", *SETS]
    problems = {name: small_problem("logistic", "l2", name) for name in sets}
    return next(n for n in sets if solver.refusal(problems[n]) is None)


@functools.cache
def needs_bounds(algorithm):
    """Whether it serves no problem without declared bounds, though it may clip."""
    if "clip" not in parameters(algorithm):
        return True
    problem = small_problem("logistic", "l2", constraint_of(algorithm))
    data = dataclasses.replace(problem.dataset, bounds=None)
    bare = dataclasses.replace(problem, dataset=data)
    return built(algorithm, clip=1.0).refusal(bare) is not None


def bounds_for(algorithm, X):
    """Bounds that hold for some records, where the algorithm needs any."""
    if not needs_bounds(algorithm):
        return None
    return {"columns": float(np.abs(X).max())}
