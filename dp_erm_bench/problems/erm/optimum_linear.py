"""Newton systems of dense and of sparse features, which are never made dense."""

from typing import Any, Protocol

import numpy as np
from scipy import linalg, sparse

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels import sparse as kernels

# Unknowns up to which the system of sparse features is factorised.
DIRECT = 1500
# Entries of a sparse block that may be written out for a faster product.
SMALL = 500_000
CG_TOLERANCE = 1e-2
CG_STEPS = 1000
RIDGE = 1e-12


class System(Protocol):
    """A symmetric positive definite system of linear equations.

    Attributes
    ----------
    exact : bool
        Whether solutions are good to rounding.
    """

    exact: bool

    def solve(self, g: Array) -> Array:
        """Return the solution for a right side g, shape (p,)."""


def newton_system(X: Any, d: Array, l2: float, products: Array | None = None) -> System:
    """Return the system (X' diag(d) X + l2 I), factorised or solved by CG.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
    d : array of shape (n,)
        Non-negative weights of the records.
    l2 : float
    products : array of shape (n, n), optional
        X X', of :func:`row_products`, where many systems share it.
    """
    side = min(X.shape) if l2 > 0.0 else X.shape[1]
    if sparse.issparse(X) and side > DIRECT:
        return Iterative(X, d, l2)
    return Quadratic(X, d, l2, products)


def row_products(X: Any, l2: float) -> Array | None:
    """Return X X' if systems with this l2 are solved in n dimensions, else None."""
    n, p = X.shape
    inexact = sparse.issparse(X) and n > DIRECT
    return gram(X, True) if p > n and l2 > 0.0 and not inexact else None


class Quadratic:
    """The Newton system (X' diag(d) X + l2 I), solved in the smaller dimension."""

    exact = True

    def __init__(
        self, X: Any, d: Array, l2: float, products: Array | None = None
    ) -> None:
        self.l2 = l2
        root = np.sqrt(d)
        self.root = scaled(X, root)
        n, p = X.shape
        self.dual = p > n and l2 > 0.0
        if self.dual and products is not None:
            self.factor = _factor(products * root * root[:, None], l2)
        else:
            self.factor = _factor(gram(self.root, self.dual), l2)

    def solve(self, g: Array) -> Array:
        """Return the solution for a right side g, shape (p,)."""
        if not self.dual:
            return _apply(self.factor, g)
        inner = _apply(self.factor, self.root @ g)
        return np.asarray((g - self.root.T @ inner) / self.l2)


class Iterative:
    """The Newton system solved by conjugate gradients, diagonally scaled."""

    exact = False

    def __init__(self, X: Any, d: Array, l2: float) -> None:
        diagonal = np.asarray(scaled(X, np.sqrt(d)).power(2).sum(axis=0)) + l2
        scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
        self.X, self.d, self.l2, self.scale = X, d, l2, scale

    def solve(self, g: Array) -> Array:
        """Return the solution up to a relative residual of 1e-2."""
        from scipy.sparse.linalg import LinearOperator, cg

        p = g.size
        operator = LinearOperator((p, p), matvec=self._product, dtype=np.float64)
        options = {"rtol": CG_TOLERANCE, "atol": 0.0, "maxiter": CG_STEPS}
        found, _ = cg(operator, self.scale * g, **options)
        return np.asarray(self.scale * found)

    def _product(self, v: Array) -> Array:
        unscaled = v.ravel()
        v = self.scale * unscaled
        image = self.X.T @ (self.d * (self.X @ v)) + self.l2 * v
        # The ridge keeps directions without curvature finite.
        return np.asarray(self.scale * image + RIDGE * unscaled)


def margins(X: Any, w: Array) -> Array:
    """Return X w, shape (n,), from the support of w where that pays."""
    if sparse.issparse(X):
        support = np.flatnonzero(w)
        if 8 * support.size < w.size:
            return np.asarray(X[:, support] @ w[support])
    return np.asarray(X @ w)


def scaled(X: Any, weights: Array) -> Any:
    """Return diag(weights) X, of the form of X."""
    if not sparse.issparse(X):
        return X * weights[:, None]
    data = X.data * weights[X.indices]
    return sparse.csc_array((data, X.indices, X.indptr), shape=X.shape)


def gram(A: Any, rows: bool) -> Array:
    """Return A A' or A'A, a dense array of which the upper triangle is filled."""
    if sparse.issparse(A) and A.shape[0] * A.shape[1] <= SMALL:
        A = A.toarray()
    if sparse.issparse(A):
        # A A' adds up over the columns of A, A'A over its rows.
        lines = A.tocsc() if rows else A.tocsr()
        if not lines.has_sorted_indices:
            lines = lines.sorted_indices()
        out = np.zeros((A.shape[0] if rows else A.shape[1],) * 2)
        kernels.upper_gram((lines.data, lines.indices, lines.indptr), out)
        return np.asfortranarray(out)
    A = np.asfortranarray(A)
    product = linalg.blas.dsyrk(1.0, A, trans=0 if rows else 1)
    return np.asarray(product)


def _factor(gram: Array, l2: float) -> tuple[Array, Array]:
    """Return the Cholesky factor of the system scaled to unit diagonal."""
    diagonal = gram.diagonal() + l2
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    scaled = gram * scale * scale[:, None]
    ridge = 0.0
    while True:
        np.fill_diagonal(scaled, 1.0 + ridge)
        try:
            return linalg.cholesky(scaled, lower=False, check_finite=False), scale
        except linalg.LinAlgError:
            ridge = max(10.0 * ridge, 1e-14)


def _apply(factor: tuple[Array, Array], g: Array) -> Array:
    upper, scale = factor
    solved = linalg.cho_solve((upper, False), scale * g, check_finite=False)
    return np.asarray(scale * solved)
