"""A dataset, and the few operations that loading needs of dense and sparse features."""

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
"""Kinds of numpy's types that are real numbers."""

MISSING = frozenset(
    ["", "None", "na", "n/a", "n.a.", "n.d.", "#n/a", "#n/a n/a", "#na", "<na>", "null"]
    + ["nan", "-nan", "nat", "1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"]
    + ["\\n", ".", "..", "?", "??", "*", "-", "--", "---", "\u2013", "\u2014"]
    + ["#div/0!", "#ref!", "#value!", "#name?", "#num!", "#null!", "#spill!", "#calc!"]
)
"""Cells of text that stand for no value, unless one is declared as a word.

In any case, but for None: `none` is a usual category.
"""

WIDTH = 64
"""Bytes that each feature takes in a run, at least: eight vectors of p numbers."""

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
"""What reading records takes from them where it is not declared."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Public bounds on a record, declared in the dataset's yaml, not computed.

    Parameters
    ----------
    columns : array of shape (p,)
        R_j, a bound on the absolute value of feature j.
    norm : float
        R_2, a bound on the euclidean norm of a record's features.
    label : float or None
        A bound on the absolute value of the label; None if none is declared.
    nonzeros : int or None
        s, a bound on the number of non-zeros of a record; None if none is declared.
    """

    columns: Array
    norm: float
    label: float | None = None
    nonzeros: int | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Return the bounds as a dataset's yaml declares them."""
        spec = {**vars(self), "columns": self.columns.tolist()}
        # It came later: undeclared it is in no identity.
        return {k: v for k, v in spec.items() if k != "nonzeros" or v is not None}


Feature: TypeAlias = "tuple[str, str | None]"
"""The name of a feature and, of an indicator, that of its column of categories."""


