"""What is computed from a dataset and kept with it, where it cannot change."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import Dataset, Features, parts


def once(data: Dataset, compute: Callable[..., Any], *given: Any) -> Any:
    """Return ``compute(X, *given)``, computed once for a dataset that cannot change.

    Parameters
    ----------
    data : Dataset
        It keeps the last value of each function (`kept`).
    compute : callable
        A function of the module, of the features alone and of what is given.
    *given : float or array

    Returns
    -------
    float or array
        Read-only where it is kept.
    """
    key = tuple(np.asarray(value).tobytes() for value in given)
    return kept(data, compute, key, lambda: compute(data.X, *given))


def kept(
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
    return all(map(_is_locked, parts(X).values()))


def _is_locked(array: Any) -> bool:
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return False
        array = array.base
    try:
        return array is None or memoryview(array).readonly
    except TypeError:
        return False  # who knows what it is
