"""Features, dense or sparse: the few operations that loading needs of both."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dp_erm_bench.datasets.base import Array, Features
from dp_erm_bench.errors import UsageError

NUMBERS = "biuf"
"""Kinds of numpy's types that are real numbers."""

PARTS = ("data", "indices", "indptr")
DENSE_FROM = 0.5
"""Share of non-zeros from which files that do not say are held dense."""


def as_features(X: Any) -> Features:
    """Return features in their own form as float64, column-major.

    A sparse matrix of any format becomes a ``csc_array`` with sorted int32 indices,
    without duplicates and stored zeros; what is so already is returned itself.

    Raises
    ------
    UsageError
        If there are features that are not numbers.
    """
    if hasattr(X, "tocsc"):
        return _canonical(X)
    return np.asfortranarray(numbers("features", X), dtype=np.float64)


def numbers(key: str, values: Any) -> NDArray[Any]:
    """Return values as an array of real numbers.

    Raises
    ------
    UsageError
        If they are of another kind: complex, dates, text, objects, or masked, of which
        a conversion would keep a part.
    """
    masked = isinstance(values, np.ma.MaskedArray)
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):
        raise UsageError(f"{key}: must be an array of numbers") from None
    if masked or found.dtype.kind not in NUMBERS:
        kind = "masked ones" if masked else found.dtype
        raise UsageError(f"{key}: must be an array of numbers, not {kind}")
    return found


def _canonical(X: Any) -> Features:
    from scipy.sparse import csc_array

    if X.dtype.kind not in NUMBERS:
        raise UsageError(f"features must be numbers, not {X.dtype}")
    if isinstance(X, csc_array) and X.dtype == np.float64 and _clean(X):
        return X
    made = csc_array(X, dtype=np.float64, copy=True)
    made.sum_duplicates()
    made.eliminate_zeros()
    made.indices = made.indices.astype(np.int32, copy=False)
    made.indptr = made.indptr.astype(np.int32, copy=False)
    return made


def _clean(X: Any) -> bool:
    same = X.indices.dtype == X.indptr.dtype == np.int32
    return bool(same and X.has_canonical_format and X.data.all())


def compact(X: Any) -> Features:
    """Return features dense if at least half of them are non-zero, else sparse."""
    made = as_features(X)
    if isinstance(made, np.ndarray) or made.nnz < DENSE_FROM * np.prod(made.shape):
        return made
    return np.asfortranarray(made.toarray())


def stored(X: Features) -> NDArray[Any]:
    """Return the stored entries: all of a dense array, the non-zeros of a sparse."""
    return X if isinstance(X, np.ndarray) else np.asarray(X.data)


def parts(X: Features) -> dict[str, NDArray[Any]]:
    """Return the arrays that make up features, by suffix; a dense array is one."""
    if isinstance(X, np.ndarray):
        return {"": X}
    return {f".{part}": getattr(X, part) for part in PARTS}


def assembled(shape: tuple[int, int], arrays: dict[str, NDArray[Any]]) -> Features:
    """Return the sparse features of their parts without copying them."""
    from scipy.sparse import csc_array

    columns = tuple(arrays[f".{part}"] for part in PARTS)
    return csc_array(columns, shape=shape, copy=False)


def frozen(X: Any) -> Features:
    """Return a column-major, read-only copy that nobody else can write."""
    made = as_features(X)
    made = made.copy(order="F") if isinstance(made, np.ndarray) else made.copy()
    for array in parts(made).values():
        array.flags.writeable = False
    return made


def column_max(X: Features) -> Array:
    """Return the largest absolute value of each column, shape (p,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.abs(X).max(axis=0))
    return np.asarray(abs(X).max(axis=0).toarray()).ravel()


def mean_squares(X: Features) -> Array:
    """Return the mean of the squares of each column, shape (p,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.square(X).mean(axis=0))
    means: Array = np.asarray(X.power(2).mean(axis=0)).ravel()
    return means


def norms(X: Features) -> Array:
    """Return the euclidean norm of each record, shape (n,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.linalg.norm(X, axis=1))
    lengths: Array = np.sqrt(np.bincount(X.indices, X.data**2, X.shape[0]))
    return lengths


def scaled(X: Features, *, rows: ArrayLike = 1.0, columns: ArrayLike = 1.0) -> Features:
    """Return the features times a factor per record and per column."""
    n, p = X.shape
    rows, columns = np.broadcast_to(rows, n), np.broadcast_to(columns, p)
    if isinstance(X, np.ndarray):
        return np.asarray(X * rows[:, None] * columns)
    factors = rows[X.indices] * np.repeat(columns, np.diff(X.indptr))
    return assembled(X.shape, parts(X) | {".data": X.data * factors})
