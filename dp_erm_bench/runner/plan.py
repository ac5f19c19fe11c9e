"""mode=plan: count what an experiment would do, and time it from short runs.

Short runs of batches whose cost is asked for: they are timed, nothing is recorded.

They run in a process of one thread, as a worker does, which its parent ends when the
time is over: what takes for ever, or ends its process, costs its own estimate only.
Each tells of all trials of its sort.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from multiprocessing.connection import Connection
from statistics import fmean, median
from typing import Any, NamedTuple

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.lines import SECOND, Kind, Trial, Work, line_of
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.experiment.schema import FAILED
from dp_erm_bench.experiment.tune import Tuner
from dp_erm_bench.plugins.names import named_in
from dp_erm_bench.registry import POSED
from dp_erm_bench.results.store import FINISHED, Store, read_plan
from dp_erm_bench.runner.engines.choice import workers_of
from dp_erm_bench.runner.host import start
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.session import Label, Session, batch_size
from dp_erm_bench.runner.worker import EXECUTE, Batch

SECONDS = 15.0
"""CPU seconds that all probes together may take, whatever they are of."""

SLOWEST = 1.5
"""Seconds of the wall for each of these, at most: the machine may have other work."""

OVER = -1
"""What a child says in place of a batch when its time is over."""

PATIENCE = 15.0
"""Seconds without a word after which a probe is ended, should it only wait."""

PHASES = ("sweep", "tune", "report")
"""In the order in which they are run."""

LENGTHS = ("n_iter", "passes")
"""Parameters that set the number of iterations and nothing else: one run tells all."""

Sort = tuple[str, str, int]
"""What trials have in common that one probe tells of.

