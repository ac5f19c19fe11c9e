"""Checks of records: of one length, finite, labels that a loss takes."""

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets import base
from dp_erm_bench.datasets.base import Array, Features
from dp_erm_bench.errors import UsageError, word

LABEL_PAIRS = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))

MOST_CLASSES = 20
"""More different numbers than these look like targets of a regression."""


def column_max(X: Features) -> Array:
    """Return the largest absolute value of each column, shape (p,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.abs(X).max(axis=0))
    return np.asarray(abs(X).max(axis=0).toarray()).ravel()


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
        read = any(isinstance(label, bool) for label in positive)
        hint = "; quote them in a yaml, which reads yes as true" if read else ""
        raise UsageError(
            f"dataset.positive={list(positive)} of {name}: must be some, but not all, "
            f"of the labels {_listed(classes.values())}{hint}"
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
