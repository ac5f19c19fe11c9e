"""Search beyond a grid: rounds of neighbours and Sobol points, raced over seeds.

The grid comes first and its best setting is among the finalists, so that a search that
finds nothing chooses what the grid would. A stage depends on the line and on what the
trials before it gave, rounded: the same search asks for the same trials, whoever runs
them and however often it was interrupted.
"""

import math
from collections.abc import Generator, Iterator
from functools import partial
from typing import Any

from dp_erm_bench.experiment.asked import AskingTuner, digest
from dp_erm_bench.experiment.choice import Point
from dp_erm_bench.experiment.grid import Ranked
from dp_erm_bench.experiment.moves import (
    Tried,
    modelled,
    neighbours,
    onward,
    sobol,
    trades,
)
from dp_erm_bench.experiment.race import HALF, Points, key_of
from dp_erm_bench.experiment.space import LENGTHS
from dp_erm_bench.experiment.trials import Trial
from dp_erm_bench.experiment.values import plain

OUTWARD = 6
"""Settings on an end of the grid that are moved beyond it, while its best is there."""

SOBOL = 2
"""Points of a wide round beside the trades."""

MODELLED = 2
"""Points of a round that a fitted surface proposes."""

BETTER, RACED = (5, 3), 4
"""Settings of a round that are tried on the second and the third number of seeds; the
trials without which it is not worth while."""

SHRINK, SMALLEST = 0.6, 1.42
"""The radius is multiplied by the first after a round without gain; its least value."""

SMALL, QUIET = 1.65, 2
"""So many rounds without gain at no larger a radius end the search."""


