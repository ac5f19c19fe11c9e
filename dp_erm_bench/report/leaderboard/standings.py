"""The standings of a leaderboard: its report runs, one row per algorithm."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from dp_erm_bench.errors import number
from dp_erm_bench.report import contest
from dp_erm_bench.results import statistics
from dp_erm_bench.results.settings import final_rows, worst_if_lost
from dp_erm_bench.results.statistics import FLOOR, Array, quantile

if TYPE_CHECKING:
    from collections.abc import Iterator

ZERO = "w = 0"
"""The vector that needs no data: what an algorithm must beat."""

NOT_PRIVATE = {"base_rate": "base rate", "optimum": "optimum"}
"""The models that a table has beside them, and their names here."""

LIKELY = 0.95
MEDIANS = {
    **{"objective": ("objective", math.inf), "test_risk": ("test_risk", math.inf)},
    "accuracy": ("test_accuracy", 0.0),
    **{"balanced_accuracy": ("balanced_accuracy", 0.0), "auc": ("auc", 0.0)},
}
"""Columns that are medians of a table's, and what a run that was lost is worth."""

HELD_OUT = tuple(MEDIANS)[1:]
COLUMNS = (
    *("panel", "epsilon", "line", "status", "reason"),
    *("median", "low", "high", *MEDIANS, "seconds", "runs", "batch"),
    *("zero", "majority", "factor", "beats_zero", "place"),
)
WINS, TIES, LOSES = "wins", "ties", ""
BOARDS = {"l2": "l2 penalty", "l1": "L1 ball"}
"""Endings of the panels: problems whose objectives may be compared in kind."""


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
        counting as infinite; `MEDIANS` of the last checkpoint, of which `test_risk` is
        the mean loss of held-out records; `factor`, the median over the best one of
        the problem, w = 0 included; `beats_zero`, whether the 95 % bootstrap interval
        of the median lies below the error of w = 0 (yes), above (no) or around it
        (tie); `place`: of those that beat w = 0, wins for the best, ties for those
        that the bootstrap cannot tell from it.
    """
    reports = table[table["phase"] != "tune"]
    finals = final_rows(reports)
    finals = finals.assign(error=worst_if_lost(finals, "relative_error"))
    ranking: list[dict[str, Any]] = []
    for panel, epsilon, rows in problems(finals):
        starts = reports[(reports["panel"] == panel) & (reports["iteration"] == 0)]
        # At w = 0 all margins are 0: the accuracy is the share of one class.
        zero, share = (
            _centre(starts[of]) for of in ("relative_error", "test_accuracy")
        )
        same = {"panel": panel, "epsilon": epsilon, "zero": zero}
        same["majority"] = max(share, 1.0 - share)
        own = {str(line): runs for line, runs in rows.groupby("line", sort=False)}
        ranked = [{**same, "line": line, **_line(runs)} for line, runs in own.items()]
        _compare(ranked, [runs["error"].to_numpy(float) for runs in own.values()])
        ranking += ranked
    return pd.DataFrame(ranking, columns=list(COLUMNS))


def problems(rows: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    """Yield panel, epsilon and rows of every problem, in the order of the rows."""
    for key, own in rows.groupby(["panel", "epsilon"], sort=False):
        panel, epsilon = cast("tuple[str, float]", key)
        yield str(panel), float(epsilon), own


def boards(ranking: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the standings by board, without boards on which nothing ran."""
    parts = {b: ranking[ranking["panel"].str.endswith(f"_{b}")] for b in BOARDS}
    return {b: rows for b, rows in parts.items() if (rows["status"] == "ok").any()}


def _centre(column: pd.Series[float]) -> float:
    """Return the median of the values that are not missing, nan if all are."""
    values = column.dropna().to_numpy(float)
    return float(quantile(values, 0.5)) if len(values) else math.nan


def _median(column: pd.Series[float], lost: float) -> float:
    """Return the median of runs of which some are lost, nan if it was not measured."""
    return _centre(column.fillna(lost) if column.notna().any() else column)


