"""A dataset of a user's own arrays or table of columns."""

from dataclasses import replace
from typing import Any

import numpy as np

from dp_erm_bench.datasets import base, records
from dp_erm_bench.datasets.base import Array, Bounds, Dataset, Features
from dp_erm_bench.datasets.bounds import clipped
from dp_erm_bench.datasets.intercept import with_bound, with_column
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import UsageError


def own_dataset(
    X: Any,
    y: Any,
    *,
    bounds: Bounds | None = None,
    positive: object = None,
    clip_to_bounds: bool = False,
    intercept: float = 0.0,
) -> Dataset:
    """Return the dataset of a user's own records.

    Parameters
    ----------
    X : array, sparse matrix or DataFrame of shape (n, p)
        Numbers; a sparse matrix stays sparse, a DataFrame names the features.
    y : array of shape (n,)
    bounds : Bounds, optional
        On the p features and the label.
    positive : label or list of labels, optional
        Labels, text or numbers, that become +1, all others becoming -1. Without,
        labels are not mapped: the loss refuses those that it does not know.
    clip_to_bounds : bool
        Whether each record is clipped to the bounds.
    intercept : float
        The constant of a last column, which is added after that; 0 for none.

    Raises
    ------
    UsageError
        If they are empty, of unequal length or not finite, or break the bounds; if
        ``positive`` names none of the labels or all.
    """
    columns, features = _table(X)
    arrays = {"X": features, "y": _labels(y, positive)}
    records.check_raw("arrays", features, arrays["y"])
    if clip_to_bounds and bounds is None:
        raise UsageError("clip_to_bounds=True: needs bounds to clip to")
    if bounds is not None and clip_to_bounds:
        arrays |= clipped("arrays", arrays, bounds)
    if intercept:
        arrays |= with_column(arrays, intercept)
        bounds = bounds and with_bound(bounds, intercept)
    made = dataset_from_arrays(arrays["X"], arrays["y"], bounds=bounds)
    return replace(made, intercept=intercept, columns=columns)


def _labels(y: Any, positive: object) -> Array:
    """Return labels as numbers, -1 and +1 where it is said which become +1."""
    if positive is None:
        try:
            return np.asarray(base.numbers("y", y), np.float64)
        except UsageError as error:
            words = any(isinstance(one, str) for one in np.ravel(np.asarray(y)))
            hint = "; name what becomes +1, as in positive='yes'" if words else ""
            raise UsageError(f"{error}{hint}") from None
    several = isinstance(positive, list | tuple | np.ndarray)
    return records.labels(
        "arrays",
        np.asarray(y),
        classification=True,
        positive=list(positive) if several else [positive],  # type: ignore[call-overload]
    )


def _table(X: Any) -> tuple[tuple[str, ...], Features]:
    """Return the names of a table's columns, none for arrays, and its numbers."""
    if hasattr(X, "tocsc"):
        return (), base.as_features(X)
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return (), np.asarray(base.numbers("X", X), np.float64)
    for column, dtype in zip(X.columns, X.dtypes, strict=True):
        if getattr(dtype, "kind", "O") not in base.NUMBERS:
            raise UsageError(
                f"X: column {column} holds {dtype}, features must be numbers"
            )
    named = all(isinstance(column, str) for column in X.columns)
    names = tuple(X.columns) if named else ()
    return names, X.to_numpy(np.float64)
