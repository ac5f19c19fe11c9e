"""From raw features and labels to what an oracle may use."""

from collections.abc import Iterable

import numpy as np

from dp_erm_bench.datasets.base import Array, Bounds, Dataset, Usual
from dp_erm_bench.datasets.store import content_hash
from dp_erm_bench.errors import UsageError

LABEL_PAIRS = ((-1.0, 1.0), (0.0, 1.0), (1.0, 2.0))


def check_raw(name: str, X: Array, y: Array) -> None:
    """Refuse data that are empty, of unequal length or not finite."""
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise UsageError(
            f"dataset {name}: X of shape {X.shape} and y of shape {y.shape} are "
            "not allowed, they must be (n, p) and (n,)"
        )
    if not X.size:
        raise UsageError(f"dataset {name}: X of shape {X.shape} is empty")
    for key, array in (("X", X), ("y", y)):
        if not np.isfinite(array).all():
            raise UsageError(f"dataset {name}: {key} holds a value that is not finite")


def signs(name: str, y: Array) -> Array:
    """Map the two labels -1/+1, 0/1 or 1/2 to -1/+1."""
    found = np.unique(y)
    if tuple(found) not in LABEL_PAIRS:
        shown = ", ".join(f"{label:g}" for label in found[:5])
        raise UsageError(
            f"dataset {name}: labels {shown}{', ...' * (found.size > 5)} are not "
            "allowed, classification needs both of -1/1, 0/1 or 1/2"
        )
    return np.where(y == found[1], 1.0, -1.0)


def split(n: int, test_fraction: float, seed: int) -> tuple[Array, Array]:
    """Return boolean masks of train and test, a public random choice of rows.

    The stream is not the one that a generator started from the same seed uses.
    """
    rng = np.random.default_rng([seed, 1])
    test = np.zeros(n, dtype=bool)
    test[rng.permutation(n)[: round(n * test_fraction)]] = True
    return ~test, test


def standardise(X: Array, others: Iterable[Array]) -> list[Array]:
    """Return X and the others shifted and scaled by the statistics of X.

    Columns of X get mean 0 and (population) variance 1. A column that is
    constant up to rounding becomes exactly 0, so that it has no influence; the
    number of features stays what was declared.
    """
    mean, scale = X.mean(axis=0), X.std(axis=0)
    rounding = np.finfo(np.float64).eps * np.sqrt(X.shape[0]) * np.abs(X).max(axis=0)
    constant = scale <= rounding
    factor = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, scale))
    return [(Z - mean) * factor for Z in (X, *others)]


def prepare(
    name: str,
    X: Array,
    y: Array,
    *,
    classification: bool,
    standardised: bool,
    test_fraction: float,
    seed: int,
) -> dict[str, Array]:
    """Return X, y and, if there is a split, X_test, y_test, ready for use."""
    X, y = np.asfortranarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64)
    check_raw(name, X, y)
    if classification:
        y = signs(name, y)
    arrays = {"X": X, "y": y}
    if test_fraction:
        train, test = split(y.size, test_fraction, seed)
        if not (train.any() and test.any()):
            raise UsageError(
                f"dataset.test_fraction={test_fraction}: of the {y.size} records of "
                f"{name} it must leave at least one to train and one to test on"
            )
        arrays = {"X": X[train], "y": y[train], "X_test": X[test], "y_test": y[test]}
    if standardised:
        features = [key for key in ("X_test",) if key in arrays]
        scaled = standardise(arrays["X"], [arrays[key] for key in features])
        arrays |= dict(zip(["X", *features], scaled, strict=True))
    return {key: frozen(array) for key, array in arrays.items()}


def frozen(array: Array) -> Array:
    """Return a column-major, read-only array that nobody else can write."""
    array = np.array(array, dtype=np.float64, order="F")
    array.flags.writeable = False
    return array


def check_bounds(name: str, X: Array, y: Array, bounds: Bounds) -> None:
    """Refuse declared bounds of the wrong length, or that a record breaks."""
    if bounds.columns.shape != X.shape[1:]:
        raise UsageError(
            f"dataset.bounds.columns of {name}: has {bounds.columns.size} values, "
            f"must have one for each of the {X.shape[1]} features"
        )
    broken = np.flatnonzero(np.abs(X).max(axis=0) > bounds.columns)
    if broken.size:
        raise UsageError(
            f"dataset.bounds.columns of {name}: feature {broken[0]} exceeds its "
            f"declared bound {bounds.columns[broken[0]]:g}"
        )
    if np.linalg.norm(X, axis=1).max() > bounds.norm * (1.0 + 1e-12):
        raise UsageError(
            f"dataset.bounds.norm of {name}: a record exceeds the declared bound "
            f"{bounds.norm:g}"
        )
    if bounds.label is not None and np.abs(y).max() > bounds.label:
        raise UsageError(
            f"dataset.bounds.label of {name}: a label exceeds the declared bound "
            f"{bounds.label:g}"
        )


def dataset_from_arrays(
    X: Array,
    y: Array,
    *,
    name: str = "arrays",
    bounds: Bounds | None = None,
    usual: Usual | None = None,
) -> Dataset:
    """Make a dataset of arrays as they are: copied, checked, read-only.

    Labels are not mapped: the loss refuses those that it does not know.

    Raises
    ------
    UsageError
        If they are empty, of unequal length or not finite, or break the bounds.
    """
    X, y = frozen(np.asarray(X)), frozen(np.asarray(y))
    check_raw(name, X, y)
    if bounds is not None:
        check_bounds(name, X, y, bounds)
    return Dataset(name, X, y, bounds, content_hash({"X": X, "y": y}), usual)
