"""mode=plan: count what an experiment would do, and tell how long it may take.

Nothing is run and nothing recorded, whoever wrote the solver. The seconds of a trial
are those of the model of the work (`experiment.lines.Work`) times a rate, which is the
median of recorded over modelled seconds of the nearest trials that the folder has:

1. of the same settings, whose batches could have held it (`Trial.kind`): the model
   only allows for another number of trials in a batch;
2. of the same algorithm, else of any: the model stands for the difference;
3. none: a second is what the model says is one (`SECOND`).

What is loaded and computed once must not count for every trial: of the first batch of
a worker, or of a kind, the iterations alone count. What a worker loads is told apart,
once for each; data, calibrations and optima that nobody needed before are not told.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median, median_low
from typing import Any, NamedTuple

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.lines import SECOND, Kind, Setting, Trial, line_of
from dp_erm_bench.experiment.schema import FAILED
from dp_erm_bench.experiment.tune import Tuner
from dp_erm_bench.plugins.names import named_in
from dp_erm_bench.results.store import FINISHED, Store, planned_lines
from dp_erm_bench.runner.engines.choice import workers_of
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.session import Label, Reasons, Session, batch_size

SAME = "recorded trials of the same settings"
SCALED = "other recorded trials, scaled by a model of the work"
GUESSED = (
    "a model of the work without data, calibrations and optima, "
    "for nothing like it is recorded"
)
BASES = (SAME, SCALED, GUESSED)

START = 1.0
"""Seconds until a worker has loaded what a batch needs, where no record tells."""

SAMPLE = 30
"""Batches that are read of trials that are alike; their median counts."""


class Tally(NamedTuple):
    """One line of the plan: its trials by state, and the seconds of each to do.

    And of those to do which are known to be refused: their keys, and why.
    """

    trials: int
    done: int
    failed: int
    costs: dict[Any, float]
    refused: dict[Any, str]


class Expected(NamedTuple):
    """A trial like some that have no name yet, and how many may share its batch."""

    one: Trial
    number: int


Later = tuple[list[Expected], int]
"""Examples of trials that have no name yet, and the number of these trials."""


class Costs(NamedTuple):
    """What trials are expected to take.

    Attributes
    ----------
    seconds : dict of Kind to float
        Of a trial of each kind; 0 for what is known to be refused.
    start : float
        Seconds that a worker takes beside, once.
    bases : tuple of str
        Those of `BASES` on which they rest.
    """

    seconds: dict[Kind, float]
    start: float
    bases: tuple[str, ...]


def print_plan(session: Session) -> None:
    """Print per line the trials in all, done, failed, to do, and the time to expect.

    And how many of those to do are known to be refused, and why.
    Rounds of tuning that depend on trials to do are counted as if no axis were
    extended. A trial of two lines is counted in both.
    """
    lines, costs = estimated(session)
    if not lines:
        print("nothing to run: none of the datasets can be had")
        return
    total, jobs = _total(lines.values()), workers_of(session.options)
    print(_row("panel", "line", "trials", "done", "failed", "to do", "time"))
    for (panel, name), line in {**lines, ("", "total"): total}.items():
        todo = line.trials - line.done - line.failed
        start = costs.start if line is total else 0.0
        seconds = start + wall(line.costs.values(), jobs)
        time = duration(seconds) if line.costs else "-"
        print(_row(panel, name, line.trials, line.done, line.failed, todo, time))
    if total.costs:
        workers = "1 worker" if jobs == 1 else f"{jobs} workers"
        computing = math.fsum(total.costs.values())
        computing += costs.start * min(jobs, len(total.costs))
        about = "" if costs.bases == (SAME,) else "about "
        print(f"{about}{computing:.3g} s of computing in all")
        print(f"{about}{time} on {workers}, from {'; '.join(costs.bases)}")
    reasons = Reasons()
    for why in total.refused.values():
        reasons.add("skipped", why)
    for told in reasons.lines(session.store):
        print(told if told.startswith(" ") else f"will be {told}")


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


def estimated(session: Session) -> tuple[dict[Label, Tally], Costs]:
    """Return the lines of a plan with the seconds of each trial, and what they are of.

    The stages are followed as far as the records go.
    """
    expected = session.expected()
    named: dict[Label, list[Trial]] = {label: [] for label in expected}
    todo: list[Trial] = []
    for stage in session.stages():
        new, missing = session.announce(stage)
        todo += missing
        for one in new:
            named[one.setting.line.called].append(one)
    later: dict[Label, list[Later]] = {}
    for label, number in expected.items():
        tuners = [tuner for tuner in session.tuners if tuner.line.called == label]
        later[label] = list(_later(number - len(named[label]), tuners))
    examples = [one for groups in later.values() for ones, _ in groups for one in ones]
    planned = [one for ones in named.values() for one in ones]
    costs = costs_of(session.store, planned, todo, examples, session.options)
    lines = {}
    for label, number in expected.items():
        states = Counter(session.statuses[one.key] for one in named[label])
        failed = sum(states[status] for status in FAILED)
        done = len(named[label]) - states["planned"] - failed
        left = [o for o in named[label] if session.statuses[o.key] == "planned"]
        seconds: dict[Any, float] = {one.key: costs.seconds[one.kind] for one in left}
        refused: dict[Any, str] = {one.key: _refusal(one, costs) for one in left}
        # Those not named yet cost what examples cost.
        for ones, members in later[label]:
            each = fmean(costs.seconds[example.one.kind] for example in ones)
            whys = [_refusal(example.one, costs) for example in ones]
            keys = [object() for _ in range(members)]
            seconds |= dict.fromkeys(keys, each)
            refused |= dict.fromkeys(keys, whys[0] if all(whys) else "")
        # Two settings of a sweep may be one trial.
        number = number if any(t.line.called == label for t in session.tuners) else 0
        trials = max(number, len(named[label]))
        known = {key: why for key, why in refused.items() if why}
        lines[label] = Tally(trials, done, failed, seconds, known)
    return lines, costs


def _refusal(one: Trial, costs: Costs) -> str:
    """Return why a trial is known to be refused, which takes no time by the model."""
    return "" if costs.seconds[one.kind] > 0 else one.setting.batch_key.refusal()


def _later(left: int, tuners: Sequence[Tuner]) -> Iterator[Later]:
    """Yield examples of the trials of a line that have no name yet, and their number.

    Its reports come last.
    """
    reports = sum(len(tuner.tune.report) for tuner in tuners)
    for phase, number in (("tune", left - reports), ("report", min(left, reports))):
        ones = [
            Expected(one, len(tuner.tune.report) if phase == "report" else number)
            for tuner in (tuners if number > 0 else ())
            for one in tuner.examples(phase)
        ]
        if ones:
            yield ones, number


def _total(lines: Collection[Tally]) -> Tally:
    """Return the sums; a trial that two lines want is to do, and takes time, once."""
    costs = {key: cost for line in lines for key, cost in line.costs.items()}
    done = sum(line.done for line in lines)
    failed = sum(line.failed for line in lines)
    return Tally(
        done + failed + len(costs),
        done,
        failed,
        costs,
        {key: why for line in lines for key, why in line.refused.items()},
    )


def costs_of(
    store: Store,
    planned: Iterable[Trial],
    asked: Sequence[Trial],
    later: Iterable[Expected],
    options: RunOptions,
) -> Costs:
    """Return what trials are expected to take.

    Parameters
    ----------
    store : Store
        The records.
    planned : iterable of Trial
        Trials of the sweep, recorded or not.
    asked : sequence of Trial
        Those whose time is asked for.
    later : iterable of Expected
        Examples of those that are to come, whose time is asked for, too.
    options : RunOptions
        How they will be run: the number of trials in a batch.
    """
    members = Counter(one.kind for one in asked)
    examples: dict[Kind, Trial] = {}
    for one in asked:
        examples.setdefault(one.kind, one)
    for one, number in later:
        examples.setdefault(one.kind, one)
        members.setdefault(one.kind, number)
    rates, start = Sample(store, examples.values()).rates(planned)
    seconds, bases = {}, set()
    for kind, one in examples.items():
        most = options.most_of(one.phase)
        size = batch_size(one, members[kind], most, options.batch_work)
        nearest = _nearest(one.setting, one.n_checkpoints)
        near = next((some for some in nearest if some in rates), None)
        rate = 1.0 if near is None else rates[near]
        seconds[kind] = rate * one.work.batch(size) / size / SECOND
        if seconds[kind] > 0:
            scaled = GUESSED if near is None else SCALED
            bases.add(SAME if near == kind else scaled)
    # What is refused takes no time by the model, too.
    bases = bases or {GUESSED}
    return Costs(seconds, start, tuple(basis for basis in BASES if basis in bases))


Near = tuple[Any, ...]
"""What trials have in common: see `_nearest`."""


def _nearest(setting: Setting, rows: int) -> tuple[Near, Near, Near]:
    """Return what trials of so many checkpoints share with others, the nearest first.

    Their kind, their algorithm, and nothing.
    """
    return (setting.batch_key.group, rows), _algorithm(setting.base), ()


def _algorithm(spec: Mapping[str, Any]) -> Near:
    """Return the task, None of a fit, and the algorithm of a trial."""
    return spec.get("task", {}).get("name"), named_in(spec["algorithm"])


class Sample:
    """Records that tell how long the trials that are asked for may take.

    One of each batch, for its trials share its seconds.

    Parameters
    ----------
    store : Store
        The records.
    asked : collection of Trial
        One of each kind.
    """

    def __init__(self, store: Store, asked: Collection[Trial]) -> None:
        self._store = store
        alike = [_nearest(one.setting, one.n_checkpoints) for one in asked]
        self._room = {near: SAMPLE for nearest in alike for near in nearest}
        self._kinds = {kind for kind, _, _ in alike}
        self._data = {str(one.setting.base.get("dataset")) for one in asked}
        self._batches: set[tuple[Path, float]] = set()
        self._taken: dict[str, tuple[Setting, int]] = {}

    def rates(self, planned: Iterable[Trial]) -> tuple[dict[Near, float], float]:
        """Return recorded over modelled seconds, and the seconds of a worker's start.

        The first batch of a worker waits for what it loads, that of a kind for its
        calibration. Of these the seconds of the iterations count, over those that the
        model has without checkpoints; the rest of the former is the start.
        """
        self._choose(planned)
        records = self._store.records(list(self._taken))
        first = _openings(self._store) if self._taken else {}
        found: defaultdict[Near, list[float]] = defaultdict(list)
        starts: list[float] = []
        for key, record in zip(self._taken, records, strict=True):
            entry, (setting, rows) = self._store.index[key], self._taken[key]
            record, work = record or {}, setting.batch_key.work
            size = (record.get("facts") or {}).get("batch_size", 1)
            modelled, bare = (work(n).batch(size) / size / SECOND for n in (rows, 0))
            if not bare > 0:
                continue
            rate, nearest = entry.cost / modelled, _nearest(setting, rows)
            iterations = (record.get("trajectory") or {}).get("seconds")
            begins = first[entry.segment] == entry.cost
            if iterations and (begins or nearest[0] not in found):
                rate = min(rate, iterations[-1] / bare)
            if iterations and begins:
                starts.append(size * (entry.cost - rate * modelled))
            # What was refused tells nothing of others.
            for near in nearest[:1] if entry.status == "skipped" else nearest:
                found[near].append(rate)
        rates = {near: median_low(some) for near, some in found.items()}
        return rates, median(starts) if starts else START

    def _choose(self, planned: Iterable[Trial]) -> None:
        """Take of the trials of the sweep what tells, then of others of the folder.

        Those are read only if there is a kind of which the sweep does not tell.
        """
        if not len(self._store.index):
            return
        for one in planned:
            if self._is_new(one.key):
                self._take(one.key, one.setting, one.n_checkpoints)
        if all(self._room[kind] < SAMPLE for kind in self._kinds):
            return
        for row in planned_lines(self._store.folder):
            if self._is_new(row["key"]):
                setting = self._setting(row["spec"])
                if setting is not None:
                    self._take(row["key"], setting, row["spec"]["n_checkpoints"])
            if not any(self._room.values()):
                return

    def _is_new(self, key: str) -> bool:
        """Return whether a trial is done, and none of its batch was seen before."""
        entry = self._store.index.get(key)
        if entry is None or entry.status not in FINISHED or not entry.cost > 0:
            return False
        return (entry.segment, entry.cost) not in self._batches

    def _take(self, key: str, setting: Setting, rows: int) -> None:
        """Take a trial if there is room for what it tells of."""
        entry = self._store.index[key]
        self._batches.add((entry.segment, entry.cost))
        for near in _nearest(setting, rows):
            if self._room.get(near):
                self._room[near] -= 1
                self._taken[key] = setting, rows

    def _setting(self, spec: dict[str, Any]) -> Setting | None:
        """Return the setting of a fit of another sweep, None if it is of no use.

        Data that nobody asks for are not loaded for an algorithm that nobody asks for.
        A file that the user did not name here is refused, not imported.
        """
        try:
            known = str(spec["dataset"]) in self._data
            asked = known or _algorithm(spec) in self._room
            if "task" in spec or not asked:
                return None
            setting = line_of(spec).setting()
            setting.batch_key.work(spec["n_checkpoints"])
            return setting
        except (UsageError, DataUnavailable, KeyError, TypeError, AttributeError):
            return None


def _openings(store: Store) -> dict[Path, float]:
    """Return the cost of the first record of each segment, which one worker wrote."""
    first: dict[Path, tuple[int, float]] = {}
    for entry in store.index.values():
        place = entry.offset, entry.cost
        first[entry.segment] = min(first.get(entry.segment, place), place)
    return {segment: cost for segment, (_, cost) in first.items()}
