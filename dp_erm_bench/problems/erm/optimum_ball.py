"""Reference minimiser over the euclidean ball: the multiplier of its radius."""

import math

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.problems.erm.optimum_smooth import newton
from dp_erm_bench.problems.erm.optimum_sparse import Composite

# Least multiplier times radius^2, as a part of F(0): what it costs is no more.
NEGLIGIBLE = 1e-13
LEVELS = 1e-13
RATIO = 0.1


def minimise_in_ball(problem: Composite, radius: float) -> tuple[Array, float]:
    """Return the minimiser of the smooth objective over norm2(w) <= radius.

    By Lagrange duality it minimises F(w) + (m/2) norm2(w)^2 for the m at which the
    norm is the radius, or for m = 0; the norm falls in m. Its gap is that of
    Frank-Wolfe, g.w + radius norm2(g) for the gradient g of F.

    Parameters
    ----------
    problem : Composite
        With l1 = 0.
    radius : float
    """
    path = _Path(problem)
    at_zero = problem.value(np.zeros(problem.X.shape[1]))
    m = 2.0 * at_zero / radius**2
    least = NEGLIGIBLE * m
    w = path(m) if m > 0.0 else np.zeros(problem.X.shape[1])
    while m > least and np.linalg.norm(w) < radius:
        m = max(RATIO * m, least)
        w = path(m)
    if np.linalg.norm(w) > radius:
        w = path(_level(path, radius, m, m / RATIO))
        w = w * (radius / np.linalg.norm(w))
    return w, ball_gap(problem, radius, w)


def ball_gap(problem: Composite, radius: float, w: Array) -> float:
    """Return g.w + radius norm2(g), a sum of terms >= 0 up to rounding."""
    g = problem.gradient(w)
    size, length = float(np.linalg.norm(g)), float(np.linalg.norm(w))
    if size == 0.0 or length == 0.0:
        return radius * size
    # norm(g) norm(w) + g.w without cancellation.
    turn = 0.5 * size * length * float(np.square(g / size + w / length).sum())
    return turn + size * max(radius - length, 0.0)


class _Path:
    """The minimisers w(m), each started from the one before."""

    def __init__(self, problem: Composite) -> None:
        self.problem = problem
        self.last = np.zeros(problem.X.shape[1])

    def __call__(self, m: float) -> Array:
        p = self.problem
        self.last = newton(p.X, p.y, p.loss, p.l2 + m, self.last)[0]
        return self.last


def _level(path: _Path, radius: float, low: float, high: float) -> float:
    """Return the m in [low, high] with norm2(w(m)) = radius, almost to rounding."""

    def excess(exponent: float) -> float:
        length = float(np.linalg.norm(path(math.exp(exponent))))
        return math.log(length / radius) if length > 0.0 else -1.0

    ends = (math.log(low), math.log(high))
    from scipy import optimize  # takes long to import, see `optimum`

    return math.exp(optimize.brentq(excess, *ends, xtol=LEVELS))
