"""Reference minimisers of L1-penalised objectives.

Reweighted lasso problems, solved by scikit-learn's coordinate descent on a working
set, find the support and the signs; Newton's method on the support finishes.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import linalg

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.optimum_gap import duality_gap
from dp_erm_bench.problems.erm.optimum_linear import (
    DIRECT,
    gram,
    margins,
    newton_system,
    scaled,
)

FINISHED = 1e-14
ENOUGH = 1e-10
MAX_ROUNDS = 8
LAST_ROUNDS = 50
PATH_RATIO = 1.5
MAX_POLISH = 30
# Relative gap below which coordinates leave the support one by one.
NEAR = 1e-3
WORKING_SET = 100
# Least curvature in the quadratic model, as a part of the loss's smoothness.
CURVATURE = 1e-4
# Least singular value, as a part of the largest, that is not rounding.
EMPTY = 1e-8
TINY = float(np.finfo(np.float64).tiny)


class Composite:
    """The objective (1/n) sum phi(x_i.w) + l1 norm1(w) + (l2/2) norm2(w)^2."""

    def __init__(self, X: Any, y: Array, loss: Loss, l1: float, l2: float) -> None:
        self.X, self.y, self.loss, self.l1, self.l2 = X, y, loss, l1, l2

    def margins(self, w: Array) -> Array:
        """Return X w, shape (n,)."""
        return margins(self.X, w)

    def value(self, w: Array) -> float:
        """Return F(w)."""
        smooth = self.loss.value(self.y, self.margins(w)).mean() + 0.5 * self.l2 * (
            w @ w
        )
        return float(smooth + self.l1 * np.abs(w).sum())

    def gradient(self, w: Array) -> Array:
        """Return the gradient of the smooth part, shape (p,)."""
        residual = self.loss.derivative(self.y, self.margins(w))
        return np.asarray(self.X.T @ residual / self.y.size + self.l2 * w)

    def relative_gap(self, w: Array) -> float:
        """Return the certified relative gap at w."""
        psi = SeparablePenalty(self.l1, self.l2)
        gap = duality_gap(self.X, self.y, self.loss, psi, w)
        return gap / max(self.value(w), TINY)


def minimise_sparse(X: Any, y: Array, loss: Loss, l1: float, l2: float) -> Array:
    """Return the minimiser of (1/n) sum phi + l1 norm1 + (l2/2) norm2^2.

    Where the direct way fails (more features than records and a small penalty)
    the penalty is lowered step by step, each minimiser starting the next.
    """
    problem = Composite(X, y, loss, l1, l2)
    start = np.zeros(X.shape[1])
    direct = _rounds(problem, start, MAX_ROUNDS)
    if problem.relative_gap(direct) <= ENOUGH:
        return direct
    w, largest = start, float(np.abs(problem.gradient(start)).max())
    for strength in _path(largest, l1):
        w = _rounds(Composite(X, y, loss, strength, l2), w, MAX_ROUNDS)
    return min(direct, _rounds(problem, w, LAST_ROUNDS), key=problem.relative_gap)


def _path(largest: float, l1: float) -> Array:
    steps = max(1, math.ceil(math.log(largest / l1) / math.log(PATH_RATIO)))
    return np.geomspace(largest, l1, steps + 1)[1:]


def _rounds(problem: Composite, w: Array, most: int) -> Array:
    """Return the best point, by certified gap, of rounds that start at w.

    A round is a proximal Newton step on a working set, its inner tolerance
    stricter each time, then Newton's method on the support.
    """
    best, least = w, problem.relative_gap(w)
    for number in range(most):
        if least <= ENOUGH:
            break
        w = _proximal_newton(problem, w, tol=10.0 ** -min(4 + number, 14))
        polished = polish(problem, w)
        gap = problem.relative_gap(polished)
        if gap < least:
            best, least = polished, gap
        if problem.value(polished) <= problem.value(w):
            w = polished
    return best


def _proximal_newton(problem: Composite, w: Array, tol: float) -> Array:
    """Return w after one proximal Newton step on the working set."""
    chosen = _working_set(problem, w)
    z = problem.margins(w)
    curvature = problem.loss.second_derivative(problem.y, z)
    floor = CURVATURE * problem.loss.smoothness
    root = np.sqrt(np.maximum(curvature, floor))
    A = scaled(problem.X[:, chosen], root)
    target = root * z - problem.loss.derivative(problem.y, z) / root
    step = np.zeros_like(w)
    step[chosen] = _lasso(problem, A, target, w[chosen], tol) - w[chosen]
    return _line_search(problem, w, step)


def _working_set(problem: Composite, w: Array) -> Array:
    """Return the support and the features whose gradients are largest."""
    score = np.abs(problem.gradient(w))
    score[w != 0.0] = np.inf
    size = min(w.size, max(WORKING_SET, 2 * int(np.count_nonzero(w))))
    chosen = np.argpartition(-score, size - 1)[:size]
    return np.sort(chosen)


def _lasso(
    problem: Composite, A: Any, target: Array, start: Array, tol: float
) -> Array:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import ElasticNet

    n, p = A.shape
    if n > p and p <= DIRECT:
        A, target = _compressed(A, target)
    total = problem.l1 + problem.l2
    solver = ElasticNet(
        alpha=total,
        l1_ratio=problem.l1 / total,
        fit_intercept=False,
        precompute=n > p,
        max_iter=2000,
        tol=tol,
        warm_start=True,
    )
    solver.coef_ = start.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(solver.fit(A, target).coef_)


def _compressed(A: Any, target: Array) -> tuple[Array, Array]:
    """Return p records that give the same least squares problem as n > p ones."""
    n, p = A.shape
    values, vectors = linalg.eigh(gram(A, False), lower=False)
    root = np.sqrt(np.maximum(values, 0.0))
    inverse = np.where(root > EMPTY * root[-1], 1.0 / np.maximum(root, TINY), 0.0)
    scale = math.sqrt(p / n)
    rotated = inverse * (vectors.T @ (A.T @ target))
    return np.asfortranarray(scale * root[:, None] * vectors.T), scale * rotated


def _line_search(problem: Composite, w: Array, step: Array) -> Array:
    """Return the first of w + step, w + step / 2, ... that lowers the objective."""
    value = problem.value(w)
    for halvings in range(30):
        trial = w + 0.5**halvings * step
        if problem.value(trial) < value:
            return trial
    return w


def polish(problem: Composite, w: Array) -> Array:
    """Return w after Newton steps within the orthant of its signs.

    A coordinate that would change its sign stops at 0; one at 0 whose gradient
    exceeds l1 may leave it. Steps are kept while the gap or the objective falls.
    """
    gap, value = problem.relative_gap(w), problem.value(w)
    tall = w.size < problem.y.size
    for _ in range(MAX_POLISH):
        if gap <= FINISHED:
            break
        for trial in _orthant_steps(problem, w, tall or gap <= NEAR):
            reached, certified = problem.value(trial), problem.relative_gap(trial)
            if certified < 0.9 * gap or reached < value * (1.0 - 1e-13):
                break
        else:
            break
        w, value, gap = trial, reached, certified
    return w


def _orthant_steps(problem: Composite, w: Array, near: bool) -> Iterator[Array]:
    """Yield trial points along the Newton direction of the face of w."""
    g = problem.gradient(w)
    free = (w != 0.0) | (np.abs(g) > problem.l1 * (1.0 + 1e-12))
    # More free coordinates than records: the signs are far from those sought.
    most = w.size if near and problem.l2 > 0.0 else problem.y.size
    if not 0 < np.count_nonzero(free) <= most:
        return
    sign = np.where(w != 0.0, np.sign(w), -np.sign(g))[free]
    weights = (
        problem.loss.second_derivative(problem.y, problem.margins(w)) / problem.y.size
    )
    system = newton_system(problem.X[:, free], weights, problem.l2)
    step = system.solve(g[free] + problem.l1 * sign)
    # Far from the minimum of a wide problem the next round finds the signs faster.
    first = (_first_hit(w[free], step),) if near else ()
    for size in (1.0, *first, 0.5, 0.1, 0.01):
        moved = w[free] - size * step
        # What reaches 0 first ends there exactly.
        moved[np.abs(moved) <= 1e-14 * np.abs(w[free])] = 0.0
        trial = np.zeros_like(w)
        trial[free] = np.where(moved * sign > 0.0, moved, 0.0)
        yield trial


def _first_hit(w: Array, step: Array) -> float:
    """Return the part of the step after which a first coordinate is 0."""
    crossing = w * step > 0.0
    return float(min(1.0, (w[crossing] / step[crossing]).min(initial=1.0)))
