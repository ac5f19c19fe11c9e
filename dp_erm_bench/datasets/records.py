"""Checks of records: finite, labels that a loss takes, within declared bounds."""

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets import base
from dp_erm_bench.datasets.base import Array, Bounds, Features, as_features, norms
from dp_erm_bench.errors import UsageError, word

LABEL_PAIRS = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))

MOST_CLASSES = 20
"""More different numbers than these look like targets of a regression."""

SLACK = 1.0 + 1e-12
"""Rounding of a norm that a record may exceed its bound by."""


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
    """

    columns: Array
    norm: float | None = None
    label: float | None = None

    @property
    def key(self) -> list[Any]:
        """Return the bounds JSON-able."""
        return [self.columns.tolist(), self.norm, self.label]

    def of(self, name: str, p: int) -> Bounds:
        """Return the bounds of a dataset with p features.

        Raises
        ------
        UsageError
            If there is another number of columns.
        """
        if self.columns.ndim and self.columns.size != p:
            raise _wrong_length(name, self.columns.size, p)
        columns = np.broadcast_to(self.columns, p)
        norm = float(np.linalg.norm(columns)) if self.norm is None else self.norm
        return Bounds(columns=columns, norm=norm, label=self.label)


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
    if broken.size:
        column = broken[0]
        what, bound = f"feature {column} exceeds its", bounds.columns[column]
        key = "columns"
    elif norms(X).max() > bounds.norm * SLACK:
        key, what, bound = "norm", "a record exceeds the", bounds.norm
    elif bounds.label is not None and np.abs(y).max() > bounds.label:
        key, what, bound = "label", "a label exceeds the", bounds.label
    else:
        return
    raise UsageError(
        f"dataset.bounds.{key} of {name}: {what} declared bound {bound:g}; correct "
        "it, or clip records with dataset.clip_to_bounds=true"
    )


def column_max(X: Features) -> Array:
    """Return the largest absolute value of each column, shape (p,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.abs(X).max(axis=0))
    return np.asarray(abs(X).max(axis=0).toarray()).ravel()


def clipped(
    name: str, arrays: Mapping[str, Features], declared: Declared | Bounds
) -> dict[str, Features]:
    """Return features and labels with every record clipped to the bounds.

    Features are clipped one by one, then the record is shrunk to the norm: each
    record by itself, which costs no budget.
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
    lengths = norms(X)
    shrink = bounds.norm / np.where(lengths > bounds.norm, lengths, bounds.norm or 1.0)
    return base.scaled(X, rows=shrink)


def check_raw(name: str, X: Features, y: NDArray[Any]) -> None:
    """Refuse data that are empty, of unequal length or not finite."""
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise UsageError(
            f"dataset {name}: X of shape {X.shape} and y of shape {y.shape} are "
            "not allowed, they must be (n, p) and (n,)"
        )
    if not all(X.shape):
        raise UsageError(f"dataset {name}: X of shape {X.shape} is empty")
    if X.shape[0] == 1:
        raise UsageError(
            f"dataset {name}: has one record, at least two are needed "
            "(delta = 1/n^2 would be 1)"
        )
    entries = X if isinstance(X, np.ndarray) else X.data
    for key, array in (("X", entries), ("y", y)):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UsageError(f"dataset {name}: {key} holds a value that is not finite")


def labels(
    name: str, y: NDArray[Any], *, classification: bool, positive: Sequence[Any] | None
) -> Array:
    """Return -1 and +1 for a classification, the numbers themselves otherwise.

    Parameters
    ----------
    name : str
        Of the dataset, for the message.
    y : array of shape (n,)
        Labels as the file has them, numbers or text.
    classification : bool
    positive : sequence or None
        The classes that become +1, all others becoming -1; None where the two
        labels are a usual pair.

    Raises
    ------
    UsageError
        If the labels are not of the task, or one side would be empty.
    """
    kind = y.dtype.kind
    mixed = kind == "O" and all(isinstance(v, str | int | float | np.number) for v in y)
    text = kind in "US" or mixed
    if not text and kind not in base.NUMBERS:
        raise UsageError(
            f"dataset {name}: labels must be numbers or text, not {y.dtype}"
        )
    if classification and positive is not None:
        return _chosen(name, y.astype(str) if text else y, positive)
    if text:
        hint = " or name those that become +1 with dataset.positive=[...]"
        raise UsageError(
            f"dataset {name}: label {word(y[0])} is text, labels must be numbers"
            f"{hint * classification}"
        )
    numbers = y.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise UsageError(f"dataset {name}: y holds a value that is not finite")
    return signs(name, numbers) if classification else numbers


def signs(name: str, y: Array) -> Array:
    """Map the two labels -1/+1, 0/1 or 1/2 to -1/+1."""
    classes = np.unique(y)
    if classes.size > MOST_CLASSES:
        raise UsageError(
            f"dataset {name}: holds {classes.size} different numbers, which are no "
            "classes; name another column with dataset.label, or have a regression "
            "with dataset.task=regression, which a loss such as loss=huber implies"
        )
    if tuple(classes) not in LABEL_PAIRS:
        raise UsageError(
            f"dataset {name}: labels {_listed(map(spelling, classes))} are not "
            "allowed, classification needs both of -1/1, 0/1 or 1/2, or "
            "dataset.positive=[...] with the classes that become +1"
        )
    return np.where(y == classes[1], 1.0, -1.0)


def _chosen(name: str, y: NDArray[Any], positive: Sequence[Any]) -> Array:
    """Map the classes named to +1 and all others to -1."""
    classes = {label: spelling(label) for label in np.unique(y)}
    labels, chosen = set(classes.values()), {spelling(label) for label in positive}
    if not chosen <= labels or len(chosen) in (0, len(labels)):
        raise UsageError(
            f"dataset.positive={list(positive)} of {name}: must be some, but not all, "
            f"of the labels {_listed(classes.values())}"
        )
    mask = np.isin(y, [label for label, text in classes.items() if text in chosen])
    return np.where(mask, 1.0, -1.0)


def spelling(label: Any) -> str:
    """Return one spelling of a label: a number as short as can be."""
    try:
        return f"{float(label):.12g}"
    except (TypeError, ValueError):
        return str(label)


def _listed(labels: Iterable[str]) -> str:
    words = [word(label) for label in itertools.islice(labels, 6)]
    return ", ".join(words[:5]) + ", ..." * (len(words) > 5)


def content_hash(arrays: Mapping[str, Features]) -> str:
    """Return the SHA-256 of named arrays: names, shapes and column-major bytes."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name}{array.shape}".encode())
        if isinstance(array, np.ndarray):
            total.update(np.ascontiguousarray(array.T, dtype=np.float64).data)
            continue
        for suffix, part in base.parts(array).items():
            total.update(f"{suffix}{part.dtype}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).data)
    return total.hexdigest()
