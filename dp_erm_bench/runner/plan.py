"""mode=plan: count what an experiment would do, and do nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from dp_erm_bench.runner.case import Case
from dp_erm_bench.runner.options import FAILED
from dp_erm_bench.runner.session import Session
from dp_erm_bench.runner.trial import Planned
from dp_erm_bench.runner.tune import Tuner

HEADER = ("panel", "line", "trials", "done", "failed", "to do")
NUMBERS = (2, 3, 4, 5)
Label = tuple[str, str]


def print_plan(
    session: Session,
    cases: Sequence[Case],
    tuners: Sequence[Tuner],
    stages: Iterable[list[Planned]],
) -> None:
    """Print per line the trials in all, done, failed and to do.

    Rounds of tuning that depend on trials to do are counted as if no axis were
    extended.
    """
    counts = _recorded(session, stages)
    expected: Counter[Label] = Counter()
    for case in cases:
        if case.tune is None:
            expected[case.panel, case.line] += case.expected
    for tuner in tuners:
        expected[tuner.case.panel, tuner.case.line] += tuner.expected()
    rows = [_row(label, number, counts) for label, number in expected.items()]
    totals = [sum(row[i] for row in rows) for i in NUMBERS]
    for row in (HEADER, *rows, ("", "total", *totals)):
        print(f"{row[0]:<28} {row[1]:<36} " + " ".join(f"{x:>8}" for x in row[2:]))


def _recorded(
    session: Session, stages: Iterable[list[Planned]]
) -> dict[Label, Counter[str]]:
    """Follow the stages as far as the records go."""
    counts: dict[Label, Counter[str]] = {}
    for planned in stages:
        for one in session.announce(planned)[0]:
            label = one.labels.panel, one.labels.line
            counts.setdefault(label, Counter())[session.statuses[one.key]] += 1
    return counts


def _row(
    label: Label, expected: int, counts: dict[Label, Counter[str]]
) -> tuple[Any, ...]:
    found = counts.get(label, Counter())
    failed = sum(found[status] for status in FAILED)
    done = sum(found.values()) - found["planned"] - failed
    trials = max(expected, sum(found.values()))
    return (*label, trials, done, failed, trials - done - failed)
