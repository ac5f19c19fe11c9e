"""Reference minimisers over sets with faces: projected gradient, then Newton.

Accelerated projected gradient steps find the face of the minimiser. Newton steps
within the face, cut off at its border, finish the search. The result is certified by
the Frank-Wolfe gap of the smooth objective, which bounds F(w) - min F by convexity.

References
----------
More, Toraldo. On the solution of large quadratic programming problems with bound
constraints. SIAM Journal on Optimization 1991, algorithm GPCP. Jaggi. Revisiting
Frank-Wolfe: projection-free sparse convex optimization. ICML 2013, section 2.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.constraints.base import Constraint
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.problems.erm.optimum import composite
from dp_erm_bench.problems.erm.optimum.composite import Composite

ON_BORDER = 1e-12
ROUNDING = 1e-15
FINISHED = 1e-14
ROUGH = 1e-6
# Part of F(0) below which no relative error has a meaning.
NEGLIGIBLE = 1e-10
MAX_ACCELERATED = 300
MAX_NEWTON = 300
# Part of the linear decrease that ends the search along a step.
ENOUGH = 0.05
# Least curvatures tried, as parts of the loss's smoothness.
FLOORS = (0.0, 1e-2, 1.0)
SIZES = (1.0, 0.3, 0.1, 0.01)

Face = tuple[NDArray[np.intp], Array | None]
"""The free coordinates of a face, shape (k,), and a vector orthogonal to its moves.

The vector has shape (k,). It is None if the coordinates may move independently.
"""


@dataclass(frozen=True)
class BoxRegion:
    """The box [lower, upper]^p."""

    lower: float
    upper: float

    def project(self, w: Array) -> Array:
        """Return w clipped to the box."""
        return np.asarray(np.clip(w, self.lower, self.upper))

    def gap(self, w: Array, g: Array) -> float:
        """Return the Frank-Wolfe gap for the gradient g at w; infinite outside."""
        if not (self.lower <= w.min() and w.max() <= self.upper):
            return np.inf
        ends = np.where(g > 0.0, self.lower, self.upper)
        steps = np.where(g == 0.0, 0.0, w - ends)
        return float((g[g != 0.0] * steps[g != 0.0]).sum())

    def face(self, w: Array, g: Array) -> Face:
        """Return the coordinates that are inside the box, or that -g moves inside."""
        held = ((w == self.lower) & (g >= 0.0)) | ((w == self.upper) & (g <= 0.0))
        return np.flatnonzero(~held), None


@dataclass(frozen=True)
class SimplexRegion:
    """The simplex of a constraint, as a set with faces."""

    constraint: Constraint

    def project(self, w: Array) -> Array:
        """Return the nearest point, with entries that are rounding errors set to 0.

        The l1 norm of the point stays the same.
        """
        w = self.constraint.project(w)
        total = float(np.abs(w).sum())
        kept = np.where(np.abs(w) > ROUNDING * total, w, 0.0)
        left = float(np.abs(kept).sum())
        return np.asarray(kept * (total / left)) if left > 0.0 else kept

    def gap(self, w: Array, g: Array) -> float:
        """Return the Frank-Wolfe gap, sum_j w_j (g_j - min g)."""
        excess = self.constraint.radius - w.sum()
        return float((w * (g - g.min())).sum() + abs(excess * g.min()))

    def face(self, w: Array, g: Array) -> Face:
        """Return the coordinates that are or become nonzero, and a vector of ones."""
        level = float(w @ g) / float(w.sum())
        free = np.flatnonzero((w > 0.0) | (g < level))
        return free, np.ones(free.size)


@dataclass(frozen=True)
class CrossRegion(SimplexRegion):
    """The L1 ball of a constraint, as a set with faces."""

    def gap(self, w: Array, g: Array) -> float:
        """Return the Frank-Wolfe gap, radius max |g| + g.w."""
        top = float(np.abs(g).max(initial=0.0))
        inside = max(self.constraint.radius - float(np.abs(w).sum()), 0.0)
        return float((np.abs(w) * top + w * g).sum() + inside * top)

    def face(self, w: Array, g: Array) -> Face:
        """Return the coordinates that are or become nonzero; all if w is inside."""
        radius, level = self.constraint.radius, -float(w @ g)
        inside = np.abs(w).sum() < radius * (1.0 - ON_BORDER)
        if inside or level <= 0.0:
            return np.arange(w.size), None
        free = np.flatnonzero((w != 0.0) | (np.abs(g) > level / radius))
        sign = np.where(w != 0.0, np.sign(w), -np.sign(g))
        return free, sign[free]


Region = BoxRegion | SimplexRegion
"""A bounded convex set with finitely many faces.

