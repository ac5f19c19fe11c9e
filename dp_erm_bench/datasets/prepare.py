"""From raw features and labels to what an oracle may use."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import (
    Array,
    Bounds,
    Dataset,
    Features,
    Uncharged,
    Usual,
)
from dp_erm_bench.datasets.bounds import Declared, check_bounds, clipped
from dp_erm_bench.datasets.features import (
    as_features,
    frozen,
    mean_squares,
    scaled,
    stored,
)
from dp_erm_bench.datasets.labels import labels
from dp_erm_bench.datasets.store import content_hash
from dp_erm_bench.errors import UsageError


@dataclass(frozen=True, eq=False)
class Recipe:
    """How raw data become a dataset.

    Parameters
    ----------
    classification : bool
        Whether labels become -1 and +1.
    positive : sequence or None
        Labels that become +1; None for the larger of a usual pair.
    standardise : bool or str
        Whether columns get mean 0 and variance 1; ``'scale'`` divides them by
        their root mean square instead, which keeps zeros.
    test_fraction : float
        Share of the records that is held out.
    seed : int
        Of the split.
    drop_empty : bool
        Whether columns without a non-zero among the training records go.
    densify : bool
        Whether sparse features become a dense array.
    clip : Declared or None
        Bounds to which records are clipped, after columns are rescaled.
    """

    classification: bool = True
    positive: Sequence[Any] | None = None
    standardise: bool | str = False
    test_fraction: float = 0.0
    seed: int = 0
    drop_empty: bool = False
    densify: bool = False
    clip: Declared | None = None

    @property
    def key(self) -> list[Any]:
        """Return what tells two recipes apart, JSON-able."""
        clip = None if self.clip is None else self.clip.key
        return [clip, *(v for k, v in vars(self).items() if k != "clip")]

    @property
    def uncharged(self) -> tuple[Uncharged, ...]:
        """Return the steps that look at private records without budget."""
        steps = {
            Uncharged.STANDARDISATION: self.standardise,
            Uncharged.DROPPED_COLUMNS: self.drop_empty,
        }
        return tuple(step for step, taken in steps.items() if taken)


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
    for key, array in (("X", stored(X)), ("y", y)):
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UsageError(f"dataset {name}: {key} holds a value that is not finite")


def split(n: int, test_fraction: float, seed: int) -> tuple[Array, Array]:
    """Return boolean masks of train and test, a public random choice of rows.

    The stream is not the one that a generator started from the same seed uses.
    """
    rng = np.random.default_rng([seed, 1])
    test = np.zeros(n, dtype=bool)
    test[rng.permutation(n)[: round(n * test_fraction)]] = True
    return ~test, test


def prepare(name: str, raw: Sequence[Any], recipe: Recipe) -> dict[str, Features]:
    """Return X, y and what else there is, ready for use.

    Parameters
    ----------
    name : str
        Of the dataset, for messages.
    raw : sequence
        X of shape (n, p), dense or sparse, y of shape (n,) and, if it is known, the
        true parameter of shape (p,).
    recipe : Recipe

    Returns
    -------
    dict
        ``X``, ``y``; ``X_test``, ``y_test`` if there is a split; ``w_true`` if it
        is known and columns are not rescaled.
    """
    if isinstance(raw[1], np.ma.MaskedArray):
        raise UsageError(f"dataset {name}: labels must be numbers, not masked ones")
    X, y = as_features(raw[0]), np.asarray(raw[1])
    check_raw(name, X, y)
    if recipe.densify and not isinstance(X, np.ndarray):
        X = X.toarray()
    y = labels(name, y, classification=recipe.classification, positive=recipe.positive)
    arrays = _split(name, X, y, recipe)
    if len(raw) > 2:
        arrays["w_true"] = np.asarray(raw[2], dtype=np.float64)
    if recipe.drop_empty:
        arrays = _without_empty(name, arrays)
    if recipe.standardise:
        arrays = _rescaled(name, arrays, recipe.standardise)
    if recipe.clip is not None:
        arrays |= clipped(name, arrays, recipe.clip)
    return {key: frozen(array) for key, array in arrays.items()}


def _split(name: str, X: Features, y: Array, recipe: Recipe) -> dict[str, Features]:
    if not recipe.test_fraction:
        return {"X": X, "y": y}
    train, test = split(y.size, recipe.test_fraction, recipe.seed)
    if not (train.any() and test.any()):
        raise UsageError(
            f"dataset.test_fraction={recipe.test_fraction}: of the {y.size} records of "
            f"{name} it must leave at least one to train and one to test on"
        )
    if not isinstance(X, np.ndarray):
        X = X.tocsr()
    return {"X": X[train], "y": y[train], "X_test": X[test], "y_test": y[test]}


def _without_empty(name: str, arrays: dict[str, Features]) -> dict[str, Features]:
    X = as_features(arrays["X"])
    kept = X.any(axis=0) if isinstance(X, np.ndarray) else np.diff(X.indptr) > 0
    if not kept.any():
        raise UsageError(f"dataset.drop_empty=True: every column of {name} is empty")
    columns = {
        key: as_features(arrays[key])[:, kept]
        for key in ("X", "X_test")
        if key in arrays
    }
    true = {key: arrays[key][kept] for key in ("w_true",) if key in arrays}
    return arrays | columns | true


def _rescaled(
    name: str, arrays: dict[str, Features], how: bool | str
) -> dict[str, Features]:
    """Return the arrays with columns standardised, or scaled: divided by their RMS.

    The true parameter is left out: it belongs to the columns as they were. Zeros stay
    zeros where columns are scaled, so that sparse features stay sparse.

    Raises
    ------
    UsageError
        If sparse features would have to be centred.
    """
    found = {k: as_features(arrays[k]) for k in ("X", "X_test") if k in arrays}
    kept = {key: array for key, array in arrays.items() if key != "w_true"}
    X, *others = found.values()
    if how == "scale":
        rms = np.sqrt(mean_squares(X))
        factor = _inverse(rms, rms > 0.0)
        return kept | {k: scaled(Z, columns=factor) for k, Z in found.items()}
    if not isinstance(X, np.ndarray):
        raise UsageError(
            f"dataset.standardise=True: {name} is sparse and centring would fill it; "
            "divide by the root mean square instead with dataset.standardise=scale, "
            "or hold it dense with dataset.densify=true"
        )
    return kept | dict(zip(found, standardise(X, others), strict=True))


def standardise(X: Array, others: Iterable[Array]) -> list[Array]:
    """Return X and the others shifted and scaled by the statistics of X.

    Columns of X get mean 0 and (population) variance 1. A column that is
    constant up to rounding becomes exactly 0, so that it has no influence; the
    number of features stays what was declared.
    """
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    rounding = np.finfo(np.float64).eps * np.sqrt(X.shape[0]) * np.abs(X).max(axis=0)
    factor = _inverse(deviation, deviation > rounding)
    return [(Z - mean) * factor for Z in (X, *others)]


def _inverse(values: Array, usable: NDArray[np.bool]) -> Array:
    return np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)


def dataset_from_arrays(
    X: Features,
    y: Array,
    *,
    name: str = "arrays",
    bounds: Bounds | None = None,
    usual: Usual | None = None,
) -> Dataset:
    """Make a dataset of arrays as they are: copied, checked, read-only.

    Labels are not mapped: the loss refuses those that it does not know. A sparse
    matrix stays sparse.

    Raises
    ------
    UsageError
        If they are empty, of unequal length or not finite, or break the bounds.
    """
    X, y = frozen(X), frozen(y)
    check_raw(name, X, y)
    if bounds is not None:
        check_bounds(name, X, y, bounds)
    return Dataset(name, X, y, bounds, content_hash({"X": X, "y": y}), usual)