Their data and objective; the algorithm, its shapes but lengths, whether it clips, not
the budget; the size of their batches in bits.
"""


class Probe(NamedTuple):
    """CPU seconds of a batch, taken apart so that those of batches of its kind follow.

    Attributes
    ----------
    size : int
        Trials in the batch.
    load : float
        To load its problem; next to nothing if an earlier probe did.
    fresh, proof : float
        To calibrate other trials of its sort, which no cache on disk may know yet; to
        prove what the disk has of its own.
    cold : float
        What the first such batch of a process takes longer than the others: kernels
        and modules to load, constants of the data to compute.
    setup : float
        To declare and calibrate it.
    first : float
        To its first iteration.
    step : float
        Each further iteration, their mean.
    row : float
        To record a checkpoint.
    end : float
        To put the records together.
    """

    size: int
    load: float = 0.0
    fresh: float = 0.0
    proof: float = 0.0
    cold: float = 0.0
    setup: float = 0.0
    first: float = 0.0
    step: float = 0.0
    row: float = 0.0
    end: float = 0.0

    def seconds(self, iterations: int, n_checkpoints: int) -> float:
        """Return the seconds of such a batch of another length, its problem loaded."""
        steps = self.first + self.step * max(iterations - 1, 0)
        rows = self.row * min(n_checkpoints, iterations + 1)
        return self.setup + steps + rows + self.end


def probed(batches: Sequence[Batch], seconds: float = SECONDS) -> dict[int, Probe]:
    """Return the probes of batches by their place, without those that failed.

    Parameters
    ----------
    batches : sequence of tuple of Trial
        What is run for a while, the most important first.
    seconds : float
        CPU seconds for all of them, the start of a process included.
    """
    probes: dict[int, Probe] = {}
    left, bare, begin = list(range(len(batches))), False, time.monotonic()
    deadline = begin + SLOWEST * seconds
    while left and (rest := begin + seconds - time.monotonic()) > 0:
        process, pipe = start("dp_erm_bench.runner.timed", (), {}, quiet=True)
        try:
            rests = (rest, deadline - begin, bare)
            pipe.send(([(place, batches[place]) for place in left], *rests))
            for place, probe, done in _messages(pipe, deadline):
                if place == OVER:
                    return probes
                if probe is not None:
                    probes[place] = probe
                if done:
                    left.remove(place)
        finally:
            pipe.close()
            process.kill()
            process.wait()
        if left:
            # It was at this one: its records may need an optimum that takes long.
            bare = bare or left[0] in probes
            del left[0]
    return probes


def _messages(
    pipe: Connection, deadline: float
) -> Iterator[tuple[int, Probe | None, bool]]:
    """Yield what a child says until it has ended, or is silent for too long.

    Before its first word of a batch it may load data and compile.
    """
    patience = math.inf
    with contextlib.suppress(EOFError, OSError):
        while pipe.poll(max(0.0, min(patience, deadline - time.monotonic()))):
            place, probe, done = pipe.recv()
            patience = math.inf if done else PATIENCE
            yield place, probe, done


class Example(NamedTuple):
    """One trial of a kind that is asked for, and the batches of its kind."""

    one: Trial
    members: int
    size: int
    sort: Sort

    @property
    def iterations(self) -> int:
        """Return how long it is."""
        return self.one.setting.batch_key.iterations()

    @property
    def batches(self) -> int:
        """Return how many batches there are."""
        return math.ceil(self.members / self.size)

    @property
    def modelled(self) -> float:
        """Return the seconds of a trial by the model of the work."""
        return self.one.work.batch(self.size) / self.size / SECOND

    def precedes(self) -> tuple[int, float]:
        """Return what is greatest for the batch that loads its problem: the first.

        Sweeps are run before what is tuned, that before its reports, and the
        heaviest batches before others.
        """
        return -PHASES.index(self.one.phase), self.one.work.batch(self.size)

    def tells(self) -> tuple[float, ...]:
        """Return what is greatest for the trial that tells of its sort: its length.

        Of equal ones the heaviest, at the budget that is refused last.
        """
        epsilon = float(self.one.spec["budget"]["epsilon"])
        return self.iterations, self.one.work.own, epsilon

    def batch(self) -> Batch:
        """Return a batch of trials that differ in their seeds."""
        one, seeds = self.one, range(self.one.seed, self.one.seed + self.size)
        return tuple(one.setting.trial(seed, one.n_checkpoints) for seed in seeds)


def examples_of(
    asked: Iterable[Trial], members: Mapping[Kind, int], options: RunOptions
) -> list[Example]:
    """Return an example of each kind, of which there are so many, run as is asked."""
    found = []
    for one in asked:
        number = members[one.kind]
        size = batch_size(one, number, options.most_of(one.phase), options.batch_work)
        found.append(Example(one, number, size, _sort(one.spec, size)))
    return found


def tried(examples: Sequence[Example]) -> dict[Sort, tuple[Example, Probe]]:
    """Return the probe of each sort that short runs tell of, and what was probed."""
    sorts: defaultdict[Sort, list[Example]] = defaultdict(list)
    for example in examples:
        sorts[example.sort].append(example)
    order = _order(sorts)
    longest = [max(sorts[sort], key=Example.tells) for sort in order]
    probes = probed([example.batch() for example in longest])
    return {order[place]: (longest[place], probes[place]) for place in probes}


def _order(sorts: Mapping[Sort, Sequence[Example]]) -> list[Sort]:
    """Return the heaviest and the lightest in turn: time may be over before all.

    Sizes of batches of what is tried already come last.
    """
    heavy = sorted(
        sorts, key=lambda sort: -sum(e.modelled * e.members for e in sorts[sort])
    )
    both = chain.from_iterable(zip(heavy, reversed(heavy), strict=True))
    order = list(dict.fromkeys(both))
    first = {sort[:2]: sort for sort in reversed(order)}
    return sorted(order, key=lambda sort: first[sort[:2]] != sort)


def _sort(spec: Mapping[str, Any], size: int) -> Sort:
    algorithm, params = named_in(spec["algorithm"]), spec["algorithm"]["params"]
    shape: dict[str, Any] = {"task": spec.get("task"), "algorithm": algorithm}
    if "task" not in spec:
        kinds = algorithm_of(algorithm).kinds
        lasting = {k: v for k, v in params.items() if kinds[k] != "value"}
        shape["shape"] = {k: v for k, v in lasting.items() if k not in LENGTHS}
        shape["clipped"] = params.get("clip") is not None
        shape["calibration"] = spec["calibration"]
    problem = {part: spec[part] for part in POSED if part in spec}
    return _spelled(problem), _spelled(shape), size.bit_length()


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


SAMPLE = 30
"""Records that are read per kind of trial; their median counts."""

SAME = "recorded trials of the same parameters"
TRIED = "short runs of their kinds"
SCALED = "other trials, scaled by work"
GUESSED = "a model of the work, for nothing like it is recorded"
BASES = (SAME, TRIED, SCALED, GUESSED)
Sample = dict[str, Work]
"""Keys of recorded trials of a kind, or of an algorithm, and the work of each."""

Rates = dict[tuple[str, ...], float]
"""Measured over modelled seconds: of what, from the nearest to all that was run."""

Probes = Mapping[Sort, tuple[Example, Probe]]
Expected = tuple[Trial, int, float]
"""A trial like some that have no name yet, how many batches may hold, and its share.

