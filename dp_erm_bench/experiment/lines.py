"""Lines of fits: one algorithm on one problem with one budget.

A value of an axis is checked and spelled once, not once per point: there may be 10^5
points, and the digest of each is put together from what is spelled already.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from hashlib import sha256
from itertools import product
from typing import Any

from dp_erm_bench.datasets.base import READ
from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.fingerprint import chosen_by, code_fingerprint
from dp_erm_bench.experiment.parameters import (
    algorithm_of,
    check_named,
    normalised,
    problem_named,
)
from dp_erm_bench.experiment.space import space_of
from dp_erm_bench.experiment.trials import BatchKey, Line, Setting
from dp_erm_bench.experiment.values import canonical, plain
from dp_erm_bench.experiment.work import work_of
from dp_erm_bench.plugins.names import identity, label, named_in, shipped
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.registry import ERM, PROBLEM

Axes = Mapping[str, Sequence[Any]]


@dataclass(frozen=True, eq=False)
class FitLine(Line):
    """One algorithm on one problem with one budget; seeds and axes are open.

    Attributes
    ----------
    algorithm : str
        Name of the algorithm; the pin of a file.
    problem : Problem
        Dataset and objective.
    params : mapping
        Fixed parameters, typed by `normalised`.
    budget : mapping
        `epsilon`, `delta`, `adjacency`, JSON-able.
    calibration : str
        The calibration of the noise, a name of conf/calibration.
    axes : mapping
        Absolute values of the open parameters.
    units : mapping
        What the values of open parameters are multiples of, where that is not 1.
    """

    algorithm: str = field()  # none by default, unlike that of a task
    problem: Problem
    params: Mapping[str, Any]
    budget: Mapping[str, Any]
    calibration: str
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)

    _chosen: dict[tuple[Any, ...], Setting] = field(default_factory=dict, repr=False)
    _batch_keys: dict[tuple[Any, ...], BatchKey] = field(
        default_factory=dict, repr=False
    )

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
    def read(self) -> tuple[str, ...]:
        """Return what reading the records took from them, as it is not declared."""
        return tuple(use.value for use in self.problem.uncharged(False) if use in READ)

    @cached_property
    def _chosen_code(self) -> tuple[Any, ...]:
        return chosen_by(self.problem)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Return the settings of a sweep, one per point, the last axis fastest."""
        return tuple(self._settings(self.axes))

    def check(self) -> None:
        """Raise UsageError for a value that is refused, a point of a sweep, a limit."""
        solver, first = algorithm_of(self.algorithm).solver, self._first(self.axes)
        solver(first)
        for key, values in self.axes.items():
            for value in values[1:]:
                solver({**first, key: value})
        if self.tune is not None and self.tune.search is not None:
            space_of(self)
        if self.tune is not None and (why := self.problem.lacking(self.tune.quantity)):
            raise UsageError(f"tune.quantity={self.tune.quantity}: {why}")
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
            self._chosen[point] = next(self._settings(axes))
        return self._chosen[point]

    def _first(self, axes: Axes) -> dict[str, Any]:
        return {**self.params, **{key: values[0] for key, values in axes.items()}}

    def _settings(self, axes: Axes) -> Iterator[Setting]:
        """Yield the setting of every point, the last axis fastest.

        Raises
        ------
        UsageError
            If the solver refuses the first point.
        """
        algorithm, names = algorithm_of(self.algorithm), tuple(axes)
        parts = [self.problem.identity, identity(self.algorithm)]
        head = canonical([*parts, self.budget, self.calibration])[:-1]
        entries = self._entries(self._first(axes))
        shared = [key for key in entries if algorithm.shares(key)]
        unclipped = (None, algorithm.entry("clip", None))
        spelled = {key: [plain(v) for v in values] for key, values in axes.items()}
        written = {key: [algorithm.entry(key, v) for v in spelled[key]] for key in axes}
        points = (product(*one.values()) for one in (axes, spelled, written))
        for values, point, texts in zip(*points, strict=True):
            if algorithm.separate:
                entries.update(zip(axes, texts, strict=True))
            else:
                opened = dict(zip(axes, values, strict=True))
                entries = self._entries({**self.params, **opened})
            clipped = ",false" if entries.get("clip") in unclipped else ",true"
            batch = (*[entries[key] for key in shared], clipped)
            if batch not in self._batch_keys:
                opened = dict(zip(axes, values, strict=True))
                group = _digest(head, batch[:-1], clipped)
                self._batch_keys[batch] = self._batch_key(group, opened)
            digest = _digest(head, entries.values())
            batch_key = self._batch_keys[batch]
            yield Setting(self.base, names, point, digest, batch_key, self)

    def _entries(self, params: Mapping[str, Any]) -> dict[str, str]:
        algorithm = algorithm_of(self.algorithm)
        full = algorithm.full(params)
        return {key: algorithm.entry(key, value) for key, value in full.items()}

    def _batch_key(self, group: str, opened: Mapping[str, Any]) -> BatchKey:
        algorithm = algorithm_of(self.algorithm)
        trial = ({**self.params, **opened}, self.problem)
        return BatchKey(
            partial(code_fingerprint, algorithm.target, self._chosen_code),
            group,
            getattr(algorithm.cls, "batchable", True),
            cache(partial(work_of, algorithm, *trial, self.budget, self.calibration)),
            cache(partial(algorithm.iterations, *trial)),
        )


def line_of(spec: Mapping[str, Any]) -> FitLine:
    """Return the line of one setting to which a trial's spec belongs.

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
    kind = named_in(spec.get(PROBLEM, {"name": ERM}))
    problem = problem_named(name, dataset, *objective, kind=kind)
    params = {
        key: normalised(algorithm, key, value)
        for key, value in spec["algorithm"]["params"].items()
    }
    return FitLine(algorithm, problem, params, spec["budget"], spec["calibration"])


def _digest(head: str, pieces: Iterable[str], tail: str = "") -> str:
    text = f"{head},{{{','.join(filter(None, pieces))}}}{tail}]"
    return sha256(text.encode()).hexdigest()
