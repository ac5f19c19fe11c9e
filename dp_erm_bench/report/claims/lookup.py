"""Measures, and the runs that a claim names, on which they are taken."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.curves import LineErrors, curves
from dp_erm_bench.report.figure import figures_of
from dp_erm_bench.report.rates import Noise, noises
from dp_erm_bench.report.scaling import Scaling, along

if TYPE_CHECKING:
    import pandas as pd

Claim = Mapping[str, Any]
RUNS, NOISE, NOTHING = "runs", "noise", "nothing"
"""Kinds of a claim's lines: runs of its panel, releases of its figure of noise, or
none."""

SMOKE, NOT_JUDGED = "smoke", "not judged"
"""The profile that only shows that all of it runs, and its verdict of every claim."""

UNJUDGED = (
    "profile smoke: it shows that all of it runs; verdicts would mean nothing, so that "
    "no claim is judged"
)


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
        1 if not given; `data_seed` that of the data where the panel has several.
    """

    table: pd.DataFrame
    config: Mapping[str, Any]
    claim: Claim

    @property
    def figure(self) -> str:
        """Return the figure that the claim names."""
        return str(self.claim["figure"])

    def __call__(self, line: str) -> LineErrors:
        """Return the report runs of a line; raises `Missing` if there are none."""
        epsilon = float(self.claim.get("epsilon", 1.0))
        seed = self.claim.get("data_seed")
        return curves(self.table, self.figure, line, epsilon, seed)

    def along(self, line: str, axis: str) -> Scaling:
        """Return the final values of a line along `n`, `p`, `epsilon` or `quotient`."""
        quantity = str(self.claim.get("quantity", ""))
        return along(self.table, self.config, self.figure, axis, line, quantity)

    @property
    def noise(self) -> Noise:
        """Return the figure of noise that the claim names."""
        return noises(figures_of(self.config))[self.figure]


@dataclass(frozen=True)
class Measure:
    """The measured quantity of a claim.

    Attributes
    ----------
    words : str
        Its description in claims.csv, with the claim's keys in braces.
    value : callable
        Maps a `Lookup` and the claim's keys to the number.
    lines : str
        One of `RUNS`, `NOISE` and `NOTHING`.
    interval : callable, optional
        As `value`: ends of a 95 % bootstrap interval of the number.
    """

    words: str
    value: Callable[..., float]
    lines: str = RUNS
    interval: Callable[..., tuple[float, float]] | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the keys of a claim that it reads, beside those of every claim."""
        return tuple(inspect.signature(self.value).parameters)[1:]

    def __call__(self, lookup: Lookup) -> float:
        """Return the number; raises `Missing` with the reason if none."""
        return self.value(lookup, **{key: lookup.claim[key] for key in self.needs})

    def told(self, lookup: Lookup) -> str:
        """Return the bootstrap interval in words, empty without a `quantity`."""
        if self.interval is None or "quantity" not in lookup.claim:
            return ""
        low, high = self.interval(lookup, **{k: lookup.claim[k] for k in self.needs})
        return f" (95 % bootstrap {low:.2f} to {high:.2f})"


Value = Callable[..., float]
MEASURES: dict[str, Measure] = {}
"""All measures by the name of their function."""


def says(
    words: str,
    lines: str = RUNS,
    interval: Callable[..., tuple[float, float]] | None = None,
) -> Callable[[Value], Value]:
    """Enter a function into `MEASURES`."""

    def enter(function: Value) -> Value:
        MEASURES[function.__name__] = Measure(words, function, lines, interval)
        return function

    return enter