As many as there will be, over the examples of their line and phase.
"""


def costs_of(
    store: Store,
    planned: Iterable[Trial],
    asked: Sequence[Trial],
    later: Iterable[Expected] = (),
    options: RunOptions | None = None,
) -> tuple[dict[Kind, float], str]:
    """Return the seconds of a trial of each kind, and in words what they rest on.

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
    options : RunOptions, optional
        How they will be run; nothing is tried without.
    """
    members = Counter(one.kind for one in asked)
    asked_for: dict[Kind, Trial] = {}
    for one in asked:
        asked_for.setdefault(one.kind, one)
    spread: defaultdict[Kind, float] = defaultdict(float, members)
    for one, number, share in later:
        spread[one.kind] += share
        asked_for.setdefault(one.kind, one)
        members.setdefault(one.kind, number)
    costs, by_algorithm = _recorded(store, planned, asked_for)
    bases = {SAME} if costs else set()
    chosen = options or RunOptions()
    unknown = [one for kind, one in asked_for.items() if kind not in costs]
    examples = examples_of(unknown, members, chosen)
    costs |= {example.one.kind: 0.0 for example in examples}
    # What is refused costs nothing, and is not tried.
    left = [example for example in examples if example.modelled > 0.0]
    probes: Probes = {}
    if options is not None and options.execute == EXECUTE:
        probes = tried(left)
    bases |= {TRIED} if probes else set()
    steady, scaled = _steady(left, probes, by_algorithm)
    bases |= scaled
    once = _once(left, probes, chosen.workers)
    for example in left:
        kind = example.one.kind
        costs[kind] = steady[kind] + once[kind] / spread[kind]
    return costs, "; ".join(basis for basis in BASES if basis in bases)


def _steady(
    examples: Sequence[Example], probes: Probes, by_algorithm: Mapping[str, float]
) -> tuple[dict[Kind, float], set[str]]:
    """Return the seconds of a trial in a batch that is not the first of its process.

    By kind, and the bases of those that no probe tells of.
    """
    seconds: dict[Kind, float] = {}
    for example in examples:
        if example.sort in probes:
            seconds[example.one.kind] = _extrapolated(example, *probes[example.sort])
    # What a batch refuses takes no step, and says nothing of others.
    ran = [e for e in examples if e.sort in probes and probes[e.sort][1].first > 0.0]
    rates = _rates(ran, seconds)
    if by_algorithm:
        rates = {(): median(by_algorithm.values())} | rates
        rates |= {(name,): rate for name, rate in by_algorithm.items()}
    bases = set()
    for example in examples:
        if example.one.kind not in seconds:
            near = next((key for key in _nearest(example) if key in rates), None)
            rate = 1.0 if near is None else rates[near]
            seconds[example.one.kind] = example.modelled * rate
            bases.add(GUESSED if near is None else SCALED)
    return seconds, bases


def _extrapolated(example: Example, probed: Example, probe: Probe) -> float:
    """Return the seconds of a trial, by its length from a probe of its sort."""
    rows = example.one.n_checkpoints
    each = probe.seconds(example.iterations, rows) / probe.size
    if example.iterations == probed.iterations:
        # As long, and yet other work: passes that are one iteration.
        each *= example.one.work.own / probed.one.work.own
    return each


def _nearest(example: Example) -> list[tuple[str, ...]]:
    """Return what the rates of an example may be taken from, the nearest first."""
    problem, shape, _ = example.sort
    name = _algorithm(example.one)
    return [(problem, shape), (problem, name), (shape,), (name,), ()]


def _rates(examples: Iterable[Example], seconds: Mapping[Kind, float]) -> Rates:
    """Return the medians of the rates of examples whose seconds were measured."""
    found: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
    for example in examples:
        for key in _nearest(example):
            found[key].append(seconds[example.one.kind] / example.modelled)
    return {key: median(rates) for key, rates in found.items()}


def _once(
    examples: Sequence[Example], probes: Probes, workers: int
) -> dict[Kind, float]:
    """Return the seconds of each kind that its first batches take longer than others.

    The first batch on a problem loads it, the first of a sort loads its kernels, and
    each worker does so by itself. A calibration is computed, or what the disk has of
    it proved, once for all.
    """
    tried = {sort: probe for sort, (_, probe) in probes.items()}
    usual = {
        place: median([getattr(probe, place) for probe in tried.values()] or [0.0])
        for place in ("load", "cold", "fresh")
    }
    once = {example.one.kind: 0.0 for example in examples}
    for place, length in (("load", 1), ("cold", 2)):
        groups: defaultdict[tuple[Any, ...], list[Example]] = defaultdict(list)
        for example in examples:
            groups[example.sort[:length]].append(example)
        for group in groups.values():
            known = [getattr(tried[e.sort], place) for e in group if e.sort in tried]
            seconds = max(known, default=usual[place])
            processes = min(workers, sum(example.batches for example in group))
            once[max(group, key=Example.precedes).one.kind] += seconds * processes
    # Tuning and its report share one.
    groups_of = {example.one.kind[0]: example for example in reversed(examples)}
    for example in groups_of.values():
        kind, found = example.one.kind, probes.get(example.sort)
        if found is None:
            once[kind] += usual["fresh"]
        else:
            own = found[0].one.kind[0] == kind[0]
            once[kind] += found[1].proof if own else found[1].fresh
    return once


def _recorded(
    store: Store, planned: Iterable[Trial], examples: Mapping[Kind, Trial]
) -> tuple[dict[Kind, float], dict[str, float]]:
    """Return seconds by kind, and seconds per work by algorithm."""
    finished = {key for key, one in store.index.items() if one.status in FINISHED}
    kinds: dict[Kind, Sample] = {kind: {} for kind in examples}
    runs: dict[str, Sample] = {_algorithm(one): {} for one in examples.values()}
    for one in planned:
        name = _algorithm(one)
        if name in runs and one.key in finished:
            for sample in (kinds.get(one.kind, {}), runs[name]):
                if len(sample) < SAMPLE:
                    sample[one.key] = one.work
    missing = {name: sample for name, sample in runs.items() if not sample}
    # Other sweeps of the folder may have run these algorithms.
    for row in read_plan(store.folder) if missing else ():
        name = row["spec"]["algorithm"]["name"] if row else ""
        if row and name in missing and row["key"] in finished:
            work = _work(row["spec"])
            if work is not None and len(missing[name]) < SAMPLE:
                missing[name][row["key"]] = work
        if min(map(len, missing.values())) == SAMPLE:
            break
    keys = [key for sample in (*kinds.values(), *runs.values()) for key in sample]
    records = dict(zip(keys, store.records(keys), strict=True))
    costs = {key: float((one or {}).get("cost") or 0) for key, one in records.items()}
    rates = {}
    for key, work in (item for sample in runs.values() for item in sample.items()):
        size = ((records[key] or {}).get("facts") or {}).get("batch_size", 1)
        if work.own > 0:
            rates[key] = costs[key] / (work.batch(size) / size / SECOND)
    return _medians(kinds, costs), _medians(runs, rates)


def _medians(
    samples: Mapping[Any, Sample], of: Mapping[str, float]
) -> dict[Any, float]:
    """Return the medians of the values of the trials of samples that have one."""
    kept = {
        name: [value for key in sample if (value := of.get(key))]
        for name, sample in samples.items()
    }
    return {name: median(numbers) for name, numbers in kept.items() if numbers}


def _algorithm(one: Trial) -> str:
    return str(one.setting.base["algorithm"]["name"])


def _work(spec: dict[str, Any]) -> Work | None:
    """Return the work of an earlier trial, None if it cannot be told by now."""
    try:
        # A file that only a plan names is not imported.
        own = any("file" in spec[part] for part in ("algorithm", "loss"))
        key = None if own else line_of(spec).setting().batch_key
        return None if key is None else key.work(spec["n_checkpoints"])
    except (UsageError, DataUnavailable, KeyError, TypeError):
        return None


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
