"""What held-out records say of models: risk, accuracy, AUC."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import Array

if TYPE_CHECKING:
    from dp_erm_bench.problems.erm.objective import ERM


def held_out(problem: ERM, w: Array) -> dict[str, Array]:
    """Return what the test part says of B models, (B, p) to (B,) each.

    Without a test part nothing. `test_risk` is the mean loss, `test_objective` the
    same with the penalty; for a classification there are `test_accuracy` and
    `balanced_accuracy`, the latter nan where the test part has one class.
    """
    data = problem.dataset
    if data.X_test is None or data.y_test is None:
        return {}
    margins, y = w @ data.X_test.T, data.y_test
    risk = problem.loss.value(y, margins).mean(axis=1)
    columns = {"test_objective": risk + problem.penalty.value(w), "test_risk": risk}
    if problem.loss.classification:
        positive = y > 0.0
        right = (margins >= 0.0) == positive
        hits, first = np.count_nonzero(right & positive, axis=1), positive.sum()
        total = np.count_nonzero(right, axis=1)
        columns["test_accuracy"] = total / y.size
        with np.errstate(invalid="ignore"):
            others = (total - hits) / (y.size - first)
            columns["balanced_accuracy"] = (hits / first + others) / 2.0
    return columns


def ranking(problem: ERM, w: Array) -> dict[str, Array]:
    """Return `auc` of B models on the test part of a classification, if it has one.

    It takes a sort, which at every checkpoint would take a fifth of the time of a run.
    """
    data = problem.dataset
    if data.X_test is None or data.y_test is None or not problem.loss.classification:
        return {}
    return {"auc": auc(w @ data.X_test.T, data.y_test > 0.0)}


def references(problem: ERM, minimiser: Array | None) -> dict[str, dict[str, float]]:
    """Return what the test part of a classification says of models to compare with.

    Without a test part, or of a regression, nothing.

    Returns
    -------
    dict
        By name of the model its measures: ``optimum``, the `minimiser` (left out where
        none is certified), and ``base_rate``, which answers the log-odds of the
        training part's classes for every record.
    """
    data = problem.dataset
    if data.X_test is None or data.y_test is None or not problem.loss.classification:
        return {}
    found = {}
    if minimiser is not None:
        w = minimiser[None]
        seen = held_out(problem, w) | ranking(problem, w)
        found["optimum"] = {name: float(values[0]) for name, values in seen.items()}
    share, positive = float(np.mean(data.y > 0.0)), data.y_test > 0.0
    odds = math.log(share / (1.0 - share)) if 0.0 < share < 1.0 else math.nan
    risk = problem.loss.value(data.y_test, np.full(positive.size, odds))
    half = 0.5 if 0 < positive.sum() < positive.size else math.nan
    found["base_rate"] = {
        "test_risk": float(risk.mean()),
        "test_accuracy": float(np.mean(positive == (share >= 0.5))),
        **dict.fromkeys(("balanced_accuracy", "auc"), half),
    }
    return found


def lacking(problem: ERM, quantity: str) -> str:
    """Return why models cannot be judged by a quantity, empty if they can.

    Parameters
    ----------
    problem : ERM
    quantity : str
        ``objective``, or a column of `held_out` or `ranking`.
    """
    y = problem.dataset.y_test
    if quantity == "objective":
        return ""
    if y is None:
        return "the dataset has no test part, give it a dataset.test_fraction"
    if quantity in ("test_objective", "test_risk"):
        return ""
    if not problem.loss.classification:
        return f"loss {problem.loss.name} is of a regression, without classes"
    if quantity != "test_accuracy" and np.ptp(y) == 0.0:
        return "all records of the test part are of one class"
    return ""


def auc(scores: Array, positive: NDArray[np.bool]) -> Array:
    """Return the area under the ROC curve of B score vectors.

    The share of the pairs of a positive and a negative record in which the positive
    one has the larger score; ties count one half. One sort for each vector:
    O(B n log n) time.

    Parameters
    ----------
    scores : array of shape (B, n)
    positive : boolean array of shape (n,)

    Returns
    -------
    array of shape (B,)
        nan where a score is nan, or all records are of one class.
    """
    n, first = positive.size, int(positive.sum())
    if first in (0, n):
        return np.full(len(scores), np.nan)
    areas = np.empty(len(scores))
    for b, row in enumerate(scores):
        order = np.argsort(row)
        ranked, places = row[order], np.flatnonzero(positive[order]).astype(np.float64)
        # Mann and Whitney: the sum of the places of the positive records.
        total = places.sum()
        ties = ranked[1:] == ranked[:-1]
        if ties.any():
            starts = np.flatnonzero(np.concatenate([[True], ~ties]))
            inside = np.add.reduceat(positive[order], starts, dtype=np.float64)
            ends = np.append(starts[1:], n)
            total = float(inside @ (starts + ends - 1.0)) / 2.0
        areas[b] = math.nan if math.isnan(ranked[-1]) else total
    return (areas - first * (first - 1) / 2.0) / (first * (n - first))
