"""A dataset, and the few operations that loading needs of dense and sparse features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels.lengths import norm2, powers_of, unscaled

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

Array = NDArray[np.float64]
Features: TypeAlias = "Array | csc_array"

NUMBERS = "biuf"
"""Kinds of numpy's types that are real numbers."""

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

    Attributes
    ----------
    loaded : mapping or None
        The specification by which ``load_dataset`` made it. A copy with other parts
        (``dataclasses.replace``) has none: it is no longer what that stands for.
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
    loaded: Mapping[str, Any] | None = field(default=None, init=False)
    derived: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    def loaded_by(self, spec: Mapping[str, Any]) -> Dataset:
        """Return a copy whose `loaded` is a specification."""
        copy = replace(self)
        object.__setattr__(copy, "loaded", spec)
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
        return norms(self.X)


def numbers(key: str, values: Any) -> NDArray[Any]:
    """Return values as an array of real numbers.

    Raises
    ------
    UsageError
        If they are complex, dates, text, objects, or masked.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError):
        raise UsageError(f"{key}: must be an array of numbers") from None
    masked = isinstance(values, np.ma.MaskedArray)
    if masked or array.dtype.kind not in NUMBERS:
        kind = "masked ones" if masked else array.dtype
        raise UsageError(f"{key}: must be an array of numbers, not {kind}")
    return array


def as_features(X: Any) -> Features:
    """Return features in their own form as float64, column-major.

    A sparse matrix of any format becomes a ``csc_array`` with sorted int32 indices,
    without duplicates and stored zeros; what is so already is returned itself.

    Raises
    ------
    UsageError
        If there are features that are not numbers.
    """
    if not hasattr(X, "tocsc"):
        return np.asfortranarray(numbers("features", X), dtype=np.float64)
    from scipy.sparse import csc_array

    if X.dtype.kind not in NUMBERS:
        raise UsageError(f"features must be numbers, not {X.dtype}")
    if isinstance(X, csc_array) and X.dtype == np.float64:
        narrow = X.indices.dtype == X.indptr.dtype == np.int32
        if narrow and X.has_canonical_format and X.data.all():
            return X
    columns = csc_array(X, dtype=np.float64, copy=True)
    columns.sum_duplicates()
    columns.eliminate_zeros()
    columns.indices = columns.indices.astype(np.int32, copy=False)
    columns.indptr = columns.indptr.astype(np.int32, copy=False)
    return columns


def parts(X: Features) -> dict[str, NDArray[Any]]:
    """Return the arrays that make up features, by suffix; a dense array is one."""
    if isinstance(X, np.ndarray):
        return {"": X}
    return {f".{part}": getattr(X, part) for part in PARTS}


def assembled(shape: tuple[int, int], arrays: Mapping[str, NDArray[Any]]) -> Features:
    """Return the sparse features of their parts without copying them."""
    from scipy.sparse import csc_array

    columns = tuple(arrays[f".{part}"] for part in PARTS)
    return csc_array(columns, shape=shape, copy=False)


def norms(X: Features) -> Array:
    """Return the euclidean norm of each record, shape (n,) (`kernels.lengths`)."""
    if isinstance(X, np.ndarray):
        return np.asarray(norm2(X, axis=-1))
    with np.errstate(over="ignore", under="ignore"):
        lengths = np.sqrt(np.bincount(X.indices, X.data**2, X.shape[0]))
    odd = ~unscaled(lengths)
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
