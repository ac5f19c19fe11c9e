"""Search beyond a grid: rounds of neighbours and Sobol points, raced over seeds.

The grid comes first and its best setting is among the finalists, so that a search that
finds nothing chooses what the grid would. A stage depends on the line and on what the
trials before it gave, rounded: the same search asks for the same trials, whoever runs
them and however often it was interrupted.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.choice import Point, bootstrap, mean_of
from dp_erm_bench.experiment.grid import Finals, Ranked, Tuner
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.space import neighbours, sobol, space_of
from dp_erm_bench.experiment.trials import Trial
from dp_erm_bench.experiment.values import canonical, plain
from dp_erm_bench.plugins.names import identity

SOBOL = 8
"""Points of a round beside the neighbours of its best."""

BETTER = (5, 3)
"""Settings of a round that are tried on the second and the third number of seeds."""

SHRINK, SMALLEST = 0.6, 1.42
"""The radius is multiplied by the first after a round without gain; its least value."""

SMALL, QUIET = 1.65, 2
"""So many rounds without gain at no larger a radius end the search."""

Key = tuple[tuple[str, Any], ...]
Points = list[Point]
Ask = Callable[[str, int, Callable[[], Points]], Points]
"""Takes the name of a case, a round, and who makes its points; returns the points.

What was asked in an earlier run of the folder is asked again, whatever a library's
random numbers are by now.
"""


def afresh(case: str, number: int, make: Callable[[], Points]) -> Points:
    """Return the points of a round that nobody has asked for before."""
    return make()


class PatternTuner(Tuner):
    """The stages of a line with `tune.search`.

    Parameters
    ----------
    line, n_checkpoints, finals
        As of a `Tuner`.
    ask : callable
        See `Ask`.

    References
    ----------
    Hooke, Jeeves, "Direct search solution of numerical and statistical problems",
    Journal of the ACM 1961, on a lattice of powers; Jamieson, Talwalkar,
    "Non-stochastic best arm identification and hyperparameter optimization", AISTATS
    2016, for the race.
    """

    def __init__(
        self, line: FitLine, n_checkpoints: int, finals: Finals, ask: Ask = afresh
    ) -> None:
        super().__init__(line, n_checkpoints, finals)
        assert self.tune.search is not None
        self.search, self.ask, self.space = self.tune.search, ask, space_of(line)
        self._rungs: dict[Key, int] = {}
        """Numbers of `race` that points have reached."""

    def tuning(self) -> Iterator[list[Trial]]:
        """Yield the new trials of each stage up to the choice, and choose."""
        count, last = self.search.finalists, len(self.search.race) - 1
        yield from self._race(self._points(), 0)
        yield from self._race(self._best(count, 0), 1)
        first = before = best = self._best(1, 1)[0]
        radius, number, quiet = self.search.radius, 0, 0
        while quiet < QUIET:
            points = self._round(best, radius, number)
            if points is None:
                break
            yield from self._race(points, 0)
            yield from self._race(self._best(BETTER[0], 0), 1)
            yield from self._race(self._best(BETTER[1], 1), 2)
            before, best = best, self._best(1, 1)[0]
            number += 1
            if not self._gains(before, best):
                quiet += radius <= SMALL
                radius = max(SHRINK * radius, SMALLEST)
        beyond = [point for one in self._best(count, 1) for point in self._beyond(one)]
        yield from self._race(beyond[: self._affordable()], 0)
        yield from self._race(self._best(count, 0), 1)
        finalists = self._best(count, 1)
        if first not in finalists:
            finalists[-1] = first
        ranked: Ranked = []
        # If each of them diverges on some seed, the next best ones are raced.
        while finalists and (not ranked or ranked[0][0] == math.inf):
            yield from self._race(finalists, last)
            ranked = self._ranked(finalists, self._seeds(last))
            finalists = self._best(count, 1) if self._affordable() else []
            finalists = [one for one in finalists if self._rungs[_key(one)] < last]
        ends = [*self._ends(ranked[0][1])]
        if quiet < QUIET and self._better(ranked[0][1], before):
            ends.append("trials")
        self.choice = self._choice(ranked, self._seeds(last), tuple(ends))

    def expected(self) -> int:
        """Return the most trials that it may ask for."""
        return self.search.trials + len(self.tune.report)

    def _seeds(self, rung: int) -> Sequence[int]:
        return self.tune.seeds[: self.search.race[rung]]

    def _race(self, points: Points, rung: int) -> Iterator[list[Trial]]:
        """Yield the new trials of points on the seeds of a rung, if there are some."""
        new = self._new(points, self._seeds(rung))
        for key in map(_key, points):
            self._rungs[key] = max(rung, self._rungs.get(key, 0))
        if new:
            yield new

    def _best(self, count: int, rung: int) -> Points:
        """Return the best points of those that have reached a rung, best first."""
        points = [dict(key) for key, reached in self._rungs.items() if reached >= rung]
        return [point for _, point in self._ranked(points)[:count]]

    def _ranked(self, points: Iterable[Point], seeds: Sequence[int] = ()) -> Ranked:
        """Return points behind their means, over all of their seeds if none are given.

        Of equals the shorter run is better, then the lesser point.
        """
        ranked = [
            (mean_of(self._finals(one, seeds or self._own(one))), one) for one in points
        ]
        return sorted(ranked, key=lambda pair: (pair[0], *self._order(pair[1])))

    def _own(self, point: Point) -> Sequence[int]:
        """Return the seeds that a point was tried on."""
        return self._seeds(self._rungs[_key(point)])

    def _order(self, point: Point) -> tuple[int, str]:
        length = self.line.setting(**point).batch_key.iterations()
        return length, canonical([plain(value) for value in point.values()])

    def _gains(self, before: Point, after: Point) -> bool:
        """Return whether a round has led to a point that is better by the tolerance."""
        old, new = (self._finals(one, self._own(one)) for one in (before, after))
        known = len(new) > 1 and math.isfinite(mean_of(new))
        spread = statistics.stdev(new) if known else 0.0
        gain = mean_of(old) - mean_of(new)
        return before != after and gain > self.search.tolerance * spread

    def _better(self, point: Point, before: Point) -> bool:
        """Return whether a point is better than one of before, beyond their scatter."""
        ours, theirs = (self._finals(one, self._own(one)) for one in (point, before))
        if mean_of(ours) == math.inf or point == before:
            return False
        return mean_of(theirs) == math.inf or bootstrap(ours, theirs)[1] < 0.0

    def _affordable(self) -> int:
        """Return how many new points may be tried, the races to come being paid."""
        race = self.search.race
        raced = BETTER[0] * (race[1] - race[0]) + BETTER[1] * (race[2] - race[1])
        final = self.search.finalists * (race[-1] - race[1])
        left = self.search.trials - len(self._tried) - raced - final
        return max(0, left // race[0])

    def _round(self, best: Point, radius: float, number: int) -> Points | None:
        """Return the new points of a round, None if the search cannot go on."""
        affordable, case = self._affordable(), self._case()
        hopeless = mean_of(self._finals(best, self._own(best))) == math.inf
        if hopeless or affordable < 2 * len(self.space):
            return None

        def make() -> Points:
            seed = int(_sha(f"{case}:{number}")[:16], 16)
            around = sobol(self.space, best, radius, SOBOL, seed)
            return [*neighbours(self.space, best, radius), *around]

        asked = self.ask(case, number, make)
        new = {_key(one): one for one in asked if self._allowed(one)}
        return [one for key, one in new.items() if key not in self._rungs][:affordable]

    def _allowed(self, point: Point) -> bool:
        """Return whether a point, of a file maybe, is one of the space's."""
        if list(point) != [*self.inherited, *self.space]:
            return False
        values = {**self.inherited, **point} == point and all(
            axis.holds(point[key]) for key, axis in self.space.items()
        )
        try:
            self.line.setting(**point)
        except UsageError:
            return False
        return values

    def _case(self) -> str:
        """Return the digest of what the points of a search depend on."""
        line, search = self.line, self.search
        algorithm = [identity(line.algorithm), line.base["algorithm"]["params"]]
        privacy = [line.budget, line.calibration]
        named = [line.problem.identity, algorithm, privacy, self.inherited]
        axes = {key: list(values) for key, values in line.axes.items()}
        how = [self.tune.limits, self.tune.seeds, self.tune.quantity, search.ratio]
        return _sha(canonical([named, axes, how]))

    def _values(self, key: str) -> set[Any]:
        """Return the values of a parameter that were tried."""
        return {dict(point)[key] for point in self._rungs}

    def _ends(self, point: Point) -> Iterator[str]:
        """Yield where a point lies on a limit, or on the outermost value tried."""
        for key, axis in self.space.items():
            value = point[key]
            if not axis.numeric or axis.last(value):
                continue
            if axis.limited(value):
                yield f"{key} limit"
            elif value == max(self._values(key)):
                yield f"{key} top"
            elif value == min(self._values(key)):
                yield f"{key} bottom"

    def _beyond(self, point: Point) -> Points:
        """Return the points beside one that lie beyond all values tried."""
        tried = {
            end.split()[0]: self._values(end.split()[0]) for end in self._ends(point)
        }
        return [
            one
            for one in neighbours(self.space, point, SMALLEST)
            if any(one[key] not in values for key, values in tried.items())
            and self._allowed(one)
        ]


def _key(point: Point) -> Key:
    return tuple(point.items())


def _sha(text: str) -> str:
    return sha256(text.encode()).hexdigest()
