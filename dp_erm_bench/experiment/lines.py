"""A case: one line of a panel, on one problem with one budget."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from dp_erm_bench.experiment.grid import Grid
from dp_erm_bench.experiment.parameters import known_algorithm, normalised
from dp_erm_bench.experiment.problem_specs import (
    ProblemSpec,
    check_named,
    problem_spec_of,
)
from dp_erm_bench.experiment.schema import Tune
from dp_erm_bench.experiment.trials import Labels, Planned, Setting, Trial
from dp_erm_bench.plugins.names import named_in


@dataclass(frozen=True, eq=False)
class Case:
    """One line on one problem with one budget; seeds and the axes are open.

    Attributes
    ----------
    panel, line : str
        Labels.
    problem_spec : ProblemSpec
        Dataset and objective.
    algorithm : str
        Name of the algorithm; the pin of a file.
    params : mapping
        Fixed parameters, normalised.
    budget : mapping
        `epsilon`, `delta`, `adjacency`, JSON-able.
    calibration : str
        How noise is fixed.
    seeds : tuple of int
        Seeds of a sweep; empty if tuned.
    tune : Tune or None
        How open parameters are chosen; None if every point is run.
    axes : mapping
        Absolute values of the open parameters.
    measured : bool
        Whether a value was given in a unit that is computed from the data.
    """

    panel: str
    line: str
    problem_spec: ProblemSpec
    algorithm: str
    params: Mapping[str, Any]
    budget: Mapping[str, Any]
    calibration: str
    seeds: tuple[int, ...] = ()
    tune: Tune | None = None
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    measured: bool = False

    _made: dict[tuple[Any, ...], Setting] = field(default_factory=dict, repr=False)

    @cached_property
    def grid(self) -> Grid:
        """Return the maker of settings."""
        how = (self.params, self.budget, self.calibration)
        return Grid(self.problem_spec, self.algorithm, *how)

    @cached_property
    def settings(self) -> tuple[Setting, ...]:
        """Return the settings of a sweep, one per point of the axes."""
        return tuple(self.grid.settings(self.axes))

    def setting(self, **chosen: Any) -> Setting:
        """Return the setting with the open parameters filled in."""
        point = tuple(chosen.items())
        if point not in self._made:
            axes = {key: (value,) for key, value in point}
            self.grid.check(axes)
            self._made[point] = next(self.grid.settings(axes))
        return self._made[point]

    def sweep(self, n_checkpoints: int) -> Iterator[Planned]:
        """Yield the trials of a case that is not tuned."""
        labels = Labels(self.panel, self.line, "sweep", measured=self.measured)
        for setting in self.settings:
            for seed in self.seeds:
                yield setting.planned(seed, n_checkpoints, labels)

    @property
    def expected(self) -> int:
        """Return the number of trials of a case that is not tuned."""
        points = math.prod(len(values) for values in self.axes.values())
        return len(self.seeds) * points

    def check(self) -> None:
        """Raise UsageError if the solver refuses a value, or a point of a sweep."""
        self.grid.check(self.axes)
        if self.tune is None and not known_algorithm(self.algorithm).separate:
            _ = self.settings


@dataclass(frozen=True)
class NotRun:
    """A line that cannot run because its dataset cannot be had."""

    panel: str
    line: str
    dataset: str
    reason: str


def trial_of(spec: Mapping[str, Any]) -> Trial:
    """Return the trial of a complete spec (`Trial.spec`), as `expand` would make it."""
    setting = setting_of(spec)
    return setting.trial(spec["seed"], spec["n_checkpoints"])


def setting_of(spec: Mapping[str, Any]) -> Setting:
    """Return the setting of a trial's spec."""
    return next(grid_of(spec).settings({}))


def grid_of(spec: Mapping[str, Any]) -> Grid:
    """Return the maker of the one setting of a trial's spec.

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
    problem_spec = problem_spec_of(name, dataset, *objective)
    given = spec["algorithm"]["params"]
    params = {key: normalised(algorithm, key, v) for key, v in given.items()}
    return Grid(problem_spec, algorithm, params, spec["budget"], spec["calibration"])
