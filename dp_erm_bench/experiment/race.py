"""Race settings over seeds: all on few, the better ones on more."""

import math
from collections.abc import Iterable, Iterator, Sequence

from dp_erm_bench.experiment.choice import Point, mean_of
from dp_erm_bench.experiment.grid import Finals, Ranked, Tuner
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.trials import Trial

HALF = -1
"""Rung of new points: half the first seeds, of which the better half gets all."""

Key = tuple[tuple[str, object], ...]
Points = list[Point]


class RacingTuner(Tuner):
    """A tuner whose settings run on so many seeds as they deserve.

    Parameters
    ----------
    line : FitLine
        A line with `tune.search`: `race` are the numbers of seeds, its rungs; `trials`
        is how many there are to spend.
    n_checkpoints, finals
        As of a `Tuner`.

    Attributes
    ----------
    rungs : dict
        The rung that each point has reached.
    """

    def __init__(self, line: FitLine, n_checkpoints: int, finals: Finals) -> None:
        super().__init__(line, n_checkpoints, finals)
        assert self.tune.search is not None
        self.search = self.tune.search
        self.rungs: dict[Key, int] = {}

    def _seeds(self, rung: int) -> Sequence[int]:
        race = self.search.race
        return self.tune.seeds[: math.ceil(race[0] / 2) if rung == HALF else race[rung]]

    def _room(self) -> int:
        """Return how many trials are left."""
        return self.search.trials - len(self._tried)

    def _kept(self) -> int:
        """Return the trials of the last race, should it be between those now best."""
        race, best = self.search.race, self._best(self.search.finalists, 0)
        # The grid's best is raced besides.
        own = sum(race[-1] - len(self._own(one)) for one in best)
        return own + race[-1] - race[1]

    def _race(self, points: Points, rung: int) -> Iterator[list[Trial]]:
        """Yield the new trials of points on the seeds of a rung, as far as they go.

        Those of the last race are kept for it.
        """
        last = rung == len(self.search.race) - 1
        left = self._room() - (0 if last or not self.rungs else self._kept())
        for place, point in enumerate(points):
            known = self._own(point) if key_of(point) in self.rungs else ()
            left -= max(0, len(self._seeds(rung)) - len(known))
            if left < 0:
                points = points[:place]
                break
        new = self._new(points, self._seeds(rung))
        for key in map(key_of, points):
            self.rungs[key] = max(rung, self.rungs.get(key, rung))
        if new:
            yield new

    def _best(self, count: int, rung: int) -> Points:
        """Return the best points of those that have reached a rung, best first."""
        points = [dict(key) for key, reached in self.rungs.items() if reached >= rung]
        return [point for _, point in self._ranked(points)[:count]]

    def _ranked(self, points: Iterable[Point], seeds: Sequence[int] = ()) -> Ranked:
        """Return points behind their means, over all of their seeds if none are given.

        Of equals the shorter run is better, then the one that was tried earlier.
        """
        places = {key: place for place, key in enumerate(self.rungs)}
        ranked = [
            (self._mean(one, seeds), self._length(one), places[key_of(one)], one)
            for one in points
        ]
        return [
            (mean, one) for mean, *_, one in sorted(ranked, key=lambda row: row[:3])
        ]

    def _own(self, point: Point) -> Sequence[int]:
        """Return the seeds that a point was tried on."""
        return self._seeds(self.rungs[key_of(point)])

    def _mean(self, point: Point, seeds: Sequence[int] = ()) -> float:
        return mean_of(self._finals(point, seeds or self._own(point)))

    def _length(self, point: Point) -> int:
        return self.line.setting(**point).batch_key.iterations()


def key_of(point: Point) -> Key:
    """Return a point as the key of a mapping."""
    return tuple(point.items())
