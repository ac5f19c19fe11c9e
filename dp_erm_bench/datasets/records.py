"""Check raw records, and turn labels into numbers that a loss accepts.

A *word* is a declared or occurring label or category. Words are strings or numbers.
"""

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets import base
from dp_erm_bench.datasets.base import Array, Features
from dp_erm_bench.errors import UsageError, quote_word

LABEL_PAIRS = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))

BOOLEANS = {
    spelled: str(int(value))
    for value in (False, True)
    for spelled in (str(value), str(value).lower(), str(value).upper())
}
"""Words for 0 and 1 in a column of numbers."""

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""Pattern of a number in a file; Python also accepts other spellings, such as 1_0."""

NUMERIC = (int, float, np.integer, np.floating, np.bool)
"""Types of numbers in an array of objects."""

EXACT = 2.0**53
"""Whole numbers below this are exact in float64."""

MOST_CLASSES = 20
"""Labels with more different numbers than this look like targets of a regression."""

NO_ANSWER = frozenset(
    ["unknown", "unk", "missing", "noanswer", "notavailable", "undefined", "inf", "tbd"]
    + ["null", "nil", "nan", "blank", "notapplicable"]
)
"""Labels that may mean a missing value, as `fold_word` returns them."""

NINES = 10.0 ** np.arange(1, 8) - 1.0
"""Numbers that, with either sign, stand for a missing answer in surveys."""


def column_max(X: Features) -> Array:
    """Return the largest absolute value of each column, shape (p,)."""
    # The absolute values of all entries would take as much memory as X.
    ends = X.min(axis=0), X.max(axis=0)
    if not isinstance(X, np.ndarray):
        ends = tuple(end.toarray().ravel() for end in ends)
    return np.asarray(np.abs(ends).max(axis=0))


def check_raw(name: str, X: Features, y: NDArray[Any]) -> None:
    """Raise UsageError if data are empty, of unequal length or not finite.

    At least two records are needed.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    X : array or csc_array of shape (n, p)
    y : array of shape (n,)
        Numbers or text; only floats are checked for finite values.
    """
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
    check_finite_numbers(f"dataset {name}: X", X)
    if y.dtype.kind == "f":
        check_finite_numbers(f"dataset {name}: y", y)


def check_finite_numbers(whose: str, found: Any) -> None:
    """Raise UsageError if a number is not finite, naming the first such record.

    Raises
    ------
    UsageError
        The message begins with ``whose``.
    """
    entries = found if isinstance(found, np.ndarray) else found.data
    if np.isfinite(entries).all():
        return
    if isinstance(found, np.ndarray):
        place = np.argwhere(~np.isfinite(found))[0]
    else:
        rows = found.tocsr().tocoo()
        entry = int(np.argmin(np.isfinite(rows.data)))
        place = rows.row[entry], rows.col[entry]
    feature = f", feature {place[1]}" if len(place) > 1 else ""
    where = f"record {place[0]}{feature}, counted from 0"
    raise UsageError(f"{whose} holds a value that is not finite: {where}")


def label_numbers(
    name: str,
    y: NDArray[Any],
    *,
    classification: bool,
    positive: Sequence[Any] | None,
    classes: Sequence[Any] | None = None,
) -> Array:
    """Return labels as -1 and +1 for a classification, else as plain numbers.

    Parameters
    ----------
    name : str
        Name of the dataset, for messages.
    y : array of shape (n,)
        Labels as they are in the file, numbers or text.
    classification : bool
        Whether the labels are classes.
    positive : sequence or None
        The classes that become +1; all others become -1. It may be None if the labels
        are a usual pair, or if two numbers are declared.
    classes : sequence or None
        All labels that may occur. None means those that do occur.

    Raises
    ------
    UsageError
        If the labels do not fit the task or are not declared, or if no classes are
        declared and all labels or none would become +1.
    """
    given = [*(classes or ()), *(positive or ())]
    _check_kind(name, y, given)
    if y.dtype.kind == "O" and all(isinstance(v, NUMERIC) for v in y.flat):
        y = y.astype(np.float64)
    if y.dtype.kind == "M":
        y = y.astype("M8[us]").astype(object)
    if classification and (positive is not None or classes is not None):
        if classes is not None:
            known = distinct_words(classes, "dataset.classes")
        else:
            known = _occurring_labels(y, given)
            _check_chosen(name, given, known)
            _check_others(name, y, known, given)
        chosen = [max(known)] if positive is None else positive
        place = word_places(y, known)
        if (place < 0).any():
            raise UsageError(
                f"dataset {name}: record {int(place.argmin())} has a label that is "
                "none of "
                f"classes={sorted(map(label_spelling, known))}{_quoting_hint(given)}"
            )
        up = word_places(np.array(known, object), chosen) >= 0
        return np.where(up[place], 1.0, -1.0)
    if y.dtype.kind not in base.NUMBERS:
        hint = " or name those that become +1 with dataset.positive=[...]"
        raise UsageError(
            f"dataset {name}: label {quote_word(y[0])} is text, labels must be numbers"
            f"{hint * classification}"
        )
    numbers = y.astype(np.float64)
    return label_signs(name, numbers) if classification else numbers


def _check_kind(name: str, y: NDArray[Any], given: Sequence[Any]) -> None:
    """Raise UsageError if labels are not numbers or strings, or if one is missing.

    If words are declared, dates count as strings. So does a word for a missing value,
    if it is one of the declared words.
    """
    words = set(map(label_spelling, given)) if are_words(given) else set[str]()
    allowed = (str, bytes, *NUMERIC, *[date, np.datetime64] * bool(words))
    usable = y.dtype.kind in f"{base.NUMBERS}US" or all(
        isinstance(one, allowed) or base.is_missing(one) for one in y.flat
    )
    if not usable:
        raise UsageError(
            f"dataset {name}: labels must be numbers or text, not {y.dtype}"
        )
    if words and y.dtype.kind in "OUS":
        y = np.array(
            ["word" if label_spelling(v) in words else v for v in y.flat], object
        )
    base.check_missing(f"dataset {name}: y", y)


def from_zero(y: Array) -> tuple[Array, bool]:
    """Return labels, with 0/1 mapped to -1/+1, and whether they were mapped."""
    found = bool((y == 0.0).any()) and bool(np.isin(y, (0.0, 1.0)).all())
    return (np.where(y == 1.0, 1.0, -1.0) if found else y), found


def label_signs(name: str, y: Array) -> Array:
    """Return labels that are -1/+1, 0/1 or 1/2 as -1/+1; others raise UsageError."""
    classes = np.unique(y)
    if classes.size > MOST_CLASSES:
        raise UsageError(
            f"dataset {name}: holds {classes.size} different numbers, which are no "
            "classes; name another column with dataset.label, or have a regression "
            "with dataset.task=regression, which a loss such as loss=huber implies"
        )
    if tuple(classes) not in LABEL_PAIRS:
        raise UsageError(
            f"dataset {name}: labels {_first_labels(map(label_spelling, classes))} are "
            "not "
            "allowed, classification needs both of -1/1, 0/1 or 1/2, or "
            "dataset.positive=[...] with the classes that become +1"
        )
    return np.where(y == classes[1], 1.0, -1.0)


def _occurring_labels(y: NDArray[Any], given: Sequence[Any]) -> list[Any]:
    """Return the labels that occur; they are strings or numbers like the given ones."""
    if y.dtype.kind in base.NUMBERS:
        return list(np.unique(y.astype(np.float64)))
    if are_words(given):
        return sorted(set(map(label_spelling, y.tolist())))
    numbers = np.array(list(map(as_number, y.tolist())))
    return list(np.unique(numbers[np.isfinite(numbers)]))


def _check_chosen(name: str, positive: Sequence[Any], known: Sequence[Any]) -> None:
    there = set(word_places(np.array(known, object), positive).tolist()) - {-1}
    chosen = distinct_words(positive, "dataset.positive")
    if len(there) < len(chosen) or len(there) in (0, len(known)):
        raise UsageError(
            f"dataset.positive={list(positive)} of {name}: must be some, but not all, "
            "of the labels "
            f"{_first_labels(map(label_spelling, known))}{_quoting_hint(positive)}"
        )


def _check_others(
    name: str, y: NDArray[Any], known: Sequence[Any], positive: Sequence[Any]
) -> None:
    """Raise UsageError if a label of -1 may be a variant of +1 or a missing value.

    Raises
    ------
    UsageError
        With the number of such labels, and the key that declares them.
    """
    chosen = set(map(label_spelling, positive))
    alike = set(map(fold_word, chosen))
    numbers = np.array([as_number(one) for one in known])
    codes = missing_codes(numbers) if len(known) > 2 else []
    for text, value in zip(map(label_spelling, known), numbers, strict=True):
        what = "may stand for no value"
        if fold_word(text) in alike:
            what = "is another spelling of one that becomes +1"
        elif value not in codes and re.sub(r"\W", "", fold_word(text)) not in NO_ANSWER:
            continue
        if text not in chosen:
            count = int((word_places(y, [text]) == 0).sum())
            raise UsageError(
                f"dataset {name}: {count} of the labels are {quote_word(text)}, which "
                f"{what}; correct them, or list all that there may be with "
                "dataset.classes=[...]"
            )


def missing_codes(values: NDArray[Any]) -> list[float]:
    """Return the numbers that look like codes for a missing value, as -9 or 999 do.

    All their digits are 9, and they are the only negative numbers or far from the
    others.
    """
    values = np.unique(values[np.isfinite(values)])
    nines = np.isin(np.abs(values), NINES)
    others = values[~nines]
    far = np.abs(values) > 4.0 * np.abs(others).max(initial=0.0)
    far |= (values < 0.0) & (others.min(initial=0.0) >= 0.0)
    return [float(one) for one in values[nines & far]]


def fold_word(text: str) -> str:
    """Return a word in a form that does not depend on case, Unicode form and blanks."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(one for one in plain if one.isprintable() and one != " ")


