"""The moves of a search: the points that it tries next, around its best one."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np

from dp_erm_bench.experiment.space import Axis, Point

Array = np.ndarray[Any, np.dtype[np.float64]]

NEAR, CUBE = 2.0, 256
"""Radii within which results tell of a surface; points at which it is looked at."""


def neighbours(
    space: Mapping[str, Axis], best: Point, factor: float
) -> Iterator[Point]:
    """Yield the points that differ from one in one parameter, by a factor."""
    for key, axis in space.items():
        for value in axis.beside(best[key], factor):
            yield {**best, key: value}


def trades(space: Mapping[str, Axis], best: Point, factor: float) -> Iterator[Point]:
    """Yield the points with one parameter up by a factor, and another one down.

    Good settings lie along such lines: longer runs want shorter steps, and so do larger
    thresholds with their noise.
    """
    beside: dict[str, tuple[list[Any], list[Any]]] = {}
    for key, axis in space.items():
        near = [*axis.beside(best[key], factor)] if axis.numeric else []
        lower = [value for value in near if value < best[key]]
        beside[key] = lower, [value for value in near if value > best[key]]
    for one, other in permutations(space, 2):
        for values in product(beside[one][0], beside[other][1]):
            yield {**best, **dict(zip((one, other), values, strict=True))}


def sobol(
    space: Mapping[str, Axis], best: Point, factor: float, count: int, seed: int
) -> Iterator[Point]:
    """Yield scrambled Sobol points of the cube around one, within a factor of it."""
    # Not at the top: it takes half a second.
    from scipy.stats import qmc

    points = qmc.Sobol(len(space), scramble=True, rng=seed).random(count)
    for shares in points.tolist():
        near = zip(space.items(), shares, strict=True)
        yield {
            **best,
            **{key: axis.near(best[key], factor, share) for (key, axis), share in near},
        }


def onward(space: Mapping[str, Axis], before: Point, best: Point) -> Iterator[Point]:
    """Yield the points as far again as the last round went, and twice as far.

    Where the best lies many radii away, steps grow with the way that led on.
    """
    level = {
        key: (axis.level(before[key]), axis.level(best[key]))
        for key, axis in space.items()
        if axis.numeric and before[key] and best[key]
    }
    for times in (1.0, 2.0) if before != best else ():
        moved = {
            key: space[key].at(new + times * (new - old))
            for key, (old, new) in level.items()
            if new != old
        }
        if moved:
            yield {**best, **moved}


class Tried(NamedTuple):
    """A point that was tried: the mean of its results, over so many seeds."""

    point: Point
    mean: float
    seeds: int


def modelled(
    space: Mapping[str, Axis],
    best: Point,
    tried: Sequence[Tried],
    factor: float,
    count: int,
) -> Iterator[Point]:
    """Yield `count` new points within a factor of one where a fitted surface is lowest.

    The surface is a quadratic in the logarithms of the parameters, fitted to what was
    tried near by: a point is judged by all of these trials, not by its own few. Where
    fewer points were tried than its coefficients need, there are none.
    """
    # Not at the top: it takes half a second.
    from scipy.stats import qmc

    keys = [key for key, axis in space.items() if axis.numeric and best[key]]
    others = space.keys() - keys
    origin = {key: space[key].level(best[key]) for key in keys}
    step = {key: space[key].steps(factor) for key in keys}
    known = {tuple(one.point.values()) for one in tried}
    places, rows = [], []
    for one in tried:
        point = one.point
        alike = all(point[key] == best[key] for key in others)
        if not alike or not math.isfinite(one.mean) or not all(map(point.get, keys)):
            continue
        place = [(space[k].level(point[k]) - origin[k]) / step[k] for k in keys]
        if max(map(abs, place), default=0.0) <= NEAR:
            places.append(place)
            rows.append(one)
    surface = _quadratic(np.array(places), rows) if keys else None
    if surface is None:
        return
    cube = 2.0 * qmc.Sobol(len(keys), scramble=False).random(CUBE) - 1.0
    for place in cube[np.argsort(surface(cube), kind="stable")].tolist():
        at = {
            k: space[k].at(origin[k] + u * step[k])
            for k, u in zip(keys, place, strict=True)
        }
        point = {**best, **at}
        if tuple(point.values()) not in known:
            known.add(tuple(point.values()))
            yield point
            count -= 1
        if not count:
            return


def _quadratic(places: Array, rows: Sequence[Tried]) -> Callable[[Array], Array] | None:
    """Return the quadratic nearest to the better half of results; None of too few."""
    d = places.shape[1]
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
    known = features(places[kept]) * weights[:, None]
    solution = np.linalg.lstsq(known, means * weights, rcond=1e-6)[0]
    return lambda at: np.asarray(features(at) @ solution)
