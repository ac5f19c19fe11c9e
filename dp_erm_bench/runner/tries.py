"""What short runs tell of the time of trials: each tells of all of its sort."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.experiment.trials import BatchKey, Planned, Setting
from dp_erm_bench.plugins.names import named_in
from dp_erm_bench.runner.batches import batch_size
from dp_erm_bench.runner.options import RunOptions
from dp_erm_bench.runner.probe import Batch, probed

LENGTHS = ("n_iter", "passes")
"""Parameters that set the number of iterations and nothing else: one run tells all."""

PROBLEM = ("dataset", "loss", "penalty", "constraint")
Kind = tuple[str, int]


class Sort(NamedTuple):
    """What trials have in common that one probe tells of.

    Attributes
    ----------
    problem : str
        Their data and objective.
    shape : str
        The algorithm, its shapes but lengths, whether it clips; not the budget.
    scale : int
        Size of their batches, in bits.
    """

    problem: str
    shape: str
    scale: int = 0


class Tries:
    """Seconds of trials, from short runs of their sorts.

    Parameters
    ----------
    examples : iterable of Planned
        One of each kind that is asked for.
    members : mapping
        How many trials there are of each kind.
    options : RunOptions
        How they will be run.
    """

    def __init__(
        self,
        examples: Iterable[Planned],
        members: Mapping[Kind, int],
        options: RunOptions,
    ) -> None:
        self._members, self._options = members, options
        self._sorts: dict[BatchKey, Sort] = {}
        sorts: dict[Sort, list[Planned]] = {}
        self._first: dict[str, Planned] = {}
        for one in examples:
            sort = self._sort(one)
            sorts.setdefault(sort, []).append(one)
            before = self._first.setdefault(sort.problem, one)
            self._first[sort.problem] = max(before, one, key=self._precedence)
        order = self._order(sorts)
        longest = [
            max(sorts[sort], key=lambda one: one.setting.batch_key.iterations())
            for sort in order
        ]
        found = probed([self._batch(one) for one in longest])
        self._found = {
            order[place]: (probe, longest[place].setting.group)
            for place, probe in found.items()
        }
        self._loads: dict[str, float] = {}
        for sort, (probe, _) in self._found.items():
            known = self._loads.get(sort.problem, 0.0)
            self._loads[sort.problem] = max(known, probe.load)
        # A batch of another size tells more than another algorithm does.
        self._near = {sort[:2]: sort for sort in reversed(self._found)}

    def _order(self, sorts: Mapping[Sort, Sequence[Planned]]) -> list[Sort]:
        """Return the heaviest and the lightest in turn: time may be over before all.

        Sizes of batches of what is tried already come last.
        """
        heavy = sorted(sorts, key=lambda sort: -sum(map(self._weight, sorts[sort])))
        both = chain.from_iterable(zip(heavy, reversed(heavy), strict=True))
        order = list(dict.fromkeys(both))
        first = {sort[:2]: sort for sort in reversed(order)}
        return sorted(order, key=lambda sort: first[sort[:2]] != sort)

    def of(self, one: Planned) -> float | None:
        """Return the seconds that a trial will take, None if its sort is not tried."""
        sort = self._sort(one)
        near = sort if sort in self._found else self._near.get(sort[:2])
        if near is None:
            return None
        probe, group = self._found[near]
        batch = probe.seconds(one.setting.batch_key.iterations(), one.n_checkpoints)
        once = 0.0 if one.setting.group == group else probe.fresh
        if kind_of(one) == kind_of(self._first[sort.problem]):
            workers = min(self._options.n_jobs, self._count(one))
            once += self._loads[sort.problem] * workers
        return batch / probe.size + once / self._members[kind_of(one)]

    def _precedence(self, one: Planned) -> tuple[bool, float]:
        """Return what is greatest for the batch that loads its problem: the first.

        Sweeps are run before what is tuned, the heaviest batches before others.
        """
        return one.labels.phase == "sweep", one.setting.work * self._size(one)

    def _sort(self, one: Planned) -> Sort:
        batch_key = one.setting.batch_key
        if batch_key not in self._sorts:
            self._sorts[batch_key] = _sort(one.setting)
        return self._sorts[batch_key]._replace(scale=self._size(one).bit_length())

    def _weight(self, one: Planned) -> float:
        return one.setting.work * self._members[kind_of(one)]

    def _size(self, one: Planned) -> int:
        """Return how many trials will share a batch."""
        aims = (self._options.batch_trials, self._options.batch_work)
        return batch_size(one, self._members[kind_of(one)], *aims)

    def _count(self, one: Planned) -> int:
        return math.ceil(self._members[kind_of(one)] / self._size(one))

    def _batch(self, one: Planned) -> Batch:
        """Return a batch of trials that differ in their seeds."""
        seeds = range(one.seed, one.seed + self._size(one))
        return tuple(one.setting.trial(seed, one.n_checkpoints) for seed in seeds)


def kind_of(one: Planned) -> Kind:
    """Return what is equal for trials that may share a batch."""
    return one.setting.group, one.n_checkpoints


def _sort(setting: Setting) -> Sort:
    spec = setting.spec
    algorithm = spec["algorithm"]
    params = dict(algorithm["params"])
    told: dict[str, Any] = {"task": spec.get("task")}
    if "task" not in spec:
        kinds = algorithm_of(named_in(algorithm)).kinds
        shapes = {key: v for key, v in params.items() if kinds[key] != "value"}
        told["shape"] = {key: v for key, v in shapes.items() if key not in LENGTHS}
        told["clipped"] = params.get("clip") is not None
        told["calibration"] = spec["calibration"]
    told["algorithm"] = named_in(algorithm)
    problem = _spelled({part: spec[part] for part in PROBLEM})
    return Sort(problem, _spelled(told))


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