def _quoting_hint(given: Sequence[Any]) -> str:
    read = any(isinstance(label, bool) for label in given)
    return "; quote them in a yaml, which reads yes as true" if read else ""


def names_in(given: Any) -> list[str]:
    """Return the list of the columns that a key names, which may be empty."""
    return list(map(str, as_list(given) or []))


def as_list(given: Any) -> list[Any] | None:
    """Return one label or several labels as a list; None stays None."""
    if given is None:
        return None
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    return list(given) if several else [given]


def are_words(given: Iterable[Any]) -> bool:
    """Return whether at least one of the given labels or categories is text."""
    return any([isinstance(one, str | bytes | date) for one in given])


def distinct_words(given: Sequence[Any], key: str) -> list[Any]:
    """Return the distinct labels or categories among the given ones.

    The result consists of strings if at least one of them is a string, else of numbers.

    Raises
    ------
    UsageError
        If one is neither a string nor a number, or is a number so large that it equals
        others in float64. The message names the ``key`` that gives them.
    """
    text = are_words(given)
    for one in given:
        number = as_number(one)
        if not isinstance(one, str | bytes | date) and np.isnan(number):
            raise UsageError(f"{key}={list(given)}: must hold numbers or text only")
        if not text and abs(number) >= EXACT:
            raise UsageError(
                f"{key}={list(given)}: whole numbers from 2^53 on are not told apart; "
                "quote them, so that they are text"
            )
    return list(dict.fromkeys(map(label_spelling if text else as_number, given)))


