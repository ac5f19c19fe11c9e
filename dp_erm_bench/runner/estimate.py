"""How long the trials to do will take: from records, else from short runs of them."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.experiment.lines import case_of
from dp_erm_bench.experiment.trials import Planned, Setting
from dp_erm_bench.results.plan import read_plan
from dp_erm_bench.results.store import FINISHED, Store
from dp_erm_bench.runner.options import EXECUTE, RunOptions
from dp_erm_bench.runner.pool import Kind, kind_of
from dp_erm_bench.runner.probe import tried

SAMPLE = 30
"""Records that are read per kind of trial; their median counts."""

MODEL = 1e-8
"""Seconds per unit of work where nothing tells better."""

SAME = "recorded trials of the same parameters"
TRIED = "short runs of their kinds"
SCALED = "other trials of the same algorithm, scaled by work"
GUESSED = "a model of the work, for nothing like it is recorded"
K = TypeVar("K", bound=Hashable)
Sample = list[tuple[Setting, str]]
"""Settings and keys of recorded trials."""

Expected = tuple[Planned, int]
"""A trial like some that have no name yet, and how many batches may hold."""


class Costs:
    """Seconds per trial: measured, tried, scaled from either, or modelled.

    Parameters
    ----------
    store : Store
        The records.
    planned : iterable of Planned
        Trials of the sweep, recorded or not.
    asked : sequence of Planned
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
        self._store = store
        examples = {kind_of(one): one for one in reversed(asked)}
        members = Counter(map(kind_of, asked))
        for one, number in later:
            examples.setdefault(kind_of(one), one)
            members.setdefault(kind_of(one), number)
        recorded, rates = self._recorded(planned, examples)
        unknown = {k: one for k, one in examples.items() if k not in recorded}
        probes: dict[Kind, float] = {}
        if options is not None and options.execute == EXECUTE:
            probes = tried(unknown.values(), members, options)
        of_algorithm: dict[str, list[tuple[float, float]]] = {}
        for kind, seconds in probes.items():
            if (work := examples[kind].setting.work) > 0:
                costs = of_algorithm.setdefault(_algorithm(examples[kind].setting), [])
                costs.append((seconds, seconds / work))
        rates = {k: median(r for _, r in v) for k, v in of_algorithm.items()} | rates
        self._known = {kind: (recorded[kind], SAME) for kind in recorded}
        self._known |= {kind: (probes[kind], TRIED) for kind in probes}
        for kind, one in unknown.items():
            name = _algorithm(one.setting)
            least = min((s for s, _ in of_algorithm.get(name, ())), default=0.0)
            cost = max(one.setting.work * rates.get(name, MODEL), least)
            basis = SCALED if name in rates else GUESSED
            self._known.setdefault(kind, (cost, basis))

    def of(self, one: Planned) -> float:
        """Return the seconds that a trial of a kind that is asked for will take."""
        return self._known[kind_of(one)][0]

    def basis(self) -> str:
        """Return in words what the costs rest on."""
        bases = {basis for _, basis in self._known.values()}
        every = (SAME, TRIED, SCALED, GUESSED)
        return "; ".join(basis for basis in every if basis in bases)

    def _recorded(
        self, planned: Iterable[Planned], examples: Mapping[Kind, Planned]
    ) -> tuple[dict[Kind, float], dict[str, float]]:
        """Return seconds by kind, and seconds per work by algorithm."""
        kinds: dict[Kind, Sample] = {kind: [] for kind in examples}
        runs: dict[str, Sample]
        runs = {_algorithm(one.setting): [] for one in examples.values()}
        for one in planned:
            name = _algorithm(one.setting)
            if name in runs and self._is_finished(one.key):
                for sample in (kinds.get(kind_of(one), []), runs[name]):
                    _add(sample, one.setting, one.key)
        self._look_elsewhere({k: sample for k, sample in runs.items() if not sample})
        samples = (*kinds.values(), *runs.values())
        keys = [key for sample in samples for _, key in sample]
        records = zip(keys, self._store.records(keys), strict=True)
        costs = {key: float((record or {}).get("cost") or 0) for key, record in records}
        ran = [one for sample in runs.values() for one in sample if one[0].work > 0]
        rates = {key: costs[key] / setting.work for setting, key in ran}
        return _medians(kinds, costs), _medians(runs, rates)

    def _look_elsewhere(self, runs: Mapping[str, Sample]) -> None:
        """Add trials of other sweeps of the folder that ran these algorithms."""
        for row in read_plan(self._store.folder) if runs else ():
            name = row["spec"]["algorithm"]["name"] if row else ""
            if row and name in runs and self._is_finished(row["key"]):
                if setting := _remade(row["spec"]):
                    _add(runs[name], setting, row["key"])
            if min(map(len, runs.values())) == SAMPLE:
                return

    def _is_finished(self, key: str) -> bool:
        entry = self._store.index.get(key)
        return entry is not None and entry.status in FINISHED


def _add(sample: Sample, setting: Setting, key: str) -> None:
    if len(sample) < SAMPLE:
        sample.append((setting, key))


def _medians(samples: Mapping[K, Sample], of: Mapping[str, float]) -> dict[K, float]:
    """Return the medians of the values of the trials of samples that have one."""
    kept = {
        name: [value for _, key in sample if (value := of.get(key))]
        for name, sample in samples.items()
    }
    return {name: median(numbers) for name, numbers in kept.items() if numbers}


def _algorithm(setting: Setting) -> str:
    return str(setting.base["algorithm"]["name"])


def _remade(spec: dict[str, Any]) -> Setting | None:
    """Return the setting of an earlier trial, None if that is impossible by now."""
    try:
        # A file that only a plan names is not imported.
        own = any("file" in spec[part] for part in ("algorithm", "loss"))
        return None if own else case_of(spec).setting()
    except (UsageError, DataUnavailable, KeyError, TypeError):
        return None
