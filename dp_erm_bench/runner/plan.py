"""mode=plan: count what an experiment would do, and do nothing."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from dp_erm_bench.experiment.lines import Trial
from dp_erm_bench.experiment.schema import FAILED
from dp_erm_bench.experiment.tune import Tuner
from dp_erm_bench.runner.engines.choice import workers_of
from dp_erm_bench.runner.estimate import Expected, costs_of
from dp_erm_bench.runner.session import Label, Session

START = 1.0
"""Seconds until workers, which start together, have imported what a batch needs."""

Later = tuple[list[Expected], int]


class Tally(NamedTuple):
    """One line of the plan: its trials by state, and the seconds of each to do."""

    trials: int
    done: int
    failed: int
    costs: dict[Any, float]


def print_plan(session: Session) -> None:
    """Print per line the trials in all, done, failed, to do, and the time to expect.

    Rounds of tuning that depend on trials to do are counted as if no axis were
    extended. A trial of two lines is counted in both.
    """
    lines, basis = estimated(session)
    if not lines:
        print("nothing to run: none of the datasets can be had")
        return
    total, jobs = _total(lines.values()), workers_of(session.options)
    print(_row("panel", "line", "trials", "done", "failed", "to do", "time"))
    for (panel, name), line in {**lines, ("", "total"): total}.items():
        todo = line.trials - line.done - line.failed
        start = START if line is total else 0.0
        seconds = start + wall(line.costs.values(), jobs)
        time = duration(seconds) if line.costs else "-"
        print(_row(panel, name, line.trials, line.done, line.failed, todo, time))
    if total.costs:
        workers = "1 worker" if jobs == 1 else f"{jobs} workers"
        print(f"{math.fsum(total.costs.values()):.3g} s of computing in all")
        print(f"about {time} on {workers}, from {basis}")


def _row(panel: str, line: str, *columns: object) -> str:
    return f"{panel:<28} {line:<36} " + " ".join(f"{x:>8}" for x in columns)


def duration(seconds: float) -> str:
    """Return a time in the largest unit that leaves at least two of it."""
    if seconds < 1:
        return "< 1 s"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def wall(costs: Collection[float], n_jobs: int) -> float:
    """Return what trials take on some workers, never less than the longest."""
    return max(math.fsum(costs) / n_jobs, max(costs, default=0.0))


def estimated(session: Session) -> tuple[dict[Label, Tally], str]:
    """Return the lines of a plan with the seconds of each trial, and their basis.

    The stages are followed as far as the records go. Trials that no record tells of
    are tried for some seconds; nothing is recorded.
    """
    expected = session.expected()
    named: dict[Label, list[Trial]] = {label: [] for label in expected}
    todo: list[Trial] = []
    for stage in session.stages():
        new, missing = session.announce(stage)
        todo += missing
        for one in new:
            named[one.setting.line.label].append(one)
    later: dict[Label, list[Later]] = {}
    for label, number in expected.items():
        tuners = [tuner for tuner in session.tuners if tuner.line.label == label]
        later[label] = list(_later(number - len(named[label]), tuners))
    examples = [one for groups in later.values() for ones, _ in groups for one in ones]
    planned = [one for ones in named.values() for one in ones]
    costs, basis = costs_of(session.store, planned, todo, examples, session.options)
    lines = {}
    for label, number in expected.items():
        states = Counter(session.statuses[one.key] for one in named[label])
        failed = sum(states[status] for status in FAILED)
        done = len(named[label]) - states["planned"] - failed
        left = (o for o in named[label] if session.statuses[o.key] == "planned")
        seconds: dict[Any, float] = {one.key: costs[one.kind] for one in left}
        # Those not named yet cost what examples cost.
        for ones, members in later[label]:
            each = fmean(costs[example.kind] for example, _, _ in ones)
            seconds |= {object(): each for _ in range(members)}
        trials = max(number, len(named[label]))
        lines[label] = Tally(trials, done, failed, seconds)
    return lines, basis


def _later(left: int, tuners: Sequence[Tuner]) -> Iterator[Later]:
    """Yield examples of the trials of a line that have no name yet, and their number.

    Its reports come last.
    """
    reports = sum(len(tuner.tune.report) for tuner in tuners)
    for phase, number in (("tune", left - reports), ("report", min(left, reports))):
        ones = [
            (one, len(tuner.tune.report) if phase == "report" else number)
            for tuner in (tuners if number > 0 else ())
            for one in tuner.examples(phase)
        ]
        if ones:
            share = number / len(ones)
            yield [(one, held, share) for one, held in ones], number


def _total(lines: Collection[Tally]) -> Tally:
    """Return the sums; a trial that two lines want takes its time once."""
    return Tally(
        sum(line.trials for line in lines),
        sum(line.done for line in lines),
        sum(line.failed for line in lines),
        {key: cost for line in lines for key, cost in line.costs.items()},
    )
