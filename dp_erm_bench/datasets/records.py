"""Checks of records: of one length, finite, labels that a loss takes."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    name: str,
    y: NDArray[Any],
    *,
    classification: bool,
    positive: Sequence[Any] | None,
    classes: Sequence[Any] | None = None,
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
        labels are a usual pair, or two numbers are declared.
    classes : sequence or None
        All that there may be; None: those that occur.

    Raises
    ------
    UsageError
        If the labels are not of the task or not declared, or if none are declared and
        one side would be empty.
    """
    kind = y.dtype.kind
    mixed = kind == "O" and all(isinstance(v, str | int | float | np.number) for v in y)
    text = kind in "US" or mixed
    if not text and kind not in base.NUMBERS:
        raise UsageError(
            f"dataset {name}: labels must be numbers or text, not {y.dtype}"
        )
    given = [*(classes or ()), *(positive or ())]
    declared = positive is not None or classes is not None
    if classification and declared:
        known = _occurring(y, given) if classes is None else words_of(classes)
        if positive is None:
            chosen: Sequence[Any] = [max(known)]
        else:
            chosen = positive
            _check_chosen(name, positive, known)
        place = places(y, known)
        if (place < 0).any():
            raise UsageError(
                f"dataset {name}: record {int(place.argmin())} has a label that is "
                f"none of classes={sorted(map(spelling, known))}{_hint(given)}"
            )
        up = places(np.array(known, object), chosen) >= 0
        return np.where(up[place], 1.0, -1.0)
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
    """Map the two labels -1/+1, 0/1 or 1/2 to -1/+1, by what occurs."""
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


def _occurring(y: NDArray[Any], given: Sequence[Any]) -> list[Any]:
    """Return the labels that occur, of the kind of those that are given."""
    if y.dtype.kind in base.NUMBERS:
        return list(np.unique(y.astype(np.float64)))
    if are_words(given):
        return sorted(set(map(spelling, y.tolist())))
    numbers = np.array(list(map(as_number, y.tolist())))
    return list(np.unique(numbers[np.isfinite(numbers)]))


def _check_chosen(name: str, positive: Sequence[Any], known: Sequence[Any]) -> None:
    there = set(places(np.array(known, object), positive).tolist()) - {-1}
    if len(there) < len(words_of(positive)) or len(there) in (0, len(known)):
        raise UsageError(
            f"dataset.positive={list(positive)} of {name}: must be some, but not all, "
            f"of the labels {_listed(map(spelling, known))}{_hint(positive)}"
        )


def _hint(given: Sequence[Any]) -> str:
    read = any(isinstance(label, bool) for label in given)
    return "; quote them in a yaml, which reads yes as true" if read else ""


def are_words(given: Iterable[Any]) -> bool:
    """Return whether labels or categories that are given declare text: one is text."""
    return any(isinstance(one, str) for one in given)


def words_of(given: Sequence[Any]) -> list[Any]:
    """Return labels or categories that are given, each once: texts, else numbers.

    Raises
    ------
    UsageError
        If one is neither.
    """
    for one in given:
        if not isinstance(one, str) and np.isnan(as_number(one)):
            raise UsageError(f"{list(given)}: must hold numbers or text only")
    text = are_words(given)
    return list(dict.fromkeys(map(spelling if text else as_number, given)))


def places(cells: NDArray[Any], given: Sequence[Any]) -> NDArray[np.intp]:
    """Return for each cell the place of the word that it is, -1 for none, shape (n,).

    Each cell by itself: as a text, if it is one and a word is; else as a number.
    """
    text = cells.dtype.kind not in base.NUMBERS and are_words(given)
    read: Callable[[Any], Any] = spelling if text else as_number
    found: dict[Any, int] = {}
    for one in given:
        found.setdefault(read(one), len(found))
    own = (found.get(read(cell), -1) for cell in cells.tolist())
    return np.fromiter(own, np.intp, len(cells))


def as_number(label: Any) -> float:
    """Return the number that a label is or spells, nan for a text."""
    try:
        return float(label)
    except (TypeError, ValueError):
        return np.nan


def spelling(label: Any) -> str:
    """Return the text of a label: a word as it is, a number in full."""
    if isinstance(label, bytes):
        return label.decode()
    if isinstance(label, str | bool | np.bool):
        return str(label)
    number = as_number(label)
    whole = number.is_integer() and abs(number) < 2**53
    return str(int(number)) if whole else str(label)


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
