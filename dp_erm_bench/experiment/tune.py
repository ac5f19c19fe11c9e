"""Tune a line: try a grid, search beyond it, report the choice on fresh seeds.

A *line* consists of the fits of one algorithm on one problem with one budget. A *point*
has a value for each of the line's open parameters.

This module does not run trials. A tuner returns the trials of its next stage, the
experiment runs the trials of all tuners together, and the tuner reads the last values.

A search goes beyond the grid in rounds. A round tries neighbours of the best point and
Sobol points, and better points run on more seeds. Before the first round, the search
also tries the settings of the rule, the best settings at the next smaller epsilon, and
runs of one and two steps. These starts help if the budget is so small that no setting
of the grid is better than w = 0. The best of all starts is among the finalists, so a
search that finds nothing better chooses this start. A stage depends only on the line
and on the rounded results of earlier trials. The same search therefore proposes the
same trials on any machine, even after interruptions.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, cycle, permutations, product
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.lines import (
    Axis,
    FitLine,
    Line,
    Trial,
    sha256_of,
    space_of,
)
from dp_erm_bench.experiment.parameters import LENGTHS, algorithm_of, by_rule
from dp_erm_bench.experiment.schema import (
    canonical_json,
    grid_points,
    grid_size,
    plain_parameter,
)
from dp_erm_bench.plugins.names import identity_of
from dp_erm_bench.registry import AUTO

DIGITS = 9
"""Number of digits that are compared; further digits depend on a trial's batch."""

RESAMPLES = 2000
TAILS = (2.5, 97.5)

Point = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Choice:
    """The parameters that a tuner chose.

    Attributes
    ----------
    line : FitLine
        The line that was tuned.
    values : dict
        The chosen parameters.
    finals : tuple of float
        Final value of the choice on each seed; infinite if a trial diverged.
    n_settings : int
        Number of settings tried.
    lead : tuple of float or None
        95 % bootstrap interval, over the seeds, of the mean of the choice minus the
        mean of the next best finalist; None if there is no other finalist.
    open : tuple of str
        Reasons why a better setting may lie beyond those tried. `clip top` means that
        the choice has the largest value tried for `clip`; `bottom` is the smallest
        value, and `limit` a declared limit. A parameter with `untried` had only one
        value for lack of trials. `trials` means that a search ran out of trials too
        early. This may be before its first round, while its last round still gained by
        more than the scatter over seeds, or before a better setting beyond the values
        tried could run on all seeds.
    starts, tried : tuple of str
        Sources of the starting points of a search besides the grid, and keys of the
        tuning trials.
    reported : str
        Key of the first trial on report seeds.
    """

    line: FitLine
    values: Point
    finals: tuple[float, ...]
    n_settings: int
    lead: tuple[float, float] | None
    open: tuple[str, ...]
    starts: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    reported: str = ""

    @property
    def mean(self) -> float:
        """Return the mean final quantity; infinite if a trial diverged."""
        return mean_of(self.finals)

    @property
    def quantity(self) -> str:
        """Return the name of the quantity by which the trials were compared."""
        return self.line.tune.quantity if self.line.tune else ""

    @property
    def scatter(self) -> float:
        """Return the standard deviation over the seeds; nan for fewer than two."""
        known = len(self.finals) > 1 and math.isfinite(self.mean)
        return statistics.stdev(self.finals) if known else math.nan


def round_final(final: float) -> float:
    """Return a number rounded to the digits that do not depend on a trial's batch."""
    return float(f"{final:.{DIGITS}g}")


def mean_of(finals: Sequence[float]) -> float:
    """Return the mean of values; infinite if one of them is infinite."""
    finite = all(map(math.isfinite, finals))
    return math.fsum(finals) / len(finals) if finite else math.inf


def bootstrap_interval(
    ours: Sequence[float], theirs: Sequence[float]
) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the difference of two means.

    The samples are not paired, as each trial has its own noise.
    """
    rng = np.random.default_rng(len(ours))
    means = [
        rng.choice(np.asarray(finals), (RESAMPLES, len(finals))).mean(axis=1)
        for finals in (ours, theirs)
    ]
    low, high = np.percentile(means[0] - means[1], TAILS)
    return round_final(float(low)), round_final(float(high))


TUNING_CHECKPOINTS = 2
WARM = 2
"""Number of best settings at the next smaller epsilon that a search tries first."""

SHORTEST = (1, 2)
"""Numbers of steps of the short runs from which a search also starts."""

Ranked = list[tuple[float, Point]]
Finals = Mapping[str, Mapping[str, float]]
"""Final values of trials, by key and quantity, in a form for which lower is better."""

Key = tuple[tuple[str, object], ...]
Points = list[Point]


def key_of(point: Point) -> Key:
    """Return a point as a hashable key."""
    return tuple(point.items())


def spell_point(point: Mapping[str, Any]) -> list[Any]:
    """Return the values of a point in a form that JSON can represent."""
    return [*map(plain_parameter, point.values())]


Ask = Callable[[str, int, Callable[[], Points]], Points]
"""A function that returns the points of a round of a search.

