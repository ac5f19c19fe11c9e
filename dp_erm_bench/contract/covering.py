"""Values of parameters, and combinations in which any two of them meet."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

INTEGERS = (1, 3, 12, 5)
REALS = (0.0, 0.3, 40.0, 1.0, 0.05)
VALUES = 5
Row = dict[str, Any]


def values_of(field: dataclasses.Field[Any]) -> list[Any]:
    """Return values of a parameter that may lead to other branches, its own first."""
    limits, kind = field.metadata, str(field.type)
    if "choices" in limits:
        found = list(limits["choices"])
    elif isinstance(field.default, bool):
        found = [True, False]
    else:
        tried = INTEGERS if "int" in kind else REALS
        ends = [limits[key] for key in ("least", "most") if key in limits]
        known = [x for x in dict.fromkeys((*ends, *tried)) if within(x, limits)]
        numbers = known[:VALUES]
        found = [*numbers, *limits.get("words", ())]
        found += [None] if "None" in kind else []
    others = [x for x in dict.fromkeys(found) if x != field.default]
    return [field.default, *others]


def within(x: float, limits: Mapping[str, Any]) -> bool:
    """Return whether a number is within a field's limits."""
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
    names = list(factors)
    todo = {
        ((a, i), (b, j)): None
        for a, b in itertools.combinations(names, 2)
        for i, j in itertools.product(range(len(factors[a])), range(len(factors[b])))
    }
    if len(names) == 1:
        todo = {((names[0], i),) * 2: None for i in range(len(factors[names[0]]))}
    rows = [dict.fromkeys(names, 0)]
    _strike(todo, rows[0])
    while todo:
        (a, i), (b, j) = next(iter(todo))
        for attempt in range(4):
            row = _completed(names, factors, todo, {a: i, b: j}, attempt)
            if allowed({name: factors[name][k] for name, k in row.items()}):
                rows.append(row)
                _strike(todo, row)
                break
        todo.pop(((a, i), (b, j)), None)
    made = [{name: factors[name][k] for name, k in row.items()} for row in rows]
    return [made[0], *(row for row in made[1:] if allowed(row))]


def _completed(
    names: Sequence[str],
    factors: Mapping[str, Sequence[Any]],
    todo: Mapping[Any, None],
    row: dict[str, int],
    attempt: int,
) -> dict[str, int]:
    row = dict(row)
    for name in names:
        if name not in row:
            gains = [_gain(todo, row, name, k) for k in range(len(factors[name]))]
            ranked = sorted(range(len(gains)), key=lambda k: (-gains[k], k))
            # The later attempts stay with the first value: it is the usual one.
            row[name] = ranked[attempt % len(ranked)] if attempt < 2 else 0
    return {name: row[name] for name in names}


def _gain(todo: Mapping[Any, None], row: dict[str, int], name: str, k: int) -> int:
    both = ((((a, i), (name, k)), ((name, k), (a, i))) for a, i in row.items())
    return sum(one in todo or other in todo for one, other in both)


def _strike(todo: dict[Any, None], row: dict[str, int]) -> None:
    for both in itertools.product(row.items(), repeat=2):
        todo.pop(both, None)