@dataclass(frozen=True, eq=False)
class Ranges:
    """Declared ranges that the columns of raw records are held to: public.

    Parameters
    ----------
    low, high : arrays of shape (p,)
        low < high, in the units of the raw records.
    indicators : array of bool of shape (p,)
        Columns of zeros and ones that stand for categories: they are left as they are.
    scaled : bool
        Whether all others are mapped to [-1, 1], a symmetric one by a division.
    clip : bool
        Whether an entry outside becomes the nearest end; else it is refused.
    bounds : Bounds
        Of the records that come out, without an intercept; they are clipped to them,
        too, where ``clip``.
    names : tuple of str
        Of the columns, for messages; none where they have none of their own.
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
        """Return the ends of the ranges, those of columns that are left infinite."""
        left = self.indicators & self.scaled
        low, high = np.where(left, -np.inf, self.low), np.where(left, np.inf, self.high)
        return low, high


@dataclass(frozen=True)
class Clipping:
    """What clipping to declared bounds did to the records: read off them, not private.

    Parameters
    ----------
    share : float
        Of the training records, those of which a feature or the label was changed.
    columns : tuple of int
        The columns beyond whose own bound more than `OFTEN` of the records were.
    label : bool
        Whether that is so of the label.
    """

    share: float
    columns: tuple[int, ...] = ()
    label: bool = False


OFTEN = 0.1
"""The share of records beyond which clipping is no exception."""


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
        The name of its yaml.
    X : array or csc_array of shape (n, p)
        Features, float64, column-major, read-only. Sparse ones have sorted int32
        indices, no duplicates and no stored zeros.
    y : array of shape (n,)
        Labels: -1 and +1 for classification, real numbers for regression.
    bounds : Bounds or None
        Declared bounds; None without, or where records were rescaled and not clipped.
    content_hash : str
        SHA-256 of the content, part of every trial's key.
    usual : Usual or None
        The objective used when loss and penalty are ``auto``.
    uncharged : tuple of Uncharged
        Private steps that were taken without budget.
    X_test, y_test : arrays or None
        Held-out records; ``X_test`` is sparse where ``X`` is.
    w_true : array of shape (p,) or None
        The parameter that labels were drawn from, where it is known.
    intercept : float
        The constant in a column that was added last; 0 for none.
    columns : tuple of str
        The names of the features before it, where arrays came with some.
    ranges : Ranges or None
        By which raw records were mapped, or held to declared ranges.
    clipping : Clipping or None
        What clipping to the bounds did; None without, or where it is not known.

    Attributes
    ----------
    loaded : mapping or None
        The specification by which ``load_dataset`` made it. A copy with other parts
        (``dataclasses.replace``) has none: it is no longer what that stands for.
    public : bool
        Whether its records are published, generated, or declared public by the user: a
        copy with other parts is not.
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
        """Return a copy whose `loaded` is a specification, None of own arrays."""
        copy = replace(self)
        object.__setattr__(copy, "loaded", spec)
        object.__setattr__(copy, "public", public)
        return copy

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """Return the part of a trial's spec that describes the dataset, JSON-able.

        Of a loaded dataset its yaml with overrides; of a user's own arrays their
        name, the hash of their content and the declared bounds.
        """
        if self.loaded is not None:
            return self.loaded
        bounds = None if self.bounds is None else self.bounds.spec
        return {"name": self.name, "content": self.content_hash, "bounds": bounds}

    @property
    def bounds_by_name(self) -> list[list[float]]:
        """Return the bounds of columns where the yaml gives them by name, else nothing.

        Which column has which of them is in neither the yaml nor the arrays.
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
    """Return values as an array of real numbers, also those of a DataFrame.

    Raises
    ------
    UsageError
        If they are complex, dates, text, other objects, or masked, or one is missing;
        if a heading of a DataFrame stands twice.
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
    """Return values as an array of numpy, also those of the nullable types of pandas.

    Raises
    ------
    UsageError
        If there is no such array, or it is masked.
    """
    check_masks(**{key: values})
    try:
        return np.asarray(values)
    except (TypeError, ValueError):
        raise UsageError(f"{key}: must be an array of numbers or text") from None


def check_masks(**given: Any) -> None:
    """Refuse masked arrays, or rows of them: numpy drops masks unasked.

    Raises
    ------
    UsageError
        For the first one, under the name of its argument.
    """
    for key, values in given.items():
        rows = values if isinstance(values, list | tuple) else [values]
        if any(isinstance(one, np.ma.MaskedArray) for one in rows):
            raise UsageError(f"{key}: must be an array of numbers, not masked ones")


def is_missing(value: Any) -> bool:
    """Return whether a value stands for none: None, nan, NaT, NA, or a text for one."""
    if isinstance(value, str | bytes):
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        return not MISSING.isdisjoint((text.strip(), text.strip().casefold()))
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # the NA of pandas; an array
        return not hasattr(value, "__len__")


def check_missing(key: str, values: NDArray[Any]) -> None:
    """Refuse an array in which a value is missing, naming the first record.

    Raises
    ------
    UsageError
        Naming the record, counted from 0, and how many there are.
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
    """Refuse a DataFrame in which a heading stands twice.

    Raises
    ------
    UsageError
        Naming the heading.
    """
    for name in X.columns[X.columns.duplicated()]:
        raise UsageError(
            f"{key}: heading {quote_heading(name)} stands twice, each column must have "
            "its "
            "own"
        )


