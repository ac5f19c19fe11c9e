"""Reference minimisers of L1-penalised objectives.

The support and the signs are found by a sequence of reweighted lasso problems, which
scikit-learn's coordinate descent solves on a working set. Newton's method on the
support finishes the search.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import linalg

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.optimum import composite
from dp_erm_bench.problems.erm.optimum.composite import Composite

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


def relative_gap(problem: Composite, w: Array) -> float:
    """Return the certified relative gap at w."""
    gap = composite.duality_gap(problem, SeparablePenalty(problem.l1, problem.l2), w)
    return gap / max(problem.value(w), TINY)


def minimise_sparse(problem: Composite) -> Array:
    """Return the minimiser of (1/n) sum phi + l1 norm1 + (l2/2) norm2^2, shape (p,).

    If this fails (more features than records and a small penalty), the penalty is
    lowered step by step. Each minimiser is then the start of the next search.
    """
    w = problem.zero
    direct, gap = _best_of_rounds(problem, w, MAX_ROUNDS)
    if gap <= ENOUGH:
        return direct
    largest = float(np.abs(problem.gradient(w)).max())
    steps = math.ceil(math.log(largest / problem.l1) / math.log(PATH_RATIO))
    for strength in np.geomspace(largest, problem.l1, max(1, steps) + 1)[1:]:
        w, _ = _best_of_rounds(replace(problem, l1=strength), w, MAX_ROUNDS)
    last, least = _best_of_rounds(problem, w, LAST_ROUNDS)
    return last if least < gap else direct


def _best_of_rounds(problem: Composite, w: Array, most: int) -> tuple[Array, float]:
    """Return the best point of several rounds from w, and its certified gap.

    A round is a proximal Newton step on a working set, followed by Newton's method on
    the support. The inner tolerance is stricter in each round.
    """
    best, least = w, relative_gap(problem, w)
    for number in range(most):
        if least <= ENOUGH:
            break
        w = _proximal_newton(problem, w, tol=10.0 ** -min(4 + number, 14))
        polished = polish_signs(problem, w)
        gap = relative_gap(problem, polished)
        if gap < least:
            best, least = polished, gap
        if problem.value(polished) <= problem.value(w):
            w = polished
    return best, least


def _proximal_newton(problem: Composite, w: Array, tol: float) -> Array:
    """Return w after one proximal Newton step, halved until the objective falls.

    The working set is the support and the features with the largest gradients.
    """
    score = np.abs(problem.gradient(w))
    score[w != 0.0] = np.inf
    size = min(w.size, max(WORKING_SET, 2 * int(np.count_nonzero(w))))
    chosen = np.sort(np.argpartition(-score, size - 1)[:size])
    z, loss = problem.margins(w), problem.loss
    floor = CURVATURE * loss.smoothness
    root = np.sqrt(np.maximum(loss.second_derivative(problem.y, z), floor))
    A = composite.scale_records(problem.X[:, chosen], root)
    target = root * z - loss.derivative(problem.y, z) / root
    step = np.zeros_like(w)
    step[chosen] = _solve_lasso(problem, A, target, w[chosen], tol) - w[chosen]
    value = problem.value(w)
    trials = (w + 0.5**halvings * step for halvings in range(30))
    return next((trial for trial in trials if problem.value(trial) < value), w)


def _solve_lasso(
    problem: Composite, A: Any, target: Array, start: Array, tol: float
) -> Array:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import ElasticNet

    n, p = A.shape
    if n > p and p <= composite.DIRECT:
        A, target = _compress_records(A, target)
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


def _compress_records(A: Any, target: Array) -> tuple[Array, Array]:
    """Return p records that give the same least squares problem as n > p records."""
    n, p = A.shape
    values, vectors = linalg.eigh(composite.gram(A, False), lower=False)
    root = np.sqrt(np.maximum(values, 0.0))
    inverse = np.where(root > EMPTY * root[-1], 1.0 / np.maximum(root, TINY), 0.0)
    scale = math.sqrt(p / n)
    rotated = inverse * (vectors.T @ (A.T @ target))
    return np.asfortranarray(scale * root[:, None] * vectors.T), scale * rotated


def polish_signs(problem: Composite, w: Array) -> Array:
    """Return w after Newton steps within the orthant of its signs.

    A coordinate that would change its sign stops at 0. A coordinate at 0 may leave it
    if its gradient exceeds l1. Steps are made while the gap or the objective falls.
    """
    gap, value = relative_gap(problem, w), problem.value(w)
    tall = w.size < problem.y.size
    for _ in range(MAX_POLISH):
        if gap <= FINISHED:
            break
        for trial in _orthant_steps(problem, w, tall or gap <= NEAR):
            reached, certified = problem.value(trial), relative_gap(problem, trial)
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
    weights = problem.curvature(w) / problem.y.size
    solve = composite.newton_system(problem.X[:, free], weights, problem.l2)
    start, step = w[free], solve(g[free] + problem.l1 * sign)
    crossing = start * step > 0.0
    hit = min(1.0, (start[crossing] / step[crossing]).min(initial=1.0))
    # Up to where a first coordinate is 0; far from the minimum of a wide problem the
    # next round finds the signs faster.
    for size in (1.0, *((hit,) if near else ()), 0.5, 0.1, 0.01):
        moved = start - size * step
        # What reaches 0 first ends there exactly.
        moved[np.abs(moved) <= 1e-14 * np.abs(start)] = 0.0
        trial = np.zeros_like(w)
        trial[free] = np.where(moved * sign > 0.0, moved, 0.0)
        yield trial
