"""Common parts of reference minimisers: objective, duality gap, Newton systems.

Features are dense, or sparse and never made dense.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels import sparse as kernels
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.penalties.base import Penalty

# Unknowns up to which the system of sparse features is factorised.
DIRECT = 1500
# Entries of a sparse block that may be written out for a faster product.
SMALL = 500_000
CG_TOLERANCE = 1e-2
CG_STEPS = 1000
RIDGE = 1e-12


@dataclass(frozen=True, eq=False)
class Composite:
    """The objective (1/n) sum phi(x_i.w) + l1 norm1(w) + (l2/2) norm2(w)^2.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
    y : array of shape (n,)
    loss : Loss
        Convex, differentiable and non-negative.
    l1, l2 : float
    """

    X: Any
    y: Array
    loss: Loss
    l1: float = 0.0
    l2: float = 0.0

    @property
    def zero(self) -> Array:
        """Return w = 0, shape (p,)."""
        return np.zeros(self.X.shape[1])

    def margins(self, w: Array) -> Array:
        """Return X w, shape (n,), from the nonzero entries of w if this is faster."""
        if sparse.issparse(self.X):
            support = np.flatnonzero(w)
            if 8 * support.size < w.size:
                return np.asarray(self.X[:, support] @ w[support])
        return np.asarray(self.X @ w)

    def value(self, w: Array) -> float:
        """Return F(w)."""
        losses = self.loss.value(self.y, self.margins(w))
        smooth = losses.mean() + 0.5 * self.l2 * (w @ w)
        return float(smooth + self.l1 * np.abs(w).sum())

    def gradient(self, w: Array) -> Array:
        """Return the gradient of the smooth part, shape (p,)."""
        residual = self.loss.derivative(self.y, self.margins(w))
        return np.asarray(self.X.T @ residual / self.y.size + self.l2 * w)

    def curvature(self, w: Array) -> Array:
        """Return phi''(x_i.w), shape (n,)."""
        return self.loss.second_derivative(self.y, self.margins(w))


def duality_gap(problem: Composite, psi: Penalty, w: Array) -> float:
    """Return an upper bound on F(w) - min F from Fenchel duality.

    Here F(w) = (1/n) sum_i phi(x_i.w, y_i) + psi(w), whatever the problem's l1 and l2.
    For dual variables v_i = phi'(x_i.w) and u = -X'v/n, the gap is psi(w) + psi*(u) -
    w.u, since the part of the losses vanishes (Fenchel-Young with equality). If psi*(u)
    is infinite, the dual point is scaled by s <= 1 to be feasible. Then convexity of
    phi* with phi*(0) <= 0 gives phi(z) + phi*(s v) - s v z <= (1 - s) phi(z). All terms
    are non-negative, so no large number is subtracted from another.

    Parameters
    ----------
    problem : Composite
        The problem, whose features, labels and loss are used.
    psi : Penalty
    w : array of shape (p,)

    References
    ----------
    Ndiaye, Fercoq, Gramfort, Salmon. Gap safe screening rules for sparsity
    enforcing penalties. JMLR 2017, section 2.
    """
    y, loss, z = problem.y, problem.loss, problem.margins(w)
    u = -(problem.X.T @ loss.derivative(y, z)) / y.size
    s, distance = psi.dual_distance(w, u)
    return float((1.0 - s) * loss.value(y, z).mean() + distance)


def accelerated_points(step: Callable[[Array], Array], w: Array) -> Iterator[Array]:
    """Yield points of accelerated (projected or proximal) gradient steps from w.

    References
    ----------
    Beck, Teboulle, "A fast iterative shrinkage-thresholding algorithm", SIAM Journal
    on Imaging Sciences 2009; restarts: O'Donoghue, Candes, "Adaptive restart for
    accelerated gradient schemes", Foundations of Computational Mathematics 2015.
    """
    ahead, momentum = w, 1.0
    while True:
        moved = step(ahead)
        if (ahead - moved) @ (moved - w) > 0.0:
            momentum, moved = 1.0, step(w)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = moved + (momentum - 1.0) / following * (moved - w)
        w, momentum = moved, following
        yield w


Solve = Callable[[Array], Array]
"""A function that maps the right side of a linear system to its solution, both (p,)."""


def is_inexact(X: Any, l2: float) -> bool:
    """Return whether Newton systems with X are solved by conjugate gradients."""
    side = min(X.shape) if l2 > 0.0 else X.shape[1]
    return bool(sparse.issparse(X) and side > DIRECT)


def newton_system(X: Any, d: Array, l2: float, products: Array | None = None) -> Solve:
    """Return the solver of the Newton system (X' diag(d) X + l2 I).

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
    d : array of shape (n,)
        Non-negative weights of the records.
    l2 : float
    products : array of shape (n, n), optional
        X X' of :func:`row_products`, which many systems may share; None to compute it.
    """
    return (
        _iterative_solver(X, d, l2)
        if is_inexact(X, l2)
        else direct_solver(X, d, l2, products)
    )


def direct_solver(X: Any, d: Array, l2: float, products: Array | None = None) -> Solve:
    """Return the direct solver of the Newton system, in the smaller dimension.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
    d : array of shape (n,)
        Non-negative weights of the records.
    l2 : float
    products : array of shape (n, n), optional
        X X' of :func:`row_products`, which many systems may share; None to compute it.
    """
    root, (n, p) = np.sqrt(d), X.shape
    A, dual = scale_records(X, root), p > n and l2 > 0.0
    if dual and products is not None:
        matrix = products * root * root[:, None]
    else:
        matrix = gram(A, dual)
    upper, scale = _factor_scaled(matrix, l2)

    def apply(g: Array) -> Array:
        solved = linalg.cho_solve((upper, False), scale * g, check_finite=False)
        return np.asarray(scale * solved)

    def solve(g: Array) -> Array:
        return np.asarray((g - A.T @ apply(A @ g)) / l2)

    return solve if dual else apply


def _iterative_solver(X: Any, d: Array, l2: float) -> Solve:
    """Return an iterative solver of the scaled system.

    The solver stops at a relative residual of 1e-2.
    """
    from scipy.sparse.linalg import LinearOperator, cg

    diagonal = np.asarray(scale_records(X, np.sqrt(d)).power(2).sum(axis=0)) + l2
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))

    def product(v: Array) -> Array:
        unscaled = v.ravel()
        v = scale * unscaled
        image = X.T @ (d * (X @ v)) + l2 * v
        # The ridge keeps directions without curvature finite.
        return np.asarray(scale * image + RIDGE * unscaled)

    operator = LinearOperator((scale.size,) * 2, matvec=product, dtype=np.float64)
    options = {"rtol": CG_TOLERANCE, "atol": 0.0, "maxiter": CG_STEPS}
    return lambda g: np.asarray(scale * cg(operator, scale * g, **options)[0])


def row_products(X: Any, l2: float) -> Array | None:
    """Return X X' if systems with this l2 are solved in n dimensions, else None."""
    n, p = X.shape
    return gram(X, True) if p > n and l2 > 0.0 and not is_inexact(X, l2) else None


def scale_records(X: Any, weights: Array) -> Any:
    """Return diag(weights) X, dense or sparse as X is."""
    if not sparse.issparse(X):
        return X * weights[:, None]
    data = X.data * weights[X.indices]
    return sparse.csc_array((data, X.indices, X.indptr), shape=X.shape)


def gram(A: Any, rows: bool) -> Array:
    """Return A A' (``rows``) or A'A as a dense matrix with only its upper triangle."""
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
    return np.asarray(linalg.blas.dsyrk(1.0, A, trans=0 if rows else 1))


def _factor_scaled(matrix: Array, l2: float) -> tuple[Array, Array]:
    """Return the Cholesky factor of the system scaled to unit diagonal, and the scale.

    Raises
    ------
    LinAlgError
        If the matrix has numbers that are not finite.
    """
    diagonal = matrix.diagonal() + l2
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    unit = matrix * scale * scale[:, None]
    ridge = 0.0
    while True:
        np.fill_diagonal(unit, 1.0 + ridge)
        try:
            return linalg.cholesky(unit, lower=False, check_finite=False), scale
        except linalg.LinAlgError:
            ridge = max(10.0 * ridge, 1e-14)
            if not np.isfinite(ridge):
                raise
