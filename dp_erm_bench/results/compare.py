"""Compare the final values of two results folders, trial by trial or by setting."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.results.columns import is_better_higher
from dp_erm_bench.results.finals import ALWAYS, LABELS, Row, labelled, without
from dp_erm_bench.results.rows import MEASURED
from dp_erm_bench.results.settings import worst_if_lost
from dp_erm_bench.results.sides import apart
from dp_erm_bench.results.statistics import (
    central,
    quantile,
    relative_change,
    resampled_medians,
)

Array = npt.NDArray[Any]

NAME = [*LABELS, "setting"]
TRIAL = [*NAME, "seed", "dataset_seed"]
MEASURES = ["objective", "relative_error", *MEASURED, "seconds", "epsilon_certified"]
"""Columns that can be compared."""

HIGHER_IS_BETTER = [name for name in MEASURES if is_better_higher(name)]
WAYS = ["trial", "setting"]
RANK = {"ok": 0, "skipped": 1, "diverged": 2, "error": 3, "timeout": 3, "killed": 3}
"""A status of higher rank than before is a regression."""

EMPTY = {
    **{"measure": "", "runs_a": 0, "runs_b": 0},
    **dict.fromkeys(("median_a", "median_b", "change", "low", "high"), np.nan),
    **{"verdict": "", "note": ""},
}


class Rule(NamedTuple):
    """The rule by which the runs of a setting are judged.

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
        check_choice("--by", self.by, WAYS)
        if not 0 <= self.tolerance < math.inf:
            raise UsageError(f"--tolerance={self.tolerance}: must be 0 or more")
        if not 0 < self.interval < 1:
            raise UsageError(f"--interval={self.interval}: must lie between 0 and 1")

    @property
    def least(self) -> int:
        """Return the least number of runs that can decide, as in a sign test."""
        return math.ceil(1 - math.log2(1 - self.interval))


def compare(
    first: pd.DataFrame,
    second: pd.DataFrame,
    on: Sequence[str] = ("objective",),
    rule: Rule = Rule(),  # noqa: B008
    ignore: Sequence[str] = (),
) -> pd.DataFrame:
    """Compare two sides, A and B, setting by setting.

    Parameters
    ----------
    first, second : DataFrame
        Final rows of A and of B with their `setting` (see `named_finals`).
    on : sequence of str
        Columns to compare, of `MEASURES`.
    rule : Rule
        Pairing, tolerance and interval.
    ignore : sequence of str
        Labels, or keys of settings, that may differ between the sides.

    Returns
    -------
    DataFrame
        One row per setting and measure: labels; `dataset`, `algorithm`, `epsilon`, and
        in `setting` its other parameters; `runs_a`, `runs_b` (paired: the
        pairs); `median_a`, `median_b`; the relative `change` B/A - 1 with its interval
        `low`, `high` (nan of too few runs); `verdict` and `note`. Statuses that
        changed are rows with the measure `status`; runs that only one side has are
        rows with the measure `trials` and the verdict `only in A` or `only in B`.

    Raises
    ------
    UsageError
        For a value out of range, or if the two have nothing in common.
    """
    rule.check()
    for measure in on:
        check_choice("--on", measure, MEASURES)
    for name, side in (("A", first), ("B", second)):
        if side.empty:
            raise UsageError(f"compare: {name} has no recorded trials yet")
    return _table(_joined(without([first, second], ignore), on, rule), on, rule)


def _table(both: pd.DataFrame, on: Sequence[str], rule: Rule) -> pd.DataFrame:
    """Return the rows of all settings, with their labels."""
    arrays = {str(name): both[name].to_numpy() for name in both}
    groups: Any = both.groupby(NAME, sort=False).indices
    labels = labelled(groups)
    rows = []
    for name, places in groups.items():
        group = {column: values[places] for column, values in arrays.items()}
        rows += [{**labels[name], **EMPTY, **row} for row in _rows(group, on, rule)]
    for measure in on:
        if not any(row["measure"] == measure for row in rows):
            raise UsageError(f"--on={measure}: no common trial has a value of it")
    return pd.DataFrame(rows, columns=[*LABELS, *ALWAYS, "setting", *EMPTY])


