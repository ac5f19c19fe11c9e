"""Proximal gradient and Newton steps to the minimisers of perturbed objectives."""

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from dp_erm_bench.constraints.base import UNCOMPILED
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.optimum import composite
from dp_erm_bench.problems.erm.optimum.composite import Composite

MAX_STEPS = 100_000
CHECKED = 50
"""Number of accelerated steps between two checks."""
PATIENCE = 2000
"""Number of steps that do not halve the distance, after which the search ends.

This is for well conditioned problems.
"""
LARGE = 100_000
"""Number of entries of the features below which accelerated steps are fast."""
SHORT = 30
"""Mean entries per record up to which a Hessian costs less than accelerated steps."""
INNER, MAX_INNER = 0.01, 1000
"""Fraction of the distance at which the search in a quadratic model ends.

The second number is the largest number of its steps.
"""
STALE = 0.1
"""A new Hessian is needed if a step leaves more than this fraction of the distance."""
SLOW = 5
"""Number of Newton steps with a new Hessian that do not halve the distance.

The search ends after this number.
"""


@dataclass(frozen=True, eq=False)
class Minimiser:
    """A point, with a bound on its distance to the exact minimiser.

    Parameters
    ----------
    w : array of shape (p,)
    distance : float
        Bound on norm2(w - exact minimiser): norm2(s) / modulus for a subgradient s
        of the objective at w, by strong convexity.
    """

    w: Array
    distance: float


def nearest_point(*points: Minimiser) -> Minimiser:
    """Return the point whose bound on the distance to the minimiser is smallest."""
    return min(points, key=lambda minimiser: minimiser.distance)


class ProximalSteps(ABC):
    """Proximal gradient steps of a smooth function plus the problem's penalty.

    Attributes
    ----------
    problem : ERM
        The problem, whose penalty and constraint are used.
    lipschitz, modulus : float
        The Lipschitz constant of the gradient, and the modulus of strong convexity of
        the sum.
    """

    problem: ERM
    lipschitz: float
    modulus: float

    @abstractmethod
    def gradient(self, w: Array) -> Array:
        """Return the gradient of the smooth function, shape (p,)."""

    def proximal(self, v: Array) -> Array:
        """Return the prox of the penalty over the set, for step 1 / lipschitz."""
        moved = self.problem.penalty.prox(v, 1.0 / self.lipschitz)
        return self.problem.constraint.project(moved)

    def step(self, w: Array) -> tuple[Array, Array]:
        """Return the point after a step from w, and the gradient at w."""
        g = self.gradient(w)
        return self.proximal(w - g / self.lipschitz), g

    def point_after(self, w: Array) -> Minimiser:
        """Return the point after one step, and a bound on its distance to the minimum.

        Let L be ``lipschitz`` and moved the new point. The bound follows from the
        subgradient L (w - moved) - grad(w) + grad(moved) at that point.
        """
        moved, g = self.step(w)
        subgradient = self.lipschitz * (w - moved) - g + self.gradient(moved)
        return Minimiser(moved, float(norm2(subgradient)) / self.modulus)

    def take_accelerated_steps(
        self, start: Array, tolerance: float, most: int = MAX_STEPS
    ) -> Minimiser:
        """Return the best point of accelerated steps, among those that are checked.

        Parameters
        ----------
        start : array of shape (p,)
        tolerance : float
            Distance from the minimiser at which the steps end.
        most : int
            Largest number of steps.
        """
        best = self.point_after(start)
        steps = composite.accelerated_points(lambda v: self.step(v)[0], best.w)
        # Without restarts acceleration halves the distance in about sqrt(L / m) steps.
        patience = PATIENCE + math.ceil(4.0 * math.sqrt(self.lipschitz / self.modulus))
        halved = 0
        looks = itertools.islice(steps, CHECKED - 1, most, CHECKED)
        for number, w in enumerate(looks, 1):
            last = self.point_after(w)
            if last.distance <= 0.5 * best.distance:
                halved = CHECKED * number
            best = nearest_point(best, last)
            if best.distance <= tolerance or CHECKED * number - halved > patience:
                break
        return best


