"""Tune a case: try a grid, extend it, refine the best, report on fresh seeds.

Nothing here runs a trial. A tuner names the trials of its next stage, the experiment
runs those of all tuners together, and the tuner reads their final objectives.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.axes import product
from dp_erm_bench.experiment.lines import Case
from dp_erm_bench.experiment.parameters import known_algorithm
from dp_erm_bench.experiment.trials import Labels, Planned

TUNING_CHECKPOINTS = 2
EXTENSIONS = 10
"""An axis grows this often at most; without noise it could grow for ever."""

Point = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Choice:
    """What a tuner chose.

    Attributes
    ----------
    case : Case
        What was tuned.
    values : dict
        The chosen and the inherited parameters.
    mean : float
        Mean final objective over the tuning seeds; infinite if one diverged.
    n_seeds, n_settings : int
        Seeds behind the mean, settings tried.
    edges : tuple of str
        Axes whose chosen value is the lowest or topmost, as `clip top`.
    extended : tuple of str
        Axes that were extended.
    tried : tuple of str
        Keys of the trials that were looked at.
    """

    case: Case
    values: Point
    mean: float
    n_seeds: int
    n_settings: int
    edges: tuple[str, ...]
    extended: tuple[str, ...]
    tried: tuple[str, ...] = ()


class Tuner:
    """The stages of one tuned case.

    Parameters
    ----------
    case : Case
        A case with `tune`.
    n_checkpoints : int
        Rows of a report trial.
    finals : mapping
        Final objective by key; filled by the experiment between stages.
    source : Tuner or None
        Where inherited parameters come from.
    """

    def __init__(
        self,
        case: Case,
        n_checkpoints: int,
        finals: Mapping[str, float],
        source: Tuner | None = None,
    ) -> None:
        assert case.tune is not None
        self.case, self.tune = case, case.tune
        self.n_checkpoints = n_checkpoints
        self.finals = finals
        self.source = source
        self.choice: Choice | None = None
        self.axes = {key: list(values) for key, values in case.axes.items()}
        self.inherited: Point = {}
        self._tried: dict[tuple[Any, ...], Planned] = {}

    @property
    def label(self) -> tuple[str, str]:
        """Return panel and line."""
        return self.case.panel, self.case.line

    def stages(self) -> Iterator[list[Planned] | None]:
        """Yield the new trials of each stage, None while the source is tuned."""
        while self.source is not None and self.source.choice is None:
            yield None
        self.inherited = self._inherit()
        refine = self.tune.refine
        seeds, more = self.tune.seeds, refine.seeds
        while True:
            yield self._new(self._points(), seeds)
            best, behind = self._ranked(self._points(), seeds)[0], seeds
            if self._extend(best, behind):
                continue
            if refine.best:
                top = self._ranked(self._points(), seeds)[: refine.best]
                yield self._new(top, more)
                best, behind = self._ranked(top, seeds + more)[0], seeds + more
                if self._extend(best, behind):
                    continue
            break
        self.choice = self._chosen(best, behind)
        yield [self._planned(best, seed, "report") for seed in self.tune.report]

    def expected(self) -> int:
        """Return the number of trials if no axis is extended."""
        grid = math.prod(len(values) for values in self.axes.values())
        refine = self.tune.refine
        refined = min(refine.best, grid) * len(refine.seeds)
        return grid * len(self.tune.seeds) + refined + len(self.tune.report)

    def examples(self, phase: str) -> list[Planned]:
        """Return a trial of each shape that those of a phase may have.

        What will be chosen or inherited is not known yet: every value may be.
        """
        seeds = self.tune.report if phase == "report" else self.tune.seeds
        if not seeds:
            return []
        kinds = known_algorithm(self.case.algorithm).kinds
        axes = {
            key: values if kinds.get(key) != "value" else values[:1]
            for key, values in self._possible().items()
        }
        found = []
        for point in product(axes):
            # What one line may choose, another that inherits it may refuse.
            with contextlib.suppress(UsageError):
                found.append(self._planned(point, seeds[0], phase))
        return found

    def _possible(self) -> dict[str, Sequence[Any]]:
        """Return every value that the open and the inherited parameters may take."""
        found: dict[str, Sequence[Any]] = {}
        if self.source is not None and self.tune.inherit is not None:
            fixed = {key: [value] for key, value in self.source.case.params.items()}
            known = {**fixed, **self.source._possible()}
            found = {key: known[key] for key in self.tune.inherit.parameters}
        return {**found, **self.axes}

    def _inherit(self) -> Point:
        if self.source is None or self.tune.inherit is None:
            return {}
        chosen = self.source.choice
        assert chosen is not None
        found = {**self.source.case.params, **chosen.values}
        return {key: found[key] for key in self.tune.inherit.parameters}

    def _points(self) -> list[Point]:
        return [{**self.inherited, **point} for point in product(self.axes)]

    def _new(self, points: Iterable[Point], seeds: Iterable[int]) -> list[Planned]:
        found = []
        for point in points:
            for seed in seeds:
                name = (*point.items(), seed)
                if name not in self._tried:
                    self._tried[name] = self._planned(point, seed, "tune")
                    found.append(self._tried[name])
        return found

    def _planned(self, point: Point, seed: int, phase: str) -> Planned:
        case, report = self.case, phase == "report"
        rows = self.n_checkpoints if report else TUNING_CHECKPOINTS
        labels = Labels(case.panel, case.line, phase, report, case.measured)
        return case.setting(**point).planned(seed, rows, labels)

    def _mean(self, point: Point, seeds: Sequence[int]) -> float:
        tried = (self._tried[(*point.items(), seed)] for seed in seeds)
        finals = [self.finals.get(one.key, math.inf) for one in tried]
        return sum(finals) / len(finals)

    def _ranked(self, points: Iterable[Point], seeds: Sequence[int]) -> list[Point]:
        """Return points by mean; among equals the earlier in the grid is better."""
        return sorted(points, key=lambda point: self._mean(point, seeds))

    def _extend(self, best: Point, seeds: Sequence[int]) -> bool:
        """Add a value above each extensible axis whose topmost value is best."""
        if not math.isfinite(self._mean(best, seeds)):
            return False
        grown = [self._grown(key, best) for key in self.tune.extend]
        for key, value in zip(self.tune.extend, grown, strict=True):
            if value is not None:
                self.axes[key].append(value)
        return any(value is not None for value in grown)

    def _grown(self, key: str, best: Point) -> Any | None:
        values = sorted(set(self.axes[key]))
        added = len(self.axes[key]) - len(self.case.axes[key])
        if len(values) < 2 or best[key] != values[-1] or added >= EXTENSIONS:
            return None
        if values[-2] <= 0:
            return None
        value = values[-1] * values[-1] / values[-2]
        value = round(value) if isinstance(values[-1], int) else value
        try:
            self.case.setting(**{**best, key: value})
        except UsageError:
            return None
        return value

    def _chosen(self, best: Point, seeds: Sequence[int]) -> Choice:
        before = self.case.axes
        return Choice(
            case=self.case,
            values=best,
            mean=self._mean(best, seeds),
            n_seeds=len(seeds),
            n_settings=len(self._points()),
            edges=tuple(_edges(self.axes, best)),
            extended=tuple(k for k, v in self.axes.items() if len(v) > len(before[k])),
            tried=tuple(one.key for one in self._tried.values()),
        )


def _edges(axes: Mapping[str, Sequence[Any]], best: Point) -> Iterator[str]:
    for key, values in axes.items():
        numbers = [v for v in values if isinstance(v, int | float)]
        if len(numbers) == len(values) > 1:
            if best[key] == min(numbers):
                yield f"{key} bottom"
            elif best[key] == max(numbers):
                yield f"{key} top"
