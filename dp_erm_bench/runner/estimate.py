"""How long the trials to do will take: from records, else from short runs of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.lines import line_of
from dp_erm_bench.experiment.trials import Kind, Trial
from dp_erm_bench.results.index import FINISHED
from dp_erm_bench.results.plan import read_plan
from dp_erm_bench.results.store import Store
from dp_erm_bench.runner.options import EXECUTE, RunOptions
from dp_erm_bench.runner.probe import tried

SAMPLE = 30
"""Records that are read per kind of trial; their median counts."""

MODEL = 1e-8
"""Seconds per unit of work where nothing tells better."""

SAME = "recorded trials of the same parameters"
TRIED = "short runs of their kinds"
SCALED = "other trials of the same algorithm, scaled by work"
GUESSED = "a model of the work, for nothing like it is recorded"
BASES = (SAME, TRIED, SCALED, GUESSED)
Sample = dict[str, float]
"""Keys of recorded trials of a kind, or of an algorithm, and the work of each."""

Expected = tuple[Trial, int]
"""A trial like some that have no name yet, and how many batches may hold."""


def costs_of(
    store: Store,
    planned: Iterable[Trial],
    asked: Sequence[Trial],
    later: Iterable[Expected] = (),
    options: RunOptions | None = None,
) -> tuple[dict[Kind, float], str]:
    """Return the seconds of a trial of each kind, and in words what they rest on.

    They are measured, tried, scaled from either, or modelled.

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
    examples = {one.kind: one for one in reversed(asked)}
    members = Counter(one.kind for one in asked)
    for one, number in later:
        examples.setdefault(one.kind, one)
        members.setdefault(one.kind, number)
    recorded, rates = _recorded(store, planned, examples)
    unknown = {kind: one for kind, one in examples.items() if kind not in recorded}
    probes: dict[Kind, float] = {}
    if options is not None and options.execute == EXECUTE:
        probes = tried(unknown.values(), members, options)
    least: dict[str, float] = {}
    by_probe: defaultdict[str, list[float]] = defaultdict(list)
    for kind, seconds in probes.items():
        if (work := examples[kind].work) > 0:
            name = _algorithm(examples[kind])
            least[name] = min(seconds, least.get(name, seconds))
            by_probe[name].append(seconds / work)
    rates = {name: median(values) for name, values in by_probe.items()} | rates
    costs, bases = {**recorded, **probes}, {SAME} if recorded else set()
    bases |= {TRIED} if probes else set()
    for kind, one in unknown.items():
        if kind not in probes:
            name = _algorithm(one)
            costs[kind] = max(one.work * rates.get(name, MODEL), least.get(name, 0.0))
            bases.add(SCALED if name in rates else GUESSED)
    return costs, "; ".join(basis for basis in BASES if basis in bases)


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
    records = zip(keys, store.records(keys), strict=True)
    costs = {key: float((record or {}).get("cost") or 0) for key, record in records}
    ran = [item for sample in runs.values() for item in sample.items() if item[1] > 0]
    rates = {key: costs[key] / work for key, work in ran}
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


def _work(spec: dict[str, Any]) -> float | None:
    """Return the work of an earlier trial, None if it cannot be told by now."""
    try:
        # A file that only a plan names is not imported.
        own = any("file" in spec[part] for part in ("algorithm", "loss"))
        return None if own else line_of(spec).setting().batch_key.work()
    except (UsageError, DataUnavailable, KeyError, TypeError):
        return None
