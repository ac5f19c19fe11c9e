"""Race settings over seeds: all on few, the better ones on more."""

import math
import statistics
from collections.abc import Generator, Iterable, Iterator, Sequence

from dp_erm_bench.experiment.choice import Point, bootstrap, mean_of
from dp_erm_bench.experiment.grid import Finals, Ranked, Tuner
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.experiment.trials import Trial

HALF = -1
"""Rung of new points: half the first seeds, of which the better half gets all."""

BEYOND = 3
"""Points beyond the choice for whose first seeds trials are kept."""

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
    first : Point or None
        The best of the grid as soon as it is known.
    """

    def __init__(self, line: FitLine, n_checkpoints: int, finals: Finals) -> None:
        super().__init__(line, n_checkpoints, finals)
        assert self.tune.search is not None
        self.search = self.tune.search
        self.rungs: dict[Key, int] = {}
        self.first: Point | None = None
        self._last = len(self.search.race) - 1

    def _seeds(self, rung: int) -> Sequence[int]:
        race = self.search.race
        return self.tune.seeds[: math.ceil(race[0] / 2) if rung == HALF else race[rung]]

    def _room(self) -> int:
        """Return how many trials are left."""
        return self.search.trials - len(self._tried)

    def _finalists(self) -> Points:
        """Return who is raced at the end: the grid's best, and the best of all."""
        best = self._best(self.search.finalists, 1) or self._best(1, 0)
        first = self.first or best[0]
        return [first, *(one for one in best if one != first)]

    def _kept(self) -> int:
        """Return the trials of the last races, were they between those now best."""
        race, finalists = self.search.race, self._finalists()
        seeds = [len(self._own(one)) for one in finalists]
        # Places that nobody has taken yet cost more.
        seeds += [race[0]] * (self.search.finalists - len(seeds))
        few = sum(max(0, race[-2] - known) for known in seeds)
        left = half_of(len(seeds)) * (race[-1] - race[-2])
        return few + left + BEYOND * race[0]

    def _race(
        self, points: Points, rung: int, kept: int | None = None
    ) -> Iterator[list[Trial]]:
        """Yield the new trials of points on the seeds of a rung, as far as they go.

        So many are kept for later; those of the last races if nothing is said.
        """
        usual = self._kept() if self.rungs else 0
        left = self._room() - (usual if kept is None else kept)
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

    def _raced_out(self) -> Generator[list[Trial], None, Ranked]:
        """Yield the last races' trials; return who has all seeds, best first.

        The finalists run on the last but one number of seeds, and
        the better half of them on all. If each diverges on some seed, the next best
        ones are raced.
        """
        race, count, last = self.search.race, self.search.finalists, self._last
        finalists = self._finalists()
        ranked = self._ranked(finalists[:1])
        while finalists:
            yield from self._race(finalists, last - 1, race[-1] - race[-2])
            able = [one for one in finalists if self.rungs[key_of(one)] >= last - 1]
            better = [one for _, one in self._ranked(able, self._seeds(last - 1))]
            yield from self._race(better[: half_of(len(able))], last, 0)
            raced = self._best(len(self.rungs), last)
            ranked = self._ranked(raced, self._seeds(last)) if raced else ranked
            enough = math.isfinite(ranked[0][0]) or self._room() < race[-1]
            others = self._best(count + len(finalists), 0)
            others = [one for one in others if self.rungs[key_of(one)] < last - 1]
            finalists = [] if enough else others[:count]
        return ranked

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


def key_of(point: Point) -> Key:
    """Return a point as the key of a mapping."""
    return tuple(point.items())


def half_of(count: int) -> int:
    """Return how many finalists get all seeds: half, for a comparison two at least."""
    return min(count, max(2, math.ceil(count / 2)))
