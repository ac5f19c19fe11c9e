"""Reference minima of losses with a kink: exact minima of rounded losses, and duality.

A loss phi(z, y) = max of v (z - y) over an interval of slopes v is replaced by one with
a parabola of some half-width for its kink, nowhere below phi, whose derivatives are
such slopes. By Fenchel-Young a slope v lowers the bound of the smooth case by

    phi(z) + phi*(v) - v z = phi(z) - v (z - y) >= 0,

which is 0 for all records off the parabola: for the point that minimises the rounded
objective it is of the order of the width times the share of the records on it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.problems.erm.objective import ERM

WIDTHS = tuple(10.0 ** (-k / 2) for k in range(2, 13))
"""Half-widths of the parabola, in units of F(0)."""
FINISHED = 1e-8

Gap = Callable[[ERM, Array], tuple[float, str]]


def minimise_kinked(
    problem: ERM, minimise: Callable[[ERM, Array], Array], smooth_gap: Gap
) -> Array:
    """Return the best point, by certified gap, of the minima of rounded losses, (p,).

    Parameters
    ----------
    problem : ERM
    minimise, smooth_gap : callable
        The minimiser from a start, and the certificate, of smooth losses.
    """
    best, least = np.zeros(problem.p), np.inf
    w = best
    for rounded in _rounded(problem):
        w = minimise(rounded, w)
        gap, _ = kinked_gap(problem, w, smooth_gap)
        if gap < least:
            best, least = w, gap
        if least <= FINISHED * problem.value(best):
            break
    return best


def kinked_gap(problem: ERM, w: Array, smooth_gap: Gap) -> tuple[float, str]:
    """Return a bound on F(w) - min F: the least over the widths, and no doubt."""
    y, z = problem.dataset.y, problem.dataset.X @ w
    value, least = problem.loss.value(y, z), np.inf
    for rounded in _rounded(problem):
        slack = value - rounded.loss.derivative(y, z) * (z - y)
        least = min(least, float(slack.mean()) + smooth_gap(rounded, w)[0])
    return least, ""


def _rounded(problem: ERM) -> Iterator[ERM]:
    unit = float(problem.value(np.zeros(problem.p))) or 1.0
    for width in WIDTHS:
        loss = problem.loss.smoothed(width * unit)
        assert isinstance(loss, Loss)
        yield replace(problem, loss=loss)
