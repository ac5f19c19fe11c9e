"""What a tuner chose, how sure that is, and why a better setting may be elsewhere."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dp_erm_bench.experiment.lines import FitLine

DIGITS = 9
"""Of what is compared: the last ones depend on the trials of the same batch."""

RESAMPLES = 2000
TAILS = (2.5, 97.5)

Point = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Choice:
    """The parameters that a tuner chose.

    Attributes
    ----------
    line : FitLine
    values : dict
        The chosen and the inherited parameters.
    finals : tuple of float
        Final quantity of the choice on each seed, infinite where a trial diverged.
    n_settings : int
        Settings tried.
    lead : tuple of float or None
        95 % bootstrap interval, over the seeds, of its mean minus that of the next
        best finalist; None without one.
    open : tuple of str
        Why a better setting may lie beyond what was tried: a parameter with `top` or
        `bottom` (of the values tried) or `limit` (one that was declared), as
        `clip top`; `trials` if a search ran out of them before its first round,
        while its last one still gained, by more than the scatter over seeds, or
        before it could race what lies beyond an end and looked better.
    extended, tried : tuple of str
        Axes that were extended; keys of the tuning trials.
    """

    line: FitLine
    values: Point
    finals: tuple[float, ...]
    n_settings: int
    lead: tuple[float, float] | None
    open: tuple[str, ...]
    extended: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Return the mean final quantity; infinite if a trial diverged."""
        return mean_of(self.finals)

    @property
    def quantity(self) -> str:
        """Return what the trials were compared by."""
        return self.line.tune.quantity if self.line.tune else ""

    @property
    def scatter(self) -> float:
        """Return the standard deviation over the seeds, nan of fewer than two."""
        known = len(self.finals) > 1 and math.isfinite(self.mean)
        return statistics.stdev(self.finals) if known else math.nan


def rounded(final: float) -> float:
    """Return a number without the digits that a batch may change."""
    return float(f"{final:.{DIGITS}g}")


def mean_of(finals: Sequence[float]) -> float:
    """Return the mean, infinite if one is."""
    finite = all(map(math.isfinite, finals))
    return math.fsum(finals) / len(finals) if finite else math.inf


def bootstrap(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the difference of two means.

    The samples are not paired: each trial has noise of its own.
    """
    import numpy as np  # not at the top: the command line must start without

    rng = np.random.default_rng(len(ours))
    means = [
        rng.choice(np.asarray(finals), (RESAMPLES, len(finals))).mean(axis=1)
        for finals in (ours, theirs)
    ]
    low, high = np.percentile(means[0] - means[1], TAILS)
    return rounded(float(low)), rounded(float(high))
