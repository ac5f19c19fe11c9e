"""Standardise columns by the statistics of the training records."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.datasets.base import Array, Features
from dp_erm_bench.datasets.features import as_features, mean_squares, scaled
from dp_erm_bench.errors import UsageError


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


def scale(X: Features, others: Iterable[Features]) -> list[Features]:
    """Return X and the others with columns divided by the root mean square of X.

    Zeros stay zeros, so that sparse features stay sparse.
    """
    rms = np.sqrt(mean_squares(X))
    factor = _inverse(rms, rms > 0.0)
    return [scaled(as_features(Z), columns=factor) for Z in (X, *others)]


def _inverse(values: Array, usable: NDArray[np.bool]) -> Array:
    return np.where(usable, 1.0 / np.where(usable, values, 1.0), 0.0)


def scaled_by_train(
    name: str, arrays: dict[str, Features], how: bool | str
) -> dict[str, Features]:
    """Return the arrays of a dataset with its columns standardised or scaled.

    The true parameter is left out: it belongs to the columns as they were.

    Raises
    ------
    UsageError
        If sparse features would have to be centred, and so lose their zeros.
    """
    keys = [key for key in ("X", "X_test") if key in arrays]
    first, *others = (as_features(arrays[key]) for key in keys)
    kept = {key: array for key, array in arrays.items() if key != "w_true"}
    if how == "scale":
        return kept | dict(zip(keys, scale(first, others), strict=True))
    if not isinstance(first, np.ndarray):
        raise UsageError(
            f"dataset.standardise=True: {name} is sparse and centring would fill it; "
            "divide by the root mean square instead with dataset.standardise=scale, "
            "or hold it dense with dataset.densify=true"
        )
    return kept | dict(zip(keys, standardise(first, others), strict=True))
