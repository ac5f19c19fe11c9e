"""Declared bounds of records: read, checked, and clipped to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_erm_bench import registry
from dp_erm_bench.datasets import base
from dp_erm_bench.datasets.base import (
    Array,
    Bounds,
    Features,
    as_features,
    largest_entries,
    norms,
)
from dp_erm_bench.datasets.records import column_max
from dp_erm_bench.errors import UsageError, number
from dp_erm_bench.kernels.lengths import norm2, powers_of, unscaled

KEYS = ["columns", "label", "nonzeros", "norm"]
SLACK = 1.0 + 1e-12
"""Rounding of a norm that a record may exceed its bound by."""
MOST = 1e150
"""The largest bound: squares of it add up to finite numbers."""


@dataclass(frozen=True, eq=False)
class Declared:
    """Bounds as a yaml states them, before the number of features is known.

    Parameters
    ----------
    columns : array of shape (p,) or ()
        One value for each column of the dataset, or one for all.
    norm : float or None
        None: the norm implied by the columns.
    label : float or None
    nonzeros : int or None
    """

    columns: Array
    norm: float | None = None
    label: float | None = None
    nonzeros: int | None = None

    @property
    def key(self) -> list[Any]:
        """Return the bounds JSON-able."""
        sparsity = [] if self.nonzeros is None else [self.nonzeros]
        return [self.columns.tolist(), self.norm, self.label, *sparsity]

    def of(self, name: str, p: int) -> Bounds:
        """Return the bounds of a dataset with p features.

        Raises
        ------
        UsageError
            If there is another number of columns, or fewer than ``nonzeros``.
        """
        if self.columns.ndim and self.columns.size != p:
            raise _wrong_length(name, self.columns.size, p)
        _check_nonzeros("dataset.bounds", self.nonzeros, p)
        columns = np.broadcast_to(self.columns, p)
        norm = float(norm2(columns)) if self.norm is None else self.norm
        return Bounds(columns, norm, self.label, self.nonzeros)


def declared_by(value: Mapping[str, Any] | None) -> Declared | None:
    """Return the bounds that a yaml declares.

    Without ``columns`` each entry is bounded by ``norm``.

    Raises
    ------
    UsageError
        For unknown keys, or values that are no bounds.
    """
    if value is None:
        return None
    keys = set(value) if isinstance(value, Mapping) else set()
    if not ({"columns", "norm"} & keys and keys <= {*KEYS}):
        allowed = "null or a mapping with columns or norm, and label, nonzeros"
        raise UsageError(f"dataset.bounds={value}: must be {allowed}")
    columns = value["columns"] if "columns" in value else value["norm"]
    slack = 1.0 if "columns" in value else SLACK
    several = isinstance(columns, list | tuple)
    each = columns if several else [columns]
    checked = [slack * _bound("columns", one) for one in each]
    array = np.array(checked if several else checked[0])
    array.flags.writeable = False
    others = {key: value.get(key) for key in ("norm", "label")}
    return Declared(
        array,
        **{k: None if v is None else _bound(k, v) for k, v in others.items()},
        nonzeros=value.get("nonzeros"),
    )


def _bound(key: str, value: object) -> float:
    if not 0.0 <= number(value) <= MOST:
        allowed = f"a finite number >= 0, at most {MOST:g}"
        raise UsageError(f"dataset.bounds.{key}={value}: must be {allowed}")
    return number(value)


def declared_bounds(spec: Mapping[str, Any] | ArrayLike, p: int) -> Bounds:
    """Return the bounds of p features that a caller declares.

    Parameters
    ----------
    spec : mapping, float or array of shape (p,)
        ``columns`` or ``norm``, and optionally ``label`` and ``nonzeros``. What is no
        mapping bounds the columns; without ``columns`` the norm bounds each of them.
    p : int

    Raises
    ------
    UsageError
        For unknown keys, wrong shapes, or numbers that are no bounds.
    """
    declared: Mapping[str, Any]
    declared = spec if isinstance(spec, Mapping) else {"columns": spec}
    for key in declared:
        registry.check_choice("bounds", key, KEYS)
    columns = _array("columns", declared.get("columns", declared.get("norm")))
    columns = columns if "columns" in declared else columns * SLACK
    if columns.shape not in ((), (p,)):
        raise UsageError(
            f"bounds.columns of shape {columns.shape}: must be one number or {p}"
        )
    columns = np.broadcast_to(columns, (p,))
    norm = _array("norm", declared["norm"]) if "norm" in declared else norm2(columns)
    label, nonzeros = declared.get("label"), declared.get("nonzeros")
    label = label if label is None else float(_array("label", label))
    nonzeros = nonzeros.item() if isinstance(nonzeros, np.generic) else nonzeros
    _check_nonzeros("bounds", nonzeros, p)
    return Bounds(columns, float(norm), label, nonzeros)


def _array(key: str, value: Any) -> Array:
    given = np.nan if value is None else value
    bound = np.asarray(base.numbers(f"bounds.{key}", given), np.float64)
    if not ((bound >= 0.0) & (bound <= MOST * SLACK)).all():
        allowed = f"finite and >= 0, at most {MOST:g}"
        raise UsageError(f"bounds.{key}={value}: must be {allowed}")
    return bound


def _check_nonzeros(key: str, value: object, p: int) -> None:
    """Refuse all but numbers of non-zeros that a record of p features may have."""
    if value is not None and not (type(value) is int and 1 <= value <= p):
        allowed = f"an integer from 1 to the number of features, {p}"
        raise UsageError(f"{key}.nonzeros={value}: must be {allowed}")


def _wrong_length(name: str, size: int, p: int) -> UsageError:
    return UsageError(
        f"dataset.bounds.columns of {name}: has {size} values, must have one for "
        f"each of the {p} features, or be one number for all"
    )


def check_bounds(name: str, X: Features, y: Array, bounds: Bounds) -> None:
    """Refuse declared bounds of the wrong length, or that a record breaks."""
    if bounds.columns.shape != X.shape[1:]:
        raise _wrong_length(name, bounds.columns.size, X.shape[1])
    broken = np.flatnonzero(column_max(X) > bounds.columns)
    most = bounds.nonzeros
    bound: float
    if broken.size:
        column = broken[0]
        what, bound = f"feature {column} exceeds its", bounds.columns[column]
        key = "columns"
    elif norms(X).max() > bounds.norm * SLACK:
        key, what, bound = "norm", "a record exceeds the", bounds.norm
    elif bounds.label is not None and np.abs(y).max() > bounds.label:
        key, what, bound = "label", "a label exceeds the", bounds.label
    elif most is not None and (found := int(nonzeros(X).max())) > most:
        what, bound = f"a record has {found} non-zeros, more than the", most
        key = "nonzeros"
    else:
        return
    raise UsageError(
        f"dataset.bounds.{key} of {name}: {what} declared bound {bound:g}; correct "
        "it, or clip records with dataset.clip_to_bounds=true"
    )


def nonzeros(X: Features) -> NDArray[np.int64]:
    """Return the number of non-zeros of each record, shape (n,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.count_nonzero(X, axis=1))
    return np.bincount(X.indices, minlength=X.shape[0])


