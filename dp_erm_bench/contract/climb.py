"""Search for neighbouring datasets on which a release changes most.

If the answers are fixed, a query is a function of the records alone. The search starts
from a replay in which a query differs a lot between the two datasets. It changes the
records step by step, and keeps each change unless the difference becomes smaller.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from dp_erm_bench.contract.candidate import Candidate, NotApplicable, require
from dp_erm_bench.contract.cases import Case, params_of
from dp_erm_bench.contract.problems import (
    FAMILIES,
    LABEL,
    LARGE,
    SEARCHED,
    RecordChange,
    change_of,
    column_bounds_of,
)
from dp_erm_bench.contract.replay import ReplayResult, replay_cases, replay_results

LEAST = 0.3
"""A search starts from a replay that reaches at least this share of a sensitivity."""
ROUNDED = 1e-9
TRIES, STARTS = 150, 4
NUMBERS = itertools.count()
FACTORS = (-1.0, 0.3, 1.7, 5.0)


def no_neighbours_move_more(candidate: Candidate) -> None:
    """Check that a search finds no neighbours on which a query changes too much.

    A change is too large if it exceeds the declared sensitivity.
    """
    if candidate.foreign:
        raise NotApplicable(f"it is about records, not about {candidate.foreign.kind}")
    starts = _start_cases(candidate)
    for start in starts[:STARTS]:
        for steps, found in enumerate(_climb_from(candidate, start)):
            words = "; ".join(dict.fromkeys(found.all))
            title = (
                f"{found.case.title}, neighbours: {start.family} after {steps} steps"
            )
            require(not words, f"{title} of a search: {words}")
    if not starts:
        raise NotApplicable(f"no replay moves a query by {LEAST} of its sensitivity")


def _start_cases(candidate: Candidate) -> list[Case]:
    """Return the replays in which each release changes most, under each adjacency.

    For each release, also return the replay with the most default parameters among
    those that reach the sensitivity. Low clipping thresholds hide how records affect
    each other.
    """
    usual = params_of(candidate.build())
    best: dict[tuple[Any, ...], tuple[float, int, Case]] = {}
    for one in replay_results(candidate):
        case = one.case
        if case.family not in FAMILIES.keys() - LARGE or case.toggled is not None:
            continue
        near = sum(param in usual for param in case.params)
        for (name, ratio), part in itertools.product(one.ratios.items(), (0, near)):
            found = min(1.0, round(ratio, 3)), part, case
            key = name, case.adjacency, part > 0
            if found[:2] > best.get(key, (LEAST, 0))[:2]:
                best[key] = found
    ranked = sorted(best.values(), key=lambda found: -found[0])
    return [*dict.fromkeys(replace(case, trials=1, brief=True) for *_, case in ranked)]


def _climb_from(candidate: Candidate, start: Case) -> Iterator[ReplayResult]:
    """Yield the replays of a search that starts from a case."""
    rng = np.random.default_rng(len(start.family))
    kept, most = change_of(start.family), 0.0
    for number in range(TRIES):
        tried = change_neighbours(kept, rng) if number else kept
        if number and all(
            np.array_equal(getattr(kept, part), getattr(tried, part))
            for part in ("X", "y", "other", "label")
        ):
            continue
        family = f"search {next(NUMBERS)}"
        SEARCHED[family] = tried
        (found,) = replay_cases(candidate, [replace(start, family=family)])
        del SEARCHED[family]
        yield found
        ratio = max(found.ratios.values(), default=0.0)
        if ratio >= most * (1 - ROUNDED):  # a step without gain is taken, too
            kept, most = tried, max(ratio, most)


def change_neighbours(change: RecordChange, rng: np.random.Generator) -> RecordChange:
    """Return a copy of neighbours with one random change within the declared bounds."""
    X, y, record = change.X.copy(), change.y.copy(), change.record
    bound = column_bounds_of(X.shape[1]) * (1.0 if change.bounded else np.inf)
    other, label = change.other.copy(), change.label
    others = np.arange(len(y)) != record
    match rng.integers(8):
        case 0:
            other *= rng.choice(FACTORS)
        case 1:
            j = rng.integers(other.size)
            other[j] = (
                rng.choice([-1.0, 1.0, rng.normal()]) * column_bounds_of(other.size)[j]
            )
        case 2:
            X[record], other = other, X[record].copy()
        case 3:
            label = rng.choice([-LABEL, LABEL])
        case 4:
            other = rng.choice([-1.0, 1.0], other.size) * column_bounds_of(other.size)
        case 5:
            X[others & (y == rng.choice(y))] *= rng.choice(FACTORS)
        case 6:
            y[others] = np.where(rng.random(len(y)) < rng.random(), 1.0, -1.0)[others]
        case 7:
            X[others] = rng.uniform(-1.0, 1.0) * other
    X, other = np.clip(X, -bound, bound), np.clip(other, -bound, bound)
    return replace(change, X=X, y=y, other=other, label=label)
