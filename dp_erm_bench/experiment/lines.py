"""A case: one line of a panel, on one problem with one budget.

A value of an axis is checked and spelled once, not once per point: there may be 10^5
points, and the digest of each is put together from what is spelled already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from hashlib import sha256
from itertools import product
from typing import Any

from dp_erm_bench.experiment.fingerprint import code_fingerprint
from dp_erm_bench.experiment.parameters import (
    algorithm_of,
    check_named,
    normalised,
    problem_named,
)
from dp_erm_bench.experiment.schema import Tune
from dp_erm_bench.experiment.trials import BatchKey, Labels, Planned, Setting
from dp_erm_bench.experiment.values import plain
from dp_erm_bench.plugins.names import identity, label, named_in, shipped
from dp_erm_bench.problems.base import Problem

Axes = Mapping[str, Sequence[Any]]
Digests = Iterator[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Case:
    """One algorithm on one problem with one budget; seeds and axes are open.

    Attributes
    ----------
    problem : Problem
        Dataset and objective.
    algorithm : str
        Name of the algorithm; the pin of a file.
    params : mapping
        Fixed parameters, typed by `normalised`.
    budget : mapping
        `epsilon`, `delta`, `adjacency`, JSON-able.
    calibration : str
        How noise is fixed.
    panel, line : str
        Labels.
    seeds : tuple of int
        Seeds of a sweep; empty if tuned.
    tune : Tune or None
        How open parameters are chosen; None if every point is run.
    axes : mapping
        Absolute values of the open parameters.
    measured : bool
        Whether a value was given in a unit that is computed from the data.
    """

    problem: Problem
    algorithm: str
    params: Mapping[str, Any]
    budget: Mapping[str, Any]
    calibration: str
    panel: str = ""
    line: str = ""
    seeds: tuple[int, ...] = ()
    tune: Tune | None = None
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    measured: bool = False

    _chosen: dict[tuple[Any, ...], Setting] = field(default_factory=dict, repr=False)
    _batch_keys: dict[str, BatchKey] = field(default_factory=dict, repr=False)

    @cached_property
    def base(self) -> Mapping[str, Any]:
        """Return a trial's spec without `seed`, `n_checkpoints` and open parameters."""
        params = {key: plain(value) for key, value in self.params.items()}
        name = {"name": label(self.algorithm), "params": params}
        return {
            **self.problem.spec,
            "algorithm": {**name, **shipped(self.algorithm)},
            "budget": self.budget,
            "calibration": self.calibration,
        }

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Return the settings of a sweep, one per point, the last axis fastest."""
        return tuple(self._settings(self.axes))

    @property
    def expected(self) -> int:
        """Return the number of trials of a case that is not tuned."""
        return len(self.seeds) * len(self.settings)

    def sweep(self, n_checkpoints: int) -> Iterator[Planned]:
        """Yield the trials of a case that is not tuned."""
        labels = Labels(self.panel, self.line, "sweep", measured=self.measured)
        for setting in self.settings:
            for seed in self.seeds:
                yield setting.planned(seed, n_checkpoints, labels)

    def check(self) -> None:
        """Raise UsageError if the solver refuses a value, or a point of a sweep."""
        self._check(self.axes)
        if self.tune is None and not algorithm_of(self.algorithm).separate:
            _ = self.settings

    def setting(self, **chosen: Any) -> Setting:
        """Return the setting with the open parameters filled in.

        Raises
        ------
        UsageError
            If the solver refuses a parameter.
        """
        point = tuple(chosen.items())
        if point not in self._chosen:
            axes = {key: (value,) for key, value in point}
            self._check(axes)
            self._chosen[point] = next(self._settings(axes))
        return self._chosen[point]

    def digest(self) -> str:
        """Return the digest of the fixed parameters' setting (`Setting.digest`).

        Raises
        ------
        UsageError
            If the solver refuses a parameter.
        """
        return next(self._digests({}))[0]

    def _check(self, axes: Axes) -> None:
        solver = algorithm_of(self.algorithm).solver
        first = self._first(axes)
        solver(first)
        for key, values in axes.items():
            for value in values[1:]:
                solver({**first, key: value})

    def _first(self, axes: Axes) -> dict[str, Any]:
        return {**self.params, **{key: values[0] for key, values in axes.items()}}

    def _settings(self, axes: Axes) -> Iterator[Setting]:
        names, digests = tuple(axes), self._digests(axes)
        spelled = product(*([plain(v) for v in values] for values in axes.values()))
        points = zip(product(*axes.values()), spelled, digests, strict=True)
        for values, point, (digest, group) in points:
            if group not in self._batch_keys:
                opened = dict(zip(names, values, strict=True))
                self._batch_keys[group] = self._batch_key(group, opened)
            yield Setting(self.base, names, point, digest, self._batch_keys[group])

    def _batch_key(self, group: str, opened: Mapping[str, Any]) -> BatchKey:
        algorithm = algorithm_of(self.algorithm)
        batchable = getattr(algorithm.cls, "batchable", True)
        trial = ({**self.params, **opened}, self.problem)
        costs = (partial(algorithm.work, *trial), partial(algorithm.iterations, *trial))
        return BatchKey(code_fingerprint(algorithm.target), group, batchable, *costs)

    def _digests(self, axes: Axes) -> Digests:
        """Yield digests of each point: of all parameters, and of those of its batch."""
        separate = algorithm_of(self.algorithm).separate
        return self._joined(axes) if separate else self._one_by_one(axes)

    def _joined(self, axes: Axes) -> Digests:
        """Yield the digests of all points from the spelled values of each axis."""
        algorithm = algorithm_of(self.algorithm)
        full = algorithm.full(self._first(axes))
        keys = list(full)
        pieces = [self._entry(key, full[key]) for key in keys]
        places = [keys.index(key) for key in axes]
        shared = [i for i, key in enumerate(keys) if algorithm.shares(key)]
        telling = [i for i in places if i in shared or keys[i] == "clip"]
        clip = "clip" in keys and keys.index("clip")
        unclipped = self._entry("clip", None)
        groups: dict[tuple[str, ...], str] = {}
        spelled = ([self._entry(k, plain(v)) for v in axes[k]] for k in axes)
        for point in product(*spelled):
            for place, piece in zip(places, point, strict=True):
                pieces[place] = piece
            batch = tuple([pieces[i] for i in telling])
            if batch not in groups:
                clipped = clip is not False and pieces[clip] != unclipped
                groups[batch] = self._digest([pieces[i] for i in shared], clipped)
            yield self._digest(pieces), groups[batch]

    def _one_by_one(self, axes: Axes) -> Digests:
        """Yield the digests of all points, each from a solver of its own."""
        algorithm = algorithm_of(self.algorithm)
        for point in product(*axes.values()):
            opened = dict(zip(axes, point, strict=True))
            full = algorithm.full({**self.params, **opened})
            pieces = {key: self._entry(key, value) for key, value in full.items()}
            shared = [piece for key, piece in pieces.items() if algorithm.shares(key)]
            clipped = full.get("clip") is not None
            yield self._digest([*pieces.values()]), self._digest(shared, clipped)

    def _entry(self, key: str, value: Any) -> str:
        """Return a parameter as JSON; nothing of a later one at its default."""
        later = algorithm_of(self.algorithm).later
        at_default = key in later and value == later[key]
        return "" if at_default else f"{_json(key)}:{_json(value)}"

    @cached_property
    def _head(self) -> str:
        """Return the start of the JSON of a list that goes on with the parameters."""
        of = [self.problem.identity, identity(self.algorithm)]
        return _json([*of, self.budget, self.calibration])[:-1]

    def _digest(self, pieces: Sequence[str], *more: bool) -> str:
        tail = "".join(f",{_json(one)}" for one in more)
        text = f"{self._head},{{{','.join(filter(None, pieces))}}}{tail}]"
        return sha256(text.encode()).hexdigest()


def case_of(spec: Mapping[str, Any]) -> Case:
    """Return the case of one setting that a trial's spec is of.

    A spec may be that of a folder from anywhere: the loader of the data is that of
    the dataset's name, and a solver's file must have been named by the user.

    Raises
    ------
    UsageError
        If it is of a file that was not, or that held something else.
    """
    check_named(spec["algorithm"], "algorithm")
    algorithm = named_in(spec["algorithm"])
    dataset = dict(spec["dataset"])
    objective = [spec[part] for part in ("loss", "penalty", "constraint")]
    name = dataset.pop("name")
    dataset.pop("_target_", None)
    problem = problem_named(name, dataset, *objective)
    params = {
        key: normalised(algorithm, key, value)
        for key, value in spec["algorithm"]["params"].items()
    }
    return Case(problem, algorithm, params, spec["budget"], spec["calibration"])


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