def clipped(
    name: str, arrays: Mapping[str, Features], declared: Declared | Bounds
) -> dict[str, Features]:
    """Return features and labels with every record clipped to the bounds.

    Features are clipped one by one, those beyond the largest ``nonzeros`` of a record
    become 0, then the record is shrunk to the norm: each record by itself, which costs
    no budget.
    """
    p = arrays["X"].shape[1]
    bounds = declared if isinstance(declared, Bounds) else declared.of(name, p)
    within: dict[str, Features] = {}
    for key, array in arrays.items():
        if key in ("X", "X_test"):
            within[key] = _clipped(as_features(array), bounds)
        elif key in ("y", "y_test") and bounds.label is not None:
            within[key] = np.clip(array, -bounds.label, bounds.label)
    return within


def _clipped(X: Features, bounds: Bounds) -> Features:
    if isinstance(X, np.ndarray):
        X = np.clip(X, -bounds.columns, bounds.columns)
    else:
        limits = np.repeat(bounds.columns, np.diff(X.indptr))
        data = {".data": np.clip(X.data, -limits, limits)}
        X = base.assembled(X.shape, base.parts(X) | data)
    if bounds.nonzeros is not None:
        X = _largest(X, bounds.nonzeros)
    lengths = norms(X)
    outside = lengths > bounds.norm
    odd = outside & ~unscaled(lengths)
    if odd.any():
        # Their largest entries become about 1 first: no factor loses digits then.
        powers = np.where(odd, powers_of(largest_of_records(X)), 0)
        X = scaled(X, rows=np.ldexp(1.0, -powers))
        lengths = np.where(odd, norms(X), lengths)
    shrink = bounds.norm / np.where(outside, lengths, bounds.norm or 1.0)
    return scaled(X, rows=shrink)


def largest_of_records(X: Features) -> Array:
    """Return the largest absolute value of each record, shape (n,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.abs(X).max(axis=1))
    return largest_entries(X.shape[0], X.indices, X.data)


def scaled(X: Features, *, rows: ArrayLike = 1.0, columns: ArrayLike = 1.0) -> Features:
    """Return the features times a factor per record and per column."""
    n, p = X.shape
    rows, columns = np.broadcast_to(rows, n), np.broadcast_to(columns, p)
    if isinstance(X, np.ndarray):
        return np.asarray(X * rows[:, None] * columns)
    factors = rows[X.indices] * np.repeat(columns, np.diff(X.indptr))
    return base.assembled(X.shape, base.parts(X) | {".data": X.data * factors})


def _largest(X: Features, most: int) -> Features:
    """Return the features with the largest entries of each record only."""
    if isinstance(X, np.ndarray):
        order = np.argsort(-np.abs(X), axis=1, kind="stable")[:, :most]
        kept = np.zeros(X.shape, bool)
        np.put_along_axis(kept, order, True, axis=1)
        return np.where(kept, X, 0.0)
    from scipy.sparse import csc_array

    columns = np.repeat(np.arange(X.shape[1]), np.diff(X.indptr))
    # Of equal entries the first ones stay, as in a dense matrix.
    order = np.lexsort((columns, -np.abs(X.data), X.indices))
    starts = np.concatenate([[0], np.cumsum(nonzeros(X))[:-1]])
    rank = np.empty(order.size, np.int64)
    rank[order] = np.arange(order.size) - starts[X.indices[order]]
    held = rank < most
    triples = (X.data[held], (X.indices[held], columns[held]))
    return as_features(csc_array(triples, shape=X.shape))
