"""Measures of claims, and the look-up of the runs that a claim names.

A *line* consists of the runs of one algorithm in a panel of a figure.

Every measure is a number with its confidence interval. On one data set, the independent
units are the runs of a line. With several data sets the unit is the data set, since all
runs on a data set share its records and its chosen settings. Intervals ignore the
uncertainty from choosing settings.
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
"""Kinds of a claim's lines: runs of its panel, releases of its figure of noise, or no
lines."""

SMOKE, NOT_JUDGED, NOT_RUN = "smoke", "not judged", "not run"
VACUOUS, UNDECIDED, HOLDS, FAILS = "vacuous", "undecided", "holds", "fails"
VERDICTS = (NOT_JUDGED, NOT_RUN, VACUOUS, UNDECIDED, HOLDS, FAILS)
"""The first of these that applies is the verdict.

`not judged` is the verdict for the profile smoke, which is a test run.
"""

UNJUDGED = "profile smoke: it only shows that everything runs; no claim is judged"
GIVEN = (
    "Intervals are 95 % intervals over report seeds and data seeds. They take the "
    "chosen settings as given."
)
WRONG = (1.0 - LIKELY) / 2
"""Largest probability that a verdict based on an interval is wrong (one tail)."""


def without_repetitions(reasons: Iterable[str]) -> list[str]:
    """Return the reasons, with each repeated reason replaced by `as above`."""
    every = [*reasons]
    return [
        "as above" if one and one in every[:place] else one
        for place, one in enumerate(every)
    ]


def by_chance(rows: Iterable[Mapping[str, str]]) -> str:
    """Return a sentence on the number of verdicts that are wrong by chance.

    Parameters
    ----------
    rows : iterable of mapping
        Rows of claims.csv. The sentence is empty if no verdict depends on an interval.
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
    """The number that decides a claim, and where it was measured.

    Attributes
    ----------
    estimate : Estimate
        The number with its interval.
    at : float or None
        The number of passes or the value of the axis at which the claim is decided;
        None for the last one.
    bound : float
        A proved bound on the error at this point; nan if the claim has no bound.
    """

    estimate: Estimate
    at: float | None = None
    bound: float = math.nan


