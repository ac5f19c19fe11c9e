"""Smoothness constants that were published with noise, and what goes into them.

Nothing here is private by itself: ``privacy.smoothness`` adds the noise.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.datasets.base import Array, Dataset, Uncharged
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.losses.base import Loss

SOURCES = ("auto", "declared", "data")


@dataclass(frozen=True, eq=False)
class ReleasedSmoothness:
    """Published constants of B trials, in place of ``Smoothness``.

    Parameters
    ----------
    columns : array of shape (B, p)
        M_j of each trial.
    source : {'declared', 'data'}
        Where the bounds b_j on one record's share came from.
    """

    kind: ClassVar[str] = "private"

    columns: Array
    source: str

    @property
    def norm(self) -> Array:
        """Return sum_j M_j, which stands for beta, shape (B, 1).

        The largest eigenvalue of H X'X / n is at most its trace, the sum of the
        exact M_j: up to the noise of the M_j a bound on beta, at most p times too
        large. It is a function of what was published, so it costs no budget; it
        scales step sizes only, and no sensitivity.
        """
        return np.asarray(self.columns.sum(axis=-1, keepdims=True))

    @property
    def uncharged(self) -> tuple[Uncharged, ...]:
        """Return the use of the data that no budget pays for."""
        return (Uncharged.SMOOTHNESS_BOUNDS,) if self.source == "data" else ()


def square_bounds(dataset: Dataset, loss: Loss, source: str) -> tuple[Array, str]:
    """Return b_j, the bounds on H x_ij^2, and where they come from.

    Parameters
    ----------
    dataset, loss
    source : {'auto', 'declared', 'data'}
        ``declared``: H R_j^2. ``data``: the largest H x_ij^2, as in the papers'
        figures. It sets the scale of the noise: the release is private given the
        b_j as public numbers, terms of other records being cut off at them, and
        ``uncharged`` lists ``smoothness_bounds``. ``auto``: declared where they are.

    Raises
    ------
    Unsupported
        For ``declared`` where no bounds are.
    """
    H, bounds = loss.smoothness, dataset.bounds
    if bounds is not None and source != "data":
        return H * np.square(bounds.columns), "declared"
    if source == "declared":
        raise Unsupported(
            f"smoothness_bounds=declared: dataset {dataset.name} declares no bounds; "
            "use smoothness_bounds=data, or declare bounds"
        )
    return H * np.square(largest_entries(dataset.X)), "data"


def clipped_squares(dataset: Dataset, loss: Loss, bounds: Array) -> Array:
    """Return mean_i min(H x_ij^2, b_j), shape (p,)."""
    X, H = dataset.X, loss.smoothness
    if isinstance(X, np.ndarray):
        pairs = zip(X.T, bounds, strict=True)
        return np.array([np.minimum(H * np.square(x), b).mean() for x, b in pairs])
    columns = np.repeat(np.arange(dataset.p), np.diff(X.indptr))
    terms = np.minimum(H * np.square(X.data), bounds[columns])
    means: Array = np.bincount(columns, terms, dataset.p) / dataset.n
    return means


def largest_entries(X: Any) -> Array:
    """Return the largest absolute value of each column, dense or sparse."""
    if not isinstance(X, np.ndarray):
        largest: Array = abs(X).max(axis=0).toarray().ravel()
        return largest
    return np.asarray(np.maximum(X.max(axis=0), -X.min(axis=0)))
