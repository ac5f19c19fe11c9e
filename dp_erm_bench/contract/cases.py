"""Which parameters, problems and neighbours an algorithm is replayed on."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dp_erm_bench.contract.candidate import Candidate, Variant
from dp_erm_bench.contract.covering import Row, covering, values_of, within
from dp_erm_bench.contract.pairs import LARGE, STRENGTH, pair
from dp_erm_bench.contract.problems import Parts
from dp_erm_bench.contract.runs import is_bounded, run_at
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.sampling import SampledRelease
from dp_erm_bench.solvers.base import Solver

MOST, LONG = 25, 200
"""Steps of a usual replay, and of a long one."""
FEW, LEAST = 4, 3
"""Families of a row where every run solves a problem to the end, rows of a family."""


@dataclass(frozen=True)
class Case:
    """One replay.

    Attributes
    ----------
    given : tuple of (str, value)
        Parameters of the solver.
    parts : tuple of str
        Loss, penalty and constraint.
    family : str
        Of the neighbours, see ``pairs``.
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
        Whose ratios are looked at together, and named in sentences.
    """

    given: tuple[tuple[str, Any], ...]
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
    def group_told(self) -> str:
        """Return how a sentence names it, but for its neighbours."""
        words = " + ".join(part for part in self.parts if part != "none")
        return f"{self.group} on {words}, {self.adjacency.value}"

    @property
    def told(self) -> str:
        """Return how a sentence names it."""
        return f"{self.group_told}, neighbours: {self.family}"


class Plan:
    """The cases of a candidate.

    Parameters
    ----------
    candidate : Candidate
    """

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self.parts = candidate.objectives()
        self._served: dict[Any, list[Parts]] = {}
        self.met: collections.Counter[str] = collections.Counter()

    def rows(self) -> list[Row]:
        """Return combinations of parameters, any two values together somewhere."""
        if self.candidate.rows is not None:
            return [dict(row) for row in self.candidate.rows]
        fields = {
            name: values_of(field)
            for name, field in self.candidate.parameters.items()
            if name not in ("smoothness", "smoothness_bounds")
        }
        return covering(fields, lambda row: bool(self.served(row))) if fields else [{}]

    def served(self, row: Variant) -> list[Parts]:
        """Return the objectives that parameters serve with a finite sensitivity."""
        key = tuple(sorted(row.items(), key=str))
        if key not in self._served:
            self._served[key] = list(self._serving(row))
        return self._served[key]

    def _serving(self, row: Variant) -> Iterator[Parts]:
        try:
            solver = self.candidate.build(row)
        except Exception:  # two values that do not go together
            return
        for parts in self.parts:
            problem = self.candidate.problem(parts)
            if solver.refusal(problem) is None and self._bounded(problem, row):
                yield parts

    def _bounded(self, problem: Problem, row: Variant) -> bool:
        try:
            return is_bounded(problem, self.shortened(row, problem, MOST))
        except Exception:  # seen where it is run
            return True

    def shortened(self, row: Variant, problem: Problem, most: int) -> Solver:
        """Return a solver of at most so many steps on a problem, if there is one.

        Whatever numbers its length depends on are halved or doubled.
        """
        solver = self.candidate.build(row)
        for _ in range(40):
            if solver.iterations(problem) <= most:
                break
            solver = self._scaled(solver, problem, longer=False)
        return solver

    def lengthened(self, row: Variant, problem: Problem, least: int) -> Solver:
        """Return a solver of about so many steps on a problem, if there is one."""
        solver = self.candidate.build(row)
        for _ in range(12):
            if solver.iterations(problem) >= least:
                break
            solver = self._scaled(solver, problem, longer=True)
        return self.shortened(dict(given_of(solver)), problem, 2 * least)

    def _scaled(self, solver: Solver, problem: Problem, longer: bool) -> Solver:
        length = solver.iterations(problem)
        for name, field in self.candidate.parameters.items():
            value = getattr(solver, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not value:
                continue
            half = value // 2 if isinstance(value, int) else value / 2
            for other in (half, 2 * value):
                if within(other, field.metadata):
                    given: Row = {name: other}
                    made = dataclasses.replace(solver, **given)
                    change = made.iterations(problem) - length
                    if (change > 0) is longer and change:
                        return made
        return solver


def given_of(solver: Solver) -> tuple[tuple[str, Any], ...]:
    """Return the parameters of a solver."""
    fields = dataclasses.fields(solver)
    return tuple((field.name, getattr(solver, field.name)) for field in fields)


def varied(candidate: Candidate) -> Iterator[Case]:
    """Yield every row of parameters on all families of neighbours."""
    if candidate.foreign:  # the families are of records with labels
        return
    plan, count = Plan(candidate), itertools.count()
    rows = [row for row in plan.rows() if plan.served(row)]
    share = 1.0 if candidate.solver.batchable else FEW / len(candidate.families)
    again = math.ceil(LEAST / (share * len(rows))) if rows else 0
    for number, row in enumerate(rows * again):
        families = list(candidate.families)
        if not candidate.solver.batchable:
            start = FEW * number
            families = [families[(start + k) % len(families)] for k in range(FEW)]
            families = list(dict.fromkeys(families))
        for family in families:
            yield from _on(plan, row, family, number, next(count))


def _on(plan: Plan, row: Row, family: str, number: int, count: int) -> Iterator[Case]:
    served = plan.served(row)
    if family == "range of labels":
        served = [parts for parts in served if parts[0] in ("squared", "huber")]
    if not served:
        return
    # The first time that a family could be met it is, and every third time.
    plan.met[family] += 1
    if family in LARGE and plan.met[family] % 3 != 1:
        return
    parts = served[(5 * count) % len(served)]
    adjacency = list(Adjacency)[(count + number) % 2]
    shape = pair(family, adjacency, parts).first
    try:
        if family not in LARGE and plan.met[family] == 1:
            solver = plan.lengthened(row, shape, LONG)
        else:
            solver = plan.shortened(row, shape, MOST)
    except Exception:  # whatever it is, the replay of the row as it is says so
        solver = plan.candidate.build(row)
    batch = 3 if plan.candidate.solver.batchable and count % 3 == 0 else 1
    made = Case(
        given_of(solver),
        parts,
        family,
        adjacency,
        batch,
        z=(30.0, 1.0)[count % 2],
        points=("all", "few", "ends")[count % 3 if number else 0],
        group=plan.candidate.told(_apart(plan.candidate, row)),
    )
    yield made
    if is_sampled(shape, solver):
        # The dataset whose record stands out.
        yield replace(made, toggled=int(adjacency is Adjacency.REPLACE_ONE))


def is_sampled(problem: Problem, solver: Solver) -> bool:
    """Return whether a release is charged for samples; not if it cannot be made."""
    try:
        releases = run_at(problem, [solver]).releases
    except Exception:
        return False
    return any(isinstance(one, SampledRelease) for one in releases)


def _apart(candidate: Candidate, row: Row) -> Row:
    """Return the parameters of a row that are not as by default."""
    usual = candidate.parameters
    return {
        name: f"{name}={value}"
        for name, value in row.items()
        if value != usual[name].default
    }
