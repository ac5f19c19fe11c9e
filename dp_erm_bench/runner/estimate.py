"""How long the trials to do will take: from records, else from short runs of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, TypeVar

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.lines import case_of
from dp_erm_bench.experiment.trials import Planned, Setting
from dp_erm_bench.results.plan import read_plan
from dp_erm_bench.results.store import FINISHED, Store
from dp_erm_bench.runner.options import EXECUTE, RunOptions
from dp_erm_bench.runner.tries import Kind, Tries, kind_of

SAMPLE = 30
"""Records that are read per kind of trial; their median counts."""

MODEL = 1e-8
"""Seconds per unit of work where nothing tells better."""

SAME = "recorded trials of the same parameters"
TRIED = "short runs of their kinds"
SCALED = "other trials of the same algorithm, scaled by work"
GUESSED = "a model of the work, for nothing like it is recorded"
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


class Expected(NamedTuple):
    """A trial like some that have no name yet, and how many batches may hold."""

    example: Planned
    members: int


class Costs:
    """Seconds per trial: measured, tried, scaled from either, or modelled.

    Parameters
    ----------
    store : Store
        The records.
    planned : iterable of Planned
        Trials of the sweep, recorded or not.
    asked : iterable of Planned
        Those whose time is asked for.
    later : iterable of Expected
        Examples of those that are to come, whose time may be asked for, too.
    options : RunOptions, optional
        How they will be run; nothing is tried without.
    """

    def __init__(
        self,
        store: Store,
        planned: Iterable[Planned],
        asked: Sequence[Planned],
        later: Iterable[Expected] = (),
        options: RunOptions | None = None,
    ) -> None:
        self.bases: set[str] = set()
        self._store = store
        examples = {kind_of(one): one for one in reversed(asked)}
        self._members = Counter(map(kind_of, asked))
        for one, members in later:
            examples.setdefault(kind_of(one), one)
            self._members.setdefault(kind_of(one), members)
        self._of_kind, self._rates = self._recorded(planned, examples)
        self._known: dict[Kind, tuple[float, str]] = {}
        self._least: dict[str, float] = {}
        self._tries: Tries | None = None
        if options is not None and options.execute == EXECUTE:
            unknown = [
                one for kind, one in examples.items() if kind not in self._of_kind
            ]
            self._tries = Tries(unknown, self._members, options)
            self._learn(unknown)

    def of(self, one: Planned) -> float:
        """Return the seconds that a trial will take, and note what that rests on."""
        kind = kind_of(one)
        if kind not in self._known:
            self._known[kind] = self._cost(one)
        cost, basis = self._known[kind]
        self.bases.add(basis)
        return cost

    def basis(self) -> str:
        """Return in words what the costs asked for rest on."""
        every = (SAME, TRIED, SCALED, GUESSED)
        return "; ".join(basis for basis in every if basis in self.bases)

    def _cost(self, one: Planned) -> tuple[float, str]:
        recorded = self._of_kind.get(kind_of(one))
        if recorded is not None:
            return recorded, SAME
        tried = self._tries.of(one) if self._tries else None
        if tried is not None:
            return tried, TRIED
        rate = self._rates.get(_algorithm(one.setting))
        basis = GUESSED if rate is None else SCALED
        modelled = one.setting.work * (MODEL if rate is None else rate)
        return max(modelled, self._least.get(_algorithm(one.setting), 0.0)), basis

    def _learn(self, tried: Iterable[Planned]) -> None:
        """Take rates and the least cost from what was tried, by algorithm."""
        rates: dict[str, list[float | None]] = {}
        for one in tried:
            cost = self._tries.of(one) if self._tries else None
            if cost is not None and one.setting.work > 0:
                name, rate = _algorithm(one.setting), cost / one.setting.work
                rates.setdefault(name, []).append(rate)
                self._least[name] = min(cost, self._least.get(name, math.inf))
        self._rates = {**_medians(rates), **self._rates}

    def _recorded(
        self, planned: Iterable[Planned], examples: Mapping[Kind, Planned]
    ) -> tuple[dict[Kind, float], dict[str, float]]:
        """Return seconds by kind, and seconds per work by algorithm."""
        kinds: dict[Kind, list[str]] = {kind: [] for kind in examples}
        runs: dict[str, list[tuple[Setting, str]]]
        runs = {_algorithm(one.setting): [] for one in examples.values()}
        for one in planned:
            if _algorithm(one.setting) in runs and _finished(self._store, one.key):
                _add(kinds.get(kind_of(one)), one.key)
                _add(runs[_algorithm(one.setting)], (one.setting, one.key))
        self._look_elsewhere({name: found for name, found in runs.items() if not found})
        seconds = self._seconds(
            [key for keys in kinds.values() for key in keys]
            + [key for pairs in runs.values() for _, key in pairs]
        )
        of_kind = {
            kind: [seconds.get(key) for key in keys] for kind, keys in kinds.items()
        }
        rates = {name: [_rate(*pair, seconds) for pair in runs[name]] for name in runs}
        return _medians(of_kind), _medians(rates)

    def _seconds(self, keys: list[str]) -> dict[str, float]:
        """Return what recorded trials took, where that is known."""
        pairs = zip(keys, self._store.records(keys), strict=True)
        costs = {key: (record or {}).get("cost") for key, record in pairs}
        return {key: float(cost) for key, cost in costs.items() if cost}

    def _look_elsewhere(self, runs: Mapping[str, list[tuple[Setting, str]]]) -> None:
        """Add trials of other sweeps of the folder that ran these algorithms."""
        full: set[str] = set()
        for row in read_plan(self._store.folder) if runs else ():
            name = row["spec"]["algorithm"]["name"] if row else ""
            if row and name in runs and _finished(self._store, row["key"]):
                setting = _made(row["spec"])
                if setting is not None:
                    _add(runs[name], (setting, row["key"]))
                full |= {name} if len(runs[name]) == SAMPLE else set()
            if len(full) == len(runs):
                return


def duration(seconds: float) -> str:
    """Return a time in the largest unit that leaves at least two of it."""
    if seconds < 1:
        return "< 1 s"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def wall(costs: Iterable[float], n_jobs: int) -> float:
    """Return what trials take on some workers, never less than the longest."""
    found = list(costs)
    return max(math.fsum(found) / n_jobs, max(found, default=0.0))


def _add(sample: list[T] | None, one: T) -> None:
    if sample is not None and len(sample) < SAMPLE:
        sample.append(one)


def _rate(setting: Setting, key: str, seconds: Mapping[str, float]) -> float | None:
    """Return seconds per work of a recorded trial, None if either is unknown."""
    known = key in seconds and setting.work > 0
    return seconds[key] / setting.work if known else None


def _medians(found: Mapping[K, Sequence[float | None]]) -> dict[K, float]:
    known = {k: [v for v in values if v is not None] for k, values in found.items()}
    return {k: median(values) for k, values in known.items() if values}


def _finished(store: Store, key: str) -> bool:
    entry = store.index.get(key)
    return entry is not None and entry.status in FINISHED


def _algorithm(setting: Setting) -> str:
    return str(setting.base["algorithm"]["name"])


def _made(spec: dict[str, Any]) -> Setting | None:
    """Return the setting of an earlier trial, None if it can no longer be made."""
    try:
        # A file that only a plan names is not imported.
        own = any("file" in spec[part] for part in ("algorithm", "loss"))
        return None if own else case_of(spec).setting()
    except (UsageError, DataUnavailable, KeyError, TypeError):
        return None
