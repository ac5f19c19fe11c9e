"""A dataset of a user's own arrays or table of columns."""

from dataclasses import replace
from typing import Any

import numpy as np

from dp_erm_bench.datasets import base, records
from dp_erm_bench.datasets.base import Array, Bounds, Dataset, Features, Uncharged
from dp_erm_bench.datasets.bounds import clipped
from dp_erm_bench.datasets.intercept import with_bound, with_column
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.datasets.spec import check_classes
from dp_erm_bench.errors import UsageError


def own_dataset(
    X: Any,
    y: Any,
    *,
    bounds: Bounds | None = None,
    positive: object = None,
    classes: object = None,
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
        Labels, text or numbers, that become +1, all others becoming -1.
    classes : list of labels, optional
        All labels that there may be. Without ``positive`` they are two numbers, of
        which the larger becomes +1. None: the categories of a Series that has some,
        else they are read off y, which `uncharged` lists. Without both, labels are not
        mapped: the loss refuses those that it does not know.
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
    known = classes
    if known is None and positive is not None:
        known = getattr(getattr(y, "dtype", None), "categories", None)
    listed = hasattr(known, "__iter__") and not isinstance(known, str)
    known = list(known) if listed else known  # type: ignore[call-overload]
    arrays = {"X": features, "y": _labels(y, positive, known)}
    records.check_raw("arrays", features, arrays["y"])
    if clip_to_bounds and bounds is None:
        raise UsageError("clip_to_bounds=True: needs bounds to clip to")
    if bounds is not None and clip_to_bounds:
        arrays |= clipped("arrays", arrays, bounds)
    if intercept:
        arrays |= with_column(arrays, intercept)
        bounds = bounds and with_bound(bounds, intercept)
    made = dataset_from_arrays(arrays["X"], arrays["y"], bounds=bounds)
    read = (Uncharged.CLASSES,) * (positive is not None and known is None)
    return replace(made, intercept=intercept, columns=columns, uncharged=read)


def _labels(y: Any, positive: object, classes: Any) -> Array:
    """Return labels as numbers, -1 and +1 where it is said which become +1."""
    if positive is None and classes is None:
        try:
            return np.asarray(base.numbers("y", y), np.float64)
        except UsageError as error:
            words = any(isinstance(one, str) for one in np.ravel(np.asarray(y)))
            hint = "; name what becomes +1, as in positive='yes'" if words else ""
            raise UsageError(f"{error}{hint}") from None
    several = isinstance(positive, list | tuple | np.ndarray | None)
    chosen = positive if several else [positive]
    chosen = None if chosen is None else list(chosen)  # type: ignore[call-overload]
    check_classes("arrays", chosen, classes, prefix="")
    how: dict[str, Any] = {"positive": chosen, "classes": classes}
    return records.labels("arrays", np.asarray(y), classification=True, **how)


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
