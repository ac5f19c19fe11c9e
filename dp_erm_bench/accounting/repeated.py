"""Noise of repeated runs, and lengths of runs whose noise is given.

The length of a run is the longest prefix of a drawn schedule that the budget pays for.
The schedule is public and drawn without the data. Given the schedule, a run is a
composition of releases that are fixed in advance, so every accountant is valid and no
filter is needed. Fitting the noise to the schedule instead would be as private. But the
noise of a step would then depend on the levels of other steps, which unbiased
estimators forbid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dp_erm_bench.accounting.bounds import Laws
from dp_erm_bench.accounting.budget import LEAST_DELTA, Budget
from dp_erm_bench.accounting.calibration import (
    Calibration,
    calibrate,
    calibration_of_proof,
)
from dp_erm_bench.accounting.certify import Certificate, certify
from dp_erm_bench.accounting.least import certified_multiplier
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.losses import Floats
from dp_erm_bench.releases.printed import log_inverse, printed_prefix


def calibrated_prefix(
    laws_of: Callable[[int], Laws],
    costs: Floats,
    z: float,
    budget: Budget,
    mode: str,
    printed: str | None,
) -> tuple[int, Calibration]:
    """Return the number of steps that a budget pays for, and their calibration.

    Parameters
    ----------
    laws_of : callable
        Returns the laws of everything released in the first ``count`` steps.
    costs : array of shape (T,)
        Part of the budget that a paper charges for each step of the whole schedule.
    z : float
        Common noise multiplier; the mode ``paper`` replaces it by the one stated in the
        paper.
    budget : Budget
        Delta must be a number.
    mode : str
        With ``certified``, the result is the longest prefix whose certified epsilon is
        within the budget, which may be empty. With ``paper``, noise and length follow
        from the rule ``printed``.
    printed : str or None
        Name of the rule stated in a paper, for the mode ``paper``.
    """
    steps = costs.size
    if math.isinf(budget.epsilon):
        return steps, Calibration(0.0, budget, "none", math.inf, mode)

    def proof(count: int) -> Certificate:
        return certify(laws_of(count), z, budget.number, budget.adjacency)

    if mode == "paper":
        asked = budget.epsilon, budget.number, budget.adjacency
        z, steps = printed_prefix(printed, costs, *asked)
    else:
        steps = largest_count(
            lambda count: proof(count).epsilon <= budget.epsilon, steps
        )
    return steps, calibration_of_proof(z, budget, proof(steps), mode)


def largest_count(holds: Callable[[int], bool], most: int) -> int:
    """Return the largest integer up to ``most`` at which a condition holds.

    The condition must hold up to some integer and fail beyond it. It is assumed to hold
    at 0.
    """
    low, high = 0, most + 1
    while high - low > 1:
        # From below, because listing the laws of long schedules is slow.
        middle = min((low + high) // 2, 2 * low + 1)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


LIU_TALWAR = "liu_talwar"
"""Name of the rule stated in the paper, as solvers declare it."""
LARGEST = 0.5
"""Largest stopping probability for which the paper states a rule."""


def share_of_a_run(gamma: float, budget: Budget) -> Budget:
    """Return the budget that a paper prints for one run, without its score.

    This budget is (eps/12, (delta / (4 K))^2) for a stopping probability ``gamma``
    after a run, with K = ceil(log(4/delta) / gamma). The paper prints log(2/delta) for
    1/gamma. Our K is consistent with a delta/2 of the runs beyond K (Ghazi, Guzman,
    Kamath, Kumar, Manurangsi, "Differentially private optimization with sparse
    gradients", NeurIPS 2024, Algorithm 5; Liu, Talwar, STOC 2019).

    Raises
    ------
    Unsupported
        For gamma > 1/2, because gamma is printed as min(1/2, 3 beta / 4). Also for a
        delta whose share is smaller than accountants resolve.
    """
    if gamma > LARGEST:
        raise Unsupported(
            f"gamma={gamma:g}: must be at most {LARGEST} for the printed noise"
        )
    delta = budget.number
    most = math.ceil((math.log(4) + log_inverse(delta)) / gamma)
    share = (delta / (4 * most)) ** 2
    if share < LEAST_DELTA:
        raise Unsupported(
            f"delta={delta:g}: the printed share of each run, {share:.1g}, is less "
            f"than {LEAST_DELTA:g}, the smallest delta that the accountants support; "
            "use calibration=certified"
        )
    return replace(budget, epsilon=budget.epsilon / 12, delta=share)


def liu_talwar(gamma: float, run: Laws, budget: Budget) -> tuple[float, float]:
    """Return the noise multipliers of a run and of its score.

    The run has the smallest multiplier certified for its share of the budget. The score
    has noise Lap(12 B / (n eps)) at a sensitivity of B / n under either adjacency. Its
    multiplier is therefore 12 / eps. The paper states that all runs together are (eps,
    delta)-DP. The paper's stop after K runs, which has a probability of at most
    delta/4, is left out: the certificate counts all runs.

    Parameters
    ----------
    gamma : float
        Probability of stopping after a run.
    run : tuple of Law
        The laws of everything that a run releases besides its score.
    budget : Budget
        Delta must be a number.
    """
    z, _ = certified_multiplier(run, share_of_a_run(gamma, budget))
    return z, 12 / budget.epsilon


def printed_runs(
    releases: tuple[Any, ...], budget: Budget
) -> tuple[tuple[Any, ...], Calibration]:
    """Return the release of the best run with the paper's noise, and its calibration.

    Parameters
    ----------
    releases : tuple of Release
        The one release that selects the best of many runs, or no release.
    budget : Budget
        Delta must be a number.
    """
    if not releases or math.isinf(budget.epsilon):
        laws = tuple(one.law() for one in releases)
        return releases, calibrate(laws, budget, "paper")
    (many,) = releases
    run, z = liu_talwar(many.gamma, tuple(one.law() for one in many.run[:-1]), budget)
    weighted = many.with_weight(run / z)
    proof = certify((weighted.law(),), z, budget.number, budget.adjacency)
    return (weighted,), calibration_of_proof(z, budget, proof, "paper")