The arguments are the name of a case, the number of the round, and a function that makes
new points. Points that an earlier run of the folder used are returned again, even if
the random numbers of a library have changed since.
"""


Round = tuple[Points, int]
"""Points to try next, and their rung in the race, which determines their seeds."""


class Tuner:
    """Tunes one line by a grid: yields trials, reads their results, makes the choice.

    Parameters
    ----------
    line : FitLine
        The line whose open parameters are tuned.
    n_checkpoints : int
        Number of checkpoints of a report trial.
    finals : mapping
        Final values of trials by key and quantity. The experiment adds them between
        stages.

    Attributes
    ----------
    smaller : Tuner or None
        The tuner of the same line at the next smaller epsilon; None if there is none.
    reports : list of Trial
        The trials of the choice on the report seeds.
    rungs : dict
        The highest rung on which each point was tried. A rung is a stage of the race,
        and each rung uses more seeds.
    ranked : list of (float, Point)
        Pairs of mean result and point, best first. After the last round, they contain
        the points that ran on all seeds.
    open : tuple of str
        As in `Choice`.
    starts : dict from str to points
        Starting points of a search besides its grid, by the name of their source.
    """

    def __init__(self, line: FitLine, n_checkpoints: int, finals: Finals) -> None:
        assert line.tune is not None
        self.line, self.tune = line, line.tune
        self.n_checkpoints, self.finals = n_checkpoints, finals
        self.smaller: Tuner | None = None
        self.choice: Choice | None = None
        self.reports: list[Trial] = []
        self._tried: dict[tuple[Any, ...], Trial] = {}
        self.rungs: dict[Key, int] = {}
        self.ranked: Ranked = []
        self.open: tuple[str, ...] = ()
        self.starts: dict[str, Points] = {}

    @property
    def epsilon(self) -> float:
        """Return the epsilon of the line."""
        return float(self.line.budget["epsilon"])

    def stages(self) -> Iterator[list[Trial] | None]:
        """Yield the new trials of each stage; None while waiting for another tuner."""
        for one in self.rounds():
            if one is None:
                yield None
            elif new := self._new_trials(*one):
                yield new
        best, seeds = self.ranked[0][1], self.tune.report
        self.reports += [self._trial_of(best, seed, "report") for seed in seeds]
        self.choice = self._make_choice(self.reports[0].key)
        yield self.reports

    def rounds(self) -> Iterator[Round | None]:
        """Yield rounds of points; None while waiting for another tuner's choice.

        The other tuner has the next smaller epsilon. The trials of a round must have
        results before the next round is requested.
        """
        yield self.grid(), 0
        self.ranked = self.rank_points(self.grid())
        ends, best = {"top": max, "bottom": min}, self.ranked[0][1]
        axes = {k: v for k, v in self.line.axes.items() if len(v) > 1}
        self.open = tuple(
            f"{key} {end}"
            for key, values in axes.items()
            if all(isinstance(value, int | float) for value in values)
            for end, outermost in ends.items()
            if best[key] == outermost(values)
        )

    def seeds(self, rung: int) -> Sequence[int]:
        """Return the seeds of a rung; higher rungs include the seeds of lower ones."""
        return self.tune.seeds

    def expected_trials(self) -> int:
        """Return the number of trials; for a search, an upper bound."""
        tuning = grid_size(self.line.axes, self.tune.aside) * len(self.tune.seeds)
        if self.tune.search:
            tuning = self.tune.search.trials
        return tuning + len(self.tune.report)

    def _make_choice(self, reported: str) -> Choice:
        """Return the choice of the best point among the ranked points."""
        (_, best), *others = self.ranked
        finals, lead = self.finals_of(best), None
        if others and len(finals) > 1 and math.isfinite(others[0][0]):
            lead = bootstrap_interval(finals, self.finals_of(others[0][1]))
        # If all trials diverged, the choice says nothing about values beyond it.
        why = self.open if math.isfinite(mean_of(finals)) else ()
        tried = tuple(one.key for one in self._tried.values())
        whole = (self.line, best, finals, len(self.rungs), lead, why)
        return Choice(*whole, tuple(self.starts), tried, reported)

    def example(self, phase: str) -> Trial:
        """Return a typical trial of a phase, in which every axis has its first value.

        The values that will be chosen are not known yet.
        """
        seeds = self.tune.report if phase == "report" else self.tune.seeds
        first = {key: values[0] for key, values in self.line.axes.items()}
        return self._trial_of(first, seeds[0], phase)

    def grid(self) -> Points:
        """Return the points of the grid."""
        return grid_points(self.line.axes, self.tune.aside)

    def _new_trials(self, points: Points, rung: int) -> list[Trial]:
        """Return the trials of a round that no earlier round included."""
        new = {
            (*point.items(), seed): self._trial_of(point, seed, "tune")
            for point in points
            for seed in self.seeds(rung)
            if (*point.items(), seed) not in self._tried
        }
        self._tried |= new
        for key in map(key_of, points):
            self.rungs[key] = max(rung, self.rungs.get(key, rung))
        return [*new.values()]

    def _trial_of(self, point: Point, seed: int, phase: str) -> Trial:
        rows = self.n_checkpoints if phase == "report" else TUNING_CHECKPOINTS
        return self.line.setting(**point).trial(seed, rows, phase)

    def own_seeds(self, point: Point) -> Sequence[int]:
        """Return the seeds on which a point was tried."""
        rung = self.rungs.get(key_of(point))
        return () if rung is None else self.seeds(rung)

    def finals_of(self, point: Point, rung: int | None = None) -> tuple[float, ...]:
        """Return the results of a point on the seeds of a rung, by default its own."""
        seeds = self.own_seeds(point) if rung is None else self.seeds(rung)
        keys = (self._tried[(*point.items(), seed)].key for seed in seeds)
        by, lost = self.tune.quantity, math.inf
        return tuple(
            round_final(self.finals.get(key, {}).get(by, lost)) for key in keys
        )

    def mean(self, point: Point, rung: int | None = None) -> float:
        """Return the mean result of a point on a rung's seeds, by default its own."""
        return mean_of(self.finals_of(point, rung))

    def rank_points(self, points: Iterable[Point], rung: int | None = None) -> Ranked:
        """Return pairs of mean and point, best first; ties keep their order."""
        ranked = [(self.mean(point, rung), point) for point in points]
        return sorted(ranked, key=itemgetter(0))


