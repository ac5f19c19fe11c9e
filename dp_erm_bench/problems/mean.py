"""Mean estimation: the mean of bounded records, which have no labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dp_erm_bench.datasets.base import (
    Array,
    Dataset,
    Features,
    Uncharged,
    real_numbers,
)
from dp_erm_bench.datasets.prepare import dataset_from_arrays, declared_bounds
from dp_erm_bench.datasets.spec import identifying_keys
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.paths import digest_of_json
from dp_erm_bench.problems.base import Optimum, Problem
from dp_erm_bench.registry import OBJECTIVE

NAME = "mean"
SILENT = ("_target_", "path")
"""Keys of a dataset's yaml that its content already determines."""


@dataclass(frozen=True, eq=False)
class MeanEstimation(Problem):
    """The distance to the mean of the records, F(w) = norm2(w - mean), over R^p.

    The minimum of F is 0, so a relative error has no meaning. Labels of the dataset are
    not read.

    Parameters
    ----------
    dataset : Dataset
        A dataset whose features are the records; sparse features stay sparse.

    References
    ----------
    Ghazi, Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization
    with sparse gradients", NeurIPS 2024, section 3.
    """

    kind: ClassVar[str] = "mean estimation"

    dataset: Dataset

    @classmethod
    def from_dataset(cls, dataset: Dataset) -> MeanEstimation:
        """Return the problem of a dataset."""
        return cls(dataset)

    @property
    def n(self) -> int:
        """Return the number of records."""
        return self.dataset.n

    @property
    def p(self) -> int:
        """Return the number of coordinates."""
        return self.dataset.p

    @property
    def entries(self) -> int:
        """Return the number of stored entries of the records."""
        X = self.dataset.X
        return int(X.size if isinstance(X, np.ndarray) else X.nnz)

    @property
    def spec(self) -> Mapping[str, Any]:
        """Return the part of a trial's spec that describes the problem.

        This part has the keys `dataset`, `problem`, `loss`, `penalty` and `constraint`;
        the last three are none. The dataset of a user's own arrays is described by its
        content and by its bounds, without the bounds on columns.
        """
        data, own = self.dataset, self.dataset.loaded
        if own is None:
            named = {"name": data.name, "content": data.content_hash}
            own = {**named, "bounds": self._norm_bounds}
        none = {part: {"name": "none"} for part in OBJECTIVE}
        return {"dataset": own, "problem": {"name": NAME}, **none}

    @property
    def _norm_bounds(self) -> dict[str, Any]:
        bounds = self.dataset.bounds
        names = ("norm", "nonzeros") if bounds is not None else ()
        return {name: getattr(bounds, name) for name in names}

    @cached_property
    def identity(self) -> str:
        """Return the digest of the dataset's content, its spec and the problem."""
        entering = identifying_keys(self.spec["dataset"])
        keys = {k: v for k, v in entering.items() if k not in SILENT}
        return digest_of_json(
            [NAME, self.dataset.content_hash, keys, *self.dataset.bounds_by_name]
        )

    @property
    def radius(self) -> float:
        """Return L, the declared bound on a record's norm; infinite without one."""
        bounds = self.dataset.bounds
        return math.inf if bounds is None else bounds.norm

    @property
    def nonzeros(self) -> int:
        """Return s, the declared largest number of non-zeros of a record, at most p."""
        bounds = self.dataset.bounds
        declared = None if bounds is None else bounds.nonzeros
        return self.p if declared is None else declared

    @property
    def l1_radius(self) -> float:
        """Return L sqrt(s), which bounds the l1 norm of a record, hence of a mean."""
        return self.radius * math.sqrt(self.nonzeros)

    @cached_property
    def mean(self) -> Array:
        """Return the mean of the records, shape (p,), read-only."""
        mean = np.asarray(self.dataset.X.sum(axis=0)).ravel() / self.n
        mean.flags.writeable = False
        return mean

    @property
    def optimum(self) -> Optimum:
        """Return the exact optimum, the value 0 at the mean."""
        return Optimum(0.0, self.mean, 0.0)

    def value(self, w: Array) -> Any:
        """Return norm2(w - mean): a number for shape (p,), shape (B,) for (B, p)."""
        return norm2(w - self.mean, axis=-1)

    def contains(self, w: Array) -> Any:
        """Return whether points of shape (..., p) are finite, shape (...)."""
        return np.isfinite(w).all(axis=-1)

    def uncharged(self, constants: bool) -> tuple[Uncharged, ...]:
        """Return the uncharged uses of the records by the dataset."""
        return self.dataset.uncharged

    def facts(self) -> dict[str, Any]:
        """Return ``none`` for the loss, the penalty and the constraint."""
        return dict.fromkeys(OBJECTIVE, "none")

    @classmethod
    def neighbours(cls, zeroed: bool) -> tuple[MeanEstimation, MeanEstimation]:
        """Return two problems whose records are zeros, except the first record.

        The first record of the first problem has s entries of L / sqrt(s) each. The
        first record of the second problem is the opposite record, or zeros. The mean
        moves as far as is allowed, in the L1 norm and in the euclidean norm.
        """
        first, other = np.zeros((40, 64)), np.zeros((40, 64))
        first[0, :4] = 0.5
        other[0] = 0.0 * first[0] if zeroed else -first[0]
        bounds = {"norm": 1.0, "nonzeros": 4}
        made = (problem_from_records(Z, bounds=bounds) for Z in (first, other))
        return next(made), next(made)


def problem_from_records(
    Z: ArrayLike | Features,
    *,
    bounds: Mapping[str, Any] | float | None = None,
    public: bool = False,
) -> MeanEstimation:
    """Return the problem of the mean of a user's own records.

    Parameters
    ----------
    Z : array or sparse matrix of shape (n, p)
        The records; a sparse matrix stays sparse.
    bounds : mapping or float, optional
        Public bounds on a record, not computed from the data: ``norm`` (L) and
        optionally ``nonzeros`` (s) and ``columns``. A number is the norm. Without
        bounds a finite epsilon is refused.
    public : bool
        Whether the records are public; then pickled results keep their trajectory.

    Raises
    ------
    UsageError
        For wrong shapes, values that are not finite, or a record outside the declared
        bounds.
    """
    records = Z if hasattr(Z, "tocsc") else np.asarray(real_numbers("Z", Z), np.float64)
    size = np.shape(records)[-1] if np.ndim(records) else 0
    whole = bounds is None or isinstance(bounds, Mapping)
    given: Any = bounds if whole else {"norm": bounds}
    declared = None if given is None else declared_bounds(given, size)
    labels = np.zeros(np.shape(records)[:1])
    made = dataset_from_arrays(records, labels, bounds=declared)
    return MeanEstimation(made.loaded_by(None, public is True))
