"""Reference minimisers that need only a prox or a projection.

They use accelerated steps and ADMM. An accelerated step is cheap, but many are needed
where features are badly scaled. A step of ADMM solves Newton systems, for which the
scales do not matter.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.problems.erm.objective import ERM, Smoothness
from dp_erm_bench.problems.erm.optimum import composite, smooth
from dp_erm_bench.problems.erm.optimum.composite import Composite
from dp_erm_bench.problems.erm.optimum.smooth import Gap

Prox = Callable[[Array, float], Array]
"""A function that maps a point, shape (p,), and a step length to the prox."""

FINISHED = 1e-13
# Checks that do not halve the gap, after which a search ends if it is near enough.
STALLED, NEAR = 10, 1e-11
# Accelerated steps between two checks, and in all. ADMM is tried after the first of
# them, or a few more if those came as close as this relative gap.
CHECKED, MOST_STEPS = 50, 30_000
FIRST, CLOSE, MORE = 200, 1e-2, 800
# Relative gap above which ADMM is tried, and above which it has failed.
ENOUGH = 1e-9
# Steps of ADMM between two checks, and in all; its weight is fixed after half of them.
BALANCED, MOST_SPLIT = 10, 2000
# Ratio of the residuals that changes the weight, and by how much.
APART, TURN = 5.0, 2.0


@dataclass(eq=False)
class Search:
    """The best point found so far, which has the smallest certified gap.

    Parameters
    ----------
    problem : ERM
    certified_gap : callable
    w : array of shape (p,)
        The best point.
    """

    problem: ERM
    certified_gap: Gap
    w: Array

    def __post_init__(self) -> None:
        """Compute the gap at the start."""
        self.gap = self.certified_gap(self.problem, self.w)[0]

    def within(self, tolerance: float) -> bool:
        """Return whether the relative gap is at most a tolerance."""
        return self.gap <= tolerance * float(self.problem.value(self.w))

    def follow(self, points: Iterator[Array], every: int) -> None:
        """Check every n-th point until one is the minimiser, or no points are left.

        Parameters
        ----------
        points : iterator of arrays of shape (p,)
        every : int
            The number n.
        """
        if self.within(FINISHED):
            return
        looks = 0
        for w in itertools.islice(points, every - 1, None, every):
            gap, _ = self.certified_gap(self.problem, w)
            looks = 0 if gap < 0.5 * self.gap else looks + 1
            if gap < self.gap:
                self.w, self.gap = w, gap
            if self.within(FINISHED) or (looks > STALLED and self.within(NEAR)):
                break


def minimise_by_prox(
    problem: ERM, objective: Composite, prox: Prox, certified_gap: Gap
) -> Array:
    """Return the best point of accelerated steps and ADMM, by certified gap.

    The point has the shape (p,).

    ADMM follows the first accelerated steps if a Newton system is cheap. The remaining
    accelerated steps follow if ADMM reaches no certificate.

    Parameters
    ----------
    problem : ERM
    objective : Composite
        The loss, and the l2 that is not in the prox.
    prox : callable
        The prox of the rest of the objective.
    certified_gap : callable
    """
    smoothness = Smoothness("data", problem.dataset, problem.loss)
    beta = smoothness.norm + objective.l2
    size = 1.0 / (beta * (1.0 + 1e-9)) if beta > 0.0 else 1.0

    def step(v: Array) -> Array:
        return prox(v - size * objective.gradient(v), size)

    best = Search(problem, certified_gap, prox(objective.zero, 0.0))
    steps = itertools.islice(composite.accelerated_points(step, best.w), MOST_STEPS)
    best.follow(itertools.islice(steps, FIRST), CHECKED)
    if best.within(CLOSE):
        best.follow(itertools.islice(steps, MORE), CHECKED)
    if best.within(ENOUGH):
        return best.w
    if smooth.is_cheap(objective.X):
        rho = float(smoothness.columns.mean())
        points = admm_points(objective, prox, rho, best.w)
        best.follow(itertools.islice(points, MOST_SPLIT), BALANCED)
    if not best.within(ENOUGH):
        best.follow(steps, CHECKED)
    return best.w


def admm_points(
    problem: Composite, prox: Prox, rho: float, w: Array
) -> Iterator[Array]:
    """Yield the points z of ADMM from a start w, for the constraint z = w.

    The loss depends on w, and the rest of the objective, given by its prox, on z. The
    weight rho > 0 of the distance between z and w is adapted to the primal and dual
    residuals, each relative to its own size. After some steps rho stays fixed, so that
    ADMM converges.

    Parameters
    ----------
    problem : Composite
        The part of the objective that depends on w, with l1 = 0.
    prox : callable
        The prox of the part that depends on z.
    rho : float
        The first weight.
    w : array of shape (p,)
        The start.

    References
    ----------
    Boyd, Parikh, Chu, Peleato, Eckstein, "Distributed optimization and statistical
    learning via the alternating direction method of multipliers", Foundations and
    Trends in Machine Learning 2011, sections 3.1.1 and 3.4.1.
    """
    z, u = w, np.zeros_like(w)
    for number in itertools.count(1):
        near = replace(problem, l2=problem.l2 + rho)
        w, _ = smooth.newton_minimiser(near, w, rho * (u - z))
        before, z = z, prox(w + u, 1.0 / rho)
        u = u + w - z
        yield z
        if number % BALANCED or number > MOST_SPLIT // 2:
            continue
        apart, moved, size, dual = map(np.linalg.norm, (w - z, z - before, z, u))
        if apart * dual > APART * moved * size:
            rho, u = rho * TURN, u / TURN
        elif moved * size > APART * apart * dual:
            rho, u = rho / TURN, u * TURN
