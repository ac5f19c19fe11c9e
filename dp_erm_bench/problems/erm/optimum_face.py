"""Reference minimisers over sets with faces: projected gradient, then Newton.

Accelerated projected gradient steps find the face of the minimiser; Newton steps
within the face, cut at its border, finish. The end is certified by the Frank-Wolfe
gap of the smooth objective, which bounds F(w) - min F by convexity.

References
----------
More, Toraldo. On the solution of large quadratic programming problems with bound
constraints. SIAM Journal on Optimization 1991, algorithm GPCP. Jaggi. Revisiting
Frank-Wolfe: projection-free sparse convex optimization. ICML 2013, section 2.
"""

from collections.abc import Iterator

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.problems.erm.optimum_linear import newton_system
from dp_erm_bench.problems.erm.optimum_regions import Face, Region
from dp_erm_bench.problems.erm.optimum_sparse import Composite

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


def minimise_over(problem: Composite, region: Region) -> tuple[Array, float]:
    """Return a minimiser of the smooth objective over a set, and its gap.

    Parameters
    ----------
    problem : Composite
        With l1 = 0.
    region : Region
        Bounded.
    """
    search = _Search(problem, region)
    w = search.accelerated(region.project(np.zeros(problem.X.shape[1])))
    best, least = w, search.gap(w)
    for _ in range(MAX_NEWTON):
        if least <= FINISHED * problem.value(best) or search.vanished(best):
            break
        moved = search.newton(w)
        if search.gap(moved) > 0.1 * search.gap(w):
            other = search.newton(search.gradient_step(w))
            moved = min(moved, other, key=problem.value)
        gap = search.gap(moved)
        if problem.value(moved) >= problem.value(w) and gap >= least:
            break
        w = moved
        if gap < least:
            best, least = w, gap
    return best, least


class _Search:
    def __init__(self, problem: Composite, region: Region) -> None:
        self.problem, self.region = problem, region
        self.step = 1.0

        self.negligible = NEGLIGIBLE * problem.value(np.zeros(problem.X.shape[1]))

    def vanished(self, w: Array) -> bool:
        return self.problem.value(w) <= self.negligible

    def gap(self, w: Array) -> float:
        return self.region.gap(w, self.problem.gradient(w))

    def gradient_step(self, w: Array) -> Array:
        """Return the projection of a gradient step that meets its quadratic bound."""
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

    def accelerated(self, w: Array) -> Array:
        """Return w after accelerated projected gradient steps with restarts."""
        momentum, ahead = 1.0, w
        for number in range(MAX_ACCELERATED):
            moved = self.gradient_step(ahead)
            if (ahead - moved) @ (moved - w) > 0.0:
                momentum, moved = 1.0, self.gradient_step(w)
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = moved + (momentum - 1.0) / following * (moved - w)
            w, momentum = moved, following
            close = number % 10 == 9 and self.gap(w) <= ROUGH * self.problem.value(w)
            if close or self.vanished(w):
                break
        return w

    def newton(self, w: Array) -> Array:
        """Return w after a Newton step within its face, if that is better."""
        value, gap = self.problem.value(w), self.gap(w)
        best, least = w, value * (1.0 - 1e-13)
        for trial, enough in self._trials(w):
            reached = self.problem.value(trial)
            if reached <= min(enough, least) or self.gap(trial) < 0.5 * gap:
                return trial
            if reached < least:
                best, least = trial, reached
        return best

    def _trials(self, w: Array) -> Iterator[tuple[Array, float]]:
        """Yield points along Newton steps, and values that are low enough."""
        value, g = self.problem.value(w), self.problem.gradient(w)
        face = self.region.face(w, g)
        if not 0 < face.free.size:
            return
        for floor in FLOORS:
            step = self._direction(w, g, face, floor)
            slope = ENOUGH * float(g[face.free] @ step)
            for size in SIZES:
                trial = w.copy()
                trial[face.free] += size * step
                yield self.region.project(trial), value + size * slope
                if size == 1.0:
                    yield self._to_border(w, face, step), -np.inf

    def _to_border(self, w: Array, face: Face, step: Array) -> Array:
        """Return the last point of the set along the step, by bisection."""
        direction = np.zeros_like(w)
        direction[face.free] = step
        slack = 1e-12 * float(np.abs(w).sum() + np.finfo(float).tiny)
        low, high = 0.0, 1.0
        for _ in range(60):
            size = 0.5 * (low + high)
            trial = w + size * direction
            inside = np.abs(self.region.project(trial) - trial).sum() <= slack
            low, high = (size, high) if inside else (low, size)
        return self.region.project(w + high * direction)

    def _direction(self, w: Array, g: Array, face: Face, floor: float) -> Array:
        """Return the Newton step within the face."""
        problem, free = self.problem, face.free
        z = problem.margins(w)
        curvature = problem.loss.second_derivative(problem.y, z)
        least = floor * problem.loss.smoothness
        weights = np.maximum(curvature, least) / problem.y.size
        system = newton_system(problem.X[:, free], weights, problem.l2)
        step = -system.solve(g[free])
        if face.normal is None:
            return step
        across = system.solve(face.normal)
        part = float(face.normal @ step) / float(face.normal @ across)
        return step - part * across
