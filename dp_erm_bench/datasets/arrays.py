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
    classification: bool = False,
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
        else they are read off y, which `uncharged` lists. Without both, labels are
        taken as they are: the loss refuses those that it does not know.
    clip_to_bounds : bool
        Whether each record is clipped to the bounds.
    intercept : float
        The constant of a last column, which is added after that; 0 for none.
    classification : bool
        Whether labels 0 and 1, or booleans, become -1 and +1 without both of these.

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
    labels, read = _labels(y, positive, known, classification)
    arrays = {"X": features, "y": labels}
    records.check_raw("arrays", features, arrays["y"])
    if clip_to_bounds and bounds is None:
        raise UsageError("clip_to_bounds=True: needs bounds to clip to")
    if bounds is not None and clip_to_bounds:
        arrays |= clipped("arrays", arrays, bounds)
    if intercept:
        arrays |= with_column(arrays, intercept)
        bounds = bounds and with_bound(bounds, intercept)
    made = dataset_from_arrays(arrays["X"], arrays["y"], bounds=bounds)
    uncharged = (Uncharged.CLASSES,) * read
    return replace(made, intercept=intercept, columns=columns, uncharged=uncharged)


def _labels(
    y: Any, positive: object, classes: Any, classification: bool
) -> tuple[Array, bool]:
    """Return labels as numbers, -1 and +1 where it is said which become +1.

    And whether the classes were read off them: where 0 stands for -1, as it does with
    1, or where ``positive`` is given alone.
    """
    if isinstance(y, np.ma.MaskedArray):
        raise UsageError("y: must be an array of numbers, not masked ones")
    if positive is None and classes is None:
        try:
            told = np.asarray(base.numbers("y", y), np.float64)
        except UsageError as error:
            words = any(isinstance(one, str) for one in np.ravel(np.asarray(y)))
            hint = "; name what becomes +1, as in positive='yes'" if words else ""
            raise UsageError(f"{error}{hint}") from None
        return records.from_zero(told) if classification else (told, False)
    several = isinstance(positive, list | tuple | np.ndarray | None)
    chosen = positive if several else [positive]
    chosen = None if chosen is None else list(chosen)  # type: ignore[call-overload]
    check_classes("arrays", chosen, classes, prefix="")
    how: dict[str, Any] = {"positive": chosen, "classes": classes}
    found = records.labels("arrays", base.plain("y", y), classification=True, **how)
    return found, classes is None


def _table(X: Any) -> tuple[tuple[str, ...], Features]:
    """Return the names of a table's columns, none for arrays, and its numbers."""
    if hasattr(X, "tocsc"):
        return (), base.as_features(X)
    if not (hasattr(X, "columns") and hasattr(X, "dtypes")):
        return (), np.asarray(base.numbers("X", X), np.float64)
    headings, found = base.table_of("X", X)
    named = all(isinstance(column, str) for column in headings)
    return tuple(headings) if named else (), found
