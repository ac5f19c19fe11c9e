"""How long the trials to do will take: from records, else from short runs of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.lines import SECOND, Kind, Trial, Work, line_of
from dp_erm_bench.results.store import FINISHED, Store, read_plan
from dp_erm_bench.runner.options import EXECUTE, RunOptions
from dp_erm_bench.runner.probe import Example, Probe, Sort, examples_of, tried

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