class PatternTuner(AskingTuner):
    """The stages of a line with `tune.search`.

    Parameters
    ----------
    line, n_checkpoints, finals, ask
        As of an `AskingTuner`.

    References
    ----------
    Hooke, Jeeves, "Direct search solution of numerical and statistical problems",
    Journal of the ACM 1961, on a lattice of powers; Jamieson, Talwalkar,
    "Non-stochastic best arm identification and hyperparameter optimization", AISTATS
    2016, for the race; Box, Wilson, "On the experimental attainment of optimum
    conditions", Journal of the Royal Statistical Society B 1951, for the surface.
    """

    def tuning(self) -> Iterator[list[Trial]]:
        """Yield the new trials of each stage up to the choice, and choose."""
        count = self.search.finalists
        yield from self._race(self._points(), 0)
        first = self._best(1, 0)[0]
        if self._mean(first) == math.inf:
            # All are refused, or diverge: nothing tells where to go.
            self.choice = self._choice(self._ranked([first]), self._own(first), ())
            return
        yield from self._grown()
        yield from self._race(self._best(count, 0), 1)
        self.first = before = best = (self._best(1, 1) or self._best(1, 0))[0]
        radius, number, quiet, wide, gained = self.search.radius, 0, 0, False, True
        while quiet < QUIET:
            points = self._round(before, best, radius, number, wide)
            if points is None:
                break
            yield from self._race(points, HALF)
            tried = [point for point in points if key_of(point) in self.rungs]
            better = [point for _, point in self._ranked(tried)]
            yield from self._race(better[: math.ceil(len(better) / 2)], 0)
            yield from self._race(self._best(BETTER[0], 0), 1)
            yield from self._race(self._best(BETTER[1], 1), 2)
            before, best = best, (self._best(1, 1) or [best])[0]
            number, gained = number + 1, self._gains(before, best)
            # Trades and the cube are for where the neighbours lead nowhere.
            wide, done = not gained and not wide, not gained and wide
            if done:
                quiet += radius <= SMALL
                radius = max(SHRINK * radius, SMALLEST)
        yield from self._modelled()
        beyond = [point for one in self._best(count, 1) for point in self._beyond(one)]
        yield from self._race(beyond, 0)
        yield from self._race(self._best(count, 0), 1)
        ranked = yield from self._raced_out()
        ranked, moving = yield from self._settled(ranked)
        chosen = ranked[0][1]
        ends = [*self._ends(chosen)]
        gained &= not number or self._better(chosen, before)
        moving |= quiet < QUIET and gained
        why = (*ends, "trials") if moving else (*ends,)
        self.choice = self._choice(ranked, self._own(chosen), why)

    def _modelled(self) -> Iterator[list[Trial]]:
        """Yield trials where a fitted surface is lowest, until these lead nowhere."""
        radius, race, quiet = self.search.radius, self.search.race, 0
        while quiet < QUIET and self._room() - self._kept() >= MODELLED * race[1]:
            best = (self._best(1, 1) or self._best(1, 0))[0]
            around = [*map(plain, best.values())]
            known = [(point, self._own(point)) for point in map(dict, self.rungs)]
            tried = [Tried(one, self._mean(one), len(seeds)) for one, seeds in known]
            lowest = partial(modelled, self.space, best, tried, radius, MODELLED)
            points = self._asked(["surface", around, len(tried)], 0, lowest)
            if not points:
                return
            yield from self._race(points, 1)
            yield from self._race(self._best(BETTER[1], 1), 2)
            quiet = 0 if self._best(1, 1)[0] in points else quiet + 1

    def _settled(
        self, ranked: Ranked
    ) -> Generator[list[Trial], None, tuple[Ranked, bool]]:
        """Yield trials beyond the choice while it lies on an outermost value tried.

        Return the points on all seeds, best first, and whether one beyond the choice
        is better on fewer: there were no trials for more.
        """
        while beyond := self._beyond(ranked[0][1]):
            mean, better, rung = ranked[0][0], beyond, 0
            while better and rung <= self._last:
                yield from self._race(better, rung, 0)
                able = [p for p in better if self.rungs.get(key_of(p), HALF) >= rung]
                if not able:
                    return ranked, rung > 0
                order = self._ranked(able, self._seeds(rung))
                better = [point for lower, point in order[:1] if lower < mean]
                rung += 1
            ranked = self._ranked(self._best(len(self.rungs), self._last))
        return ranked, False

    def expected(self) -> int:
        """Return the most trials that it may ask for."""
        return self.search.trials + len(self.tune.report)

    def _grown(self) -> Iterator[list[Trial]]:
        """Yield trials beyond the grid while its best lies on an outermost value."""
        before, best = math.inf, self._best(1, 0)[0]
        while self._mean(best) < before:
            before = self._mean(best)
            points = [point for key in self.space for point in self._outward(best, key)]
            new = [one for one in points if key_of(one) not in self.rungs]
            yield from self._race([one for one in new if self._allowed(one)], 0)
            best = self._best(1, 0)[0]

    def _outward(self, best: Point, key: str) -> Iterator[Point]:
        """Yield the best settings of an end, but of lengths, moved on by a step."""
        axis, end, tried = self.space[key], best[key], self._values(key)
        values = sorted(filter(None, axis.values)) if axis.numeric else []
        if key in LENGTHS or len(values) < 2 or axis.last(end):
            return
        alike = [one for one in self._best(len(self.rungs), 0) if one[key] == end]
        steps = {max(tried): values[-1] / values[-2], min(tried): values[0] / values[1]}
        if end in steps:
            moved = axis.at(axis.level(end) + axis.steps(steps[end]))
            yield from ({**one, key: moved} for one in alike[:OUTWARD])

    def _round(
        self, before: Point, best: Point, radius: float, number: int, wide: bool
    ) -> Points | None:
        """Return the new points of a round, None if the search cannot go on."""
        # Each costs one and a half times half of the first seeds; the best cost more.
        room, half = self._room() - self._kept(), len(self._seeds(HALF))
        affordable = int((room - RACED) / (1.5 * half))
        if self._mean(best) == math.inf or affordable < 2 * len(self.space):
            return None
        # What they lie around is named, too: another run may be elsewhere by now.
        points = [[*map(plain, one.values())] for one in (before, best)]

        def make() -> Iterator[Point]:
            if not wide:
                yield from onward(self.space, before, best)
                yield from neighbours(self.space, best, radius)
                return
            seed = int(digest(f"{self._case()}:{number}")[:16], 16)
            yield from trades(self.space, best, radius)
            yield from sobol(self.space, best, radius, SOBOL, seed)

        return self._asked([points, radius, wide], number, make)[:affordable]

    def _values(self, key: str) -> set[Any]:
        """Return the values of a parameter that were tried."""
        return {dict(point)[key] for point in self.rungs}

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