def word_places(cells: NDArray[Any], given: Sequence[Any]) -> NDArray[np.intp]:
    """Return the index of the word that each cell equals, -1 for none, shape (n,).

    Each cell is looked up by itself. If the words are numbers, a cell equals the number
    that it is or spells. If the words are strings, a string equals the same string, and
    an integer equals the word that spells it. A float equals a word if this is the only
    word with the same value.
    """
    words = are_words(given)
    keys = dict.fromkeys(map(label_spelling if words else as_number, given))
    found = {key: j for j, key in enumerate(keys)}
    values = np.array([as_number(key) for key in found])

    def place_of(cell: Any) -> int:
        if not words:
            return found.get(as_number(cell), -1)
        if not isinstance(cell, str) and base.is_missing(cell):
            return -1
        if not isinstance(cell, float) and (spelled := label_spelling(cell)) in found:
            return found[spelled]
        is_word = isinstance(cell, str | bytes | date)
        same = np.flatnonzero((values == as_number(cell)) & (not is_word))
        return int(same[0]) if len(same) == 1 else -1

    if cells.dtype.kind in base.NUMBERS:
        cells, which = np.unique(cells, return_inverse=True)
        return np.array([place_of(cell) for cell in cells.tolist()], np.intp)[which]
    if cells.dtype.kind == "M":
        cells = cells.astype("M8[us]")
    # Few cells are distinct, so each is looked up once; 1, 1.0 and True are distinct.
    listed = cells.tolist()
    typed = [*zip(map(type, listed), listed, strict=True)]
    known = {key: place_of(key[1]) for key in dict.fromkeys(typed)}
    return np.fromiter(map(known.__getitem__, typed), np.intp, len(typed))


def as_number(label: Any) -> float:
    """Return the number that a label is or spells; nan for other strings."""
    if isinstance(label, bytes):
        label = label.decode(errors="backslashreplace")
    if isinstance(label, str):
        label = BOOLEANS.get(label.strip(), label.strip())
        return float(label) if NUMBER.fullmatch(label) else np.nan
    if isinstance(label, np.datetime64 | np.timedelta64):
        return np.nan
    try:
        return float(label)
    except (TypeError, ValueError, OverflowError):
        return np.nan


def label_spelling(label: Any) -> str:
    """Return a label as a string: a word itself, a number in full, or a date.

    Blanks around a word are removed. An accent may be part of its letter or a separate
    character; the result is the same.
    """
    if isinstance(label, bytes):
        return label.decode(errors="backslashreplace").strip()
    if isinstance(label, str | bool | np.bool):
        return unicodedata.normalize("NFC", str(label).strip())
    if isinstance(label, np.datetime64):
        label = label.astype("M8[us]").item()
    if isinstance(label, datetime) and label == label:  # not NaT
        day = label.tzinfo is None and label.time() == time()
        return label.date().isoformat() if day else label.isoformat(" ")
    if isinstance(label, int | np.integer):
        return str(int(label))
    number = as_number(label)
    whole = number.is_integer() and abs(number) < EXACT
    return str(int(number)) if whole else str(label)


def _first_labels(labels: Iterable[str]) -> str:
    words = [quote_word(label) for label in itertools.islice(labels, 6)]
    return ", ".join(words[:5]) + ", ..." * (len(words) > 5)


def content_hash(arrays: Mapping[str, Features]) -> str:
    """Return the SHA-256 of the names, shapes and column-major bytes of arrays."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name}{array.shape}".encode())
        if isinstance(array, np.ndarray):
            total.update(np.ascontiguousarray(array.T, dtype=np.float64).data)
            continue
        for suffix, part in base.feature_parts(array).items():
            total.update(f"{suffix}{part.dtype}{part.shape}".encode())
            total.update(np.ascontiguousarray(part).data)
    return total.hexdigest()
