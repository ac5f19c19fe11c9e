"""mode=plan: count the trials that an experiment would run, and estimate their time.

No trial runs and nothing is recorded, for any solver. A trial is expected to take the
median time of the folder's recorded trials of its kind (`Trial.kind`); a batch's
seconds are divided among its trials. If no trial of its kind is recorded, no time is
estimated.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from dp_erm_bench.experiment.lines import Kind, Trial
from dp_erm_bench.experiment.schema import FAILED
from dp_erm_bench.experiment.tune import Tuner
from dp_erm_bench.results.files import count_with_noun
from dp_erm_bench.results.store import Store, planned_lines
from dp_erm_bench.runner.engines.choice import workers_of
from dp_erm_bench.runner.session import Label, Session, list_reasons

SAMPLE = 30
"""Largest number of records of a kind that are read; their median is used."""


class Tally(NamedTuple):
    """The numbers of trials of a line (all, done, failed), and those still to run.

    A line consists of the trials under one label. If a search has not proposed a trial
    yet, an example takes its place in `todo`, under a unique key.
    """

    trials: int
    done: int
    failed: int
    todo: dict[Any, Trial]


def print_plan(session: Session) -> None:
    """Print the numbers of trials of each line (all, done, failed, to do), and a time.

    Then print the number of trials to do that will certainly be refused, and why.
    Rounds of tuning that depend on trials to do count with their largest possible
    number. A trial of two lines counts in both lines, and once in the total.
    """
    lines, named = count_lines(session)
    if not lines:
        print("nothing to run: none of the datasets can be had")
        return
    todo = {key: one for line in lines.values() for key, one in line.todo.items()}
    done = sum(line.done for line in lines.values())
    failed = sum(line.failed for line in lines.values())
    total = Tally(done + failed + len(todo), done, failed, todo)
    refused = {
        key: why
        for key, one in todo.items()
        if one.work.own <= 0 and (why := one.setting.batch_key.refusal())
    }
    kinds = {one.kind for key, one in todo.items() if key not in refused}
    costs = median_costs(session.store, [*named, *todo.values()], kinds)
    jobs = workers_of(session.options)
    print(_row_of_line("panel", "line", "trials", "done", "failed", "to do", "time"))
    for (panel, name), line in {**lines, ("", "total"): total}.items():
        runs = [one for key, one in line.todo.items() if key not in refused]
        known = [costs[one.kind] for one in runs if one.kind in costs]
        time = duration_in_words(wall_time(known, jobs)) if known or not runs else "?"
        more = "+" if 0 < len(known) < len(runs) else ""
        time = f"{time}{more}" if line.todo else "-"
        counts = (line.trials, line.done, line.failed, len(line.todo))
        print(_row_of_line(panel, name, *counts, time))
    if known:
        seconds, workers = math.fsum(known), count_with_noun(jobs, "worker")
        said = f"{seconds:.3g} s of computing, {time} on {workers}"
        print(f"{said}, from recorded trials")
    if unknown := len(runs) - len(known):
        trials = count_with_noun(unknown, "trial")
        print(f"no recorded trial has the settings of {trials}")
    if refused:
        told = list_reasons("will be skipped", len(refused), refused.values())
        print("\n".join(told))


def _row_of_line(panel: str, line: str, *columns: object) -> str:
    return f"{panel:<28} {line:<36} " + " ".join(f"{x:>8}" for x in columns)


def duration_in_words(seconds: float) -> str:
    """Return a time as a string, in the largest unit in which it is at least 2."""
    if seconds < 1:
        return "< 1 s"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def wall_time(costs: Collection[float], n_jobs: int) -> float:
    """Return the seconds that trials take on workers, at least those of the longest."""
    return max(math.fsum(costs) / n_jobs, max(costs, default=0.0))


def count_lines(session: Session) -> tuple[dict[Label, Tally], list[Trial]]:
    """Return the trial counts of each line of a plan, and all trials known by now.

    Rounds of tuning are followed as far as their records exist.
    """
    expected = session.expected_by_line()
    named: dict[Label, list[Trial]] = {label: [] for label in expected}
    for stage in session.stages():
        for one in session.announce(stage)[0]:
            named[one.setting.line.full_name].append(one)
    lines = {}
    for label, number in expected.items():
        tuners = [tuner for tuner in session.tuners if tuner.line.full_name == label]
        states = Counter(session.statuses[one.key] for one in named[label])
        failed = sum(states[status] for status in FAILED)
        done = len(named[label]) - states["planned"] - failed
        left = (o for o in named[label] if session.statuses[o.key] == "planned")
        todo: dict[Any, Trial] = {one.key: one for one in left}
        for one, count in _examples_of_line(number - len(named[label]), tuners):
            todo |= {object(): one for _ in range(count)}
        # Two settings of a sweep may be one trial.
        trials = max(number if tuners else 0, len(named[label]))
        lines[label] = Tally(trials, done, failed, todo)
    return lines, [one for ones in named.values() for one in ones]


def _examples_of_line(
    left: int, tuners: Sequence[Tuner]
) -> Iterator[tuple[Trial, int]]:
    """Yield examples of a line's trials that are not known yet, each with a number.

    The number says how many such trials there are. Reports of the chosen setting come
    last.
    """
    reports = sum(len(tuner.tune.report) for tuner in tuners)
    for phase, number in (("tune", left - reports), ("report", min(left, reports))):
        if number > 0 and tuners:
            yield tuners[0].example(phase), number


def median_costs(
    store: Store, named: Iterable[Trial], kinds: Collection[Kind]
) -> Mapping[Kind, float]:
    """Return the median seconds of the recorded trials of some kinds.

    Parameters
    ----------
    store : Store
        The records; at most `SAMPLE` of each kind are read.
    named : iterable of Trial
        Trials of these kinds, recorded or not. Records of the same settings with other
        seeds count, too.
    kinds : collection of Kind
        The kinds whose seconds are returned.
    """
    wanted = {
        _setting_of_spec(one.spec): one.kind for one in named if one.kind in kinds
    }
    taken: defaultdict[Kind, list[str]] = defaultdict(list)
    for line in planned_lines(store.folder) if wanted and len(store) else ():
        kind = wanted.get(_setting_of_spec(line["spec"]))
        done = store.status(line["key"]) in ("ok", "diverged")
        if done and kind is not None and len(taken[kind]) < SAMPLE:
            taken[kind].append(line["key"])
    costs: dict[Kind, float] = {}
    for kind, keys in taken.items():
        seconds = [float(one["cost"]) for one in store.records(keys) if one]
        costs |= {kind: median(seconds)} if seconds else {}
    return costs


def _setting_of_spec(spec: Mapping[str, Any]) -> str:
    """Return the spec of a trial without its seed, as JSON."""
    return json.dumps({**spec, "seed": None}, sort_keys=True, default=str)
