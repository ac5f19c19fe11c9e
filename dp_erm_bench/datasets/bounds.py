"""Bounds that a yaml declares: resolved, checked, or imposed by clipping."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import Array, Bounds, Features
from dp_erm_bench.datasets.features import (
    as_features,
    assembled,
    column_max,
    norms,
    parts,
    scaled,
)
from dp_erm_bench.errors import UsageError

SLACK = 1.0 + 1e-12
"""Rounding of a norm that a record may exceed its bound by."""


@dataclass(frozen=True, eq=False)
class Declared:
    """Bounds as a yaml states them, before the number of features is known.

    Parameters
    ----------
    columns : array of shape (p,) or ()
        One value for each column of the dataset, or one for all.
    norm : float or None
        None: what the columns imply.
    label : float or None
    """

    columns: Array
    norm: float | None = None
    label: float | None = None

    @property
    def key(self) -> list[Any]:
        """Return the bounds JSON-able."""
        return [self.columns.tolist(), self.norm, self.label]

    def of(self, name: str, p: int) -> Bounds:
        """Return the bounds of a dataset with p features.

        Raises
        ------
        UsageError
            If there is another number of columns.
        """
        if self.columns.ndim and self.columns.size != p:
            raise _length(name, self.columns.size, p)
        columns = np.broadcast_to(self.columns, p)
        norm = float(np.linalg.norm(columns)) if self.norm is None else self.norm
        return Bounds(columns=columns, norm=norm, label=self.label)


def _length(name: str, size: int, p: int) -> UsageError:
    return UsageError(
        f"dataset.bounds.columns of {name}: has {size} values, must have one for "
        f"each of the {p} features, or be one number for all"
    )


def check_bounds(name: str, X: Features, y: Array, bounds: Bounds) -> None:
    """Refuse declared bounds of the wrong length, or that a record breaks."""
    if bounds.columns.shape != X.shape[1:]:
        raise _length(name, bounds.columns.size, X.shape[1])
    clip = "; correct it, or clip records with dataset.clip_to_bounds=true"
    broken = np.flatnonzero(column_max(X) > bounds.columns)
    if broken.size:
        raise UsageError(
            f"dataset.bounds.columns of {name}: feature {broken[0]} exceeds its "
            f"declared bound {bounds.columns[broken[0]]:g}{clip}"
        )
    if norms(X).max() > bounds.norm * SLACK:
        raise UsageError(
            f"dataset.bounds.norm of {name}: a record exceeds the declared bound "
            f"{bounds.norm:g}{clip}"
        )
    if bounds.label is not None and np.abs(y).max() > bounds.label:
        raise UsageError(
            f"dataset.bounds.label of {name}: a label exceeds the declared bound "
            f"{bounds.label:g}{clip}"
        )


def clipped(
    name: str, arrays: Mapping[str, Features], declared: Declared
) -> dict[str, Features]:
    """Return features and labels with every record clipped to the bounds.

    Features are clipped one by one, then the record is shrunk to the norm: each
    record by itself, which costs no budget.
    """
    bounds = declared.of(name, arrays["X"].shape[1])
    found = {
        key: _clipped(as_features(arrays[key]), bounds)
        for key in ("X", "X_test")
        if key in arrays
    }
    if bounds.label is not None:
        for key in ("y", "y_test"):
            if key in arrays:
                found[key] = np.clip(arrays[key], -bounds.label, bounds.label)
    return found


def _clipped(X: Features, bounds: Bounds) -> Features:
    if isinstance(X, np.ndarray):
        X = np.clip(X, -bounds.columns, bounds.columns)
    else:
        limits = np.repeat(bounds.columns, np.diff(X.indptr))
        data = {".data": np.clip(X.data, -limits, limits)}
        X = assembled(X.shape, parts(X) | data)
    lengths = norms(X)
    shrink = bounds.norm / np.where(lengths > bounds.norm, lengths, bounds.norm or 1.0)
    return scaled(X, rows=shrink)
