"""The relative change from some runs to others, and when it counts as one."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.results.statistics import FLOOR, central, quantile, resampled_medians

Array = npt.NDArray[np.float64]

MEASURES = (
    *("objective", "relative_error", "test_objective", "test_accuracy"),
    *("seconds", "epsilon_certified"),
)
"""Columns that can be compared; smaller is better in all but `HIGHER_IS_BETTER`."""

HIGHER_IS_BETTER = ("test_accuracy",)
WAYS = ("trial", "setting")


class Rule(NamedTuple):
    """How the runs of a setting are judged.

    Attributes
    ----------
    by : {'trial', 'setting'}
        Change of each common trial, or of the medians over all seeds of each side.
    tolerance : float
        Relative changes up to this size are of no interest.
    interval : float
        Share of the bootstrap's draws that the interval holds.
    """

    by: str = "trial"
    tolerance: float = 0.05
    interval: float = 0.95

    def check(self) -> None:
        """Refuse values out of range with one sentence."""
        check_choice("--by", self.by, list(WAYS))
        if not 0 <= self.tolerance < math.inf:
            raise UsageError(f"--tolerance={self.tolerance}: must be 0 or more")
        if not 0 < self.interval < 1:
            raise UsageError(f"--interval={self.interval}: must lie between 0 and 1")

    @property
    def least(self) -> int:
        """Return how many runs can decide: a sign test of fewer could not."""
        return math.ceil(1 - math.log2(1 - self.interval))


def judged(measure: str, a: Array, b: Array, rule: Rule) -> dict[str, Any]:
    """Return medians, relative change, its interval and the verdict.

    Parameters
    ----------
    measure : str
        One of `MEASURES`.
    a, b : array
        Values of the two sides, at least one each; paired if compared by trial. A
        lost run has the worst value.
    rule : Rule
        How to judge.
    """
    compared = _paired if rule.by == "trial" else _unpaired
    decisive = min(len(a), len(b)) >= rule.least
    change, values = compared(measure, np.asarray(a), np.asarray(b), decisive)
    low, high = central(values, rule.interval) if decisive else _ends(values)
    verdict = _verdict(measure, low, high, rule.tolerance)
    if not decisive:
        low = high = math.nan
        verdict = "same" if verdict == "same" else "undecided"
    return {
        "median_a": _median(a),
        "median_b": _median(b),
        "change": change,
        "low": low,
        "high": high,
        "verdict": verdict,
    }


def relative_change(measure: str, a: Array, b: Array) -> Array:
    """Return (b - a) / abs(a); 0 of equal values, whatever they are.

    Parameters
    ----------
    measure : str
        Relative errors below `FLOOR` count as `FLOOR`.
    a, b : array
        Values of the two sides; infinite where a run is lost.
    """
    if measure == "relative_error":
        a, b = np.maximum(a, FLOOR), np.maximum(b, FLOOR)
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.where(np.isinf(a), -1.0, (b - a) / np.abs(a))
    return np.where(a == b, 0.0, change)


def _paired(measure: str, a: Array, b: Array, draw: bool) -> tuple[float, Array]:
    """Return the median change, and all changes or medians drawn from them."""
    seen = relative_change(measure, a, b)
    return _median(seen), resampled_medians(seen) if draw else seen


def _unpaired(measure: str, a: Array, b: Array, draw: bool) -> tuple[float, Array]:
    """Return the change of the median, and the largest changes or drawn ones."""
    a, b = np.sort(a), np.sort(b)
    if np.array_equal(a, b):
        return 0.0, np.zeros(1)
    change = float(relative_change(measure, *map(np.asarray, (_median(a), _median(b)))))
    if draw:
        a, b = resampled_medians(a), resampled_medians(b, sample=1)
    else:
        a, b = a[[[0], [-1]]], b[[0, -1]]
    return change, relative_change(measure, a, b)


def _verdict(measure: str, low: float, high: float, tolerance: float) -> str:
    if measure in HIGHER_IS_BETTER:
        low, high = -high, -low
    if low > tolerance:
        return "worse"
    if high < -tolerance:
        return "better"
    return "same" if -tolerance <= low and high <= tolerance else "undecided"


def _ends(values: Array) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def _median(values: Array) -> float:
    return float(quantile(values, 0.5))
