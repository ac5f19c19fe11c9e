"""The table of measures: name, words, the keys that are needed, the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dp_erm_bench.report.claims.lookup import Lookup

RUNS, NOISE, NOTHING = "runs", "noise", "nothing"
"""What the lines of a claim name: runs of its panel, releases of its figure of noise,
or nothing."""


@dataclass(frozen=True)
class Measure:
    """What a claim measures.

    Attributes
    ----------
    words : str
        What claims.csv says of it, with the claim's keys in braces.
    value : callable
        Maps a `Lookup` and the claim's keys to the number.
    lines : str
        One of `RUNS`, `NOISE` and `NOTHING`.
    """

    words: str
    value: Callable[..., float]
    lines: str = RUNS

    @property
    def needs(self) -> tuple[str, ...]:
        """Return the keys of a claim that it reads, beside those of every claim."""
        return tuple(inspect.signature(self.value).parameters)[1:]

    def __call__(self, claim: Mapping[str, Any], lookup: Lookup) -> float:
        """Return the number; `Missing` says why there is none."""
        return self.value(lookup, **{key: claim[key] for key in self.needs})


MEASURES: dict[str, Measure] = {}
"""All measures by the name of their function."""

Value = Callable[..., float]


def says(words: str, lines: str = RUNS) -> Callable[[Value], Value]:
    """Enter a function into `MEASURES`."""

    def enter(function: Value) -> Value:
        MEASURES[function.__name__] = Measure(words, function, lines)
        return function

    return enter
