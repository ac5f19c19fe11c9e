"""mode=plan: count what an experiment would do, and do nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from dp_erm_bench.experiment.expand import Wanted
from dp_erm_bench.experiment.frame import FAILED
from dp_erm_bench.experiment.trials import Planned
from dp_erm_bench.experiment.tune import Tuner
from dp_erm_bench.runner.estimate import Costs, Expected, duration, wall
from dp_erm_bench.runner.session import Session

HEADER = ("panel", "line", "trials", "done", "failed", "to do", "time")
Label = tuple[str, str]
Later = tuple[list[Expected], int]


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
    lines, basis = estimated(session, expected, tuners, stages)
    jobs = session.options.n_jobs
    rows = [_row(*label, line, jobs) for label, line in lines.items()]
    total = _total(lines.values())
    rows.append(_row("", "total", total, jobs))
    for row in (HEADER, *rows):
        print(f"{row[0]:<28} {row[1]:<36} " + " ".join(f"{x:>8}" for x in row[2:]))
    if total.costs:
        workers = "1 worker" if jobs == 1 else f"{jobs} workers"
        lead = "less than 1 s" if rows[-1][-1] == "< 1 s" else f"about {rows[-1][-1]}"
        print(f"{math.fsum(total.costs.values()):.3g} s of computing in all")
        print(f"{lead} on {workers}, from {basis}")


def estimated(
    session: Session,
    expected: Mapping[Label, int],
    tuners: Sequence[Tuner],
    stages: Iterable[list[Planned]],
) -> tuple[dict[Label, Line], str]:
    """Return the lines of a plan with the seconds of each trial, and their basis.

    Trials that no record tells of are tried for some seconds; nothing is recorded.
    """
    planned, todo = _announced(session, stages)
    named = Counter(map(_label, planned))
    later = {
        label: _later(number - named[label], [t for t in tuners if t.label == label])
        for label, number in expected.items()
    }
    examples = [one for groups in later.values() for ones, _ in groups for one in ones]
    costs = Costs(session.store, planned, todo, examples, session.options)
    return _lines(session, expected, planned, later, costs), costs.basis()


def _later(left: int, tuners: Sequence[Tuner]) -> list[Later]:
    """Return examples of the trials of a line that have no name yet, and their number.

    Its reports come last.
    """
    reports = sum(len(tuner.tune.report) for tuner in tuners)
    found: list[Later] = []
    for phase, number in (("tune", left - reports), ("report", min(left, reports))):
        ones = [
            Expected(one, len(tuner.tune.report) if phase == "report" else number)
            for tuner in tuners
            for one in (tuner.examples(phase) if number > 0 else ())
        ]
        found += [(ones, number)] if ones else []
    return found


def _expected(cases: Sequence[Wanted], tuners: Sequence[Tuner]) -> Counter[Label]:
    expected: Counter[Label] = Counter()
    for case in cases:
        if case.tune is None:
            expected[case.panel, case.line] += case.expected
    for tuner in tuners:
        expected[tuner.label] += tuner.expected()
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
    later: Mapping[Label, Sequence[Later]],
    costs: Costs,
) -> dict[Label, Line]:
    """Count each line's trials; those not named yet cost what examples cost."""
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
        for phase, (ones, number) in enumerate(later[label]):
            each = fmean(costs.of(example) for example, _ in ones)
            todo[label] |= {(label, phase, i): each for i in range(number)}
        trials = max(expected[label], sum(found.values()))
        lines[label] = Line(trials, done, failed, todo[label])
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
