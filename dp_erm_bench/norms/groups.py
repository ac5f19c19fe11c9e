"""Norms from groups of coordinates, disjoint or overlapping."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError, real_number, value_error
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.norms.base import Array, Indices, dinkelbach
from dp_erm_bench.norms.extreme import MOST
from dp_erm_bench.norms.sums import SumOfMaxima, largest_mean

NAMED = 12
"""Largest number of coordinates that a message lists."""


@dataclass(frozen=True)
class GroupNorm(SumOfMaxima):
    """The norm sum_G w_G max_G |w|; F(A) is the sum of w_G over groups that A meets.

    Parameters
    ----------
    groups : sequence of sequences of int
        Coordinates from 0; groups may overlap.
    weights : sequence of float, optional
        The weights w_G > 0, one per group; if null, all are 1.
    uncovered : {'refused', 'free'}
        Whether a coordinate in no group is refused, or is free, with the penalty 0.
    """

    groups: Any = None
    weights: Any = None
    uncovered: str = "refused"

    def __post_init__(self) -> None:
        """Check the groups and the weights; keep them as tuples."""
        object.__setattr__(self, "groups", _checked_groups(self.groups))
        weights = _checked_weights(self.weights, len(self.groups))
        object.__setattr__(self, "weights", weights)
        if self.uncovered not in ("refused", "free"):
            raise value_error("uncovered", self.uncovered, "refused or free")

    def check_features(self, p: int) -> None:
        """Raise UsageError for indices >= p, or coordinates in no group if refused."""
        for number_, group in enumerate(self.groups):
            if max(group) >= p:
                raise UsageError(
                    f"groups={list(group)}: group {number_} has index {max(group)}; "
                    f"there are p={p} features, so that indices end at {p - 1}"
                )
        out = sorted(set(range(p)) - set(self.index.tolist()))
        if out and self.uncovered == "refused":
            shown = ", ".join(map(str, out[:NAMED])) + ", ..." * (len(out) > NAMED)
            raise UsageError(
                f"groups: no group has coordinate {shown}, whose penalty would be 0; "
                "add groups, or say uncovered=free"
            )

    @functools.cached_property
    def index(self) -> Indices:
        """Return the coordinates of all groups, group after group, shape (m,)."""
        return np.concatenate([np.array(g, dtype=np.int64) for g in self.groups])

    @functools.cached_property
    def starts(self) -> Indices:
        """Return the start of each group in ``index``, then the end of the last one."""
        return np.cumsum([0, *map(len, self.groups)])

    @functools.cached_property
    def disjoint(self) -> bool:
        """Return whether no coordinate is in two groups."""
        return len(set(self.index.tolist())) == self.index.size

    @property
    def exact_reach(self) -> bool:  # type: ignore[override]
        """Return whether the groups are disjoint."""
        return self.disjoint

    def gains(self, order: Indices) -> Array:
        """Return the weight of all groups in which each coordinate comes first."""
        rank = np.argsort(order, axis=-1)
        first = np.minimum.reduceat(rank[..., self.index], self.starts[:-1], axis=-1)
        gains = np.zeros(order.shape)
        rows = gains.reshape(-1, order.shape[-1])
        for row, places in zip(rows, first.reshape(len(rows), -1), strict=True):
            np.add.at(row, places, self.weights)
        return gains

    def structure(self, w: Array) -> dict[str, Any]:
        """Return `active_groups`, the number of groups with a nonzero entry."""
        there = (w != 0.0)[:, self.index]
        active = np.logical_or.reduceat(there, self.starts[:-1], axis=1)
        return {"active_groups": np.count_nonzero(active, axis=1)}

    def value(self, w: Array) -> Any:
        """Return sum_G w_G max_G |w|, shape (...) for w of shape (..., p)."""
        sizes = np.abs(w)[..., self.index]
        return np.maximum.reduceat(sizes, self.starts[:-1], axis=-1) @ np.array(
            self.weights, dtype=sizes.dtype
        )

    def dual(self, s: Array) -> tuple[float, NDArray[np.bool_]]:
        """Return max_G norm1(s_G) / w_G for disjoint groups, else a close bound."""
        size, out = np.abs(s), np.ones(s.size, dtype=bool)
        out[self.index] = False
        if (size[out] > 0.0).any():
            return math.inf, out
        if not self.disjoint:
            rho, mask, left = dinkelbach(self, s)
            return rho + self._dual_bound(np.abs(left)), mask
        ratios = self._ratios_of(size)
        mask = np.zeros(s.size, dtype=bool)
        mask[list(self.groups[int(ratios.argmax())])] = True
        return float(ratios.max()), mask

    def _ratios_of(self, size: Array) -> Array:
        sums = np.add.reduceat(size[self.index], self.starts[:-1])
        return np.asarray(sums / np.array(self.weights))

    def _dual_bound(self, size: Array) -> float:
        """Return a bound on the dual norm; each coordinate counts in one group only.

        This is the first group that contains the coordinate.
        """
        _, once = np.unique(self.index, return_index=True)
        alone = np.zeros(self.index.size)
        alone[once] = size[self.index[once]]
        sums = np.add.reduceat(alone, self.starts[:-1])
        return float((sums / np.array(self.weights)).max())

    def sweeper(self, z: Array, tau: float) -> Callable[[int], Array]:
        """Return a function that makes sweeps; disjoint groups need only one."""
        from dp_erm_bench.kernels.structured import group_sweeps  # compiled

        left, parts = z.copy(), np.zeros(self.index.size)
        caps = tau * np.array(self.weights)

        def sweep(count: int) -> Array:
            group_sweeps(left, parts, (self.index, self.starts), caps, count)
            return left

        return sweep

    def shrink(self, z: Array, tau: float) -> Array:
        """Return the prox: for disjoint groups, z minus its projections on L1 balls."""
        return self.sweeper(z, tau)(1) if self.disjoint else super().shrink(z, tau)

    def reach(self, p: int) -> float:
        """Return norm2 of the weights for disjoint groups, else a bound on R_K."""
        weights = np.array(self.weights)
        if self.disjoint:
            return float(norm2(weights))
        single = np.bincount(self.index, np.repeat(weights, np.diff(self.starts)))
        return math.sqrt(float(weights.sum()) * float(single.max()))

    def spread(self, p: int) -> float:
        """Return max_G sqrt|G| / w_G, a bound on the norm over Omega(w) <= 1.

        sqrt|A| is at most the sum of sqrt|G| over the groups that A meets. The bound is
        infinite if a coordinate is in no group.
        """
        if len(set(self.index.tolist())) < p:
            return math.inf
        sizes = np.sqrt(np.diff(self.starts))
        return float((sizes / np.array(self.weights)).max())

    def width(self, p: int) -> float:
        """Return the Gaussian width: the sum over groups G of w_G E max_G |g|."""
        largest = {n: largest_mean(n) for n in set(map(len, self.groups))}
        pairs = zip(self.weights, self.groups, strict=True)
        return math.fsum(w * largest[len(group)] for w, group in pairs)

    def greedy_points(self, p: int) -> Array | None:
        """Return the extreme points >= 0, with one entry in each disjoint group."""
        if not self.disjoint:
            return super().greedy_points(p)
        if math.prod(2.0 * len(group) for group in self.groups) > MOST:
            return None
        points = np.zeros((math.prod(map(len, self.groups)), p))
        rows = np.arange(len(points))
        for k, chosen in enumerate(zip(*itertools.product(*self.groups), strict=True)):
            points[rows, list(chosen)] = self.weights[k]
        return points

    def dense_sets(self, p: int) -> NDArray[np.bool_] | None:
        """Return the sets of extreme points: the groups, if these are disjoint."""
        if not self.disjoint:
            return super().dense_sets(p)
        if np.exp2([min(len(g), 64) for g in self.groups]).sum() > MOST:
            return None
        masks = np.zeros((len(self.groups), p), dtype=bool)
        for row, group in zip(masks, self.groups, strict=True):
            row[list(group)] = True
        return masks


def _checked_groups(groups: Any) -> tuple[tuple[int, ...], ...]:
    allowed = "a list of groups, each a list of different feature indices from 0"
    try:
        rows = [list(group) for group in groups if not isinstance(group, str)]
        kept = len(rows) == len(groups) > 0
    except TypeError:
        raise value_error("groups", groups, allowed) from None
    for row in rows:
        whole = all(_is_index(j) for j in row)
        kept &= whole and len(set(row)) == len(row) > 0
    if not kept:
        raise value_error("groups", groups, allowed)
    return tuple(tuple(int(j) for j in row) for row in rows)


def _is_index(j: Any) -> bool:
    whole = isinstance(j, int | np.integer) and not isinstance(j, bool)
    return whole and bool(j >= 0)


def _checked_weights(weights: Any, count: int) -> tuple[float, ...]:
    if weights is None:
        return (1.0,) * count
    allowed = f"{count} finite numbers > 0, one per group, or null for 1 each"
    if isinstance(weights, str) or not isinstance(weights, Sequence | np.ndarray):
        raise value_error("weights", weights, allowed)
    row = weights[0] if len(weights) == 1 and np.ndim(weights[0]) else weights
    reals = tuple(map(real_number, row))
    if len(reals) != count or not all(0.0 < w < math.inf for w in reals):
        raise value_error("weights", list(weights), allowed)
    return reals
