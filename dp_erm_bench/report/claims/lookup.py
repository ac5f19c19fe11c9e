"""Measures, and the runs that a claim names, on which they are taken.

Every measure is a number with its interval. What is independent are the report seeds of
a line on one data set; of several data sets the unit is the data set, as all runs on it
share its records and its chosen settings. The settings that were chosen are given: how
they were chosen adds nothing to an interval.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.report.curves import Finals, LineErrors, Missing, line_errors
from dp_erm_bench.report.figure import figures_of
from dp_erm_bench.report.lines import Computed, Noise, sources_of
from dp_erm_bench.report.scaling import Scaling, finals_along
from dp_erm_bench.results.columns import is_better_higher
from dp_erm_bench.results.statistics import (
    COMPARED,
    FLOOR,
    LIKELY,
    Estimate,
    Part,
    estimate_of_quantiles,
    estimate_sum,
    exact_estimate,
    unknown_estimate,
)

if TYPE_CHECKING:
    import pandas as pd

Claim = Mapping[str, Any]
RUNS, NOISE, NOTHING = "runs", "noise", "nothing"
"""Kinds of a claim's lines: runs of its panel, releases of its figure of noise, or
none."""

SMOKE, NOT_JUDGED, NOT_RUN = "smoke", "not judged", "not run"
VACUOUS, UNDECIDED, HOLDS, FAILS = "vacuous", "undecided", "holds", "fails"
VERDICTS = (NOT_JUDGED, NOT_RUN, VACUOUS, UNDECIDED, HOLDS, FAILS)
"""The first that applies is the verdict. The first of all is that of the profile smoke,
which only shows that all of it runs."""

UNJUDGED = (
    "profile smoke: it shows that all of it runs; verdicts would mean nothing, so that "
    "no claim is judged"
)
GIVEN = (
    "Intervals are of 95 %, over report seeds and data seeds; the chosen settings are "
    "given: what their choice adds is not in them."
)
WRONG = (1.0 - LIKELY) / 2
"""A verdict by an interval is wrong at most so often: one of its ends is beyond."""


def without_repetitions(reasons: Iterable[str]) -> list[str]:
    """Return reasons, each in words the first time only: how to get data is long."""
    every = [*reasons]
    return [
        "as above" if one and one in every[:place] else one
        for place, one in enumerate(every)
    ]


def by_chance(rows: Iterable[Mapping[str, str]]) -> str:
    """Return how many verdicts of claims.csv are wrong by chance, in a sentence.

    Parameters
    ----------
    rows : iterable of mapping
        Of claims.csv; the sentence is empty where none rests on an interval.
    """
    decided = [row for row in rows if row["verdict"] in (HOLDS, FAILS)]
    texts = [row.get("interval") or "" for row in decided]
    ends = [text.strip("[]").split(", ") for text in texts if text]
    random = sum(len(pair) == 2 and pair[0] != pair[1] for pair in ends)
    if not random:
        return ""
    return (
        f"{random} of {len(decided)} verdicts {HOLDS} or {FAILS} rest on such an "
        f"interval: at most {WRONG * random:.1f} of them are wrong by chance, on "
        "average."
    )


class Evidence(NamedTuple):
    """What decides a claim, and where.

    Attributes
    ----------
    estimate : Estimate
    at : float or None
        The passes, or the value of the axis, that decide; None for the last.
    bound : float
        A proved bound on the error there, not a number if the claim is of none.
    """

    estimate: Estimate
    at: float | None = None
    bound: float = math.nan


@dataclass(frozen=True, eq=False)
class Lookup:
    """Look up runs in a table by line.

    Attributes
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    config : mapping
        The experiment's resolved yaml.
    claim : mapping
        Its `figure` is the panel, or the family of panels; `epsilon` that of the runs,
        1 if not given; `statistic` averages the runs, their mean if not given.
    asked : list of Finals
        What measures averaged.
    seen : dict
        Runs that were looked up already, by what names them: of all claims of a table.
    still : str
        A line in whose place w = 0 stands; none if empty.
    """

    table: pd.DataFrame
    config: Mapping[str, Any]
    claim: Claim
    asked: list[Finals] = field(default_factory=list)
    seen: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    still: str = ""

    @property
    def figure(self) -> str:
        """Return the figure that the claim names."""
        return str(self.claim["figure"])

    @property
    def statistic(self) -> str:
        """Return how runs are averaged: `mean` or `median`."""
        return str(self.claim.get("statistic", "mean"))

    def __call__(self, line: str) -> LineErrors:
        """Return the report runs of a line; raises `Missing` if there are none."""
        named = self.figure, line, float(self.claim.get("epsilon", 1.0))
        if named not in self.seen:
            self.seen[named] = line_errors(self.table, *named)
        found: LineErrors = self.seen[named]
        return found.standing_still if line == self.still else found

    def finals(self, line: str, passes: float | None = None) -> Finals:
        """Return the errors of a line's runs at their end, or at some passes.

        At least `FLOOR`, to which the optimum is certified.
        """
        values, sets = self(line).finals(passes)
        self.asked.append(Finals(np.maximum(values, FLOOR), sets))
        return self.asked[-1]

    def along(self, line: str, axis: str, quantity: str | None = None) -> Scaling:
        """Return the final values of a line along `n`, `p`, `epsilon` or `quotient`."""
        quantity = str(self.claim.get("quantity", "")) if quantity is None else quantity
        named = self.figure, axis, line, quantity
        if named not in self.seen:
            self.seen[named] = finals_along(self.table, self.config, *named)
        found: Scaling = self.seen[named]
        return found.standing_still if line == self.still else found

    @property
    def noise(self) -> Noise:
        """Return the figure of noise that the claim names."""
        return sources_of(figures_of(self.config), Noise)[self.figure]

    @property
    def curves(self) -> Any:
        """Return the curves of the figure that the claim names."""
        drawn = sources_of(figures_of(self.config), Computed)
        if self.figure not in drawn:
            raise Missing(f"no figure {self.figure} has curves of its own")
        return drawn[self.figure].curves

    @property
    def over(self) -> str:
        """Return how many runs were averaged, at least, in words."""
        if not self.asked:
            return ""
        runs = min(len(one.values) for one in self.asked)
        sets = min(len(np.unique(one.sets)) for one in self.asked)
        data = f" on {sets} data sets" if sets > 1 else ""
        return f"; {runs} run{'s' * (runs > 1)}{data}"

    def logs(
        self, groups: Sequence[Sequence[tuple[Finals, float]]], share: float = LIKELY
    ) -> Estimate:
        """Return a weighted sum of the logarithms of averages.

        Parameters
        ----------
        groups : sequence of sequence of (Finals, float)
            Values and weights. Those of a group are at the same point: where they are
            of the same data sets these are drawn together.
        share : float
            Of the interval.
        """
        self.asked.extend(one for group in groups for one, _ in group)
        if self.statistic == "median":
            return estimate_of_quantiles(
                [(one.units("median"), 0.5, w) for group in groups for one, w in group],
                share,
            )
        parts = [part for group in groups for part in _samples_of_group(group)]
        return estimate_sum(parts, share=share)

    def ratio(self, over: Finals, under: Finals, share: float = LIKELY) -> Estimate:
        """Return the average of some values divided by that of others."""
        return self.logs([[(over, 1.0), (under, -1.0)]], share).map(bounded_exp)

    def average(self, values: Finals, share: float = LIKELY) -> Estimate:
        """Return the average of some values."""
        return self.logs([[(values, 1.0)]], share).map(bounded_exp)

    def beside_zero(self, line: str, at: float | None) -> tuple[Estimate, float]:
        """Return the error of a line over that of w = 0, and the latter.

        Both are where the claim is decided, on the line's own problem and records.

        Parameters
        ----------
        line : str
            Label of the line.
        at : float or None
            As in `Evidence`.
        """
        quantity = str(self.claim.get("quantity", ""))
        quantity = quantity if quantity in COMPARED else ""
        if "axis" in self.claim:
            found = self.along(line, str(self.claim["axis"]), quantity)
            at = found.x[-1] if at is None else at
            places = np.flatnonzero(found.x == at)
            if not places.size:
                raise Missing(f"{line} has no point at {self.claim['axis']} = {at:g}")
            place = int(places[0])
            (values, sets), zeros = found.finals(place), found.zeros[place]
        else:
            (values, sets), zeros = self(line).finals(at), self(line).zeros
        if is_better_higher(quantity):
            values, zeros = 1.0 - values, 1.0 - zeros
        zero = float(Finals(zeros, sets).units().mean())
        if not (zeros > 0.0).all():  # unknown, or the best that there is
            return unknown_estimate(math.nan), zero
        # Without noise an error is zero but for rounding, on either side.
        values = np.maximum(values, FLOOR * zeros)
        pair = [(Finals(values, sets), 1.0), (Finals(zeros, sets), -1.0)]
        if self.statistic == "median":
            shares = Finals(values / zeros, sets).units("median")
            return estimate_of_quantiles([(shares, 0.5, 1.0)]).map(bounded_exp), zero
        (part,) = _samples_of_group(pair, together=True)
        return estimate_sum([part]).map(bounded_exp), zero


def _samples_of_group(
    group: Sequence[tuple[Finals, float]], together: bool = False
) -> list[Part]:
    """Return the samples of values at one point: one where data sets are drawn."""
    units = [one.units() for one, _ in group]
    weights = np.array([weight for _, weight in group])
    seeds = [np.unique(one.sets) for one, _ in group]
    paired = len(seeds[0]) > 1 and all(np.array_equal(seeds[0], one) for one in seeds)
    if paired or together:
        return [(np.stack(units, axis=1), weights)]
    return [(one[:, None], weights[k : k + 1]) for k, one in enumerate(units)]


def bounded_exp(x: float) -> float:
    """Return the exponential, infinite beyond the largest number."""
    with np.errstate(over="ignore"):
        return float(np.exp(x))


@dataclass(frozen=True)
class Measure:
    """The measured quantity of a claim.

    Attributes
    ----------
    words : str
        Its description in claims.csv, with the claim's keys in braces.
    value : callable or str
        Maps a `Lookup` and the claim's keys to a number in which nothing is random, an
        `Estimate`, or `Evidence`; or the dotted name of such a function, which takes
        long to import.
    lines : str
        One of `RUNS`, `NOISE` and `NOTHING`.
    tuned : bool
        Whether the settings that were chosen have a part in it.
    over_sets : bool
        Whether it is one number over all figures and epsilons of a claim.
    """

    words: str
    value: Callable[..., float | Estimate | Evidence] | str
    lines: str = RUNS
    tuned: bool = True
    over_sets: bool = False

    @cached_property
    def function(self) -> Callable[..., float | Estimate | Evidence]:
        """Return what measures."""
        value = self.value
        return registry.locate(value) if isinstance(value, str) else value

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the keys of a claim that it reads, beside those of every claim."""
        return tuple(inspect.signature(self.function).parameters)[1:]

    def __call__(self, lookup: Lookup) -> Evidence:
        """Return what decides; raises `Missing` with the reason if there is nothing."""
        found = self.function(lookup, **{key: lookup.claim[key] for key in self.needs})
        if isinstance(found, Evidence):
            return found
        return Evidence(
            found if isinstance(found, Estimate) else exact_estimate(float(found))
        )


Value = Callable[..., float | Estimate | Evidence]
MEASURES: dict[str, Measure] = {}
"""All measures by the name of their function."""


def says(
    words: str, lines: str = RUNS, tuned: bool = True, over_sets: bool = False
) -> Callable[[Value], Value]:
    """Enter a function into `MEASURES`."""

    def enter(function: Value) -> Value:
        MEASURES[function.__name__] = Measure(words, function, lines, tuned, over_sets)
        return function

    return enter
