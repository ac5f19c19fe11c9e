"""A point as a linear model: margins and predictions for records with names."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from dp_erm_bench.datasets import base
from dp_erm_bench.datasets.base import Array, Dataset, Features
from dp_erm_bench.datasets.prepare import KEY as INTERCEPT
from dp_erm_bench.datasets.records import first_odd, from_zero, spelling
from dp_erm_bench.datasets.spec import asked, check_spec
from dp_erm_bench.datasets.table import indicators
from dp_erm_bench.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


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
    categories : mapping of str to tuple of str or float
        The categories of each column whose indicators are features: a table
        may have the column itself, of texts or numbers, in their place.
    """

    w: Array
    classification: bool
    feature_names: tuple[str, ...]
    intercept: float = 0.0
    categories: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def weights(self) -> Mapping[str, float]:
        """Return the entries of w by the name of their feature."""
        return dict(zip(self.feature_names, self.w.tolist(), strict=True))

    def decision_function(self, X: Any) -> Array:
        """Return the margins x.w of records, shape (n,).

        Parameters
        ----------
        X : array, sparse matrix, DataFrame or mapping of columns, of shape (n, p)
            Without the constant column of an intercept or with it. The columns of a
            table are found by name, and texts become indicators of their categories.

        Raises
        ------
        UsageError
            For another number of columns, a column that is missing or stands twice, a
            value that is missing or not finite, or a word that is no category.
        """
        features = self._features(X)
        p = self.w.size
        short = bool(self.intercept) and features.shape[1] == p - 1
        if not short and features.shape[1] != p:
            raise UsageError(
                f"X of shape {features.shape}: must have the {p} columns "
                f"{_listed(self.feature_names)}"
            )
        _check_finite("X", features)
        with np.errstate(over="ignore", invalid="ignore"):
            if short:
                margins = features @ self.w[:-1] + self.intercept * self.w[-1]
            else:
                margins = features @ self.w
        if (odd := ~np.isfinite(margins)).any():
            where = f"of record {int(odd.argmax())}"
            raise UsageError(f"X: the margin {where} is larger than all numbers")
        return np.asarray(margins)

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
        X : array, sparse matrix, DataFrame or mapping of columns, of shape (n, p)
        y : array of shape (n,)
            Labels; for a classification -1 and +1, 0 and 1, or booleans.

        Raises
        ------
        UsageError
            As `decision_function` does, and for other labels.
        """
        answers, told = self.predict(X), base.plain("y", y)
        if self.classification and any(isinstance(v, str | bytes) for v in told.flat):
            base.check_missing("y", told)
            raise UsageError(
                "y: labels must be -1 or +1, as those of the problem are; for words "
                "give numpy.where(y == 'yes', 1, -1)"
            )
        labels = np.asarray(base.numbers("y", y), np.float64)
        _check_finite("y", labels)
        if labels.shape != answers.shape:
            raise UsageError(
                f"y of shape {labels.shape}: must be of shape {answers.shape}, one "
                "label for each record of X"
            )
        if not self.classification:
            # Not at the top: it takes longer than a fit.
            from sklearn.metrics import r2_score

            return float(r2_score(labels, answers))
        labels, _ = from_zero(labels)
        if (np.abs(labels) != 1.0).any():
            raise UsageError("y: labels must be -1 or +1, as those of the problem are")
        return float(np.mean(answers == labels))

    def _features(self, X: Any) -> Features:
        if isinstance(X, Mapping):
            X = _table(X)
        if isinstance(X, np.ma.MaskedArray):
            raise UsageError("X: must be an array of numbers, not masked ones")
        if not (hasattr(X, "columns") and hasattr(X, "to_numpy")):
            sparse = hasattr(X, "tocsc")
            features = base.as_features(X if sparse else base.numbers("X", X))
            if features.ndim != 2:
                raise UsageError(f"X of shape {features.shape}: must be (n, p)")
            return features
        names, there = list(self.feature_names), set(map(str, X.columns))
        if self.intercept and names[-1] not in there:
            names.pop()
        # Columns without names of their own are taken in order.
        named = all(isinstance(column, str) for column in X.columns)
        if not named:
            return base.as_features(base.table_of("X", X)[1])
        base.check_headings("X", X)
        made = self._indicators(X, there)
        missing = [name for name in names if name not in there | {*made}]
        if missing:
            name = self._source.get(missing[0], missing[0])
            raise UsageError(f"X: has no column {name}, which the model needs")
        own = [name for name in names if name not in made]
        found = base.table_of("X", X[own])[1]
        if not made:
            return base.as_features(found)
        columns = made | dict(zip(own, found.T, strict=True))
        return base.as_features(np.column_stack([columns[name] for name in names]))

    @property
    def _source(self) -> dict[str, str]:
        """Return the column of texts that each indicator is made of."""
        given = self.categories.items()
        return {name: k for k, chosen in given for name in _indicated(k, chosen)}

    def _indicators(self, X: Any, there: set[str]) -> dict[str, Array]:
        """Return the indicators that a table lacks and whose columns it has."""
        made: dict[str, Array] = {}
        for name, chosen in self.categories.items():
            if name in there and not _indicated(name, chosen) <= there:
                (column,) = _table({name: X[name]}).items()
                made |= {
                    str(one.name): one.to_numpy(np.float64)
                    for one in indicators("X", column[1], chosen)
                }
        return made


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


def _indicated(column: str, categories: tuple[Any, ...]) -> set[str]:
    """Return the names of a column's indicators."""
    return {f"{column}={spelling(one)}" for one in categories}


def categories(data: Dataset) -> dict[str, tuple[Any, ...]]:
    """Return the categories of a dataset's columns: declared, or read and spelled.

    A column whose indicators have no names of their own is left out.
    """
    if data.loaded is None:
        return {}
    spec = check_spec(data.loaded)
    found = asked(getattr(spec.loader, "categories", lambda: {}), spec.options)
    names = feature_names(data)
    chosen = {
        k: tuple(n[len(k) + 1 :] for n in names if n.startswith(f"{k}=")) for k in found
    }
    # A declared list also tells a column `a` with `b=c` from one called `a=b`.
    chosen |= {k: declared for k, declared in found.items() if declared is not None}
    return {k: c for k, c in chosen.items() if _indicated(k, c) <= {*names}}


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


def _table(columns: Mapping[str, Any]) -> pd.DataFrame:
    # Not at the top: it takes longer than a fit.
    import pandas as pd

    try:
        return pd.DataFrame({key: np.asarray(one) for key, one in columns.items()})
    except ValueError as error:
        raise UsageError(f"X: must be columns of one length ({error})") from error


def _check_finite(key: str, found: Features) -> None:
    """Refuse numbers that are not finite, naming the first record."""
    if isinstance(found, np.ndarray):
        base.check_missing(key, found)
    entries = found if isinstance(found, np.ndarray) else found.data
    if not np.isfinite(entries).all():
        raise UsageError(f"{key}: holds a value that is not finite{first_odd(found)}")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names if len(names) <= 6 else (*names[:5], "..."))