Array = np.ndarray[Any, np.dtype[np.float64]]

NEAR, CUBE = 2.0, 256
"""Two constants of fitted surfaces.

The first is the largest distance of the results to which a surface is fitted, in radii.
The second is the number of points at which the surface is evaluated.
"""


def neighbouring_points(
    space: Mapping[str, Axis], best: Point, factor: float
) -> Iterator[Point]:
    """Yield the points that differ from the best point in one parameter, by a factor.

    Parameters
    ----------
    space : mapping of str to Axis
        The values of each parameter.
    best : dict
        The best point so far.
    factor : float
        Ratio to the neighbouring values.
    """
    for key, axis in space.items():
        for value in axis.values_beside(best[key], factor):
            yield {**best, key: value}


def traded_points(
    space: Mapping[str, Axis], best: Point, factor: float, power: int = 1
) -> Iterator[Point]:
    """Yield the points in which one parameter is lower and another is higher.

    Good settings often lie along such directions. Longer runs need shorter steps, and
    so do larger clipping thresholds, which have larger noise. A larger threshold may
    need a step that is smaller by the square of its factor.

    Parameters
    ----------
    space : mapping of str to Axis
        The values of each parameter.
    best : dict
        The best point so far.
    factor : float
        Factor by which one parameter changes.
    power : int
        The other parameter changes by ``factor**power``.
    """
    near, far = (
        {
            key: [*axis.values_beside(best[key], times)]
            for key, axis in space.items()
            if axis.orders(best[key])
        }
        for times in (factor, factor**power)
    )
    for (down, up), (one, other) in product(
        [(near, far), (far, near)], permutations(near, 2)
    ):
        for low, high in product(down[one], up[other]):
            if low < best[one] and high > best[other]:
                yield {**best, one: low, other: high}


def sobol_points(
    space: Mapping[str, Axis], best: Point, factor: float, count: int, seed: int
) -> Iterator[Point]:
    """Yield scrambled Sobol points of a cube around the best point.

    Parameters
    ----------
    space : mapping of str to Axis
        The values of each parameter.
    best : dict
        The best point so far.
    factor : float
        Largest ratio of a value to the value of the best point.
    count : int
        Number of points.
    seed : int
        Seed of the scrambling.
    """
    # Imported here because it takes half a second.
    from scipy.stats import qmc

    points = qmc.Sobol(len(space), scramble=True, rng=seed).random(count)
    for shares in points.tolist():
        near = zip(space.items(), shares, strict=True)
        yield best | {k: axis.value_near(best[k], factor, u) for (k, axis), u in near}


def points_onward(
    space: Mapping[str, Axis], before: Point, best: Point
) -> Iterator[Point]:
    """Yield two points that lie once and twice as far as the last round's move.

    The move is in the direction from `before` to `best`. The steps of a search thus
    become longer if the best setting is many radii away.

    Parameters
    ----------
    space : mapping of str to Axis
        The values of each parameter.
    before : dict
        The best point before the last round.
    best : dict
        The best point now.
    """
    level = {
        key: (axis.level(before[key]), axis.level(best[key]))
        for key, axis in space.items()
        if all(axis.orders(one[key]) and one[key] for one in (before, best))
    }
    for times in (1.0, 2.0) if before != best else ():
        moved = {
            key: space[key].value_at(new + times * (new - old))
            for key, (old, new) in level.items()
            if new != old
        }
        if moved:
            yield {**best, **moved}


class Tried(NamedTuple):
    """A point that was tried, the mean of its results, and its number of seeds."""

    point: Point
    mean: float
    seeds: int


