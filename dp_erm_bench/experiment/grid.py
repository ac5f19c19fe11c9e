"""Tune a line: try a grid, extend it, refine the best, report on fresh seeds.

Nothing here runs a trial. A tuner names the trials of its next stage, the experiment
runs those of all tuners together, and the tuner reads their last values.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.choice import Choice, Point, bootstrap, mean_of, rounded
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.experiment.trials import Trial
from dp_erm_bench.experiment.values import product

TUNING_CHECKPOINTS = 2
EXTENSIONS = 10
"""An axis grows this often at most; without noise it could grow for ever."""

Ranked = list[tuple[float, Point]]
Finals = Mapping[str, Mapping[str, float]]
"""Last values of trials, by key and quantity, as numbers to be minimised."""


class Tuner:
    """The stages of one tuned line; `source` tunes what it inherits.

    Parameters
    ----------
    line : FitLine
        A line with `tune`.
    n_checkpoints : int
        Rows of a report trial.
    finals : mapping
        Last values of trials; filled by the experiment between stages.
    """

    def __init__(self, line: FitLine, n_checkpoints: int, finals: Finals) -> None:
        assert line.tune is not None
        self.line, self.tune = line, line.tune
        self.n_checkpoints, self.finals = n_checkpoints, finals
        self.source: Tuner | None = None
        self.choice: Choice | None = None
        self.axes = {key: list(values) for key, values in line.axes.items()}
        self.inherited: Point = {}
        inherit = self.tune.inherit
        self._inherits = inherit.parameters if inherit else ()
        self._tried: dict[tuple[Any, ...], Trial] = {}

    def stages(self) -> Iterator[list[Trial] | None]:
        """Yield the new trials of each stage, None while the source is tuned."""
        while self.source is not None and self.source.choice is None:
            yield None
        if self.source is not None and self.source.choice is not None:
            chosen = {**self.source.line.params, **self.source.choice.values}
            self.inherited = {key: chosen[key] for key in self._inherits}
        yield from self.tuning()
        assert self.choice is not None
        values = self.choice.values
        yield [self._trial(values, seed, "report") for seed in self.tune.report]

    def tuning(self) -> Iterator[list[Trial]]:
        """Yield the new trials of each stage up to the choice, and choose."""
        refine, grown = self.tune.refine, True
        while grown:
            points, seeds = self._points(), self.tune.seeds
            yield self._new(points, seeds)
            ranked = self._ranked(points, seeds)
            grown = self._extend(*ranked[0])
            if refine.best and not grown:
                points = [point for _, point in ranked[: refine.best]]
                seeds = seeds + refine.seeds
                yield self._new(points, seeds)
                ranked = self._ranked(points, seeds)
                grown = self._extend(*ranked[0])
        before = self.line.axes
        extended = (k for k, v in self.axes.items() if len(v) > len(before[k]))
        self.choice = self._choice(ranked, seeds, tuple(self._edges(ranked[0][1])))
        self.choice = replace(self.choice, extended=tuple(extended))

    def _choice(
        self, ranked: Ranked, seeds: Sequence[int], why_open: tuple[str, ...]
    ) -> Choice:
        """Return the choice of the first of some points, all tried on seeds."""
        (_, best), *others = ranked
        finals = self._finals(best, seeds)
        lead = None
        if others and len(seeds) > 1 and math.isfinite(others[0][0]):
            lead = bootstrap(finals, self._finals(others[0][1], seeds))
        tried = tuple(one.key for one in self._tried.values())
        settings = len({place[:-1] for place in self._tried})
        # Where all are lost nothing lies beyond.
        why = why_open if math.isfinite(mean_of(finals)) else ()
        return Choice(self.line, best, finals, settings, lead, why, tried=tried)

    def expected(self) -> int:
        """Return the number of trials if no axis is extended."""
        grid = math.prod(len(values) for values in self.axes.values())
        refined = min(self.tune.refine.best, grid) * len(self.tune.refine.seeds)
        return grid * len(self.tune.seeds) + refined + len(self.tune.report)

    def examples(self, phase: str) -> Iterator[Trial]:
        """Yield a trial of each shape that those of a phase may have.

        What will be chosen or inherited is not known yet: every value may be.
        """
        seeds = self.tune.report if phase == "report" else self.tune.seeds
        shares = algorithm_of(self.line.algorithm).shares
        axes = {
            key: values if shares(key) else values[:1]
            for key, values in self._possible().items()
        }
        for point in product(axes) if seeds else ():
            # What one line may choose, another that inherits it may refuse.
            with contextlib.suppress(UsageError):
                yield self._trial(point, seeds[0], phase)

    def _possible(self) -> dict[str, Sequence[Any]]:
        """Return every value that the open and the inherited parameters may take."""
        values: dict[str, Sequence[Any]] = {}
        if self.source is not None:
            fixed = {key: [value] for key, value in self.source.line.params.items()}
            values = {**fixed, **self.source._possible()}
        return {**{key: values[key] for key in self._inherits}, **self.axes}

    def _points(self) -> list[Point]:
        return [{**self.inherited, **point} for point in product(self.axes)]

    def _new(self, points: Iterable[Point], seeds: Iterable[int]) -> list[Trial]:
        """Return the trials of points and seeds that have not been tried yet."""
        named = {(*p.items(), seed): (p, seed) for p in points for seed in seeds}
        untried = {k: one for k, one in named.items() if k not in self._tried}
        new = {k: self._trial(*one, "tune") for k, one in untried.items()}
        self._tried |= new
        return [*new.values()]

    def _trial(self, point: Point, seed: int, phase: str) -> Trial:
        rows = self.n_checkpoints if phase == "report" else TUNING_CHECKPOINTS
        return self.line.setting(**point).trial(seed, rows, phase)

    def _ranked(self, points: Iterable[Point], seeds: Sequence[int]) -> Ranked:
        """Return points behind their means; among equals the earlier is better."""
        ranked = []
        for point in points:
            ranked.append((mean_of(self._finals(point, seeds)), point))
        return sorted(ranked, key=itemgetter(0))

    def _finals(self, point: Point, seeds: Iterable[int]) -> tuple[float, ...]:
        """Return the final quantities of a point that was tried on some seeds."""
        keys = (self._tried[(*point.items(), seed)].key for seed in seeds)
        by, lost = self.tune.quantity, math.inf
        return tuple(rounded(self.finals.get(key, {}).get(by, lost)) for key in keys)

    def _extend(self, mean: float, best: Point) -> bool:
        """Add a value above each extensible axis whose topmost value is best."""
        grown = False
        for key in self.tune.extend if math.isfinite(mean) else ():
            values = sorted(set(self.axes[key]))
            added = len(self.axes[key]) - len(self.line.axes[key])
            topmost = len(values) > 1 and best[key] == values[-1]
            if topmost and added < EXTENSIONS and values[-2] > 0:
                value = values[-1] * values[-1] / values[-2]
                value = round(value) if isinstance(values[-1], int) else value
                with contextlib.suppress(UsageError):
                    self.line.setting(**{**best, key: value})
                    self.axes[key].append(value)
                    grown = True
        return grown

    def _edges(self, best: Point) -> Iterator[str]:
        for key, values in self.axes.items():
            if len(values) > 1 and all(isinstance(v, int | float) for v in values):
                ends = {max(values): "top", min(values): "bottom"}
                if best[key] in ends:
                    yield f"{key} {ends[best[key]]}"