def as_features(X: Any, copy: bool = False, key: str = "features") -> Features:
    """Return features in their own form as float64, column-major.

    A sparse matrix of any format becomes a ``csc_array`` with sorted int32 indices,
    without duplicates and stored zeros; what is so already is returned itself, unless
    a ``copy`` is asked for, which nobody else can write. Entries that stand twice are
    one, their sum, as they are for scipy; whatever is bounded, clipped or fitted is
    that.

    Raises
    ------
    UsageError
        If there are features that are not numbers; ``key`` is what they are called.
    """
    if not hasattr(X, "tocsc"):
        return np.array(real_numbers(key, X), np.float64, order="F", copy=copy or None)
    from scipy.sparse import csc_array

    if X.dtype.kind not in NUMBERS:
        raise UsageError(f"features must be numbers, not {X.dtype}")
    check_nonzeros(X.nnz)
    check_width(X.shape[1])
    if isinstance(X, csc_array) and X.dtype == np.float64 and not copy:
        # What X says of itself may be of the past, or of its owner's making.
        own = csc_array((X.data, X.indices, X.indptr), shape=X.shape, copy=False)
        narrow = X.indices.dtype == X.indptr.dtype == np.int32
        if narrow and own.has_canonical_format and X.data.all():
            return X
    # As float64 first: entries of int8 that stand twice would be summed as such. What
    # is of another format becomes new arrays.
    columns = csc_array(X.astype(np.float64, copy=X.format == "csc"))
    columns.sum_duplicates()
    columns.eliminate_zeros()
    columns.indices = columns.indices.astype(np.int32, copy=False)
    columns.indptr = columns.indptr.astype(np.int32, copy=False)
    return columns


def check_nonzeros(count: int) -> None:
    """Refuse more non-zeros than int32 counts, as indices are held.

    Raises
    ------
    UsageError
        Naming how many there are.
    """
    if count > (most := np.iinfo(np.int32).max):
        raise UsageError(
            f"features hold {count} non-zeros: at most {most} are taken; leave records "
            "or features out"
        )


def check_width(p: int, whose: str = "features") -> None:
    """Refuse more features than this machine's memory holds vectors of.

    Raises
    ------
    UsageError
        Naming p and the bytes that a run takes at least.
    """
    needed = WIDTH * p
    if p > np.iinfo(np.int32).max or needed > machine_memory():
        raise UsageError(
            f"{whose}: p = {p} features take at least {needed} bytes, more than this "
            "machine's memory holds"
        )


def feature_parts(X: Features) -> dict[str, NDArray[Any]]:
    """Return the arrays that make up features, by suffix; a dense array is one."""
    if isinstance(X, np.ndarray):
        return {"": X}
    return {f".{part}": getattr(X, part) for part in PARTS}


def assemble_features(
    shape: tuple[int, int], arrays: Mapping[str, NDArray[Any]]
) -> csc_array:
    """Return the sparse features of their parts without copying them."""
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
    """Return the largest absolute value among each record's entries, shape (n,)."""
    largest = np.zeros(n)
    np.maximum.at(largest, rows, np.abs(data))
    return largest


def compute_once(data: Dataset, compute: Callable[..., Any], *given: Any) -> Any:
    """Return ``compute(X, *given)``, computed once for a dataset that cannot change.

    Parameters
    ----------
    data : Dataset
        It keeps the last value of each function (`keep_for_dataset`).
    compute : callable
        A function of the module, of the features alone and of what is given.
    *given : float or array

    Returns
    -------
    float or array
        Read-only where it is kept.
    """
    key = tuple(np.asarray(value).tobytes() for value in given)
    return keep_for_dataset(data, compute, key, lambda: compute(data.X, *given))


def keep_for_dataset(
    data: Dataset, what: Any, key: Any, make: Callable[[], Any], most: int = 1
) -> Any:
    """Return what a dataset that cannot change keeps, or ``make()``, kept from now on.

    Parameters
    ----------
    data : Dataset
        Its ``derived`` keeps the last ``most`` values of each ``what``, by key; nothing
        is kept of features or labels that can be written to.
    what, key
        Hashable.
    make : callable
    most : int

    Returns
    -------
    object
        An array is read-only where it is kept.
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
    """Return whether neither an array, or features, nor its bases can be written to."""
    return all(map(_is_locked, feature_parts(X).values()))


def _is_locked(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    try:
        return array is None or memoryview(array).readonly
    except TypeError:
        return False  # who knows what it is


def dataset_error(key: str, value: object, allowed: str) -> UsageError:
    """Return the error of a key with a value that is not allowed."""
    return UsageError(f"dataset.{key}={value}: must be {allowed}")