def modelled_points(
    space: Mapping[str, Axis],
    best: Point,
    tried: Sequence[Tried],
    factor: float,
    count: int,
) -> Iterator[Point]:
    """Yield `count` new points near the best point, where a fitted surface is lowest.

    The surface is a quadratic in the logarithms of the parameters, fitted to the points
    that were tried nearby. The choice of a new point thus uses many trials at other
    points. If too few points were tried to fit the coefficients, nothing is yielded.

    Parameters
    ----------
    space : mapping of str to Axis
        The values of each parameter.
    best : dict
        The best point so far.
    tried : sequence of Tried
        The points that were tried, with their results.
    factor : float
        Largest ratio of a value to the value of the best point.
    count : int
        Largest number of points to yield.
    """
    # Imported here because it takes half a second.
    from scipy.stats import qmc

    def place_of(point: Point) -> list[float] | None:
        """Return the coordinates of a point in radii; None if it has no coordinates."""
        if not all(space[k].orders(point[k]) and point[k] for k in keys):
            return None
        if any(point[k] != best[k] for k in space.keys() - keys):
            return None
        return [(space[k].level(point[k]) - origin[k]) / step[k] for k in keys]

    keys = [k for k, axis in space.items() if axis.orders(best[k]) and best[k]]
    origin = {key: space[key].level(best[key]) for key in keys}
    step = {key: space[key].steps(factor) for key in keys}
    rows = [
        (place, one)
        for one in tried
        if math.isfinite(one.mean) and (place := place_of(one.point)) is not None
        if max(map(abs, place), default=0.0) <= NEAR
    ]
    surface = _fit_quadratic(*zip(*rows, strict=True)) if keys and rows else None
    if surface is None:
        return
    known = {key_of(one.point) for one in tried}
    cube = 2.0 * qmc.Sobol(len(keys), scramble=False).random(CUBE) - 1.0
    lowest = cube[np.argsort(surface(cube), kind="stable")]
    points = (
        best
        | {
            k: space[k].value_at(origin[k] + u * step[k])
            for k, u in zip(keys, place, strict=True)
        }
        for place in lowest.tolist()
    )
    new = {key_of(one): one for one in points if key_of(one) not in known}
    yield from [*new.values()][:count]


