"""From raw features and labels to what an oracle may use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets import base, records
from dp_erm_bench.datasets.base import Array, Dataset, Features, Uncharged, as_features
from dp_erm_bench.datasets.bounds import Declared, check_bounds, clipped, scaled
from dp_erm_bench.datasets.intercept import with_column
from dp_erm_bench.errors import UsageError, heading
from dp_erm_bench.kernels.lengths import powers_of, unscaled


@dataclass(frozen=True, eq=False)
class Recipe:
    """The preparation of raw data as a dataset.

    Parameters
    ----------
    classification : bool
        Whether labels become -1 and +1.
    positive : sequence or None
        Labels that become +1; None for the larger of a usual pair, or of the classes.
    standardise : bool or str
        Whether columns get mean 0 and variance 1; ``'scale'`` keeps zeros (RMS 1).
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
    classes : sequence or None
        All labels that there may be, declared; None: they are read off the records.
    labelled : bool
        Whether there are labels; all of them are 0 without any.
    intercept : float
        The constant of a last column, added after all that; none where it is 0.
    """

    classification: bool = True
    positive: Sequence[Any] | None = None
    standardise: bool | str = False
    test_fraction: float = 0.0
    seed: int = 0
    drop_empty: bool = False
    densify: bool = False
    clip: Declared | None = None
    intercept: float = 0.0
    labelled: bool = True
    classes: Sequence[Any] | None = None

    @property
    def words(self) -> list[str]:
        """Return the labels that are declared where they are words, else none."""
        given = [*(self.classes or ()), *(self.positive or ())]
        return records.words_of(given) if records.are_words(given) else []

    @property
    def key(self) -> list[Any]:
        """Return the key of a recipe, JSON-able."""
        clip = None if self.clip is None else self.clip.key
        others = {k: v for k, v in vars(self).items() if k != "clip"}
        # Arrays without an intercept keep their place in the cache.
        constant, labelled = others.pop("intercept"), others.pop("labelled")
        later = [constant] * bool(constant) + ["unlabelled"] * (not labelled)
        if (classes := others.pop("classes")) is not None:
            # Their order says nothing.
            later.append(sorted(map(records.spelling, classes)))
        return [clip, *others.values(), *later]

    @property
    def uncharged(self) -> tuple[Uncharged, ...]:
        """Return the steps that look at private records without budget."""
        steps = {
            Uncharged.CLASSES: self.classification and self.classes is None,
            Uncharged.STANDARDISATION: self.standardise,
            Uncharged.DROPPED_COLUMNS: self.drop_empty,
        }
        return tuple(step for step, taken in steps.items() if taken)


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
    records.check_raw(name, X, y)
    if recipe.densify and not isinstance(X, np.ndarray):
        X = X.toarray()
    column = getattr(raw[1], "name", None)  # of a table
    whose = name if column is None else f"{name}, column {heading(column)}"
    how: dict[str, Any] = {"classification": recipe.classification}
    how |= {"positive": recipe.positive, "classes": recipe.classes}
    y = records.labels(whose, y, **how) if recipe.labelled else np.zeros(y.shape)
    arrays = _split(name, X, y, recipe)
    if len(raw) > 2:
        arrays["w_true"] = np.asarray(raw[2], dtype=np.float64)
    if recipe.drop_empty:
        arrays |= _without_empty(name, arrays)
    if recipe.standardise:
        arrays |= _rescaled(name, arrays, recipe.standardise)
        # It belongs to the columns as they were.
        arrays.pop("w_true", None)
    if recipe.clip is not None:
        arrays |= clipped(name, arrays, recipe.clip)
    if recipe.intercept:
        arrays |= with_column(arrays, recipe.intercept)
    return {key: _frozen(array) for key, array in arrays.items()}


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


def _features(arrays: dict[str, Features]) -> dict[str, Features]:
    return {k: as_features(arrays[k]) for k in ("X", "X_test") if k in arrays}


def _without_empty(name: str, arrays: dict[str, Features]) -> dict[str, Features]:
    """Return the features and `w_true` without columns that are empty in X."""
    features = _features(arrays)
    X = features["X"]
    filled = X.any(axis=0) if isinstance(X, np.ndarray) else np.diff(X.indptr) > 0
    if not filled.any():
        raise UsageError(f"dataset.drop_empty=True: every column of {name} is empty")
    w_true = {key: arrays[key][filled] for key in ("w_true",) if key in arrays}
    return {key: Z[:, filled] for key, Z in features.items()} | w_true


def _rescaled(
    name: str, arrays: dict[str, Features], how: bool | str
) -> dict[str, Features]:
    """Return features whose columns are standardised, or scaled: divided by their RMS.

    Zeros stay zeros where columns are scaled, so that sparse features stay sparse.

    Raises
    ------
    UsageError
        If sparse features would have to be centred.
    """
    names, within = zip(*_features(arrays).items(), strict=True)
    if how == "scale":
        X, *others = in_usual_units(*within)
        rms = np.sqrt(mean_squares(X))
        factor = _inverse(rms, rms > 0.0)
        rescaled = [scaled(Z, columns=factor) for Z in (X, *others)]
        return dict(zip(names, rescaled, strict=True))
    X = within[0]
    if not isinstance(X, np.ndarray):
        raise UsageError(
            f"dataset.standardise=True: {name} is sparse and centring would fill it; "
            "divide by the root mean square instead with dataset.standardise=scale, "
            "or hold it dense with dataset.densify=true"
        )
    return dict(zip(names, standardise(*within), strict=True))


def standardise(X: Array, *others: Array) -> list[Array]:
    """Return X and the others shifted and scaled by the statistics of X.

    Columns of X get mean 0 and (population) variance 1. A column that is
    constant up to rounding becomes exactly 0, so that it has no influence; the
    number of features stays what was declared.
    """
    within = in_usual_units(X, *others)
    X = within[0]
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    rounding = np.finfo(np.float64).eps * np.sqrt(X.shape[0]) * np.abs(X).max(axis=0)
    factor = _inverse(deviation, deviation > rounding)
    return [(Z - mean) * factor for Z in within]


def in_usual_units(X: Features, *others: Features) -> list[Any]:
    """Return X and the others with columns in units in which X can be squared.

    Powers of 2 for columns of the largest and the smallest floats, 1 for all else.
    """
    largest = records.column_max(X)
    odd = ~unscaled(largest) & (largest > 0.0)
    if not odd.any():
        return [X, *others]
    units = np.ldexp(1.0, np.where(odd, -powers_of(largest), 0))
    return [scaled(Z, columns=units) for Z in (X, *others)]


def mean_squares(X: Features) -> Array:
    """Return the mean of the squares of each column, shape (p,)."""
    if isinstance(X, np.ndarray):
        return np.asarray(np.square(X).mean(axis=0))
    means: Array = np.asarray(X.power(2).mean(axis=0)).ravel()
    return means


def _inverse(values: Array, usable: NDArray[np.bool]) -> Array:
    return np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)


def _frozen(X: Any) -> Features:
    """Return a column-major, read-only copy that nobody else can write."""
    features = as_features(X)
    dense = isinstance(features, np.ndarray)
    copy = features.copy(order="F") if dense else features.copy()
    for part in base.parts(copy).values():
        array: Any = part
        # Scipy holds views, whose bases nobody else has.
        while isinstance(array, np.ndarray):
            array.flags.writeable = False
            array = array.base
    return copy


def dataset_from_arrays(
    X: Features,
    y: Array,
    *,
    name: str = "arrays",
    bounds: base.Bounds | None = None,
    usual: base.Usual | None = None,
) -> Dataset:
    """Make a dataset of arrays as they are: copied, checked, read-only.

    Labels are not mapped: the loss refuses those that it does not know. A sparse
    matrix stays sparse.

    Raises
    ------
    UsageError
        If they are empty, of unequal length or not finite, or break the bounds.
    """
    X, y = _frozen(X), _frozen(y)
    records.check_raw(name, X, y)
    if bounds is not None:
        check_bounds(name, X, y, bounds)
    content = records.content_hash({"X": X, "y": y})
    return Dataset(name, X, y, bounds, content, usual)