def _joined(
    sides: Sequence[pd.DataFrame], on: Sequence[str], rule: Rule
) -> pd.DataFrame:
    """Return one row per trial of either side; a lost run has the worst value."""
    columns = []
    for side in sides:
        again = side.loc[side.duplicated(TRIAL), "seed"]
        if len(again):
            raise UsageError(
                "compare: one side has several runs of a setting with "
                f"seed={again.iloc[0]}: ignore less"
            )
        values = {measure: worst_if_lost(side, measure) for measure in on}
        for measure in set(on) & {*HIGHER_IS_BETTER}:
            values[measure] = values[measure].replace(np.inf, 0.0)
        columns.append(side[[*TRIAL, "status"]].assign(**values))
    both = columns[0].merge(columns[1], how="outer", on=TRIAL, suffixes=("_a", "_b"))
    both = both.assign(**{f"in_{s}": both[f"status_{s}"].notna() for s in "ab"})
    key = NAME if rule.by == "setting" else TRIAL
    common = both.groupby(key, dropna=False)[["in_a", "in_b"]].any()
    if not common.all(axis=1).any():
        why = apart(*sides) or "--by setting needs no common seeds"
        raise UsageError(
            f"compare: no common {rule.by} ({both['in_a'].sum()} trials in A, "
            f"{both['in_b'].sum()} in B); {why}; --ignore KEY lets a key differ"
        )
    return both


def _rows(group: dict[str, Array], on: Sequence[str], rule: Rule) -> Iterator[Row]:
    """Yield the rows of one setting, without its labels."""
    paired = rule.by == "trial"
    in_a, in_b = group["in_a"], group["in_b"]
    common = in_a & in_b if paired else np.full(len(in_a), in_a.any() and in_b.any())
    for side, lone in (("a", in_a & ~common), ("b", in_b & ~common)):
        if lone.any():
            verdict = f"only in {side.upper()}"
            yield {"measure": "trials", f"runs_{side}": lone.sum(), "verdict": verdict}
    in_a, in_b = in_a & common, in_b & common
    if not in_a.any():
        return
    yield from _statuses(group["status_a"][in_a], group["status_b"][in_b], paired)
    for measure in on:
        a, b = group[f"{measure}_a"], group[f"{measure}_b"]
        known_a, known_b = in_a & ~np.isnan(a), in_b & ~np.isnan(b)
        if paired:
            known_a = known_b = known_a & known_b
        a, b = a[known_a], b[known_b]
        if len(a) and len(b):
            runs = {"measure": measure, "runs_a": len(a), "runs_b": len(b)}
            yield {**runs, **judged(measure, a, b, rule)}


def _statuses(a: Array, b: Array, paired: bool) -> Iterator[Row]:
    """Yield a row if a status changed its rank: of a trial, else the worst one."""
    worst = [max(side, key=lambda status: RANK[status]) for side in (a, b)]
    pairs = list(zip(a, b, strict=True) if paired else [tuple(worst)])
    moves = {(x, y): RANK[y] - RANK[x] for x, y in pairs}
    moved = Counter(pair for pair in pairs if moves[pair])
    if moved:
        runs = {"measure": "status", "runs_a": len(a), "runs_b": len(b)}
        verdict = "worse" if max(moves.values()) > 0 else "better"
        note = ", ".join(f"{n} {x} -> {y}" for (x, y), n in moved.items())
        yield {**runs, "verdict": verdict, "note": note}


def judged(measure: str, a: Array, b: Array, rule: Rule) -> Row:
    """Return medians, relative change, its interval and the verdict.

    Parameters
    ----------
    measure : str
        One of `MEASURES`.
    a, b : array
        Values of the two sides, at least one each; paired if compared by trial. A
        lost run has the worst value.
    rule : Rule
        The rule of the judgement.
    """
    a, b = np.asarray(a), np.asarray(b)
    decisive = min(len(a), len(b)) >= rule.least
    medians = {"median_a": quantile(a, 0.5), "median_b": quantile(b, 0.5)}
    if rule.by == "trial":
        changes = relative_change(measure, a, b)
        change = quantile(changes, 0.5)
        changes = resampled_medians(changes) if decisive else changes
    elif np.array_equal(np.sort(a), np.sort(b)):
        change, changes = np.zeros(()), np.zeros(1)
    else:
        change = relative_change(measure, *medians.values())
        if decisive:
            a, b = resampled_medians(a), resampled_medians(b, sample=1)
        else:
            a, b = np.sort(a)[[[0], [-1]]], np.sort(b)[[0, -1]]
        changes = relative_change(measure, a, b)
    low, high = changes.min(), changes.max()
    if decisive:
        low, high = central(changes, rule.interval)
    verdict = _verdict(measure, low, high, rule.tolerance)
    if not decisive:
        low = high = math.nan
        verdict = "same" if verdict == "same" else "undecided"
    numbers = {**medians, "change": change, "low": low, "high": high}
    return {**{k: float(v) for k, v in numbers.items()}, "verdict": verdict}


def _verdict(measure: str, low: float, high: float, tolerance: float) -> str:
    if measure in HIGHER_IS_BETTER:
        low, high = -high, -low
    if low > tolerance:
        return "worse"
    if high < -tolerance:
        return "better"
    return "same" if -tolerance <= low and high <= tolerance else "undecided"
