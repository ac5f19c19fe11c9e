"""The moves of a search: the points that it tries next, around its best one."""

from collections.abc import Iterator, Mapping
from itertools import permutations, product
from typing import Any

from dp_erm_bench.experiment.space import Axis, Point


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
