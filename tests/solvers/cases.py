"""Algorithms in all variants, for the tests of solvers.

Algorithms, losses and penalties are read from the yaml files, not listed here. The
penalties are the separable ones, because many tests use their parts.
"""

import contextlib
from unittest.mock import patch

from dp_erm_bench import registry
from dp_erm_bench.contract import replay
from dp_erm_bench.contract.candidate import candidate_of, run_at
from dp_erm_bench.contract.cases import pairwise_covering, varied_cases
from dp_erm_bench.contract.problems import (
    curved_losses,
    objectives,
    separable_penalties,
)
from dp_erm_bench.contract.replay import cases_at_corners
from dp_erm_bench.run import Run

ALGORITHMS = registry.names("algorithm")
LOSSES = curved_losses()
PENALTIES = separable_penalties()
CANDIDATES = {name: candidate_of(name) for name in ALGORITHMS}
VARIANTS = [(name, v) for name, made in CANDIDATES.items() for v in made.variants]


def label(variant):
    name, given = variant
    return CANDIDATES[name].title(given)


def solver_of(variant, **given):
    name, shapes = variant
    return CANDIDATES[name].build(shapes, **given)


def supported(variant, problem):
    return solver_of(variant, clip=1.0).refusal(problem) is None


def solve(problem, solvers, budget, calibration, identities, checkpoints):
    """A recorded run under a budget."""
    run = Run(problem, solvers, budget, calibration, identities)
    return run.record(checkpoints)


def end(problem, solver, length, ahead=True):
    """The last iterate of a run without noise."""
    known = problem.with_smoothness("data")
    run = run_at(known, [solver], z=0.0, checkpoints=(0, length), ahead=ahead)
    return run.iterates()[-1][0]


TURNS = 8
"""An eighth of the rows of parameters meets a family of neighbours, by turns."""


def some_varied(candidate):
    """Of the varied replays: the first of each family, and by turns of the others."""
    met, number, wanted = set(), 0, True
    for case in varied_cases(candidate):
        if case.toggled is None:  # what is toggled belongs to the case before
            wanted = case.family not in met or number % TURNS == 0
            number += 1
            met.add(case.family)
        if wanted:
            yield case


def some_corners(candidate, least=0, **params):
    """Of the replays at the extremes: any two of what varies, together once."""
    cases = list(cases_at_corners(candidate, least, **params))
    rows = [(case.group, *case.parts, case.adjacency) for case in cases]
    kept = set(pairwise_covering(dict.fromkeys(rows)))
    yield from (case for row, case in zip(rows, cases, strict=True) if row in kept)


def some_objectives(constrained=False):
    """Every loss and every penalty and set, with half of each other."""
    places = ([], [], [])
    for parts in objectives(constrained):
        for place, name in zip(places, parts, strict=True):
            place += [] if name in place else [name]
        if sum(p.index(n) for p, n in zip(places, parts, strict=True)) % 2 == 0:
            yield parts


@contextlib.contextmanager
def few_replays():
    """Have checks replay a part of their cases; `make test-slow` replays all."""
    with (
        patch.object(replay, "varied_cases", some_varied),
        patch.object(replay, "cases_at_corners", some_corners),
    ):
        yield
