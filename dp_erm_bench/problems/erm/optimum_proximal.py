"""The reference minimiser of what has a prox and no solver of its own."""

from collections.abc import Callable

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.problems.erm.optimum_sparse import Composite

FINISHED = 1e-13
MOST_STEPS = 30_000
# Accelerated steps between two looks at the gap.
CHECKED = 50


def minimise_proximal(
    smooth: Composite,
    smoothness: float,
    prox: Callable[[Array, float], Array],
    gap: Callable[[Array], float],
) -> tuple[Array, float]:
    """Return the best point of accelerated proximal gradient steps, and its gap.

    Parameters
    ----------
    smooth : Composite
        With l1 = 0.
    smoothness : float
        Of the smooth part, in the euclidean norm.
    prox : callable
        Of the other part, with the length of the step.
    gap : callable
        A certified bound on F(w) - min F.

    References
    ----------
    Beck, Teboulle, "A fast iterative shrinkage-thresholding algorithm", SIAM Journal
    on Imaging Sciences 2009; restarts: O'Donoghue, Candes, "Adaptive restart for
    accelerated gradient schemes", Foundations of Computational Mathematics 2015.
    """
    size = 1.0 / (smoothness * (1.0 + 1e-9)) if smoothness > 0.0 else 1.0

    def stepped(v: Array) -> Array:
        return prox(v - size * smooth.gradient(v), size)

    w = prox(np.zeros(smooth.X.shape[1]), 0.0)
    best, least = w, gap(w)
    ahead, momentum = w, 1.0
    for number in range(1, MOST_STEPS + 1):
        moved = stepped(ahead)
        if (ahead - moved) @ (moved - w) > 0.0:
            momentum, moved = 1.0, stepped(w)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = moved + (momentum - 1.0) / following * (moved - w)
        w, momentum = moved, following
        if number % CHECKED == 0:
            reached = gap(w)
            if reached < least:
                best, least = w, reached
            if least <= FINISHED * smooth.value(best):
                break
    return best, least