def _fit_quadratic(
    places: Sequence[list[float]], rows: Sequence[Tried]
) -> Callable[[Array], Array] | None:
    """Return the quadratic fitted to the better half of results; None for too few."""
    d = len(places[0])
    terms = (d + 1) * (d + 2) // 2
    order = sorted(range(len(rows)), key=lambda row: rows[row].mean)
    kept = order[: max(2 * terms, len(order) // 2)]
    if len(kept) < 1.5 * terms:
        return None

    def features(at: Array) -> Array:
        products = [at[:, i] * at[:, j] for i in range(d) for j in range(i, d)]
        return np.column_stack([np.ones(len(at)), at, *products])

    # The variance of a mean is inversely proportional to its number of seeds.
    weights = np.sqrt([rows[row].seeds for row in kept])
    means = np.array([rows[row].mean for row in kept])
    known = features(np.array(places)[kept]) * weights[:, None]
    solution = np.linalg.lstsq(known, means * weights, rcond=1e-6)[0]
    return lambda at: np.asarray(features(at) @ solution)


HALF = -1
"""Rung of new points; they run on half of the seeds of the first rung."""

BEYOND = 3
"""Number of points beyond the choice for which trials are reserved."""

OUTWARD = 6
"""Largest number of settings at an end of the grid that are moved beyond that end."""

SOBOL = 2
"""Number of Sobol points in a wide round, besides the points of `traded_points`."""

APART = 4
"""Smallest ratio of the lengths of two runs at which the lengths count as different."""

POWERS = (1, 2)
"""Values of `power` for `traded_points`, which wide rounds use in turn."""

MODELLED = 2
"""Number of points that a fitted surface proposes in a round."""

BETTER, RACED = (5, 3), 4
"""Two constants of rounds.

The first contains the numbers of settings that run on the second and third number of
seeds. The second is the smallest number of trials for which a round is worthwhile.
"""

SHRINK, SMALLEST = 0.6, 1.42
"""Factor on the radius after a round without gain, and the smallest radius."""

SMALL, QUIET = 1.65, 2
"""Rounds around a point end after `QUIET` rounds without gain at radii <= `SMALL`."""


def half_up(count: int) -> int:
    """Return half of an integer, rounded up."""
    return math.ceil(count / 2)


def half_of(count: int) -> int:
    """Return the number of finalists that run on all seeds: half, but at least two."""
    return min(count, max(2, half_up(count)))


class PatternTuner(Tuner):
    """Tunes one line by a search: a grid, rounds near the best, a fitted surface.

    Settings are raced over seeds: better ones run on more seeds.

    Parameters
    ----------
    line, n_checkpoints, finals
        As for `Tuner`. In the line's `tune.search`, `race` lists the number of seeds of
        each rung, and `trials` is the number of trials to spend.
    ask : callable
        Returns the points of a round, see `Ask`.

    Attributes
    ----------
    space : dict from str to Axis
        The values of each parameter.
    first : Point or None
        The best of the grid and of the other starts; None until it is known.

    References
    ----------
    Hooke, Jeeves, "Direct search solution of numerical and statistical problems",
    Journal of the ACM 1961, on a lattice of powers; Jamieson, Talwalkar,
    "Non-stochastic best arm identification and hyperparameter optimization", AISTATS
    2016, for the race; Box, Wilson, "On the experimental attainment of optimum
    conditions", Journal of the Royal Statistical Society B 1951, for the surface.
    """

    def __init__(
        self, line: FitLine, n_checkpoints: int, finals: Finals, ask: Ask
    ) -> None:
        super().__init__(line, n_checkpoints, finals)
        assert self.tune.search is not None
        self.search, self.space = self.tune.search, space_of(line)
        self.ask, self._last = ask, len(self.search.race) - 1
        self.first: Point | None = None
        self.number = 0

    def seeds(self, rung: int) -> Sequence[int]:
        """Return the seeds that the race uses on a rung."""
        race = self.search.race
        return self.tune.seeds[: half_up(race[0]) if rung == HALF else race[rung]]

    def rounds(self) -> Iterator[Round | None]:
        """Yield the rounds of a search, from its starting points to the finalists.

        The starting points are the grid, the rule's setting, the best of the next
        smaller epsilon, and runs of one or two steps. These short runs begin on few
        seeds, and the better ones continue on more. Next are points near the best, and
        points that a fitted surface proposes.
        """
        count, smaller = self.search.finalists, self.smaller
        yield self._race_points(self.grid(), 0)
        while smaller is not None and smaller.choice is None:
            yield None
        of_smaller = f"from epsilon={smaller.epsilon:g}" if smaller else ""
        self.starts = {
            "auto": self._setting_of_rule(),
            of_smaller: self.warm_starts(),
        }
        yield self._race_points(self._allowed_of(chain(*self.starts.values())), 0)
        self.starts["1 and 2 steps"] = short = self._allowed_of(self._short_runs())
        yield self._race_points(short, HALF)
        yield self._race_points(self._better_half(short), 0)
        self.starts = {
            name: tried
            for name, points in self.starts.items()
            if (tried := [one for one in points if key_of(one) in self.rungs])
        }
        first = self._best_point(0)
        if self.mean(first) == math.inf:
            # All settings are refused or diverge, so there is no direction to search.
            self.ranked = [(math.inf, first)]
            return
        yield from self._points_beyond_grid()
        yield self._race_points(self._best_points(count, 0), 1)
        self.first = best = self._best_point()
        # Rounds follow runs of similar length. As short runs may be as good as long
        # runs, rounds are repeated for each length.
        seen, moved, others = list[Point](), list[tuple[Point, Point | None]](), [best]
        while others:
            best, before = yield from self._rounds_near(others[0], seen)
            seen.append(best)
            moved.append((best, before))
            known = [dict(key) for key in self.rungs]
            others = [one for one in known if self._is_of_other_length(one, seen)]
            others = [one for _, one in self.rank_points(others)]
        yield from self._rounds_by_model()
        beyond = [
            point
            for one in self._best_points(count, 1)
            for point in self._points_beyond(one)
        ]
        yield self._race_points(beyond, 0)
        yield self._race_points(self._best_points(count, 0), 1)
        yield from self._last_races()
        moving = yield from self._rounds_beyond_choice()
        chosen = self.ranked[0][1]
        moving |= not self.number
        own = [one for one in moved if not self._is_of_other_length(chosen, [one[0]])]
        moving |= any(
            before and (before == best or self._is_better(chosen, before))
            for best, before in own
        )
        values = {k: {dict(one)[k] for one in self.rungs} for k in self.tune.aside}
        untried = [f"{key} untried" for key, tried in values.items() if len(tried) < 2]
        ends = [*self._ends_of_point(chosen)]
        ends = [one for one in ends if f"{one.split()[0]} untried" not in untried]
        self.open = (*ends, *untried, *["trials"] * moving)

    def _rounds_near(
        self, best: Point, seen: Points
    ) -> Generator[Round, None, tuple[Point, Point | None]]:
        """Yield rounds around a point, until they stop gaining or trials run out.

        Return the best point, and a second point. If trials ran out while rounds still
        gained, the second point is the previous best point, else it is None. Without
        any round both points are equal.

        Parameters
        ----------
        best : Point
            The point at which the rounds start.
        seen : list of Point
            Runs with about the same length as one of these points are not continued.
        """

        def best_points(count: int, rung: int) -> Points:
            own = self._best_points(len(self.rungs), rung)
            return [one for one in own if self._is_of_other_length(one, seen)][:count]

        before, gained, wide, quiet = best, True, 0, 0
        radius, powers = self.search.radius, cycle(POWERS)
        while quiet < QUIET:
            points = self._points_of_round(before, best, radius, wide)
            if points is None:
                return best, before if gained else None
            yield self._race_points(points, HALF)
            yield self._race_points(self._better_half(points), 0)
            yield self._race_points(best_points(BETTER[0], 0), 1)
            yield self._race_points(best_points(BETTER[1], 1), 2)
            before, best = best, next(iter(best_points(1, 1)), best)
            gained = self._is_gain(before, best)
            done = not gained and wide > 0
            # If the neighbours bring no gain, the next round is wide.
            wide = 0 if gained or wide else next(powers)
            if done:
                quiet += radius <= SMALL
                radius = max(SHRINK * radius, SMALLEST)
        return best, None

    def _is_of_other_length(self, point: Point, seen: Points) -> bool:
        """Return whether a run differs in length from all runs in `seen` (`APART`)."""
        own, *others = (
            max(1, self.line.setting(**one).batch_key.iterations())
            for one in (point, *seen)
        )
        return all(not 1 / APART < own / one < APART for one in others)

    def _setting_of_rule(self) -> Points:
        """Return the setting that the line's rule gives; empty without a rule."""
        line, given = self.line, self.line.params
        algorithm = algorithm_of(line.algorithm)
        autos = {key: AUTO for key in self.space if algorithm.is_ruled(key, AUTO)}
        if not autos:
            return []
        where = line.problem, line.budget
        params, told = by_rule(
            line.algorithm, {**given, **autos}, *where, also=["clip"]
        )
        if not told:
            return []
        solver = algorithm.solver(params)
        return [{key: getattr(solver, key) for key in self.space}]

    def _short_runs(self) -> Iterator[Point]:
        """Yield runs of one and two steps, as starting points of the search.

        One other parameter at a time gets another value, from the grid or below it.
        Values below the grid are needed because runs are short if the noise is large.
        """
        length = next((key for key in LENGTHS if key in self.space), "")
        if not length or not (axis := self.space[length]).numeric:
            return
        others = [key for key in self.space if key != length]
        values = {key: self._values_from_least(key) for key in others}
        middle = {key: own[len(own) // 2] for key, own in values.items()}
        varied = [middle, *({**middle, k: v} for k in values for v in values[k])]
        usual = min(filter(None, axis.values))
        for steps, point in product(SHORTEST, varied):
            whole = {**dict.fromkeys(self.space), **point}
            with contextlib.suppress(UsageError):
                counted = self.line.setting(**{**whole, length: usual}).batch_key
                value = usual * steps / max(1, counted.iterations())
                value = max(1, round(value)) if axis.integer else value
                if axis.low <= value <= axis.high:
                    yield {**whole, length: value}

    def _values_from_least(self, key: str) -> list[Any]:
        """Return the values of the grid, sorted, after an additional smaller value.

        Values that are not numbers are returned as they are.
        """
        axis = self.space[key]
        if not axis.numeric:
            return [*axis.values]
        values = sorted({*axis.values} - {None})
        if not values[0] or axis.is_outermost(values[0]):
            return values
        ratio = values[1] / values[0] if len(values) > 1 else self.search.radius
        return [axis.value_at(axis.level(values[0] / ratio)), *values]

    def _allowed_of(self, points: Iterable[Point]) -> Points:
        """Return the distinct starting points that the solver and the limits allow.

        A rule may give a value beyond the usual limit of a length; such a start is
        kept.
        """
        axes, able = (
            [(key, self.space[key]) for key in self.tune.limits],
            dict[Key, Any](),
        )
        for point in points:
            within = all(
                axis.orders(point[key]) and axis.low <= point[key] <= axis.high
                for key, axis in axes
            )
            with contextlib.suppress(UsageError):
                if not self.line.setting(**point).batch_key.refusal() and within:
                    able[key_of(point)] = point
        return [*able.values()]

    def _better_half(self, points: Points) -> Points:
        """Return the better half of the points that were tried."""
        better = self.rank_points(one for one in points if key_of(one) in self.rungs)
        return [point for _, point in better[: half_up(len(better))]]

    def _trials_left(self, kept: int | None = None) -> int:
        """Return the number of trials that are left, without those reserved for later.

        By default the trials of the last races are reserved.
        """
        if kept is None:
            kept = self._trials_for_races() if self.rungs else 0
        return self.search.trials - len(self._tried) - kept

    def _race_points(self, points: Points, rung: int, kept: int | None = None) -> Round:
        """Return a round with the first points, as many as the trials left allow.

        ``kept`` trials are reserved for later; by default the trials of the last races.
        """
        left, seeds = self._trials_left(kept), len(self.seeds(rung))
        costs = (max(0, seeds - len(self.own_seeds(point))) for point in points)
        return points[: sum(total <= left for total in accumulate(costs))], rung

    def _trials_for_races(self) -> int:
        """Return the number of trials that the last races would need now."""
        race = self.search.race
        seeds = [len(self.own_seeds(one)) for one in self._final_points()]
        # Finalists that are not known yet will have run on the first seeds only.
        seeds += [race[0]] * (self.search.finalists - len(seeds))
        few = sum(max(0, race[-2] - known) for known in seeds)
        return few + half_of(len(seeds)) * (race[-1] - race[-2]) + BEYOND * race[0]

    def _final_points(self) -> Points:
        """Return the finalists: the best starting point, and the best of all points."""
        best = self._best_points(self.search.finalists, 1) or self._best_points(1, 0)
        first = self.first or best[0]
        return [first, *(one for one in best if one != first)]

    def _best_points(self, count: int | None, rung: int) -> Points:
        """Return the best points among those that have reached a rung, best first."""
        points = [dict(key) for key, reached in self.rungs.items() if reached >= rung]
        return [point for _, point in self.rank_points(points)[:count]]

    def _best_point(self, rung: int = 1, other: Point | None = None) -> Point:
        """Return the best point of a rung, or else `other`, or else the best of all."""
        best = self._best_points(1, rung)
        return best[0] if best else other or self._best_points(1, 0)[0]

    def rank_points(self, points: Iterable[Point], rung: int | None = None) -> Ranked:
        """Return pairs of mean and point, best first.

        The mean is over a rung's seeds, or over all seeds of the point. Among equal
        means, the shorter run is first, then the run that was tried earlier.
        """
        places = {key: place for place, key in enumerate(self.rungs)}

        def order(point: Point) -> tuple[int, int]:
            setting = self.line.setting(**point)
            return setting.batch_key.iterations(), places[key_of(point)]

        return super().rank_points(sorted(points, key=order), rung)

    def _points_beyond_grid(self) -> Iterator[Round]:
        """Yield points beyond the grid, while the best point lies on its edge."""
        before, best = math.inf, self._best_point(0)
        while self.mean(best) < before:
            before = self.mean(best)
            points = chain(*(self._move_outward(best, key) for key in self.space))
            new = [one for one in points if key_of(one) not in self.rungs]
            yield self._race_points([*filter(self._is_allowed, new)], 0)
            best = self._best_point(0)

    def _move_outward(self, best: Point, key: str) -> Iterator[Point]:
        """Yield the best settings at an end of the grid, moved one step beyond it.

        Lengths of runs are not moved.
        """
        axis, end, tried = self.space[key], best[key], self._values_tried(key)
        values = sorted(filter(None, axis.values)) if axis.numeric else []
        if key in LENGTHS or len(values) < 2 or axis.is_outermost(end):
            return
        alike = [one for one in self._best_points(None, 0) if one[key] == end]
        steps = {max(tried): values[-1] / values[-2], min(tried): values[0] / values[1]}
        if end in steps:
            moved = axis.value_at(axis.level(end) + axis.steps(steps[end]))
            yield from ({**one, key: moved} for one in alike[:OUTWARD])

    def _points_of_round(
        self, before: Point, best: Point, radius: float, wide: int
    ) -> Points | None:
        """Return the new points of a round; None if the rounds must end.

        They end if too few trials are left, or if the best point has no finite result.
        """
        # A point costs about 1.5 times half of the first seeds; good points cost more.
        room = self._trials_left() - RACED
        affordable = int(room / (1.5 * len(self.seeds(HALF))))
        if self.mean(best) == math.inf or affordable < 2 * len(self.space):
            return None
        # The name includes the centre of the round, which may differ in another run.
        points = [spell_point(one) for one in (before, best)]

        def make() -> Iterator[Point]:
            if wide:
                seed = int(sha256_of(f"{self._case_digest()}:{self.number}")[:16], 16)
                yield from traded_points(self.space, best, radius, wide)
                yield from sobol_points(self.space, best, radius, SOBOL, seed)
            else:
                yield from points_onward(self.space, before, best)
                yield from neighbouring_points(self.space, best, radius)

        self.number += 1
        asked = self._ask_for_round([points, radius, wide], self.number - 1, make)
        return asked[:affordable]

    def _ask_for_round(
        self, what: list[Any], number: int, make: Callable[[], Iterator[Point]]
    ) -> Points:
        """Return the new points of a round; its name is a digest of its inputs."""
        name = sha256_of(canonical_json([self._case_digest(), *what]))
        asked = self.ask(name, number, lambda: [*make()])
        new = {key_of(one): one for one in asked if self._is_allowed(one)}
        return [one for key, one in new.items() if key not in self.rungs]

    def _is_allowed(self, point: Point) -> bool:
        """Return whether a point, possibly from a file, is in the search space."""
        starts = [*chain(*self.starts.values())]

        def may_be_tried(key: str) -> bool:
            value = point[key]
            same = [one for one in starts if type(one[key]) is type(value)]
            return self.space[key].holds(value) or value in [one[key] for one in same]

        whole = list(point) == [*self.space]
        with contextlib.suppress(UsageError):
            return (
                whole
                and all(map(may_be_tried, self.space))
                and bool(self.line.setting(**point))
            )
        return False

    def _is_gain(self, before: Point, after: Point) -> bool:
        """Return whether a new point is better by more than the tolerance."""
        old, new = map(self.finals_of, (before, after))
        known = len(new) > 1 and math.isfinite(mean_of(new))
        spread = statistics.stdev(new) if known else 0.0
        gain = mean_of(old) - mean_of(new)
        return before != after and gain > self.search.tolerance * spread

    def _is_better(self, point: Point, before: Point) -> bool:
        """Return whether a point is significantly better than an earlier point."""
        ours, theirs = map(self.finals_of, (point, before))
        if mean_of(ours) == math.inf or point == before:
            return False
        return mean_of(theirs) == math.inf or bootstrap_interval(ours, theirs)[1] < 0.0

    def _rounds_by_model(self) -> Iterator[Round]:
        """Yield points where a fitted surface is lowest, while the points improve."""
        radius, quiet = self.search.radius, 0
        while quiet < QUIET and self._trials_left() >= MODELLED * self.search.race[1]:
            best = self._best_point()
            known = map(dict, self.rungs)
            tried = [Tried(o, self.mean(o), len(self.own_seeds(o))) for o in known]
            lowest = partial(modelled_points, self.space, best, tried, radius, MODELLED)
            named = ["surface", spell_point(best), len(tried)]
            points = self._ask_for_round(named, 0, lowest)
            if not points:
                return
            yield self._race_points(points, 1)
            yield self._race_points(self._best_points(BETTER[1], 1), 2)
            quiet = 0 if self._best_point() in points else quiet + 1

    def _last_races(self) -> Iterator[Round]:
        """Yield the rounds of the finalists, and rank the points that ran on all seeds.

        The finalists run on the second largest number of seeds, and the better half of
        them on all seeds. If each finalist diverges on some seed, the next best points
        are raced.
        """
        race, count, last = self.search.race, self.search.finalists, self._last
        finalists, rungs = self._final_points(), self.rungs
        self.ranked = self.rank_points(finalists[:1])
        while finalists:
            yield self._race_points(finalists, last - 1, race[-1] - race[-2])
            able = [one for one in finalists if rungs[key_of(one)] >= last - 1]
            better = [one for _, one in self.rank_points(able, last - 1)]
            yield self._race_points(better[: half_of(len(able))], last, 0)
            raced = self._best_points(len(rungs), last)
            self.ranked = self.rank_points(raced, last) if raced else self.ranked
            enough = math.isfinite(self.ranked[0][0]) or self._trials_left(0) < race[-1]
            others = self._best_points(count + len(finalists), 0)
            others = [one for one in others if rungs[key_of(one)] < last - 1]
            finalists = [] if enough else others[:count]

    def _rounds_beyond_choice(self) -> Generator[Round, None, bool]:
        """Yield points beyond the choice, while it lies on an outermost value tried.

        Then rank the points with all seeds again. Return True if a point beyond the
        choice was better on fewer seeds, but no trials were left to run it on more
        seeds.
        """
        rungs = self.rungs
        while beyond := self._points_beyond(self.ranked[0][1]):
            mean, better, rung = self.ranked[0][0], beyond, 0
            while better and rung <= self._last:
                yield self._race_points(better, rung, 0)
                able = [p for p in better if rungs.get(key_of(p), HALF) >= rung]
                if not able:
                    return rung > 0
                order = self.rank_points(able, rung)
                better = [point for lower, point in order[:1] if lower < mean]
                rung += 1
            self.ranked = self.rank_points(self._best_points(len(rungs), self._last))
        return False

    def _values_tried(self, key: str) -> set[Any]:
        """Return the tried values of a parameter; on a numeric axis, only numbers."""
        axis, tried = self.space[key], {dict(one)[key] for one in self.rungs}
        return {v for v in tried if axis.orders(v)} if axis.numeric else tried

    def _ends_of_point(self, point: Point) -> Iterator[str]:
        """Yield the parameters in which a point has a limit or outermost tried value.

        The name of each parameter is followed by `limit`, `top` or `bottom`.
        """
        for key, axis in self.space.items():
            value, tried = point[key], self._values_tried(key)
            if axis.numeric and not axis.is_outermost(value):
                ends = {"top": max(tried), "bottom": min(tried)}
                at = ["limit"] * axis.is_at_limit(value)
                at += [end for end, outermost in ends.items() if outermost == value]
                yield from (f"{key} {end}" for end in at[:1])

    def _points_beyond(self, point: Point) -> Points:
        """Return the neighbours of a point that lie beyond all values tried."""
        ends = {end.partition(" ")[0] for end in self._ends_of_point(point)}
        return [
            one
            for one in neighbouring_points(self.space, point, SMALLEST)
            if any(one[key] not in self._values_tried(key) for key in ends)
            and self._is_allowed(one)
        ]

    def _case_digest(self) -> str:
        """Return a digest of everything on which the points of a search depend."""
        line = self.line
        algorithm = [identity_of(line.algorithm), line.base["algorithm"]["params"]]
        privacy = [line.budget, line.calibration]
        # The empty mapping keeps the names of rounds in existing folders.
        named = [line.problem.identity, algorithm, privacy, {}]
        axes = {k: [*map(plain_parameter, values)] for k, values in line.axes.items()}
        # The mark of limits (`given`) does not change trials, so it is left out.
        limits = {key: pair[:2] for key, pair in self.tune.limits.items()}
        how = [limits, self.tune.seeds, self.tune.quantity, self.search.ratio]
        # An empty list of warm starts is left out, which keeps existing digests.
        begun = [[*map(spell_point, self.warm_starts())]]
        return sha256_of(canonical_json([named, axes, how, *filter(None, begun)]))

    def warm_starts(self) -> Points:
        """Return the two best points of the same line at the next smaller epsilon."""
        if self.smaller is None or self.smaller.choice is None:
            return []
        best = [point for mean, point in self.smaller.ranked[:WARM] if mean < math.inf]
        return [{key: one[key] for key in self.space} for one in best]


def tuners_of(
    lines: Iterable[Line],
    n_checkpoints: int,
    finals: Finals,
    ask: Ask = lambda case, number, make: make(),
) -> list[Tuner]:
    """Return the tuners of the tuned lines, linked to those at smaller epsilons.

    Parameters
    ----------
    lines : iterable of Line
        Lines, of which only those that are tuned are used.
    n_checkpoints : int
        Number of checkpoints of a report trial.
    finals : mapping
        Final values of trials by key and quantity, which are added between stages.
    ask : callable
        Returns the points of a search's rounds, see `Ask`.
    """
    tuned = [x for x in lines if isinstance(x, FitLine) and x.tune is not None]
    of = n_checkpoints, finals
    tuners = [
        PatternTuner(line, *of, ask)
        if line.tune and line.tune.search
        else Tuner(line, *of)
        for line in tuned
    ]
    by_line: dict[str, list[Tuner]] = {}
    for tuner in tuners:
        by_line.setdefault(_without_epsilon(tuner), []).append(tuner)
    for same in by_line.values():
        for tuner in same:
            less = [one for one in same[::-1] if one.epsilon < tuner.epsilon]
            tuner.smaller = max(less, key=lambda one: one.epsilon, default=None)
    return tuners


def _without_epsilon(tuner: Tuner) -> str:
    """Return a key that is the same for lines that differ only in epsilon."""
    line = tuner.line
    ruled = line.rule.partition(": ")[2].split()
    params = {k: plain_parameter(v) for k, v in line.params.items() if k not in ruled}
    budget = {k: v for k, v in line.budget.items() if k != "epsilon"}
    what = [line.problem.identity, identity_of(line.algorithm), params, [*line.axes]]
    return canonical_json([line.label, *what, budget, line.calibration])
