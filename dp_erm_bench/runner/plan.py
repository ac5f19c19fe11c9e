"""mode=plan: count what an experiment would do, and do nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dp_erm_bench.runner.estimate import Costs, duration, wall
from dp_erm_bench.runner.options import FAILED
from dp_erm_bench.runner.session import Session
from dp_erm_bench.runner.trial import Planned
from dp_erm_bench.runner.tune import Tuner
from dp_erm_bench.runner.wanted import Wanted

HEADER = ("panel", "line", "trials", "done", "failed", "to do", "time")
Label = tuple[str, str]


class Line(NamedTuple):
    """One line of the plan: its trials by state, and the seconds of each to do."""

    trials: int
    done: int
    failed: int
    costs: dict[Any, float]


def print_plan(
    session: Session,
    cases: Sequence[Wanted],
    tuners: Sequence[Tuner],
    stages: Iterable[list[Planned]],
) -> None:
    """Print per line the trials in all, done, failed, to do, and the time to expect.

    Rounds of tuning that depend on trials to do are counted as if no axis were
    extended. A trial of two lines is counted in both.
    """
    expected = _expected(cases, tuners)
    if not expected:
        print("nothing to run: none of the datasets can be had")
        return
    planned, todo = _announced(session, stages)
    examples = {_label(one): one for one in (tuner.example() for tuner in tuners)}
    examples |= {_label(one): one for one in reversed(todo)}
    costs = Costs(session.store, planned, [*todo, *examples.values()])
    lines = _lines(session, expected, planned, examples, costs)
    jobs = session.options.n_jobs
    rows = [_row(*label, line, jobs) for label, line in lines.items()]
    total = _total(lines.values())
    rows.append(_row("", "total", total, jobs))
    for row in (HEADER, *rows):
        print(f"{row[0]:<28} {row[1]:<36} " + " ".join(f"{x:>8}" for x in row[2:]))
    if total.costs:
        workers = "1 worker" if jobs == 1 else f"{jobs} workers"
        lead = "less than 1 s" if rows[-1][-1] == "< 1 s" else f"about {rows[-1][-1]}"
        print(f"{lead} on {workers}, from {costs.basis()}")


def _expected(cases: Sequence[Wanted], tuners: Sequence[Tuner]) -> Counter[Label]:
    expected: Counter[Label] = Counter()
    for case in cases:
        if case.tune is None:
            expected[case.panel, case.line] += case.expected
    for tuner in tuners:
        expected[tuner.case.panel, tuner.case.line] += tuner.expected()
    return expected


def _announced(
    session: Session, stages: Iterable[list[Planned]]
) -> tuple[list[Planned], list[Planned]]:
    """Follow the stages as far as the records go."""
    planned: list[Planned] = []
    todo: list[Planned] = []
    for stage in stages:
        found, missing = session.announce(stage)
        planned += found
        todo += missing
    return planned, todo


def _lines(
    session: Session,
    expected: Mapping[Label, int],
    planned: Iterable[Planned],
    examples: Mapping[Label, Planned],
    costs: Costs,
) -> dict[Label, Line]:
    """Count each line's trials; those not named yet cost what an example costs."""
    counts: dict[Label, Counter[str]] = {label: Counter() for label in expected}
    todo: dict[Label, dict[Any, float]] = {label: {} for label in expected}
    for one in planned:
        status = session.statuses[one.key]
        counts[_label(one)][status] += 1
        if status == "planned":
            todo[_label(one)][one.key] = costs.of(one)
    lines = {}
    for label, found in counts.items():
        failed = sum(found[status] for status in FAILED)
        done = sum(found.values()) - found["planned"] - failed
        trials = max(expected[label], sum(found.values()))
        later = trials - sum(found.values())
        each = costs.of(examples[label]) if later else 0.0
        unnamed = {(label, i): each for i in range(later)}
        lines[label] = Line(trials, done, failed, {**todo[label], **unnamed})
    return lines


def _total(lines: Collection[Line]) -> Line:
    """Return the sums; a trial that two lines want takes its time once."""
    return Line(
        sum(line.trials for line in lines),
        sum(line.done for line in lines),
        sum(line.failed for line in lines),
        {key: cost for line in lines for key, cost in line.costs.items()},
    )


def _row(panel: str, line: str, found: Line, n_jobs: int) -> tuple[str | int, ...]:
    todo = found.trials - found.done - found.failed
    time = duration(wall(found.costs.values(), n_jobs)) if found.costs else "-"
    return panel, line, found.trials, found.done, found.failed, todo, time


def _label(one: Planned) -> Label:
    return one.labels.panel, one.labels.line
