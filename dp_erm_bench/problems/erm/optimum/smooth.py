"""Reference minimisers of smooth objectives, and of losses with a rounded kink.

A loss with a kink, phi(z, y) = max of v (z - y) over an interval of slopes v, is
replaced by a loss that is nowhere below phi. It has a parabola of some half-width in
place of the kink, and its derivatives are slopes in the interval. By Fenchel-Young, a
slope v worsens the bound of the smooth case by

    phi(z) + phi*(v) - v z = phi(z) - v (z - y) >= 0,

which is 0 for all records off the parabola. For the minimiser of the rounded objective,
the mean of these terms is of the order of the width times the share of the records on
the parabola.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import linalg, sparse

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.problems.erm.objective import ERM, mean_squares_of
from dp_erm_bench.problems.erm.optimum import composite
from dp_erm_bench.problems.erm.optimum.composite import Composite

MAX_NEWTON = 200
MAX_INEXACT = 30
# Work of one Hessian (n p min(n, p)) above which a quasi-Newton start pays.
HEAVY = 2e9
CONVERGED = 1e-24
LOCAL = 1e-8
# After a step shorter than this, the next model's curvature is at least a part of the
# loss's smoothness: piecewise quadratic losses have no curvature in places.
SHORT = 0.1
SHORTEST = 1e-4
FLOOR = 1e-3
# Relative duality gap, norm2(g)^2 / (2 l2 F), at which inexact steps end.
GOOD = 1e-12
DEPENDENT = 1e-12
WELL_CONDITIONED = 1e-8
SPANNED = 1e-9


def newton_minimiser(
    problem: Composite, w: Array, linear: Array | float = 0.0
) -> tuple[Array, float]:
    """Return the minimiser of a smooth objective, and its squared Newton decrement.

    The objective is (1/n) sum phi + (l2/2) norm2(w)^2 + linear.w. Newton's method
    (semismooth where the loss is piecewise quadratic), with an exact line search within
    the full step, runs from w until the squared Newton decrement g' H^-1 g is
    negligible or no longer falls.

    Parameters
    ----------
    problem : Composite
        With l1 = 0.
    w : array of shape (p,)
        The start.
    linear : array of shape (p,) or 0
        Gradient of the linear term.

    References
    ----------
    Keerthi, DeCoste. A modified finite Newton method for fast solution of large
    scale linear SVMs. JMLR 2005, section 2.
    """
    X, y, loss, l2 = problem.X, problem.y, problem.loss, problem.l2
    z, n = X @ w, y.size
    linear = np.broadcast_to(linear, w.shape)
    before, least, products = np.inf, 0.0, composite.row_products(X, l2)
    for number in range(MAX_NEWTON):
        # The part that cannot be negative: the unit of what is negligible.
        value = loss.value(y, z).mean() + 0.5 * l2 * (w @ w)
        g = X.T @ loss.derivative(y, z) / n + l2 * w + linear
        curvature = np.maximum(loss.second_derivative(y, z), least * loss.smoothness)
        solve = composite.newton_system(X, curvature / n, l2, products)
        good = g @ g <= 2.0 * l2 * GOOD * value
        if composite.is_inexact(X, l2) and (good or number == MAX_INEXACT):
            return w, np.inf
        step = solve(g)
        decrement = float(g @ step)
        local = least == 0.0 and decrement <= LOCAL * value
        settled = decrement <= CONVERGED * value and least == 0.0
        if settled or (local and decrement >= 0.5 * before):
            break
        before = decrement if local else np.inf
        moved = X @ step
        along = (w, z), (step, moved), float(linear @ step)
        size = 1.0 if local else _step_length(problem, *along)
        if size < SHORTEST and least < 1.0:
            least = max(10.0 * least, FLOOR)
            continue
        w, z = w - size * step, z - size * moved
        least = min(max(10.0 * least, FLOOR), 1.0) if size < SHORT else 0.1 * least
        least = least if least >= FLOOR else 0.0
        if loss.classification and l2 == 0.0 and (y * z).min() > 0.0:
            break
    return w, decrement


def _step_length(
    problem: Composite,
    at: tuple[Array, Array],
    step: tuple[Array, Array],
    tilt: float,
) -> float:
    """Return the fraction in (0, 1] of a step at which F is smallest along the step.

    ``at`` and ``step`` each hold a vector and its margins. ``tilt`` is linear.step. F
    is convex along the step.
    """
    y, loss, l2 = problem.y, problem.loss, problem.l2

    def slope(size: float) -> float:
        w, z = (here - size * along for here, along in zip(at, step, strict=True))
        smooth = float(loss.derivative(y, z) @ step[1]) / y.size
        return -smooth - l2 * float(w @ step[0]) - tilt

    # Nor is there a zero between slopes that are not finite.
    if not slope(1.0) > 0.0 > slope(0.0):
        return 1.0
    from scipy import optimize  # takes long to import

    return float(optimize.brentq(slope, 0.0, 1.0, xtol=1e-9))


def minimise_ridge(problem: Composite) -> Array:
    """Return the minimiser of (1/n) sum phi(x_i.w) + (l2/2) norm2(w)^2, shape (p,)."""
    X, w = problem.X, problem.zero
    if not sparse.issparse(X) and not is_cheap(X):
        from scipy import optimize

        def objective(w: Array) -> tuple[float, Array]:
            return problem.value(w), problem.gradient(w)

        options = {"maxiter": 100, "ftol": 1e-9, "gtol": 0.0}
        method = {"jac": True, "method": "L-BFGS-B", "options": options}
        w = np.asarray(optimize.minimize(objective, w, **method).x)
    return newton_minimiser(problem, w)[0]


def is_cheap(X: Any) -> bool:
    """Return whether Newton systems of these features are solved directly and fast."""
    return X.size * min(X.shape) <= HEAVY and not composite.is_inexact(X, 1.0)


def minimise_free(problem: Composite) -> Array:
    """Return the minimiser of the mean loss without penalty, shape (p,)."""
    w = problem.zero
    if composite.is_inexact(problem.X, 0.0):
        return w
    kept, _, scale = _independent_columns(problem.X)
    if kept.size:
        unit = replace(problem, X=_unit_columns(problem.X, kept, scale))
        w[kept] = newton_minimiser(unit, unit.zero)[0] / scale[kept]
    return w


def free_gap(problem: Composite, w: Array) -> tuple[float, str]:
    """Return a bound on F(w) - min F for an objective without penalty.

    Returns
    -------
    bound : float
        Half the squared Newton decrement; infinite if there is no bound.
    reason : str
        The reason why the bound is not a certificate; empty if it is one.
    """
    if composite.is_inexact(problem.X, 0.0):
        reason = f"no reference solver for {w.size} features without penalty"
        return np.inf, reason
    kept, exact, scale = _independent_columns(problem.X)
    rest = w.copy()
    rest[kept] = 0.0
    if rest.any():
        return np.inf, ""
    if not kept.size:
        return 0.0, ""
    S, y, loss, v = (
        _unit_columns(problem.X, kept, scale),
        problem.y,
        problem.loss,
        w[kept],
    )
    unit, v = replace(problem, X=S), v * scale[kept]
    if loss.classification and (y * unit.margins(v)).min() > 0.0:
        return np.inf, "the classes are separable and there is no penalty"
    weights = unit.curvature(v) / y.size
    hessian = composite.gram(composite.scale_records(S, np.sqrt(weights)), False)
    least = linalg.eigvalsh(hessian, lower=False, subset_by_index=(0, 0))[0]
    if least < WELL_CONDITIONED * loss.smoothness:
        return np.inf, "the Hessian is ill-conditioned and there is no penalty"
    if not exact:
        return np.inf, "the features are nearly dependent and there is no penalty"
    g = unit.gradient(v)
    return 0.5 * float(g @ composite.newton_system(S, weights, 0.0)(g)), ""


def _unit_columns(X: Any, kept: Array, scale: Array) -> Any:
    """Return the chosen columns, each divided by its scale."""
    if sparse.issparse(X):
        return X[:, kept] @ sparse.diags_array(1.0 / scale[kept], format="csc")
    return np.asfortranarray(X[:, kept] / scale[kept])


def _independent_columns(X: Any) -> tuple[Array, bool, Array]:
    """Return independent columns, whether they span all others, and all scales."""
    norms = np.sqrt(mean_squares_of(X))
    scale = np.where(norms > 0.0, norms, 1.0)
    S = _unit_columns(X, np.arange(X.shape[1]), scale)
    products = composite.gram(S, False) / S.shape[0]
    _, pivots, rank, _ = linalg.lapack.dpstrf(products, tol=DEPENDENT, lower=0)
    kept, dropped = np.sort(pivots[:rank] - 1), np.sort(pivots[rank:] - 1)
    if not (kept.size and dropped.size):
        return kept, True, scale
    basis = S[:, kept]
    solve = composite.direct_solver(basis, np.full(S.shape[0], 1.0 / S.shape[0]), 0.0)

    def is_spanned(j: int) -> bool:
        column = S[:, [j]]
        residual = (column.toarray() if sparse.issparse(S) else column).ravel()
        for _ in range(2):
            along = basis.T @ residual / residual.size
            residual = residual - basis @ solve(along)
        return bool(np.abs(residual).max() <= SPANNED)

    return kept, all(is_spanned(j) for j in dropped), scale


WIDTHS = tuple(10.0 ** (-k / 2) for k in range(2, 13))
"""Half-widths of the parabola that are tried, in units of F(0)."""
FINISHED = 1e-8

Gap = Callable[[ERM, Array], tuple[float, str]]


def minimise_kinked(
    problem: ERM, minimise: Callable[[ERM, Array], Array], smooth_gap: Gap
) -> Array:
    """Return the best of the minimisers for several roundings of the kink, shape (p,).

    The best one has the smallest certified gap.

    Parameters
    ----------
    problem : ERM
        A problem whose loss has a kink.
    minimise, smooth_gap : callable
        For smooth losses, the minimiser from a start, and the certified gap.
    """
    best, least = np.zeros(problem.p), np.inf
    w = best
    for rounded in _smooth_surrogates(problem):
        w = minimise(rounded, w)
        gap, _ = kinked_gap(problem, w, smooth_gap)
        if gap < least:
            best, least = w, gap
        if least <= FINISHED * problem.value(best):
            break
    return best


def kinked_gap(problem: ERM, w: Array, smooth_gap: Gap) -> tuple[float, str]:
    """Return the least bound on F(w) - min F over the widths, and an empty reason.

    The empty reason means that the bound is a certificate, as for the smooth gap.

    Parameters
    ----------
    problem : ERM
        A problem whose loss has a kink.
    w : array of shape (p,)
    smooth_gap : callable
        The certified gap for smooth losses.
    """
    y, z = problem.dataset.y, problem.dataset.X @ w
    value, least = problem.loss.value(y, z), np.inf
    for rounded in _smooth_surrogates(problem):
        slack = value - rounded.loss.derivative(y, z) * (z - y)
        least = min(least, float(slack.mean()) + smooth_gap(rounded, w)[0])
    return least, ""


def _smooth_surrogates(problem: ERM) -> Iterator[ERM]:
    unit = float(problem.value(np.zeros(problem.p))) or 1.0
    for width in WIDTHS:
        loss = problem.loss.smooth_surrogate(width * unit)
        assert isinstance(loss, Loss)
        yield replace(problem, loss=loss)
