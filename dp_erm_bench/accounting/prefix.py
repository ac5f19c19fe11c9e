"""Lengths of runs whose noise is given: the longest prefix of a drawn schedule.

The schedule is public and drawn without the data: given it, a run is a composition of
releases that are fixed before, so that every accountant holds and no filter is needed.
To fit the noise to the schedule instead would be as private, but makes the noise of a
step depend on the levels of others, which unbiased estimators forbid.
"""

import math
from collections.abc import Callable

from dp_erm_bench.accounting.bounds import Laws
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import Calibration, proved
from dp_erm_bench.accounting.certify import Certificate, certify
from dp_erm_bench.releases.losses import Floats
from dp_erm_bench.releases.printed import printed_prefix


def calibrated_prefix(
    laws_of: Callable[[int], Laws],
    costs: Floats,
    z: float,
    budget: Budget,
    mode: str,
    printed: str | None,
) -> tuple[int, Calibration]:
    """Return the number of steps that a budget pays for, and what is proved for them.

    Parameters
    ----------
    laws_of : callable
        All that is released in the first so many steps.
    costs : array of shape (T,)
        Parts of the budget that a paper charges for the steps of the whole schedule.
    z : float
        The noise multiplier.
    budget : Budget
        Delta must be a number.
    mode : str
        ``certified``: the longest prefix whose certified epsilon is within the budget;
        none of T steps may be. ``paper``: noise and end of the rule ``printed``.
    """
    steps = costs.size
    if math.isinf(budget.epsilon):
        return steps, Calibration(0.0, budget, "none", math.inf, mode)

    def proof(count: int) -> Certificate:
        return certify(laws_of(count), z, budget.number, budget.adjacency)

    if mode == "paper":
        z, steps = printed_prefix(printed, costs, budget.epsilon, budget.number)
    else:
        steps = largest(lambda count: proof(count).epsilon <= budget.epsilon, steps)
    return steps, proved(z, budget, proof(steps), mode)


def largest(holds: Callable[[int], bool], most: int) -> int:
    """Return the largest number up to ``most`` at which a falling predicate holds.

    At 0 it is taken to hold.
    """
    low, high = 0, most + 1
    while high - low > 1:
        # Steps from below: the laws of long schedules take long to list.
        middle = min((low + high) // 2, 2 * low + 1)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
