"""Smoothness constants of the data term, from public bounds or from the data."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import Array, Dataset, Uncharged
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.losses.base import Loss

KINDS = ("auto", "public", "data", "private")
# Above this many columns the largest eigenvalue is found by Lanczos.
_DENSE_EIGENVALUES = 1000


@dataclass(frozen=True, eq=False)
class Smoothness:
    """Constants of f(w) = (1/n) sum_i phi(x_i.w, y_i).

    Parameters
    ----------
    kind : {'auto', 'public', 'data'}
        ``public``: from the declared bounds, M_j = H R_j^2 and beta = H R_2^2.
        ``data``: M_j = H mean_i x_ij^2 and beta = H lambda_max(X'X / n), a use
        of the data that no budget pays for. ``auto``: public where bounds are
        declared, else data.
    dataset : Dataset
    loss : Loss
    """

    kind: str
    dataset: Dataset
    loss: Loss

    def __post_init__(self) -> None:
        """Resolve ``auto``; refuse ``public`` without declared bounds."""
        if self.kind not in KINDS:
            raise UsageError(
                f"smoothness={self.kind}: must be one of {', '.join(KINDS)}"
            )
        if self.kind == "private":
            raise UsageError(
                "smoothness=private: is published anew by each fit, a problem by "
                "itself has none; use smoothness=public or data"
            )
        bounds = self.dataset.bounds
        if self.kind == "public" and bounds is None:
            raise Unsupported(
                f"smoothness=public: dataset {self.dataset.name} declares no bounds; "
                "use smoothness=data, or declare bounds"
            )
        if self.kind == "auto":
            kind = "data" if bounds is None else "public"
            object.__setattr__(self, "kind", kind)

    @property
    def uncharged(self) -> tuple[Uncharged, ...]:
        """Return the use of the data that no budget pays for."""
        return (Uncharged.SMOOTHNESS,) if self.kind == "data" else ()

    @cached_property
    def columns(self) -> Array:
        """Return M_j, the smoothness of each coordinate, shape (p,)."""
        H = self.loss.smoothness
        if self.kind == "public" and self.dataset.bounds is not None:
            return H * np.square(self.dataset.bounds.columns)
        return H * mean_squares(self.dataset.X)

    @cached_property
    def norm(self) -> float:
        """Return beta, the smoothness in the euclidean norm."""
        H = self.loss.smoothness
        if self.kind == "public" and self.dataset.bounds is not None:
            return H * self.dataset.bounds.norm**2
        return H * _largest_eigenvalue(self.dataset.X)


def mean_squares(X: Any) -> Array:
    """Return mean_i x_ij^2, shape (p,); X is dense or sparse."""
    squares = np.square(X) if isinstance(X, np.ndarray) else X.power(2)
    means: Array = np.asarray(squares.sum(axis=0)) / X.shape[0]
    return means


def _largest_eigenvalue(X: Any) -> float:
    """Return the largest eigenvalue of X'X / n; X is dense or sparse."""
    n, p = X.shape
    side = min(n, p)
    if side <= _DENSE_EIGENVALUES:
        gram = (X.T @ X if p <= n else X @ X.T) / n
        gram = gram if isinstance(gram, np.ndarray) else gram.toarray()
        return float(np.linalg.eigvalsh(gram)[-1])
    if not mean_squares(X).any():
        return 0.0
    from scipy.sparse.linalg import LinearOperator, eigsh

    def product(v: Array) -> Array:
        image: Array = (X.T @ (X @ v) if p <= n else X @ (X.T @ v)) / n
        return image

    # Generic, unlike the ones, which opposite columns make orthogonal to the answer.
    start = np.random.default_rng(0).standard_normal(side)
    operator = LinearOperator((side, side), matvec=product, dtype=np.float64)
    return float(eigsh(operator, k=1, v0=start)[0][0])
