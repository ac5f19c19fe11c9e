"""A case: one line of a panel, on one subject, with one budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dp_erm_bench.runner.block import Tune
from dp_erm_bench.runner.parameters import algorithm_of
from dp_erm_bench.runner.subject import Subject
from dp_erm_bench.runner.trial import Setting


@dataclass(frozen=True, eq=False)
class Case:
    """One line on one subject with one budget; only seeds and tuned axes are open.

    Attributes
    ----------
    panel, line : str
        Labels.
    subject : Subject
        Dataset and objective.
    algorithm : str
        Name of the algorithm.
    params : mapping
        Fixed parameters, normalised.
    budget : mapping
        `epsilon`, `delta`, `adjacency`, JSON-able.
    calibration : str
        How noise is fixed.
    seeds : tuple of int
        Seeds of a sweep; empty if tuned.
    tune : Tune or None
        How open parameters are chosen.
    axes : mapping
        Absolute values of the tuned axes.
    measured : bool
        Whether a value was given in a unit that is computed from the data.
    """

    panel: str
    line: str
    subject: Subject
    algorithm: str
    params: Mapping[str, Any]
    budget: Mapping[str, Any]
    calibration: str
    seeds: tuple[int, ...] = ()
    tune: Tune | None = None
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    measured: bool = False

    _made: dict[tuple[Any, ...], Setting] = field(default_factory=dict, repr=False)

    def setting(self, **chosen: Any) -> Setting:
        """Return the setting with the open parameters filled in."""
        point = tuple(chosen.items())
        if point not in self._made:
            algorithm = algorithm_of(self.algorithm, {**self.params, **chosen})
            made = self.subject.setting(algorithm, self.budget, self.calibration)
            self._made[point] = made
        return self._made[point]

    def check(self) -> None:
        """Raise UsageError if the solver refuses a value of an axis."""
        first = {key: values[0] for key, values in self.axes.items()}
        self.setting(**first)
        for key, values in self.axes.items():
            for value in values[1:]:
                algorithm_of(self.algorithm, {**self.params, **first, key: value})


@dataclass(frozen=True)
class NotRun:
    """A line that cannot run because its dataset cannot be had."""

    panel: str
    line: str
    dataset: str
    reason: str
