"""The cases of a replay: parameters, problems and neighbouring datasets."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dp_erm_bench.contract.candidate import ORIGINS, Candidate, Variant
from dp_erm_bench.contract.covering import covering, resized, values_of
from dp_erm_bench.contract.families import LARGE, STRENGTH, neighbours_of
from dp_erm_bench.contract.problems import Parts
from dp_erm_bench.contract.runs import is_bounded, run_at
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.nested import with_inside
from dp_erm_bench.releases.sampling import SampledRelease
from dp_erm_bench.solvers.base import Solver

LONG = 200
"""Steps of a long replay."""
FEW, LEAST = 4, 3
"""Families of a row where every run solves a problem to the end, rows of a family."""


@dataclass(frozen=True)
class Case:
    """One replay.

    Attributes
    ----------
    params : tuple of (str, value)
        Parameters of the solver.
    parts : tuple of str
        Loss, penalty and constraint.
    family : str
        Of the neighbours, see ``families``.
    adjacency : Adjacency
    trials : int
        Trials of the batch.
    z : float
        Noise multiplier.
    points : str
        Checkpoints: ``all``, ``few`` or ``ends``.
    toggled : int or None
        The side whose dataset both have, if they do: the record is in the samples of
        one exactly where it is not in those of the other.
    epsilon : float
        The budget of released constants.
    strength : float
        Of the penalty.
    brief : bool
        Whether noise and compiled steps are left to other cases.
    group : str
        Name of the cases whose ratios are judged together.
    """

    params: tuple[tuple[str, Any], ...]
    parts: Parts
    family: str
    adjacency: Adjacency
    trials: int = 1
    z: float = 30.0
    points: str = "all"
    toggled: int | None = None
    epsilon: float = 5.0
    strength: float = STRENGTH
    brief: bool = False
    group: str = ""

    @property
    def title(self) -> str:
        """Return its name in messages, without its neighbours."""
        words = " + ".join(part for part in self.parts if part != "none")
        return f"{self.group} on {words}, {self.adjacency.value}"


def params_of(solver: Solver) -> tuple[tuple[str, Any], ...]:
    """Return the parameters of a solver."""
    fields = dataclasses.fields(solver)
    return tuple((field.name, getattr(solver, field.name)) for field in fields)


def varied(candidate: Candidate) -> Iterator[Case]:
    """Yield rows of parameters, any two values together, on families of neighbours."""
    if candidate.foreign:  # the families are of records with labels
        return
    rows: Sequence[Variant] | None = candidate.rows
    if rows is None:
        fields = candidate.parameters.items()
        free = {name: values_of(field) for name, field in fields if name not in ORIGINS}
        rows = covering(free, lambda row: bool(_served(candidate, *row.items())))
    rows = [row for row in rows if _served(candidate, *row.items())]
    families, count = candidate.families, itertools.count()
    few = len(families) if candidate.solver.batchable else FEW
    again = math.ceil(LEAST * len(families) / (few * len(rows))) if rows else 0
    counts: collections.Counter[str] = collections.Counter()
    for number, row in enumerate([*rows] * again):
        for k in range(min(few, len(families))):
            family, turn = families[(few * number + k) % len(families)], next(count)
            served = _served(candidate, *row.items())
            if family == "range of labels":
                served = [one for one in served if one[0] in ("squared", "huber")]
            # The first time that a family could be met it is, and every third time.
            counts[family] += bool(served)
            if served and (family not in LARGE or counts[family] % 3 == 1):
                parts = served[(5 * turn) % len(served)]
                long = family not in LARGE and counts[family] == 1
                yield from _on(candidate, row, parts, family, number, turn, long)


@functools.lru_cache(maxsize=4096, typed=True)
def _served(candidate: Candidate, *row: tuple[str, Any]) -> list[Parts]:
    """Return the objectives that parameters serve with a finite sensitivity."""
    try:
        solver = candidate.build(dict(row))
    except Exception:  # two values that do not go together
        return []
    problems = {parts: candidate.problem(parts) for parts in candidate.objectives()}
    return [
        parts
        for parts, problem in problems.items()
        if solver.refusal(problem) is None and _is_hidden(problem, solver)
    ]


def _is_hidden(problem: Problem, solver: Solver) -> bool:
    """Return whether all sensitivities are finite; True where that cannot be told."""
    try:
        return is_bounded(problem, resized(solver, problem))
    except Exception:
        return True


def _on(
    candidate: Candidate,
    row: Variant,
    parts: Parts,
    family: str,
    number: int,
    turn: int,
    long: bool,
) -> Iterator[Case]:
    """Yield the cases of a row of parameters, of some number, on a family."""
    adjacency = list(Adjacency)[(turn + number) % 2]
    problem = neighbours_of(family, adjacency, parts).first
    solver, lengths = candidate.build(row), (LONG, 2 * LONG) if long else ()
    with contextlib.suppress(Exception):  # what it is, a replay as it is says
        solver = resized(solver, problem, *lengths)
    usual = candidate.parameters
    apart = {k: f"{k}={x}" for k, x in row.items() if x != usual[k].default}
    case = Case(
        params_of(solver),
        parts,
        family,
        adjacency,
        trials=3 if candidate.solver.batchable and turn % 3 == 0 else 1,
        z=(30.0, 1.0)[turn % 2],
        points=("all", "few", "ends")[turn % 3 if number else 0],
        group=candidate.title(apart),
    )
    yield case
    if is_sampled(problem, solver, adjacency):
        # Both records; under zero_out that of D' is none.
        for side in (0, 1) if adjacency is Adjacency.REPLACE_ONE else (0,):
            yield replace(case, toggled=side)


def is_sampled(problem: Problem, solver: Solver, adjacency: Adjacency) -> bool:
    """Return whether a release is charged for samples; not if it cannot be made."""
    try:
        run = run_at(problem, [solver], adjacency=adjacency)
        releases = list(with_inside(run.releases, 1.0))
    except Exception:
        return False
    return any(isinstance(one, SampledRelease) and one.rate < 1 for one in releases)
