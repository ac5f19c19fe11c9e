"""Smoothness constants of the data term: public, from the data, or published.

Nothing here is private by itself: ``releases.smoothness`` adds the noise.

What depends on the features alone is kept with the dataset (`once`), so that all
problems, batches and fits on it share it. It is not kept on disk: to check an
eigenvalue that was read costs as much as computing it, since a vector shows only that
the largest one is no smaller.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.datasets.base import Array, Dataset, Uncharged, norms, once
from dp_erm_bench.datasets.prepare import scaled
from dp_erm_bench.errors import Unsupported, UsageError, refused
from dp_erm_bench.kernels.lengths import USUAL
from dp_erm_bench.losses.base import Loss

KINDS = ("auto", "public", "data", "private")
SOURCES = ("auto", "declared", "data")
# Above this many columns the largest eigenvalue is found by Lanczos.
_DENSE_EIGENVALUES = 1000
LEAST = 1e-300
"""Curvatures up to this count as 0: steps of their inverse would overflow."""


@dataclass(frozen=True, eq=False)
class Smoothness:
    """Constants of f(w) = (1/n) sum_i phi(x_i.w, y_i).

    Parameters
    ----------
    kind : {'auto', 'public', 'data'}
        ``public``: from the declared bounds, M_j = H R_j^2 and beta = H R_2^2.
        ``data``: M_j = H mean_i x_ij^2 and beta = H lambda_max(X'X / n), a use
        of the data that no budget pays for; records whose squares do not add up to
        finite numbers have no say in it. ``auto``: public where bounds are
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
            raise refused("smoothness", self.kind, f"one of {', '.join(KINDS)}")
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
            return _times(H, np.square(self.dataset.bounds.columns))
        return _times(H, once(self.dataset, mean_squares))

    @cached_property
    def norm(self) -> float:
        """Return beta, the smoothness in the euclidean norm."""
        H = self.loss.smoothness
        if self.kind == "public" and self.dataset.bounds is not None:
            return float(_times(H, self.dataset.bounds.norm**2))
        return float(_times(H, once(self.dataset, _largest_eigenvalue)))


def _times(H: float, squares: Array | float) -> Array:
    """Return H times squares, 0 where they are, also for an infinite H.

    So are squares of which a step size has no finite inverse.
    """
    squares = np.asarray(squares)
    return np.multiply(H, squares, out=np.zeros_like(squares), where=squares > LEAST)


def mean_squares(X: Any) -> Array:
    """Return mean_i x_ij^2, shape (p,); X is dense or sparse.

    Records whose squares do not add up to finite numbers have no say in it.
    """
    with np.errstate(over="ignore", under="ignore"):
        squares = np.square(X) if isinstance(X, np.ndarray) else X.power(2)
        means = np.asarray(np.asarray(squares.sum(axis=0)) / X.shape[0])
        return means if np.isfinite(means.sum()) else mean_squares(squarable(X))


def squares_add_up(X: Any) -> bool:
    """Return whether the sum of all squares, which bounds X'X, is finite."""
    entries = X if isinstance(X, np.ndarray) else X.data
    with np.errstate(over="ignore", under="ignore"):
        return bool(np.isfinite(np.square(entries).sum()))


def squarable(X: Any) -> Any:
    """Return features with zeros for the records whose squares do not add up."""
    most = 0.5 * np.sqrt(np.finfo(np.float64).max / X.shape[0])
    return scaled(X, rows=norms(X) <= most)


def _largest_eigenvalue(X: Any) -> float:
    """Return the largest eigenvalue of X'X / n; X is dense or sparse (`squarable`)."""
    n, p = X.shape
    X = X if squares_add_up(X) else squarable(X)
    side = min(n, p)
    if side <= _DENSE_EIGENVALUES:
        gram = (X.T @ X if p <= n else X @ X.T) / n
        gram = gram if isinstance(gram, np.ndarray) else gram.toarray()
        return float(np.linalg.eigvalsh(gram)[-1])
    if not mean_squares(X).any():
        return 0.0
    from scipy.sparse.linalg import LinearOperator, eigsh

    def product(v: Array) -> Array:
        return np.asarray((X.T @ (X @ v) if p <= n else X @ (X.T @ v)) / n)

    # Generic, unlike the ones, which opposite columns make orthogonal to the answer.
    start = np.random.default_rng(0).standard_normal(side)
    operator = LinearOperator((side, side), matvec=product, dtype=np.float64)
    return float(eigsh(operator, k=1, v0=start)[0][0])


@dataclass(frozen=True, eq=False)
class ReleasedSmoothness:
    """Published constants of B trials, in place of ``Smoothness``.

    Parameters
    ----------
    columns : array of shape (B, p)
        M_j of each trial.
    source : {'declared', 'data'}
        The source of the bounds b_j on one record's share.
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
        For ``declared`` where no bounds are, or a loss without curvature.
    """
    if not loss.curved:
        reason = f"loss={loss.name} has no constant to publish"
        raise Unsupported(f"smoothness=private: {reason}")
    H, bounds = loss.smoothness, dataset.bounds
    if bounds is not None and source != "data":
        return H * np.square(bounds.columns), "declared"
    if source == "declared":
        raise Unsupported(
            f"smoothness_bounds=declared: dataset {dataset.name} declares no bounds; "
            "use smoothness_bounds=data, or declare bounds"
        )
    return H * np.square(once(dataset, _largest_squarable)), "data"


def clipped_squares(dataset: Dataset, loss: Loss, bounds: Array) -> Array:
    """Return mean_i min(H x_ij^2, b_j), shape (p,)."""
    exact: Array = once(dataset, _clipped_squares, loss.smoothness, bounds)
    return exact


def _clipped_squares(X: Any, H: float, bounds: Array) -> Array:
    n, p = X.shape
    if isinstance(X, np.ndarray):
        pairs = zip(X.T, bounds, strict=True)
        return np.array([np.minimum(H * np.square(x), b).mean() for x, b in pairs])
    columns = np.repeat(np.arange(p), np.diff(X.indptr))
    terms = np.minimum(H * np.square(X.data), bounds[columns])
    return np.asarray(np.bincount(columns, terms, p) / n)


def _largest_squarable(X: Any) -> Array:
    """Return the largest absolute values of columns whose squares are finite."""
    largest = largest_entries(X)
    usual = bool(largest.max() <= USUAL[1])
    return largest if usual else largest_entries(squarable(X))


def largest_entries(X: Any) -> Array:
    """Return the largest absolute value of each column, dense or sparse."""
    if not isinstance(X, np.ndarray):
        return np.asarray(abs(X).max(axis=0).toarray().ravel())
    return np.asarray(np.maximum(X.max(axis=0), -X.min(axis=0)))
