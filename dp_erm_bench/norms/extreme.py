"""List the extreme points of the unit balls of structured norms.

Sets of coordinates are boolean masks.
"""

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Masks = NDArray[np.bool_]

MOST = 10**5
"""Largest number of extreme points that are listed."""

LISTED = 16
"""Largest number of coordinates for which all sets are listed."""

# Relative to F(all): the difference that rounding may make.
ROUNDED = 1e-13


def extreme_sets(of_masks: Callable[[Masks], Array], p: int) -> Masks | None:
    """Return the sets A of the extreme points 1_A / F(A), with signs, as masks.

    The result is None if there are more than 10^5 such points, or if p is above 16.

    Parameters
    ----------
    of_masks : callable
        Returns the values of F, shape (m,), for masks of shape (m, p).
    p : int
        Number of coordinates.

    References
    ----------
    Bach, "Structured sparsity-inducing norms through submodular functions", NIPS 2010,
    Proposition 2: the sets that are stable and inseparable.
    """
    if p > LISTED:
        return None
    masks = all_masks(p)
    values = of_masks(masks)
    kept = _stable_sets(values, p)
    kept[0] = False
    if kept.sum() > MOST // 2:
        return None
    kept &= _inseparable_sets(values, p, kept)
    if np.exp2(masks[kept].sum(axis=1)).sum() > MOST:
        return None
    return masks[kept]


@functools.lru_cache(maxsize=4)
def all_masks(p: int) -> Masks:
    """Return masks of all subsets of p coordinates, shape (2^p, p), in binary order."""
    masks = ((np.arange(2**p)[:, None] >> np.arange(p)) & 1).astype(bool)
    masks.flags.writeable = False
    return masks


def greedy_points(of_masks: Callable[[Masks], Array], p: int) -> Array | None:
    """Return the distinct points >= 0 of the greedy algorithm over all orders.

    With all signs these are the extreme points of |P|(F). The result is None if there
    are more than 10^5 extreme points, or if p is above 16.

    If a coordinate adds nothing to F, it joins the set at once. It would add nothing
    later either, because F is submodular. So several orders lead to the same point, and
    only one of them is tried.
    """
    if p > LISTED:
        return None
    whole = float(of_masks(np.ones((1, p), dtype=bool))[0])
    found = {(0, (0.0,) * p)}
    for _ in range(p):
        grown: set[tuple[int, tuple[float, ...]]] = set()
        for number, point in found:
            grown |= set(_grow_sets(of_masks, p, number, point, ROUNDED * whole))
            if len(grown) > MOST:
                return None
        found = grown
    points = np.array(sorted({point for _, point in found}))
    return points if np.exp2((points > 0.0).sum(axis=1)).sum() <= MOST else None


def _grow_sets(
    of_masks: Callable[[Masks], Array],
    p: int,
    number: int,
    point: tuple[float, ...],
    least: float,
) -> Iterator[tuple[int, tuple[float, ...]]]:
    """Yield the sets and points that result from adding one coordinate to a set.

    A set is given by a number whose bits are its coordinates. The entries of its point
    are the gains of F. Coordinates that do not increase F are added at once.

    If no coordinate increases F, the set of all coordinates is yielded, with the given
    point.
    """
    mask = (number >> np.arange(p)) & 1 == 1
    gains = of_masks(mask | np.eye(p, dtype=bool)) - of_masks(mask[None, :])
    mask |= gains <= least
    if mask.all():
        yield (1 << p) - 1, point
    for j in map(int, np.flatnonzero(~mask)):
        joined = mask.copy()
        joined[j] = True
        # Equal up to rounding is equal.
        gain = float(f"{gains[j]:.12g}")
        bits = sum(1 << k for k in map(int, np.flatnonzero(joined)))
        yield bits, (*point[:j], gain, *point[j + 1 :])


def _stable_sets(values: Array, p: int) -> Masks:
    """Return a mask of the sets for which any further coordinate increases F."""
    numbers, kept = np.arange(2**p), np.ones(2**p, dtype=bool)
    for j in range(p):
        without = (numbers >> j) & 1 == 0
        grown = values[numbers | (1 << j)] - values
        kept &= ~without | (grown > ROUNDED * values[-1])
    return kept


def _inseparable_sets(values: Array, p: int, asked: Masks) -> Masks:
    """Return a mask of the sets that do not split into parts whose F add up."""
    kept = np.zeros(2**p, dtype=bool)
    for number in map(int, np.flatnonzero(asked)):
        members = [1 << j for j in range(p) if number >> j & 1]
        first, parts = members[0], np.zeros(1, dtype=np.int64)
        for bit in members[1:]:
            parts = np.append(parts, parts | bit)
        # The part with the first member, without the whole set.
        with_first = (parts | first)[:-1]
        room = values[with_first] + values[number & ~with_first] - values[number]
        kept[number] = bool((room > ROUNDED * values[-1]).all())
    return kept


def signed_points(points: Array) -> Array:
    """Return points >= 0 with all signs of their nonzero entries, shape (m, p)."""
    rows = [signed_vectors(point[None, :] > 0.0) * point for point in points]
    return np.concatenate(rows)


def signed_vectors(masks: Masks) -> Array:
    """Return all vectors with entries 1 and -1 on each set and 0 outside of it."""
    rows = []
    for mask in masks:
        signs = np.array(list(itertools.product((1.0, -1.0), repeat=int(mask.sum()))))
        row = np.zeros((len(signs), mask.size))
        row[:, mask] = signs
        rows.append(row)
    return np.concatenate(rows)
