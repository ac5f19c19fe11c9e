"""A dataset: what every loader hands out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csc_array, csr_array

Array = NDArray[np.float64]
Features: TypeAlias = "Array | csc_array"


class Uncharged(StrEnum):
    """Uses of the data that no budget pays for; docs/privacy.md explains each."""

    SMOOTHNESS = "smoothness"
    SMOOTHNESS_BOUNDS = "smoothness_bounds"
    STANDARDISATION = "standardisation"
    DROPPED_COLUMNS = "dropped columns"
    TUNING = "tuning"


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
    """

    columns: Array
    norm: float
    label: float | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Return the bounds as a dataset's yaml declares them."""
        columns = self.columns.tolist()
        return {"columns": columns, "norm": self.norm, "label": self.label}


@dataclass(frozen=True)
class Usual:
    """The objective that the literature uses with a dataset.

    ``strength`` is a number or ``'1/n'``.
    """

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
        Declared bounds; None where the yaml declares none, or where the data
        were transformed by their own statistics and records not clipped after that.
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

    Attributes
    ----------
    loaded : mapping or None
        The specification by which ``load_dataset`` made it. A copy with other parts
        (``dataclasses.replace``) has none: it is no longer what that stands for.
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
    loaded: Mapping[str, Any] | None = field(default=None, init=False)

    def loaded_by(self, spec: Mapping[str, Any]) -> Dataset:
        """Return the same dataset, known by its specification."""
        made = replace(self)
        object.__setattr__(made, "loaded", spec)
        return made

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """Return what a trial's spec says of the dataset, JSON-able.

        The yaml with overrides of one that was loaded; of a user's own arrays their
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
        if isinstance(self.X, np.ndarray):
            squares = np.square(self.X).sum(axis=1)
        else:
            squares = np.bincount(self.X.indices, self.X.data**2, self.n)
        norms: Array = np.sqrt(squares)
        return norms
