"""The intercept: a last column of one constant, which is public and so are its bounds.

Nothing about it is computed from records. That a column of the data is constant is not
looked up either: it would be a private fact.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import (
    Bounds,
    Features,
    as_features,
    assembled,
    check_nonzeros,
    parts,
)
from dp_erm_bench.errors import UsageError, heading

KEY = "intercept"
NAMES = (KEY, "const", "constant", "bias")
"""What tables call a column of ones."""


def with_column(arrays: Mapping[str, Features], constant: float) -> dict[str, Features]:
    """Return ``X`` and ``X_test`` with a last column of a constant, `w_true` with a 0.

    Parameters
    ----------
    arrays : mapping
        ``X`` of shape (n, p), dense or sparse, and what else there is.
    constant : float
    """
    wider: dict[str, Features] = {}
    for key in {"X", "X_test"} & set(arrays):
        Z: Any = as_features(arrays[key])
        n, p = Z.shape
        column = np.full(n, constant)
        if isinstance(Z, np.ndarray):
            wider[key] = np.column_stack([Z, column])
            continue
        check_nonzeros(Z.nnz + n)
        more = (column, np.arange(n, dtype=np.int32), np.array([Z.nnz + n], np.int32))
        own = zip(parts(Z).items(), more, strict=True)
        longer = {suffix: np.append(part, values) for (suffix, part), values in own}
        wider[key] = assembled((n, p + 1), longer)
    if "w_true" in arrays:
        wider["w_true"] = np.append(arrays["w_true"], 0.0)
    return wider


def with_bound(bounds: Bounds, constant: float) -> Bounds:
    """Return the bounds of records that `with_column` made longer, which are exact."""
    columns = np.append(bounds.columns, constant)
    columns.flags.writeable = False
    norm, most = float(np.hypot(bounds.norm, constant)), bounds.nonzeros
    return Bounds(columns, norm, bounds.label, most if most is None else most + 1)


def check_names(columns: Iterable[Any], constant: float) -> None:
    """Refuse a column of a table that is called an intercept beside one.

    Raises
    ------
    UsageError
        Naming the column.
    """
    for column in columns:
        if str(column).strip("() ").casefold() in NAMES:
            raise UsageError(
                f"dataset.{KEY}={constant:g}: column {heading(column)} of the file is "
                "one by its name; leave one of the two out"
            )