@dataclass(frozen=True, eq=False)
class Lookup:
    """The runs that a claim names, which are looked up in a table by line.

    Attributes
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    config : mapping
        The experiment's resolved configuration.
    claim : mapping
        The claim. Its `figure` is the panel, or the family of panels. `epsilon` is the
        epsilon of the runs, by default 1. `statistic` is the average over runs, by
        default their mean.
    asked : list of Finals
        The values that measures have averaged so far.
    seen : dict
        Cache of the runs that were looked up for claims of the table.
    still : str
        Label of the line whose runs are replaced by w = 0; empty if there is none.
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
        """Return the average that is taken over runs: `mean` or `median`."""
        return str(self.claim.get("statistic", "mean"))

    def __call__(self, line: str) -> LineErrors:
        """Return the report runs of a line; raise `Missing` if there are none."""
        named = self.figure, line, float(self.claim.get("epsilon", 1.0))
        if named not in self.seen:
            self.seen[named] = line_errors(self.table, *named)
        found: LineErrors = self.seen[named]
        return found.standing_still if line == self.still else found

    def finals(self, line: str, passes: float | None = None) -> Finals:
        """Return the errors of a line's runs at their end, or after given passes.

        Errors below `FLOOR`, the precision of the certified optimum, count as `FLOOR`.
        """
        values, sets = self(line).finals(passes)
        self.asked.append(Finals(np.maximum(values, FLOOR), sets))
        return self.asked[-1]

    def along(self, line: str, axis: str, quantity: str | None = None) -> Scaling:
        """Return the final values of a line along an axis.

        Parameters
        ----------
        line : str
            Label of the line.
        axis : str
            The axis, such as `n`, `p`, `epsilon` or `quotient`.
        quantity : str or None
            The column of the values, empty for excess risks; None for the column that
            the claim names.
        """
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
        """Return a string with the smallest numbers of averaged runs and data sets."""
        if not self.asked:
            return ""
        runs = min(len(one.values) for one in self.asked)
        sets = min(len(np.unique(one.sets)) for one in self.asked)
        data = f" on {sets} data sets" if sets > 1 else ""
        return f"; {runs} run{'s' * (runs > 1)}{data}"

    def logs(
        self, groups: Sequence[Sequence[tuple[Finals, float]]], share: float = LIKELY
    ) -> Estimate:
        """Return a weighted sum of logs of averages over runs, with its interval.

        Parameters
        ----------
        groups : sequence of sequence of (Finals, float)
            Values and weights. The values of a group belong to the same point. If they
            have the same data sets, their data sets are resampled together.
        share : float
            Coverage of the interval, between 0 and 1.
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
        """Return the ratio of two averages over runs, with its interval.

        Parameters
        ----------
        over, under : Finals
            The values in the numerator and in the denominator.
        share : float
            Coverage of the interval, between 0 and 1.
        """
        return self.logs([[(over, 1.0), (under, -1.0)]], share).map(bounded_exp)

    def average(self, values: Finals, share: float = LIKELY) -> Estimate:
        """Return the average of values over runs, with its interval."""
        return self.logs([[(values, 1.0)]], share).map(bounded_exp)

    def beside_zero(self, line: str, at: float | None) -> tuple[Estimate, float]:
        """Return the error of a line divided by that of w = 0, and the error of w = 0.

        Both errors are measured where the claim is decided, on the line's own problem
        and records.

        Parameters
        ----------
        line : str
            Label of the line.
        at : float or None
            The passes, or the value of the axis, as in `Evidence`.
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
        if not (zeros > 0.0).all():  # unknown, or already the best value
            return unknown_estimate(math.nan), zero
        # Without noise an error is zero up to rounding, on either side.
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
    """Return the samples of values at one point; paired samples are one array."""
    units = [one.units() for one, _ in group]
    weights = np.array([weight for _, weight in group])
    seeds = [np.unique(one.sets) for one, _ in group]
    paired = len(seeds[0]) > 1 and all(np.array_equal(seeds[0], one) for one in seeds)
    if paired or together:
        return [(np.stack(units, axis=1), weights)]
    return [(one[:, None], weights[k : k + 1]) for k, one in enumerate(units)]


def bounded_exp(x: float) -> float:
    """Return exp(x), or infinity beyond the largest floating-point number."""
    with np.errstate(over="ignore"):
        return float(np.exp(x))


@dataclass(frozen=True)
class Measure:
    """The measured quantity of a claim.

    Attributes
    ----------
    words : str
        Description of the measure in claims.csv, with the claim's keys in braces.
    value : callable or str
        A function of a `Lookup` and the claim's keys. It returns a number that is not
        random, an `Estimate`, or `Evidence`. A function that is slow to import is given
        by its dotted name.
    lines : str
        The kind of the claim's lines: one of `RUNS`, `NOISE` and `NOTHING`.
    tuned : bool
        Whether the number depends on the chosen settings.
    over_sets : bool
        Whether the measure is one number over all figures and epsilons of a claim.
    """

    words: str
    value: Callable[..., float | Estimate | Evidence] | str
    lines: str = RUNS
    tuned: bool = True
    over_sets: bool = False

    @cached_property
    def function(self) -> Callable[..., float | Estimate | Evidence]:
        """Return the function of the measure, imported if given by its name."""
        value = self.value
        return registry.locate(value) if isinstance(value, str) else value

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the keys of a claim that the measure reads as parameters."""
        return tuple(inspect.signature(self.function).parameters)[1:]

    def __call__(self, lookup: Lookup) -> Evidence:
        """Return the evidence on a claim; raise `Missing` if there is no evidence."""
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
    """Return a decorator that adds a function to `MEASURES`.

    Parameters
    ----------
    words, lines, tuned, over_sets
        As in `Measure`.
    """

    def enter(function: Value) -> Value:
        MEASURES[function.__name__] = Measure(words, function, lines, tuned, over_sets)
        return function

    return enter