def references(table: pd.DataFrame) -> pd.DataFrame:
    """Return what to compare standings with, in their columns: three rows a problem.

    Parameters
    ----------
    table : DataFrame
        The tidy table of a leaderboard.

    Returns
    -------
    DataFrame
        ``w = 0`` at epsilon 0, of status ``no data``; ``base rate``, which answers the
        share of each class in the training part, and ``optimum``, both at epsilon
        infinite and of status ``not private``. Numbers that the table has not are nan.
    """
    found: list[dict[str, Any]] = []
    for panel, rows in table.groupby("panel", sort=False):
        starts = rows[rows["iteration"] == 0]
        zero = {name: _centre(starts[of]) for name, (of, _) in MEDIANS.items()}
        share = zero["accuracy"]
        # All its scores are equal, and it answers one class.
        zero |= {"accuracy": max(share, 1.0 - share), "balanced_accuracy": 0.5}
        zero |= {"auc": 0.5, "median": _centre(starts["relative_error"])}
        first = {"panel": str(panel), "epsilon": 0.0, "line": ZERO, "status": "no data"}
        found.append(first | zero)
        models = _models(rows)
        for name, line in NOT_PRIVATE.items():
            own = seen if isinstance(seen := models.get(name), dict) else {}
            row = {key: number(own.get(of)) for key, (of, _) in MEDIANS.items()}
            if name == "optimum":
                row |= {"objective": _centre(rows["optimum"]), "median": 0.0}
            named = {"epsilon": math.inf, "line": line, "status": "not private"}
            found.append({"panel": str(panel), **named, **row})
    return pd.DataFrame(found, columns=list(COLUMNS))


def _models(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the measures of the models of a problem, whatever a table says of them."""
    for text in rows["references"].dropna().unique():
        with contextlib.suppress(ValueError, RecursionError):
            models = json.loads(str(text))
            if isinstance(models, dict) and models:
                return models
    return {}


def _line(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the columns that one line has by itself on one problem at one epsilon."""
    skipped = runs[runs["status"] == "skipped"]
    if len(skipped):
        reason = str(skipped["message"].iloc[0])
        return {"status": "skipped", "reason": reason, "place": LOSES}
    errors = runs["error"].to_numpy(float)
    spread = {"median": 0.5, "low": 0.1, "high": 0.9}
    return {
        **{name: float(quantile(errors, q)) for name, q in spread.items()},
        "status": "ok",
        "reason": "",
        **{name: _median(runs[of], lost) for name, (of, lost) in MEDIANS.items()},
        "seconds": float(quantile(runs["seconds"].to_numpy(float), 0.5)),
        "runs": float(len(runs)),
        "batch": float(runs["batch_size"].max()),
        "place": LOSES,
    }


def _compare(ranked: Sequence[dict[str, Any]], errors: Sequence[Array]) -> None:
    """Add factor, place and beats_zero, which depend on the other lines and w = 0."""
    ran = [
        (row, statistics.resampled_medians(own, sample))
        for sample, (row, own) in enumerate(zip(ranked, errors, strict=True))
        if row["status"] == "ok"
    ]
    least = min((row[of] for row, _ in ran for of in ("zero", "median")), default=0.0)
    for row, draws in ran:
        row["factor"] = max(row["median"], FLOOR) / max(least, FLOOR)
        low, high = statistics.central(draws, LIKELY)
        beaten, better = high < row["zero"], low > row["zero"]
        row["beats_zero"] = "yes" if beaten else "no" if better else "tie"
    able = [one for one in ran if one[0]["beats_zero"] == "yes"]
    if able:
        best, best_draws = min(able, key=lambda one: float(one[0]["median"]))
        for row, draws in able:
            near = _near(draws, best_draws)
            row["place"] = WINS if row is best else TIES if near else LOSES


def _near(draws: Array, best: Array) -> bool:
    """Return whether a median may be as small as the best one.

    The samples are not paired: each algorithm has noise of its own.
    """
    lost = ~np.isfinite(draws) | ~np.isfinite(best)
    gap = np.where(lost, math.inf, np.where(lost, 0.0, draws) - np.where(lost, 0, best))
    return statistics.central(gap, LIKELY)[0] <= 0.0


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
    """
    grouped = ranking.groupby(["panel", "epsilon"], sort=False)
    ran = ranking[ranking["status"] == "ok"]
    least = grouped[["median", "zero"]].min().min(axis=1).clip(lower=FLOOR)
    by_line = {str(line): rows["factor"] for line, rows in ran.groupby("line")}
    zero = grouped["zero"].first().clip(lower=FLOOR) / least
    ratios = {line: own.to_numpy(float) for line, own in by_line.items()}
    ratios[ZERO] = zero.to_numpy(float)
    return contest.shares(ratios, len(grouped), factors)
