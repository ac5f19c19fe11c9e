"""Values of parameters, combinations in which any two of them meet, and lengths."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dp_erm_bench.audit.pairs import alternatives
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.solvers.base import Solver

INTEGERS = (1, 3, 12, 5)
REALS = (0.0, 0.3, 40.0, 1.0, 0.05)
MORE = {"int": (2,), "real": (0.5, 2.0)}
"""Further values, which need not meet each value of the others."""
VALUES = 5
MOST = 25
"""Steps of a usual replay."""
Row = dict[str, Any]


def values_of(field: dataclasses.Field[Any]) -> list[Any]:
    """Return values of a parameter that may lead to other branches, its own first.

    Its choices; else words, with up to `VALUES` numbers and None.
    """
    limits, kind = field.metadata, str(field.type)
    if "choices" in limits or isinstance(field.default, bool):
        return [field.default, *alternatives(field)]
    ends = [limits[key] for key in ("least", "most") if key in limits]
    tried = dict.fromkeys((*ends, *(INTEGERS if "int" in kind else REALS)))
    numbers = [x for x in tried if within(x, limits)][:VALUES]
    none = [None] if "None" in kind else []
    values = [*numbers, *limits.get("words", ()), *none]
    return [field.default, *(x for x in dict.fromkeys(values) if x != field.default)]


def more_rows(
    fields: Mapping[str, dataclasses.Field[Any]], allowed: Callable[[Row], bool]
) -> list[Row]:
    """Return rows in which numbers have further values, all at once where they may."""
    tried: list[Row] = []
    for k in range(max(map(len, MORE.values()))):
        row = {}
        for name, field in fields.items():
            numeric = field.metadata.get("words", ()) or not field.metadata.get(
                "choices"
            )
            if numeric and not isinstance(field.default, bool):
                values = MORE["int" if "int" in str(field.type) else "real"]
                if within(values[k % len(values)], field.metadata):
                    row[name] = values[k % len(values)]
        usual = {name: field.default for name, field in fields.items()}
        singly = [usual | {name: value} for name, value in row.items()]
        tried += [usual | row] if row and allowed(usual | row) else singly
    return [row for k, row in enumerate(tried) if allowed(row) and row not in tried[:k]]


def pairwise_covering(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return those of some rows, in order, in which any two of their entries meet.

    First taken is what brings most that is new.
    """
    met = {row: set(itertools.combinations(enumerate(row), 2)) for row in rows}
    left, kept = set().union(*met.values()), set()
    while left:
        best = max(met, key=lambda row: len(met[row] & left))
        kept.add(best)
        left -= met[best]
    return [row for row in met if row in kept]


def within(x: float, limits: Mapping[str, Any]) -> bool:
    """Return whether a number is within a field's limits."""
    if "choices" in limits:
        return x in limits["choices"]
    low, high = limits.get("least", -1e300), limits.get("most", 1e300)
    return bool(low <= x <= high and x > limits.get("above", -1e300))


def covering(
    factors: Mapping[str, Sequence[Any]], allowed: Callable[[Row], bool]
) -> list[Row]:
    """Return rows in which any two values of two factors meet, if a row may be.

    The first row holds the first values. Greedy: a pair that no row has yet is
    completed by the values that bring most other such pairs, or by later ones where
    the row is not allowed.
    """
    places = [[(name, k) for k in range(len(factors[name]))] for name in factors]
    pairs = itertools.starmap(itertools.product, itertools.combinations(places, 2))
    todo = dict.fromkeys(map(frozenset, itertools.chain.from_iterable(pairs)))
    if len(places) == 1:
        todo = dict.fromkeys(frozenset([place]) for place in places[0])
    rows: list[Row] = []

    def valued(row: Row) -> Row:
        return {name: factors[name][k] for name, k in row.items()}

    def take(row: Row) -> None:
        rows.append(valued(row))
        for both in itertools.product(row.items(), repeat=2):
            todo.pop(frozenset(both), None)

    take(dict.fromkeys(factors, 0))  # without factors, one row of nothing
    while todo:
        pair = next(iter(todo))
        tried = (_completed(factors, todo, dict(pair), k) for k in range(4))
        row = next((row for row in tried if allowed(valued(row))), None)
        if row:
            take(row)
        todo.pop(pair, None)
    return rows


def _completed(
    factors: Mapping[str, Sequence[Any]],
    todo: Mapping[Any, None],
    row: Row,
    attempt: int,
) -> Row:
    """Return a row with the missing values that bring most pairs, or later ones."""
    for name, values in factors.items():
        if name not in row:
            gains = [
                sum(frozenset((one, (name, k))) in todo for one in row.items())
                for k in range(len(values))
            ]
            ranked = sorted(range(len(gains)), key=lambda k: (-gains[k], k))
            # The later attempts stay with the first value: it is the usual one.
            row[name] = ranked[attempt % len(ranked)] if attempt < 2 else 0
    return {name: row[name] for name in factors}


def resized(
    solver: Solver, problem: Problem, least: int = 0, most: int = MOST
) -> Solver:
    """Return the solver with a length within the limits on a problem, if possible.

    The numbers that its length depends on are doubled or halved.
    """
    for longer, times in ((True, 12), (False, 40)):
        for _ in range(times):
            length = solver.iterations(problem)
            if length >= least if longer else length <= most:
                break
            solver = next(_scaled(solver, problem, longer), solver)
    return solver


def _scaled(solver: Solver, problem: Problem, longer: bool) -> Iterator[Solver]:
    """Yield longer, or shorter, solvers of which one number is halved or doubled."""
    length = solver.iterations(problem)
    for field in dataclasses.fields(solver):
        value = getattr(solver, field.name)
        if type(value) in (int, float):
            for other in (type(value)(value / 2), 2 * value):
                if within(other, field.metadata):
                    changed = dataclasses.replace(solver, **{field.name: other})
                    change = changed.iterations(problem) - length
                    if change > 0 if longer else change < 0:
                        yield changed
