"""The space of a search: what values its parameters may take.

A number lives on a lattice of powers, in the unit of its axis, so that searches ask for
few distinct values and these run together. Values that no lattice has (words, zero) are
those of the axis alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.experiment.parameters import algorithm_of
from dp_erm_bench.plugins.names import label

if TYPE_CHECKING:
    from dp_erm_bench.experiment.lines import FitLine

LENGTHS = ("n_iter", "passes", "n_epochs")
LONGEST = 16
"""Times the longest run of a grid: how long runs get where no limit says otherwise."""

SHAPE_RATIO, VALUE_RATIO = 2.0**0.5, 2.0**0.25
DIGITS = 6
"""Of a lattice's values: powers differ in the last digit from machine to machine."""

LARGEST = 1e15
"""No value of a lattice is as large."""

Point = dict[str, Any]


@dataclass(frozen=True)
class Axis:
    """The values of one parameter in a search.

    Attributes
    ----------
    values : tuple
        Those of the grid.
    unit : float
        What its multiples are of.
    ratio : float
        Of neighbours on the lattice.
    low, high : float
        Limits, in no unit; infinite without one.
    declared : tuple of bool
        Of each limit, whether it was set for the search: beyond others lies nothing.
    """

    values: tuple[Any, ...]
    unit: float = 1.0
    ratio: float = VALUE_RATIO
    low: float = -math.inf
    high: float = math.inf
    declared: tuple[bool, bool] = (False, False)

    @property
    def numeric(self) -> bool:
        """Return whether it has numbers of at least 0 only, and one above."""
        return all(type(v) in (int, float) and v >= 0 for v in self.values) and any(
            self.values
        )

    @property
    def integer(self) -> bool:
        """Return whether its numbers are integers."""
        return all(type(value) is int for value in self.values)

    def level(self, value: float) -> float:
        """Return a value's power of the ratio, an integer for one of the lattice."""
        return math.log(value / self.unit) / math.log(self.ratio)

    def steps(self, factor: float) -> float:
        """Return the lattice's steps to a value that is so many times larger."""
        return math.log(factor) / math.log(self.ratio)

    def at(self, level: float) -> Any:
        """Return the lattice's value next to a level, a limit if it lies beyond."""
        power = self.ratio ** round(level)
        if self.integer:
            value: float = max(1, round(power))
        else:
            value = self.unit * float(f"{power:.{DIGITS}g}")
        within = min(max(value, self.low), self.high)
        return int(within) if self.integer else within

    def centre(self, value: float, factor: float) -> float:
        """Return the level around which values near one are looked for.

        Zero has none: below the least of the grid.
        """
        if value > 0.0:
            return self.level(value)
        least = min(one for one in self.values if one > 0)
        return self.level(least) - self.steps(factor)

    def beside(self, value: Any, factor: float) -> Iterator[Any]:
        """Yield the values next to one: down and up by a factor, or all the others."""
        if not self.numeric:
            yield from (other for other in self.values if other != value)
            return
        if not value:
            yield self.at(self.centre(value, factor))
            return
        for way in (-1, 1):
            level = round(self.level(value))
            last = round(self.level(value) + way * self.steps(factor))
            beside = self.at(last)
            # Neighbours of a small integer may round to itself.
            while beside == value and abs(last - level) < 16:
                last += way
                beside = self.at(last)
            if beside != value:
                yield beside

    def near(self, value: Any, factor: float, share: float) -> Any:
        """Return a value within a factor of one, for a share in [0, 1)."""
        if self.numeric and value:
            return self.at(self.level(value) + self.steps(factor) * (2.0 * share - 1.0))
        if share < 0.5:
            return value
        share = 2.0 * share - 1.0
        if self.numeric:
            width = self.steps(factor) * (2.0 * share - 1.0)
            return self.at(self.centre(value, factor) + width)
        others = [other for other in self.values if other != value] or [value]
        return others[int(share * len(others))]

    def holds(self, value: Any) -> bool:
        """Return whether a value is one that a search may try."""
        if any(value == one and type(value) is type(one) for one in self.values):
            return True
        if not self.numeric or type(value) is not (int if self.integer else float):
            return False
        if value in (self.low, self.high):
            return True
        inside = max(self.low, 0) < value < min(self.high, LARGEST)
        return inside and bool(value == self.at(self.level(value)))

    def limited(self, value: Any) -> bool:
        """Return whether a value lies on a limit that was set for the search."""
        low, high = self.declared
        return bool((low and value == self.low) or (high and value == self.high))

    def last(self, value: Any) -> bool:
        """Return whether nothing lies beyond a value, by what the parameter means."""
        low, high = self.declared
        bottom = value <= 1 if self.integer else not value
        bottom = bottom or (value == self.low and not low)
        return bool(bottom or (value == self.high and not high))


def space_of(line: FitLine) -> dict[str, Axis]:
    """Return the axes of a line's search, with limits and lattice.

    Raises
    ------
    UsageError
        If a limit is none of the parameter's, or a value of the grid lies beyond it.
    """
    assert line.tune is not None and line.tune.search is not None
    ratios, limits = line.tune.search.ratio, line.tune.limits
    kinds = algorithm_of(line.algorithm).kinds
    axes = {}
    for key, values in line.axes.items():
        usual = VALUE_RATIO if kinds[key] == "value" else SHAPE_RATIO
        ratio = ratios.get(key, ratios.get("default", usual))
        axis = Axis(values, line.units.get(key, 1.0), ratio)
        axes[key] = _limited(axis, line, key, limits.get(key))
    return axes


def _limited(axis: Axis, line: FitLine, key: str, limits: Any) -> Axis:
    """Return an axis with the limits of its field, or those that are declared."""
    least, above, most = algorithm_of(line.algorithm).limits(key)
    least = max(least, 0.0)
    if limits is None:
        longest = LONGEST * max(axis.values) if axis.numeric else math.inf
        if key in LENGTHS and longest < most:
            return replace(axis, low=least, high=longest, declared=(False, True))
        return replace(axis, low=least, high=most)
    given = f"tune.limits.{key}=[{limits[0]:g}, {limits[1]:g}]"
    if not axis.numeric:
        raise UsageError(f"{given}: must be left out, {key} has values without order")
    low, high = (limit * axis.unit for limit in limits)
    if axis.integer and not all(limit.is_integer() for limit in limits):
        raise UsageError(f"{given}: must be two integers, as {key} must be one")
    if low < least or low <= above or high > most:
        allowed = f"> {above:g}" if above >= least else f">= {least:g}"
        bound = f" and <= {most:g}" if math.isfinite(most) else ""
        name = f"algorithm.{label(line.algorithm)}.{key}"
        raise UsageError(f"{given}: must be {allowed}{bound}, as {name} must")
    for value in axis.values:
        if value and not low <= value <= high:
            shown = f"{value / axis.unit:g}"
            raise UsageError(f"{given}: must hold its grid, which has {shown}")
    return replace(axis, low=low, high=high, declared=(True, True))
