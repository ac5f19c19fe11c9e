"""Reference minimisers of smooth objectives: damped Newton."""

from typing import Any

import numpy as np
from scipy import linalg, sparse

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.problems.erm.optimum_linear import (
    DIRECT,
    Quadratic,
    gram,
    newton_system,
    row_products,
    scaled,
)
from dp_erm_bench.problems.erm.smoothness import mean_squares

MAX_NEWTON = 200
MAX_INEXACT = 30
# Work of one Hessian (n p min(n, p)) above which a quasi-Newton start pays.
HEAVY = 2e9
CONVERGED = 1e-24
LOCAL = 1e-8
# A step shorter than this makes the next model's curvature at least a part of the
# loss's smoothness: piecewise quadratic losses have none in places.
SHORT = 0.1
SHORTEST = 1e-4
FLOOR = 1e-3
# Relative duality gap, norm2(g)^2 / (2 l2 F), at which inexact steps end.
GOOD = 1e-12
DEPENDENT = 1e-12
WELL_CONDITIONED = 1e-8
SPANNED = 1e-9


def newton(
    X: Any, y: Array, loss: Loss, l2: float, w: Array, linear: Array | float = 0.0
) -> tuple[Array, float]:
    """Return the minimiser of (1/n) sum phi + (l2/2) norm2^2 + linear.w, decrement.

    Newton's method (semismooth where the loss is piecewise quadratic) with an exact
    line search within the full step, from w until the squared Newton decrement
    g' H^-1 g is negligible or no longer falls.

    References
    ----------
    Keerthi, DeCoste. A modified finite Newton method for fast solution of large
    scale linear SVMs. JMLR 2005, section 2.
    """
    n = y.size
    z = X @ w
    linear = np.broadcast_to(linear, w.shape)
    before, least, products = np.inf, 0.0, row_products(X, l2)
    for number in range(MAX_NEWTON):
        # The part that cannot be negative: the unit of what is negligible.
        value = loss.value(y, z).mean() + 0.5 * l2 * (w @ w)
        g = X.T @ loss.derivative(y, z) / n + l2 * w + linear
        curvature = np.maximum(loss.second_derivative(y, z), least * loss.smoothness)
        system = newton_system(X, curvature / n, l2, products)
        good = g @ g <= 2.0 * l2 * GOOD * value
        if not system.exact and (good or number == MAX_INEXACT):
            return w, np.inf
        step = system.solve(g)
        decrement = float(g @ step)
        local = least == 0.0 and decrement <= LOCAL * value
        settled = decrement <= CONVERGED * value and least == 0.0
        if settled or (local and decrement >= 0.5 * before):
            break
        before = decrement if local else np.inf
        moved = X @ step
        tilt = float(linear @ step)
        size = 1.0 if local else _length(y, loss, l2, (w, z), (step, moved), tilt)
        if size < SHORTEST and least < 1.0:
            least = max(10.0 * least, FLOOR)
            continue
        w, z = w - size * step, z - size * moved
        least = min(max(10.0 * least, FLOOR), 1.0) if size < SHORT else 0.1 * least
        least = least if least >= FLOOR else 0.0
        if loss.classification and l2 == 0.0 and (y * z).min() > 0.0:
            break
    return w, decrement


def _length(
    y: Array,
    loss: Loss,
    l2: float,
    at: tuple[Array, Array],
    step: tuple[Array, Array],
    tilt: float = 0.0,
) -> float:
    """Return the part in (0, 1] of a step after which F is least along it.

    ``at`` and ``step`` hold a vector and its margins, ``tilt`` is linear.step; F is
    convex along the step.
    """

    def slope(size: float) -> float:
        w, z = (here - size * along for here, along in zip(at, step, strict=True))
        smooth = float(loss.derivative(y, z) @ step[1]) / y.size
        return -smooth - l2 * float(w @ step[0]) - tilt

    if slope(1.0) <= 0.0 or slope(0.0) >= 0.0:
        return 1.0
    from scipy import optimize  # takes long to import, see `optimum`

    return float(optimize.brentq(slope, 0.0, 1.0, xtol=1e-9))


def minimise_ridge(X: Any, y: Array, loss: Loss, l2: float) -> Array:
    """Return the minimiser of (1/n) sum_i phi(x_i.w) + (l2/2) norm2(w)^2."""
    w = np.zeros(X.shape[1])
    if not sparse.issparse(X) and X.size * min(X.shape) > HEAVY:
        w = _quasi_newton(X, y, loss, l2)
    return newton(X, y, loss, l2, w)[0]


