"""Reference minimisers of smooth objectives: damped Newton."""

import numpy as np
from scipy import linalg, optimize

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.losses.base import Loss

MAX_NEWTON = 200
# Work of one Hessian (n p min(n, p)) above which a quasi-Newton start pays.
HEAVY = 2e9
CONVERGED = 1e-24
LOCAL = 1e-8
DEPENDENT = 1e-12
WELL_CONDITIONED = 1e-8
SPANNED = 1e-9


class Quadratic:
    """The Newton system (X' diag(d) X + l2 I), solved in the smaller dimension."""

    def __init__(self, X: Array, d: Array, l2: float) -> None:
        self.l2 = l2
        self.root = X * np.sqrt(d)[:, None]
        n, p = X.shape
        self.dual = p > n and l2 > 0.0
        self.factor = _factor(_gram(self.root, self.dual), l2)

    def solve(self, g: Array) -> Array:
        """Return the solution for a right side g, shape (p,)."""
        if not self.dual:
            return _apply(self.factor, g)
        inner = _apply(self.factor, self.root @ g)
        return (g - self.root.T @ inner) / self.l2


def _gram(A: Array, rows: bool) -> Array:
    """Return A A' or A'A, of which only the upper triangle is filled."""
    A = np.asfortranarray(A)
    gram: Array = linalg.blas.dsyrk(1.0, A, trans=0 if rows else 1)
    return gram


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


def newton(X: Array, y: Array, loss: Loss, l2: float, w: Array) -> tuple[Array, float]:
    """Return the minimiser of (1/n) sum phi + (l2/2) norm2^2 and the decrement.

    Newton's method with backtracking (Armijo) from w until the squared Newton
    decrement g' H^-1 g is negligible or no longer falls.
    """
    n = y.size
    z = X @ w
    value = loss.value(y, z).mean() + 0.5 * l2 * (w @ w)
    before = np.inf
    for _ in range(MAX_NEWTON):
        g = X.T @ loss.derivative(y, z) / n + l2 * w
        step = Quadratic(X, loss.second_derivative(y, z) / n, l2).solve(g)
        decrement = float(g @ step)
        local = decrement <= LOCAL * value
        if decrement <= CONVERGED * value or (local and decrement >= 0.5 * before):
            break
        before = decrement if local else np.inf
        size, moved = 1.0, X @ step
        while True:
            trial, margins = w - size * step, z - size * moved
            reached = loss.value(y, margins).mean() + 0.5 * l2 * (trial @ trial)
            if local or reached <= value - 1e-4 * size * decrement or size < 1e-10:
                break
            size *= 0.5
        w, z, value = trial, margins, reached
        if loss.classification and l2 == 0.0 and (y * z).min() > 0.0:
            break
    return w, decrement


def minimise_ridge(X: Array, y: Array, loss: Loss, l2: float) -> Array:
    """Return the minimiser of (1/n) sum_i phi(x_i.w) + (l2/2) norm2(w)^2."""
    w = np.zeros(X.shape[1])
    if X.size * min(X.shape) > HEAVY:
        w = _quasi_newton(X, y, loss, l2)
    return newton(X, y, loss, l2, w)[0]


def _quasi_newton(X: Array, y: Array, loss: Loss, l2: float) -> Array:
    def objective(w: Array) -> tuple[float, Array]:
        z = X @ w
        value = loss.value(y, z).mean() + 0.5 * l2 * (w @ w)
        return value, X.T @ loss.derivative(y, z) / y.size + l2 * w

    start = np.zeros(X.shape[1])
    options = {"maxiter": 100, "ftol": 1e-9, "gtol": 0.0}
    found = optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", options=options
    )
    return np.asarray(found.x)


def minimise_free(X: Array, y: Array, loss: Loss) -> tuple[Array, float, str]:
    """Minimise the mean loss without penalty.

    Returns
    -------
    w : array of shape (p,)
    bound : float
        Half the squared Newton decrement.
    reason : str
        Why the bound is no certificate; empty if it is one.
    """
    norms = np.sqrt(np.square(X).mean(axis=0))
    scale = np.where(norms > 0.0, norms, 1.0)
    kept, exact = _independent(X / scale)
    w = np.zeros(X.shape[1])
    if not kept.size:
        return w, 0.0, ""
    S = np.asfortranarray(X[:, kept] / scale[kept])
    v, decrement = newton(S, y, loss, 0.0, np.zeros(kept.size))
    w[kept] = v / scale[kept]
    reason = _doubt(S, y, loss, v)
    if not (reason or exact):
        reason = "the features are nearly dependent and there is no penalty"
    return w, 0.5 * decrement, reason


def _doubt(S: Array, y: Array, loss: Loss, v: Array) -> str:
    """Return why the Newton decrement is no certificate; empty if it is one."""
    z = S @ v
    if loss.classification and (y * z).min() > 0.0:
        return "the classes are separable and there is no penalty"
    weights = loss.second_derivative(y, z) / y.size
    hessian = _gram(S * np.sqrt(weights)[:, None], False)
    least = linalg.eigvalsh(hessian, lower=False, subset_by_index=(0, 0))[0]
    if least < WELL_CONDITIONED * loss.smoothness:
        return "the Hessian is ill-conditioned and there is no penalty"
    return ""


def _independent(S: Array) -> tuple[Array, bool]:
    """Return columns that span the others, and whether they do so exactly."""
    gram = _gram(S, False) / S.shape[0]
    _, pivots, rank, _ = linalg.lapack.dpstrf(gram, tol=DEPENDENT, lower=0)
    kept, dropped = np.sort(pivots[:rank] - 1), np.sort(pivots[rank:] - 1)
    if not (kept.size and dropped.size):
        return kept, True
    basis = Quadratic(S[:, kept], np.full(S.shape[0], 1.0 / S.shape[0]), 0.0)
    residual = S[:, dropped]
    for _ in range(2):
        fitted = [
            basis.solve(S[:, kept].T @ column / S.shape[0]) for column in residual.T
        ]
        residual = residual - S[:, kept] @ np.array(fitted).T
    return kept, bool(np.abs(residual).max() <= SPANNED)
