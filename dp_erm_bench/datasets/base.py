"""The `Dataset` class, and helpers for dense and sparse features."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError, quote_heading
from dp_erm_bench.kernels.lengths import are_usual, norm2, powers_of
from dp_erm_bench.paths import machine_memory

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

Array = NDArray[np.float64]
Features: TypeAlias = "Array | csc_array"

NUMBERS = "biuf"
"""Kinds of numpy's types that hold real numbers."""

MISSING = frozenset(
    ["", "None", "na", "n/a", "n.a.", "n.d.", "#n/a", "#n/a n/a", "#na", "<na>", "null"]
    + ["nan", "-nan", "nat", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"]
    + ["\\n", ".", "..", "?", "??", "*", "-", "--", "---", "\u2013", "\u2014"]
    + ["#div/0!", "#ref!", "#value!", "#name?", "#num!", "#null!", "#spill!", "#calc!"]
)
"""Strings that mean a missing value in a cell, unless one is declared as a word.

Case is ignored, except for None, because `none` is a common category.
"""

WIDTH = 64
"""Smallest number of bytes that a run needs per feature: eight vectors of p numbers."""

PARTS = ("data", "indices", "indptr")


class Uncharged(StrEnum):
    """Uses of the data that no budget pays for; docs/privacy.md explains each."""

    SMOOTHNESS = "smoothness"
    SMOOTHNESS_BOUNDS = "smoothness_bounds"
    STANDARDISATION = "standardisation"
    DROPPED_COLUMNS = "dropped columns"
    CLASSES = "classes"
    FEATURES = "features"
    HEADER = "header"
    KINDS = "kinds"
    CATEGORIES = "categories"
    TUNING = "tuning"


READ = tuple(map(Uncharged, ("classes", "features", "header", "kinds", "categories")))
"""Uncharged uses that find in a file's records what is not declared."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Public bounds on a record, which are declared and not computed from the data.

    Parameters
    ----------
    columns : array of shape (p,)
        The bounds R_j on the absolute values of the features.
    norm : float
        The bound R_2 on the euclidean norm of a record's features.
    label : float or None
        A bound on the absolute value of the label; None if none is declared.
    nonzeros : int or None
        The bound s on the number of non-zeros of a record; None if none is declared.
    """

    columns: Array
    norm: float
    label: float | None = None
    nonzeros: int | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Return the bounds as a dataset's yaml declares them."""
        spec = {**vars(self), "columns": self.columns.tolist()}
        # Left out if undeclared, so that it changes the identity of no other trial.
        return {k: v for k, v in spec.items() if k != "nonzeros" or v is not None}


Feature: TypeAlias = "tuple[str, str | None]"
"""The name of a feature, and the column whose category it indicates (or None)."""


@dataclass(frozen=True, eq=False)
class Ranges:
    """Public ranges, declared for the columns of raw records.

    Parameters
    ----------
    low, high : arrays of shape (p,)
        Ends of the ranges, low < high, in the units of the raw records.
    indicators : array of bool of shape (p,)
        Columns of zeros and ones that indicate categories; scaling leaves them as they
        are.
    scaled : bool
        Whether all other columns are mapped to [-1, 1]; for a symmetric range this is a
        division.
    clip : bool
        Whether an entry outside its range is moved to the nearest end. If not, it is
        refused.
    bounds : Bounds
        Bounds on the resulting records, without an intercept. With ``clip`` the records
        are also clipped to them.
    names : tuple of str
        Names of the columns, for messages; empty if they have none.
    """

    low: Array
    high: Array
    indicators: NDArray[np.bool]
    scaled: bool
    clip: bool
    bounds: Bounds
    names: tuple[str, ...] = ()

    @property
    def ends(self) -> tuple[Array, Array]:
        """Return the ends of the ranges; infinite for columns that are not changed."""
        left = self.indicators & self.scaled
        low, high = np.where(left, -np.inf, self.low), np.where(left, np.inf, self.high)
        return low, high


@dataclass(frozen=True)
class Clipping:
    """Facts on what clipping to declared bounds changed.

    These facts are computed from the records, so they are not private.

    Parameters
    ----------
    share : float
        Share of the training records with a feature or a label that was changed.
    columns : tuple of int
        Columns whose own bound more than a share `OFTEN` of the records exceeded.
    label : bool
        Whether more than the same share of the labels exceeded their bound.
    """

    share: float
    columns: tuple[int, ...] = ()
    label: bool = False


OFTEN = 0.1
"""Share of clipped records above which clipping is not just an exception."""


@dataclass(frozen=True)
class Usual:
    """The usual objective of a dataset; ``strength`` is a number or ``'1/n'``."""

    loss: str
    penalty: str
    strength: float | str


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features and labels of n records, ready for the oracles.

    Parameters
    ----------
    name : str
        Name of the dataset's yaml file.
    X : array or csc_array of shape (n, p)
        The features, as a read-only, column-major array of float64. Sparse features
        have sorted int32 indices, no duplicates and no stored zeros.
    y : array of shape (n,)
        Labels: -1 and +1 for classification, real numbers for regression.
    bounds : Bounds or None
        Declared bounds; None if there are none, or if records were rescaled and not
        clipped.
    content_hash : str
        SHA-256 of the content, which is part of every trial's key.
    usual : Usual or None
        The objective used when loss and penalty are ``auto``.
    uncharged : tuple of Uncharged
        Uses of private data that no budget pays for.
    X_test, y_test : arrays or None
        Held-out records; ``X_test`` is sparse if ``X`` is.
    w_true : array of shape (p,) or None
        The parameter from which the labels were drawn, if it is known.
    intercept : float
        The constant in the last column, if that was added; 0 if no column was added.
    columns : tuple of str
        Names of the features without the intercept; empty if they have none.
    ranges : Ranges or None
        Declared ranges to which the raw records were restricted, or by which they were
        mapped.
    clipping : Clipping or None
        What clipping to the bounds changed; None without clipping, or if it is not
        known.

    Attributes
    ----------
    loaded : mapping or None
        The specification from which ``load_dataset`` made the dataset. A copy with
        other parts (``dataclasses.replace``) has None, because the specification does
        not describe it.
    public : bool
        Whether the records are published, generated, or declared public by the user.
        False for a copy with other parts.
    derived : dict
        Values computed from the features; a copy starts without any.
    """

    name: str
    X: Features
    y: Array
    bounds: Bounds | None
    content_hash: str
    usual: Usual | None = None
    uncharged: tuple[Uncharged, ...] = ()
    X_test: Features | None = None
    y_test: Array | None = None
    w_true: Array | None = None
    intercept: float = 0.0
    columns: tuple[str, ...] = ()
    ranges: Ranges | None = None
    clipping: Clipping | None = None
    loaded: Mapping[str, Any] | None = field(default=None, init=False)
    public: bool = field(default=False, init=False)
    derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def loaded_by(self, spec: Mapping[str, Any] | None, public: bool) -> Dataset:
        """Return a copy with the given `loaded` and `public`.

        The specification is None for a user's own arrays.
        """
        copy = replace(self)
        object.__setattr__(copy, "loaded", spec)
        object.__setattr__(copy, "public", public)
        return copy

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """Return the part of a trial's spec that describes the dataset, as JSON data.

        For a loaded dataset this is its yaml with overrides. For a user's own arrays it
        is their name, the hash of their content and the declared bounds.
        """
        if self.loaded is not None:
            return self.loaded
        bounds = None if self.bounds is None else self.bounds.spec
        return {"name": self.name, "content": self.content_hash, "bounds": bounds}

    @property
    def bounds_by_name(self) -> list[list[float]]:
        """Return the column bounds if the yaml gives them by name, else an empty list.

        In this case neither the yaml nor the arrays say which bound belongs to which
        column.
        """
        declared = (self.loaded or {}).get("bounds") or {}
        if self.bounds is None or not isinstance(declared.get("columns"), Mapping):
            return []
        return [self.bounds.columns.tolist()]

    @property
    def n(self) -> int:
        """Return the number of records (public)."""
        return int(self.X.shape[0])

    @property
    def p(self) -> int:
        """Return the number of features."""
        return int(self.X.shape[1])

    @property
    def sparse(self) -> bool:
        """Return whether the features are sparse."""
        return not isinstance(self.X, np.ndarray)

    @cached_property
    def rows(self) -> Array | csr_array:
        """Return the features row-major, for access by record."""
        if isinstance(self.X, np.ndarray):
            return np.ascontiguousarray(self.X)
        return self.X.tocsr()

    @cached_property
    def row_norms(self) -> Array:
        """Return the euclidean norm of each record's features, shape (n,)."""
        return record_norms(self.X)


def real_numbers(key: str, values: Any) -> NDArray[Any]:
    """Return values, which may be a DataFrame, as an array of real numbers.

    Raises
    ------
    UsageError
        If the values are complex numbers, dates, text, other objects or masked; if a
        value is missing; or if a heading of a DataFrame occurs twice.
    """
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        return _numbers_of_table(key, values)
    array = plain_array(key, values)
    if array.dtype.kind == "O":
        check_missing(key, array)
        nullable = getattr(getattr(values, "dtype", None), "kind", "O") in NUMBERS
        if nullable or {*map(type, array.flat)} <= {bool, np.bool}:
            array = array.astype(np.float64)
    if array.dtype.kind not in NUMBERS:
        raise UsageError(f"{key}: must be an array of numbers, not {array.dtype}")
    return array


def plain_array(key: str, values: Any) -> NDArray[Any]:
    """Return values, which may have a nullable type of pandas, as a numpy array.

    Raises
    ------
    UsageError
        If the values do not form an array, or are masked.
    """
    check_masks(**{key: values})
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise UsageError(f"{key}: must be an array of numbers or text") from None


def check_masks(**given: Any) -> None:
    """Raise UsageError for masked arrays, or for lists that contain masked arrays.

    Numpy would drop the masks silently.

    Raises
    ------
    UsageError
        Naming the first argument with a masked array.
    """
    for key, values in given.items():
        rows = values if isinstance(values, list | tuple) else [values]
        if any(isinstance(one, np.ma.MaskedArray) for one in rows):
            raise UsageError(f"{key}: must be an array of numbers, not masked ones")


def is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, nan, NaT, NA, or a string like "n/a"."""
    if isinstance(value, str | bytes):
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        return not MISSING.isdisjoint((text.strip(), text.strip().casefold()))
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # NA of pandas, or an array
        return not hasattr(value, "__len__")


def check_missing(key: str, values: NDArray[Any]) -> None:
    """Raise UsageError if a value of an array is missing.

    Raises
    ------
    UsageError
        Naming the first record that lacks a value, counted from 0, and the number of
        missing values.
    """
    kind = values.dtype.kind
    if kind == "f":
        missing = np.argwhere(np.isnan(values))
    elif kind in "OSUmM":
        cells = np.array([is_missing(one) for one in values.flat], bool)
        missing = np.argwhere(cells.reshape(values.shape))
    else:
        return
    for first in missing[:1]:
        where = f"record {first[0]}" if first.size else "it"
        where += f", feature {first[1]}" if first.size == 2 else ""
        more = f" ({len(missing)} are missing)" * (len(missing) > 1)
        raise UsageError(f"{key}: has no value in {where}{more}")


def _numbers_of_table(key: str, X: Any) -> Array:
    check_headings(key, X)
    if all(isinstance(d, np.dtype) and d.kind in NUMBERS for d in X.dtypes):
        return np.asarray(X.to_numpy(np.float64))
    found = np.empty(X.shape, order="F")
    for j, name in enumerate(X.columns):
        column, whose = X.iloc[:, j], f"{key}: column {quote_heading(name)}"
        if column.isna().any():
            check_missing(whose, column.astype(object).to_numpy())
        if getattr(column.dtype, "kind", "O") not in NUMBERS:
            raise UsageError(f"{whose} holds {column.dtype}, features must be numbers")
        found[:, j] = column.to_numpy(np.float64)
    return found


def check_headings(key: str, X: Any) -> None:
    """Raise UsageError if a heading of a DataFrame occurs twice.

    Raises
    ------
    UsageError
        Naming the heading.
    """
    for name in X.columns[X.columns.duplicated()]:
        raise UsageError(
            f"{key}: heading {quote_heading(name)} appears twice; each column needs "
            "its own"
        )


def as_features(X: Any, copy: bool = False, key: str = "features") -> Features:
    """Return features as float64, column-major; sparse features stay sparse.

    A sparse matrix of any format becomes a ``csc_array`` with sorted int32 indices,
    without duplicates and stored zeros. Features of this form are returned as they are,
    unless ``copy`` is set. Duplicate entries are summed, as in scipy. Bounds, clipping
    and fits use the sum.

    Parameters
    ----------
    X : array, sparse matrix or DataFrame of shape (n, p)
    copy : bool
        Whether to return a copy, which no other code can write to.
    key : str
        Name of the features in messages.

    Raises
    ------
    UsageError
        If features are not numbers.
    """
    if not hasattr(X, "tocsc"):
        return np.array(real_numbers(key, X), np.float64, order="F", copy=copy or None)
    from scipy.sparse import csc_array

    if X.dtype.kind not in NUMBERS:
        raise UsageError(f"features must be numbers, not {X.dtype}")
    check_nonzeros(X.nnz)
    check_width(X.shape[1])
    if isinstance(X, csc_array) and X.dtype == np.float64 and not copy:
        # The flags that X caches may be outdated, or set by its owner: compute them.
        own = csc_array((X.data, X.indices, X.indptr), shape=X.shape, copy=False)
        narrow = X.indices.dtype == X.indptr.dtype == np.int32
        if narrow and own.has_canonical_format and X.data.all():
            return X
    # As float64 first: duplicate entries of int8 would be summed as int8. Converting
    # another format makes new arrays anyway.
    columns = csc_array(X.astype(np.float64, copy=X.format == "csc"))
    columns.sum_duplicates()
    columns.eliminate_zeros()
    columns.indices = columns.indices.astype(np.int32, copy=False)
    columns.indptr = columns.indptr.astype(np.int32, copy=False)
    return columns


def check_nonzeros(count: int) -> None:
    """Raise UsageError if there are more non-zeros than int32 indices can count.

    Raises
    ------
    UsageError
        Naming the number of non-zeros.
    """
    if count > (most := np.iinfo(np.int32).max):
        raise UsageError(
            f"features hold {count} non-zeros: at most {most} are taken; leave records "
            "or features out"
        )


def check_width(p: int, whose: str = "features") -> None:
    """Raise UsageError if this machine's memory cannot hold the vectors of p features.

    Raises
    ------
    UsageError
        Naming p and the bytes that a run needs at least.
    """
    needed = WIDTH * p
    if p > np.iinfo(np.int32).max or needed > machine_memory():
        raise UsageError(
            f"{whose}: p = {p} features take at least {needed} bytes, more than this "
            "machine's memory holds"
        )


def feature_parts(X: Features) -> dict[str, NDArray[Any]]:
    """Return the arrays that store features, by suffix; dense features have one."""
    if isinstance(X, np.ndarray):
        return {"": X}
    return {f".{part}": getattr(X, part) for part in PARTS}


def assemble_features(
    shape: tuple[int, int], arrays: Mapping[str, NDArray[Any]]
) -> csc_array:
    """Return the sparse features that consist of the given arrays, without a copy."""
    from scipy.sparse import csc_array

    columns = tuple(arrays[f".{part}"] for part in PARTS)
    return csc_array(columns, shape=shape, copy=False)


def record_norms(X: Features) -> Array:
    """Return the euclidean norm of each record, shape (n,) (`kernels.lengths`)."""
    if isinstance(X, np.ndarray):
        return np.asarray(norm2(X, axis=-1))
    with np.errstate(over="ignore", under="ignore"):
        lengths = np.sqrt(np.bincount(X.indices, X.data**2, X.shape[0]))
    odd = ~are_usual(lengths)
    rest = np.flatnonzero(odd[X.indices])
    if rest.size:
        rows, data = X.indices[rest], X.data[rest]
        powers = powers_of(largest_entries(X.shape[0], rows, data))
        squares = np.ldexp(data, -powers[rows]) ** 2
        scaled = np.sqrt(np.bincount(rows, squares, X.shape[0]))
        with np.errstate(over="ignore"):
            lengths = np.where(odd, np.ldexp(scaled, powers), lengths)
    return np.asarray(lengths)


def largest_entries(n: int, rows: NDArray[Any], data: Array) -> Array:
    """Return the largest absolute value among each record's entries, shape (n,).

    Parameters
    ----------
    n : int
        Number of records.
    rows : array of int of shape (m,)
        The record that each entry belongs to.
    data : array of shape (m,)
        The entries.
    """
    largest = np.zeros(n)
    np.maximum.at(largest, rows, np.abs(data))
    return largest


def compute_once(data: Dataset, compute: Callable[..., Any], *given: Any) -> Any:
    """Return ``compute(X, *given)``, which is computed once for a read-only dataset.

    Parameters
    ----------
    data : Dataset
        The dataset, which keeps the last value of each function (`keep_for_dataset`).
    compute : callable
        A function of a module that depends on the features and on ``given`` alone.
    *given : float or array
        Further arguments; the kept value is used if it was computed from the same.

    Returns
    -------
    float or array
        The value; if it is an array and is kept, it is read-only.
    """
    key = tuple(np.asarray(value).tobytes() for value in given)
    return keep_for_dataset(data, compute, key, lambda: compute(data.X, *given))


def keep_for_dataset(
    data: Dataset, what: Any, key: Any, make: Callable[[], Any], most: int = 1
) -> Any:
    """Return a value that a dataset keeps, or compute it with ``make()`` and keep it.

    Parameters
    ----------
    data : Dataset
        The dataset, whose ``derived`` keeps the last ``most`` values of each ``what``,
        by key. Nothing is kept if its features or labels can be written to.
    what : hashable
        The kind of the value, such as the function that computes it.
    key : hashable
        Everything on which the value depends, apart from the dataset.
    make : callable
        Computes the value, without arguments.
    most : int
        Number of values of each kind that are kept.

    Returns
    -------
    object
        The value; if it is an array and is kept, it is read-only.
    """
    if not (is_read_only(data.X) and is_read_only(data.y)):
        return make()
    values = data.derived.setdefault(what, {})
    if key in (known := dict(values)):
        return known[key]
    value = make()
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    values[key] = value
    for oldest in [*values][:-most]:
        values.pop(oldest, None)  # Another thread may have done so.
    return value


def is_read_only(X: Features) -> bool:
    """Return whether features, and the arrays that they are views of, are read-only."""
    return all(map(_is_locked, feature_parts(X).values()))


def _is_locked(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    try:
        return array is None or memoryview(array).readonly
    except TypeError:
        return False  # not a buffer, so it may be writable


def dataset_error(key: str, value: object, allowed: str) -> UsageError:
    """Return the UsageError for a key of a dataset with a value that is not allowed.

    Parameters
    ----------
    key : str
        Key of the yaml, without ``dataset.``.
    value : object
        The value that was given.
    allowed : str
        What the value must be, for the message.
    """
    return UsageError(f"dataset.{key}={value}: must be {allowed}")