Its ``gap`` is the Frank-Wolfe gap, the maximum of g.(w - s) over s in the set, computed
as a sum of terms >= 0. Its ``face`` at w leaves a coordinate on the border free if a
step along -g moves it inside.
"""


def minimise_over(problem: Composite, region: Region) -> Array:
    """Return a minimiser of the smooth objective over a set, shape (p,).

    Parameters
    ----------
    problem : Composite
        With l1 = 0.
    region : Region
    """
    search = _Search(problem, region)
    w = search.take_accelerated_steps(region.project(problem.zero))
    best, least = w, search.gap(w)
    for _ in range(MAX_NEWTON):
        if least <= FINISHED * problem.value(best) or search.is_negligible(best):
            break
        moved = search.take_newton_step(w)
        if search.gap(moved) > 0.1 * search.gap(w):
            other = search.take_newton_step(search.gradient_step(w))
            moved = min(moved, other, key=problem.value)
        gap = search.gap(moved)
        if problem.value(moved) >= problem.value(w) and gap >= least:
            break
        w = moved
        if gap < least:
            best, least = w, gap
    return best


class _Search:
    def __init__(self, problem: Composite, region: Region) -> None:
        self.problem, self.region, self.step = problem, region, 1.0
        self.negligible = NEGLIGIBLE * problem.value(problem.zero)

    def is_negligible(self, w: Array) -> bool:
        return self.problem.value(w) <= self.negligible

    def gap(self, w: Array) -> float:
        return self.region.gap(w, self.problem.gradient(w))

    def gradient_step(self, w: Array) -> Array:
        """Return w after a projected gradient step within its quadratic bound."""
        value, g = self.problem.value(w), self.problem.gradient(w)
        self.step *= 2.0
        for _ in range(100):
            moved = self.region.project(w - self.step * g)
            d = moved - w
            bound = value + g @ d + (d @ d) / (2.0 * self.step)
            if self.problem.value(moved) <= bound + 1e-15 * abs(value):
                return moved
            self.step *= 0.5
        return w

    def take_accelerated_steps(self, w: Array) -> Array:
        """Return w after accelerated projected gradient steps."""
        steps = itertools.islice(
            composite.accelerated_points(self.gradient_step, w), MAX_ACCELERATED
        )
        for number, w in enumerate(steps):
            close = number % 10 == 9 and self.gap(w) <= ROUGH * self.problem.value(w)
            if close or self.is_negligible(w):
                break
        return w

    def take_newton_step(self, w: Array) -> Array:
        """Return w after a Newton step within its face, if that is better."""
        value, gap = self.problem.value(w), self.gap(w)
        best, least = w, value * (1.0 - 1e-13)
        for trial, enough in self._newton_trials(w):
            reached = self.problem.value(trial)
            if reached <= min(enough, least) or self.gap(trial) < 0.5 * gap:
                return trial
            if reached < least:
                best, least = trial, reached
        return best

    def _newton_trials(self, w: Array) -> Iterator[tuple[Array, float]]:
        """Yield points along Newton steps in the face, each with a target value."""
        problem, project = self.problem, self.region.project
        value, g = problem.value(w), problem.gradient(w)
        free, normal = self.region.face(w, g)
        for floor in FLOORS if free.size else ():
            least = floor * problem.loss.smoothness
            weights = np.maximum(problem.curvature(w), least) / problem.y.size
            solve = composite.newton_system(problem.X[:, free], weights, problem.l2)
            step = -solve(g[free])
            if normal is not None:
                across = solve(normal)
                step = step - float(normal @ step) / float(normal @ across) * across
            along = np.zeros_like(w)
            along[free] = step
            slope = ENOUGH * float(g[free] @ step)
            for size in SIZES:
                yield project(w + size * along), value + size * slope
                if size == 1.0:
                    yield self._to_border(w, along), -np.inf

    def _to_border(self, w: Array, along: Array) -> Array:
        """Return the last point of the set along a direction, by bisection."""
        slack = 1e-12 * float(np.abs(w).sum() + np.finfo(float).tiny)
        low, high = 0.0, 1.0
        for _ in range(60):
            size = 0.5 * (low + high)
            trial = w + size * along
            inside = np.abs(self.region.project(trial) - trial).sum() <= slack
            low, high = (size, high) if inside else (low, size)
        return self.region.project(w + high * along)
