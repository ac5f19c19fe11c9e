"""A point as a linear model: margins and predictions for records with names."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dp_erm_bench.datasets import base
from dp_erm_bench.datasets.base import Array, Dataset, Features
from dp_erm_bench.datasets.intercept import KEY as INTERCEPT
from dp_erm_bench.datasets.spec import asked, check_spec
from dp_erm_bench.errors import UsageError


@dataclass(frozen=True, eq=False)
class LinearModel:
    """The linear model of one point.

    Records are those of the problem: where its columns were standardised or its
    records clipped, these must be, too.

    Attributes
    ----------
    w : array of shape (p,)
    classification : bool
        Whether labels are -1 and +1.
    feature_names : tuple of str
        One for each entry of w.
    intercept : float
        The constant of the last feature, which records may lack; 0 if there is none.
    """

    w: Array
    classification: bool
    feature_names: tuple[str, ...]
    intercept: float = 0.0

    @property
    def weights(self) -> Mapping[str, float]:
        """Return the entries of w by the name of their feature."""
        return dict(zip(self.feature_names, self.w.tolist(), strict=True))

    def decision_function(self, X: Any) -> Array:
        """Return the margins x.w of records, shape (n,).

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, p)
            Without the constant column of an intercept or with it. The columns of a
            DataFrame are found by name.

        Raises
        ------
        UsageError
            For another number of columns, or a column that is missing.
        """
        features = self._features(X)
        p = self.w.size
        short = bool(self.intercept) and features.shape[1] == p - 1
        if not short and features.shape[1] != p:
            raise UsageError(
                f"X of shape {features.shape}: must have the {p} columns "
                f"{_listed(self.feature_names)}"
            )
        if not short:
            return np.asarray(features @ self.w)
        return np.asarray(features @ self.w[:-1] + self.intercept * self.w[-1])

    def predict(self, X: Any) -> Array:
        """Return -1 or +1 for a classification, else the margins, shape (n,).

        Raises
        ------
        UsageError
            As `decision_function` does.
        """
        margins = self.decision_function(X)
        return np.where(margins >= 0.0, 1.0, -1.0) if self.classification else margins

    def score(self, X: Any, y: ArrayLike) -> float:
        """Return the accuracy of a classification, else R^2.

        It is computed from the records given: it is no private output.

        Parameters
        ----------
        X : array, sparse matrix or DataFrame of shape (n, p)
        y : array of shape (n,)
            Labels as the problem has them, -1 and +1 for a classification.

        Raises
        ------
        UsageError
            As `decision_function` does, and for other labels.
        """
        labels, answers = np.asarray(base.numbers("y", y), np.float64), self.predict(X)
        if labels.shape != answers.shape:
            raise UsageError(
                f"y of shape {labels.shape}: must be of shape {answers.shape}, one "
                "label for each record of X"
            )
        if not self.classification:
            # Not at the top: it takes longer than a fit.
            from sklearn.metrics import r2_score

            return float(r2_score(labels, answers))
        if (np.abs(labels) != 1.0).any():
            raise UsageError("y: labels must be -1 or +1, as those of the problem are")
        return float(np.mean(answers == labels))

    def _features(self, X: Any) -> Features:
        if not (hasattr(X, "columns") and hasattr(X, "to_numpy")):
            features = base.as_features(X)
            if features.ndim != 2:
                raise UsageError(f"X of shape {features.shape}: must be (n, p)")
            return features
        names, there = list(self.feature_names), set(map(str, X.columns))
        if self.intercept and names[-1] not in there:
            names.pop()
        # Columns without names of their own are taken in order.
        named = all(isinstance(column, str) for column in X.columns)
        missing = [name for name in names if name not in there] if named else []
        if missing:
            raise UsageError(f"X: has no column {missing[0]}, which the model needs")
        return base.as_features((X[names] if named else X).to_numpy())


def feature_names(data: Dataset) -> tuple[str, ...]:
    """Return the names of a dataset's features: a table's own, else x0, x1, ...

    Those of a csv are read from its first row. Where columns without entries were
    dropped, which ones depends on the records: the others are numbered.
    """
    p = data.p - bool(data.intercept)
    if "columns" not in data.derived:
        data.derived["columns"] = data.columns or _read(data)
    names = data.derived["columns"]
    if len(names) != p:
        names = tuple(f"x{j}" for j in range(p))
    return (*names, *[INTERCEPT] * bool(data.intercept))


def _read(data: Dataset) -> tuple[str, ...]:
    if data.loaded is None:
        return ()
    spec = check_spec(data.loaded)
    ask = getattr(spec.loader, "columns", None)
    if ask is None or spec.recipe.drop_empty:
        return ()
    # A file that went since is no reason to lose a fit.
    with contextlib.suppress(UsageError, OSError):
        return tuple(asked(ask, spec.options))
    return ()


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names if len(names) <= 6 else (*names[:5], "..."))