class _QuadraticModel(ProximalSteps):
    """Proximal gradient steps on the quadratic model of a smooth function at w."""

    def __init__(self, of: ProximalSteps, hessian: Array, w: Array) -> None:
        self.problem, self.modulus, self.hessian = of.problem, of.modulus, hessian
        # No eigenvalue is larger than the Frobenius norm.
        bound = max(float(np.linalg.norm(hessian)), of.modulus)
        self.lipschitz = min(bound, of.lipschitz)
        self.shift = of.gradient(w) - hessian @ w

    def gradient(self, w: Array) -> Array:
        return self.hessian @ w + self.shift


class PerturbedSteps(ProximalSteps):
    """Proximal steps on the perturbed objective; the ridge is in its smooth part."""

    def __init__(self, problem: ERM, linear: Array, ridge: float) -> None:
        data, self.problem, self.linear = problem.dataset, problem, linear
        self.smooth = Composite(data.X, data.y, problem.loss, l2=ridge)
        self.modulus = ridge + problem.penalty.strong_convexity
        smoothness = problem.with_smoothness("data").smoothness.norm
        # Computed, so perhaps rounded down; zero if all records are.
        self.lipschitz = max(float(smoothness) * (1 + 1e-9) + ridge, self.modulus)

    def gradient(self, w: Array) -> Array:
        """Return the gradient of the smooth part, shape (p,)."""
        return self.smooth.gradient(w) + self.linear

    @property
    def newton_pays(self) -> bool:
        """Return whether the Hessian is cheap compared with products with the features.

        Computing it costs as many such products as a record has entries. A product with
        the Hessian must cost less than a product with the features. The Hessian must
        take no more memory than the features. Newton steps also need many proxes and
        projections, so these must be cheap.
        """
        problem = self.problem
        p, n, entries = problem.p, problem.n, problem.entries
        cheap = isinstance(problem.penalty, SeparablePenalty)
        if not cheap or problem.constraint.code == UNCOMPILED:
            return False
        return max(p**2, LARGE) <= entries <= SHORT * n and p <= composite.DIRECT

    def hessian(self, w: Array) -> Array:
        """Return the Hessian of the smooth part, shape (p, p)."""
        weights = np.maximum(self.smooth.curvature(w), 0.0) / self.smooth.y.size
        scaled = composite.scale_records(self.smooth.X, np.sqrt(weights))
        upper = np.triu(composite.gram(scaled, False))
        hessian = upper + np.triu(upper, 1).T
        return np.asarray(hessian + self.smooth.l2 * np.eye(w.size))

    def take_newton_steps(self, start: Array, tolerance: float) -> Minimiser:
        """Return the point nearest to the minimiser that proximal Newton steps reach.

        A step minimises the quadratic model of the smooth part plus the penalty over
        the set. It stops at a fraction of the distance. The Hessian is kept while the
        distance falls fast. The steps end if new Hessians do not halve the distance,
        because Newton steps need not converge.

        References
        ----------
        Lee, Sun, Saunders, "Proximal Newton-type methods for minimizing composite
        functions", SIAM Journal on Optimization 2014, section 2.
        """
        best = last = self.point_after(start)
        ratio, slow = math.inf, 0
        while best.distance > tolerance and slow < SLOW:
            fresh = ratio > STALE
            if fresh:
                hessian = self.hessian(last.w)
            model = _QuadraticModel(self, hessian, last.w)
            w = model.take_accelerated_steps(last.w, INNER * last.distance, MAX_INNER).w
            moved = self.point_after(w)
            if not math.isfinite(moved.distance):
                break
            best, ratio = nearest_point(best, moved), moved.distance / last.distance
            if fresh or ratio <= 0.5:
                slow += ratio > 0.5
                last = moved
        return best
