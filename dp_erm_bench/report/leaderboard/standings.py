"""Who stands where: the report runs of a leaderboard, one row per algorithm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from dp_erm_bench.results.settings import final_rows, worst_if_lost
from dp_erm_bench.results.statistics import (
    FLOOR,
    Array,
    central,
    quantile,
    resampled_medians,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

ZERO = "w = 0"
"""The vector that needs no data: what an algorithm must beat."""

LIKELY = 0.95
COLUMNS = (
    *("panel", "epsilon", "line", "status", "reason"),
    *("median", "low", "high", "accuracy", "seconds", "runs", "batch"),
    *("zero", "majority", "factor", "beats_zero", "place"),
)
WINS, TIES, LOSES = "wins", "ties", ""


class Baseline(NamedTuple):
    """What releasing w = 0 gives: its relative error, and the majority's share."""

    error: float
    majority: float


def standings(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per problem, epsilon and algorithm.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a leaderboard: its panels are the problems, its lines the
        algorithms, each tuned and reported at every epsilon, or skipped.

    Returns
    -------
    DataFrame
        `COLUMNS`. `status` is ok or skipped (with the `reason`); `median`, `low` and
        `high` (10 and 90 % quantiles) of the relative error, runs that were lost
        counting as infinite; `factor`, the median over the best one of the problem,
        w = 0 included; `beats_zero`, whether the 95 % bootstrap interval of the median
        lies below the error of w = 0 (yes), above (no) or around it (tie); `place`:
        of those that beat w = 0, wins for the best, ties for those that the bootstrap
        cannot tell from it.
    """
    kept = table[table["phase"] != "tune"]
    finals = final_rows(kept)
    finals = finals.assign(error=worst_if_lost(finals, "relative_error"))
    ranking: list[dict[str, Any]] = []
    for panel, epsilon, rows in problems(finals):
        starts = kept[(kept["panel"] == panel) & (kept["iteration"] == 0)]
        ranking += _problem(panel, epsilon, rows, _baseline(starts))
    return pd.DataFrame(ranking, columns=list(COLUMNS))


def problems(rows: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    """Yield panel, epsilon and rows of every problem, in the order of the rows."""
    for key, own in rows.groupby(["panel", "epsilon"], sort=False):
        panel, epsilon = cast("tuple[str, float]", key)
        yield str(panel), float(epsilon), own


def _baseline(starts: pd.DataFrame) -> Baseline:
    """Return what w = 0, the start of every run, is worth.

    Its margins are all 0, so the accuracy at the start is the share of one class.
    """
    if starts.empty:
        return Baseline(math.nan, math.nan)
    error, share = _centre(starts["relative_error"]), _centre(starts["test_accuracy"])
    return Baseline(error, max(share, 1.0 - share))


def _centre(column: pd.Series[float]) -> float:
    """Return the median of what is measured, nan if nothing is."""
    values = column.dropna().to_numpy(float)
    return float(quantile(values, 0.5)) if len(values) else math.nan


def _problem(
    panel: str, epsilon: float, rows: pd.DataFrame, zero: Baseline
) -> list[dict[str, Any]]:
    """Return the standings of one problem at one epsilon."""
    ranking, draws = [], {}
    for place, (line, runs) in enumerate(rows.groupby("line", sort=False)):
        row = _line(str(line), runs, zero)
        errors = runs["error"].to_numpy(float)
        if row["status"] == "ok":
            draws[row["line"]] = resampled_medians(errors, place)
        ranking.append({"panel": panel, "epsilon": epsilon, **row})
    _compare(ranking, draws, zero)
    return ranking


def _line(line: str, runs: pd.DataFrame, zero: Baseline) -> dict[str, Any]:
    base = {"line": line, "zero": zero.error, "majority": zero.majority}
    skipped = runs[runs["status"] == "skipped"]
    if len(skipped):
        reason = str(skipped["message"].iloc[0])
        return {**base, "status": "skipped", "reason": reason, "place": LOSES}
    errors, seconds = (runs[name].to_numpy(float) for name in ("error", "seconds"))
    right = runs["test_accuracy"]
    spread = {"median": 0.5, "low": 0.1, "high": 0.9}
    return {
        **base,
        **{name: float(quantile(errors, q)) for name, q in spread.items()},
        "status": "ok",
        "reason": "",
        # A run that was lost predicts nothing right.
        "accuracy": _centre(right.fillna(0.0) if right.notna().any() else right),
        "seconds": float(quantile(seconds, 0.5)),
        "runs": len(runs),
        "batch": float(runs["batch_size"].max()),
    }


def _compare(
    rows: Sequence[dict[str, Any]], draws: dict[str, Array], zero: Baseline
) -> None:
    """Add what depends on the others: factor, place, and what w = 0 is worth."""
    ran = [row for row in rows if row["status"] == "ok"]
    least = min([zero.error, *(float(row["median"]) for row in ran)])
    for row in ran:
        row["factor"] = max(row["median"], FLOOR) / max(least, FLOOR)
        row["beats_zero"] = _side(draws[row["line"]], zero.error)
        row["place"] = LOSES
    able = [row for row in ran if row["beats_zero"] == "yes"]
    if able:
        best = min(able, key=lambda row: float(row["median"]))
        for row in able:
            near = _near(draws[row["line"]], draws[best["line"]])
            row["place"] = WINS if row is best else TIES if near else LOSES


def _side(draws: Array, error: float) -> str:
    """Return whether a median lies below a number, as far as the draws tell."""
    low, high = central(draws, LIKELY)
    return "yes" if high < error else "no" if low > error else "tie"


def _near(draws: Array, best: Array) -> bool:
    """Return whether a median may be as small as the best one.

    The samples are not paired: each algorithm has noise of its own.
    """
    lost = ~np.isfinite(draws) | ~np.isfinite(best)
    gap = np.where(lost, math.inf, np.where(lost, 0.0, draws) - np.where(lost, 0, best))
    return central(gap, LIKELY)[0] <= 0.0


def winners(ranking: pd.DataFrame) -> Iterator[tuple[str, float, list[str]]]:
    """Yield problem, epsilon and the algorithms that win or tie, the best one first.

    Parameters
    ----------
    ranking : DataFrame
        What `standings` returns.
    """
    for panel, epsilon, rows in problems(ranking):
        first = rows[rows["place"] != LOSES].sort_values(["median"], kind="stable")
        yield panel, epsilon, [str(line) for line in first["line"]]


def profile(ranking: pd.DataFrame, factors: Array) -> dict[str, Array]:
    """Return the performance profiles of the algorithms and of w = 0.

    Parameters
    ----------
    ranking : DataFrame
        What `standings` returns, or some of its problems.
    factors : array
        Factors over the best of a problem, at least 1.

    Returns
    -------
    dict of str to array
        Share of the problems (dataset and epsilon) within each factor; what is
        skipped is within none. Lines that were skipped everywhere are left out.

    References
    ----------
    Dolan, More, "Benchmarking optimization software with performance profiles",
    Mathematical Programming 2002.
    """
    grouped = ranking.groupby(["panel", "epsilon"], sort=False)
    ran = ranking[ranking["status"] == "ok"]
    least = grouped[["median", "zero"]].min().min(axis=1).clip(lower=FLOOR)
    by_line = {str(line): rows["factor"] for line, rows in ran.groupby("line")}
    zero = grouped["zero"].first().clip(lower=FLOOR) / least
    return {
        line: (ratios.to_numpy(float)[:, None] <= factors).sum(axis=0) / len(grouped)
        for line, ratios in {**by_line, ZERO: zero}.items()
    }
