"""Tune a line: try a grid, extend it, refine the best, report on fresh seeds.

Nothing here runs a trial. A tuner names the trials of its next stage, the experiment
runs those of all tuners together, and the tuner reads their final objectives.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.experiment.trials import Line, Trial
from dp_erm_bench.experiment.values import product

TUNING_CHECKPOINTS = 2
EXTENSIONS = 10
"""An axis grows this often at most; without noise it could grow for ever."""

Point = dict[str, Any]
Ranked = list[tuple[float, Point]]
Finals = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Choice:
    """The parameters that a tuner chose.

    Attributes
    ----------
    line : FitLine
    values : dict
        The chosen and the inherited parameters.
    mean : float
        Mean final objective over the tuning seeds; infinite if one diverged.
    n_seeds, n_settings : int
        Seeds behind the mean, settings tried.
    edges, extended, tried : tuple of str
        Axes whose chosen value is the lowest or topmost, as `clip top`; axes that
        were extended; keys of the trials that were looked at.
    """

    line: FitLine
    values: Point
    mean: float
    n_seeds: int
    n_settings: int
    edges: tuple[str, ...]
    extended: tuple[str, ...]
    tried: tuple[str, ...] = ()


class Tuner:
    """The stages of one tuned line; `source` tunes what it inherits.

    Parameters
    ----------
    line : FitLine
        A line with `tune`.
    n_checkpoints : int
        Rows of a report trial.
    finals : mapping
        Final objective by key; filled by the experiment between stages.
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
        mean, best = ranked[0]
        before = self.line.axes
        self.choice = Choice(
            line=self.line,
            values=best,
            mean=mean,
            n_seeds=len(seeds),
            n_settings=len(self._points()),
            edges=tuple(self._edges(best)),
            extended=tuple(k for k, v in self.axes.items() if len(v) > len(before[k])),
            tried=tuple(one.key for one in self._tried.values()),
        )
        yield [self._trial(best, seed, "report") for seed in self.tune.report]

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
            keys = [self._tried[(*point.items(), seed)].key for seed in seeds]
            finals = [self.finals.get(key, math.inf) for key in keys]
            ranked.append((sum(finals) / len(finals), point))
        return sorted(ranked, key=itemgetter(0))

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


def tuners_of(lines: Iterable[Line], n_checkpoints: int, finals: Finals) -> list[Tuner]:
    """Return the tuners of the tuned lines, each linked to what it inherits from.

    Raises
    ------
    UsageError
        If what a line inherits does not exist, is ambiguous or circular.
    """
    tuned = [x for x in lines if isinstance(x, FitLine) and x.tune is not None]
    tuners = [Tuner(line, n_checkpoints, finals) for line in tuned]
    for tuner in tuners:
        tuner.source = _source(tuner, tuners)
    for tuner in tuners:
        chain = [tuner]
        while (source := chain[-1].source) is not None:
            if source in chain:
                line = source.line.line
                raise UsageError(f"tune.inherit.line={line}: inherits from itself")
            chain.append(source)
    return tuners


def _source(tuner: Tuner, tuners: Iterable[Tuner]) -> Tuner | None:
    """Return the tuner that a tuner inherits from, refuse any other number of them."""
    inherit = tuner.tune.inherit
    if inherit is None:
        return None
    sources = [
        other
        for other in tuners
        if other.line.label == (inherit.panel, inherit.line)
        and other.line.problem.identity == tuner.line.problem.identity
    ]
    if len(sources) > 1:
        sources = [other for other in sources if other.line.budget["epsilon"] == 1.0]
    where = f"tune.inherit.line={inherit.line} (panel {inherit.panel})"
    if len(sources) != 1:
        raise UsageError(
            f"{where}: must be one tuned line on the same dataset and objective, or "
            f"one at epsilon = 1; there are {len(sources)}"
        )
    (source,) = sources
    chosen = {*source.axes, *source.line.params, *source._inherits}
    for parameter in inherit.parameters:
        if parameter not in chosen:
            raise UsageError(
                f"{where}: it does not choose {parameter}; it has "
                f"{', '.join(sorted(chosen))}"
            )
    return source