def _quasi_newton(X: Any, y: Array, loss: Loss, l2: float) -> Array:
    def objective(w: Array) -> tuple[float, Array]:
        z = X @ w
        value = loss.value(y, z).mean() + 0.5 * l2 * (w @ w)
        return value, X.T @ loss.derivative(y, z) / y.size + l2 * w

    start = np.zeros(X.shape[1])
    options = {"maxiter": 100, "ftol": 1e-9, "gtol": 0.0}
    from scipy import optimize

    found = optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B", options=options
    )
    return np.asarray(found.x)


def minimise_free(X: Any, y: Array, loss: Loss) -> tuple[Array, float, str]:
    """Minimise the mean loss without penalty.

    Returns
    -------
    w : array of shape (p,)
    bound : float
        Half the squared Newton decrement.
    reason : str
        Why the bound is no certificate; empty if it is one.
    """
    w = np.zeros(X.shape[1])
    if sparse.issparse(X) and X.shape[1] > DIRECT:
        return w, np.inf, f"no reference solver for {w.size} features without penalty"
    kept, exact, scale = _independent(X)
    if not kept.size:
        return w, 0.0, ""
    S = _unit(X, kept, scale)
    v, decrement = newton(S, y, loss, 0.0, np.zeros(kept.size))
    w[kept] = v / scale[kept]
    reason = _doubt(S, y, loss, v)
    if not (reason or exact):
        reason = "the features are nearly dependent and there is no penalty"
    return w, 0.5 * decrement, reason


def free_gap(X: Any, y: Array, loss: Loss, w: Array) -> float:
    """Return the bound of :func:`minimise_free` at a given point, infinite if none."""
    if sparse.issparse(X) and X.shape[1] > DIRECT:
        return np.inf
    kept, exact, scale = _independent(X)
    rest = w.copy()
    rest[kept] = 0.0
    if not exact or rest.any():
        return np.inf
    if not kept.size:
        return 0.0
    S, v = _unit(X, kept, scale), w[kept] * scale[kept]
    if _doubt(S, y, loss, v):
        return np.inf
    z = S @ v
    g = S.T @ loss.derivative(y, z) / y.size
    system = newton_system(S, loss.second_derivative(y, z) / y.size, 0.0)
    return 0.5 * float(g @ system.solve(g))


def _unit(X: Any, kept: Array, scale: Array) -> Any:
    """Return some columns, each divided by its scale."""
    if sparse.issparse(X):
        return X[:, kept] @ sparse.diags_array(1.0 / scale[kept], format="csc")
    return np.asfortranarray(X[:, kept] / scale[kept])


def _doubt(S: Any, y: Array, loss: Loss, v: Array) -> str:
    """Return why the Newton decrement is no certificate; empty if it is one."""
    z = S @ v
    if loss.classification and (y * z).min() > 0.0:
        return "the classes are separable and there is no penalty"
    weights = loss.second_derivative(y, z) / y.size
    hessian = gram(scaled(S, np.sqrt(weights)), False)
    least = linalg.eigvalsh(hessian, lower=False, subset_by_index=(0, 0))[0]
    if least < WELL_CONDITIONED * loss.smoothness:
        return "the Hessian is ill-conditioned and there is no penalty"
    return ""


def _independent(X: Any) -> tuple[Array, bool, Array]:
    """Return columns that span the others, whether exactly, and scales of all."""
    norms = np.sqrt(mean_squares(X))
    scale = np.where(norms > 0.0, norms, 1.0)
    S = _unit(X, np.arange(X.shape[1]), scale)
    products = gram(S, False) / S.shape[0]
    _, pivots, rank, _ = linalg.lapack.dpstrf(products, tol=DEPENDENT, lower=0)
    kept, dropped = np.sort(pivots[:rank] - 1), np.sort(pivots[rank:] - 1)
    if not (kept.size and dropped.size):
        return kept, True, scale
    basis = S[:, kept]
    system = Quadratic(basis, np.full(S.shape[0], 1.0 / S.shape[0]), 0.0)
    exact = all(_spanned(basis, system, _column(S, j)) for j in dropped)
    return kept, exact, scale


def _column(S: Any, j: int) -> Array:
    column = S[:, [j]]
    return np.asarray(column.toarray() if sparse.issparse(S) else column).ravel()


def _spanned(basis: Any, system: Quadratic, column: Array) -> bool:
    residual = column
    for _ in range(2):
        residual = residual - basis @ system.solve(basis.T @ residual / column.size)
    return bool(np.abs(residual).max() <= SPANNED)
