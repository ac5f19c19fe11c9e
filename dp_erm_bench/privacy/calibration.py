"""From events and a budget to one noise multiplier.

A release that takes a fixed share of the budget is certified apart (``shares``), and
the search is run on what it leaves.
"""

import functools
import math
from dataclasses import asdict, dataclass
from typing import Any

from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.paths import digest, load_json, save_json
from dp_erm_bench.privacy.accountants import (
    Certificate,
    Events,
    certify,
    check_known,
    quick,
    slow,
    smaller,
)
from dp_erm_bench.privacy.budget import Budget
from dp_erm_bench.privacy.events import Event, composed
from dp_erm_bench.privacy.gdp import mu_for
from dp_erm_bench.privacy.pld import COARSE, pld_epsilon
from dp_erm_bench.privacy.printed import authors_multiplier, printed_multiplier
from dp_erm_bench.privacy.search import smallest_multiplier

# Part of the key on disk: raise it whenever a number of this layer may change.
VERSION = 2
MODES = ("certified", "paper", "authors")
QUICK_TOLERANCE = 1e-10
SLOW_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Calibration:
    """The noise of a trial and what it proves.

    Attributes
    ----------
    z : float
        Common noise multiplier, 0 without noise; the scale of a release is
        z * weight * sensitivity.
    budget : Budget
        With delta as a number.
    accountant : str
        Who proves ``epsilon_certified``.
    epsilon_certified : float
        Proved epsilon at the budget's delta, infinite without noise.
    label : str
        ``certified``, ``authors``, ``paper``, or ``paper (not proved)`` where the
        printed noise is certified for more than the budget only.
    """

    z: float
    budget: Budget
    accountant: str
    epsilon_certified: float
    label: str


def calibrate(
    events: Events,
    budget: Budget,
    mode: str = "certified",
    printed: str | None = None,
) -> Calibration:
    """Return the noise multiplier of a budget.

    Parameters
    ----------
    events : tuple of Event
        All that a run releases.
    budget : Budget
        Delta must be a number (``budget.resolved(n)``).
    mode : str
        ``certified``: the smallest z whose certified epsilon is within the budget,
        never above it. ``paper``: the printed constant named ``printed``.
        ``authors``: the noise of the DP-SGD that Mangold et al. compare with.
    printed : str or None
        Name of the algorithm's printed constant, see ``printed.PAPERS``.

    Returns
    -------
    Calibration
        Cached in memory and on disk by events, budget, mode and ``VERSION``.

    Raises
    ------
    UsageError
        For an unknown mode, or a mode that the algorithm does not have.
    TypeError
        For an event that no accountant knows.
    Unsupported
        For delta = 0 with noise that is not purely private, or if no noise reaches
        the budget, see :func:`check_reachable`.
    """
    if mode not in MODES:
        raise UsageError(f"calibration={mode}: must be {', '.join(MODES)}")
    check_known(events, budget.number)
    check_reachable(events, budget)
    return _calibrated(
        composed(events), budget, mode, printed if mode == "paper" else None
    )


def check_reachable(events: Events, budget: Budget) -> None:
    """Refuse a budget that the curvature of perturbed objectives alone exceeds.

    Raises
    ------
    Unsupported
        The sentence says how small log(1 + beta / ridge) must be.
    """
    least = math.fsum(event.times * event.curvature for event in events)
    if least >= budget.epsilon:
        raise Unsupported(
            f"epsilon={budget.epsilon:g}: the curvature alone, log(1 + beta / ridge), "
            f"costs {least:.3g}, whatever the noise; a larger ridge costs less"
        )


@functools.lru_cache(maxsize=4096)
def _calibrated(
    events: Events, budget: Budget, mode: str, printed: str | None
) -> Calibration:
    """Compute or load a calibration of canonical events."""
    if math.isinf(budget.epsilon) or not events:
        spent = math.inf if events else 0.0
        return Calibration(0.0, budget, "none", spent, mode)
    key = digest([VERSION, [asdict(e) for e in events], asdict(budget), mode, printed])
    known = remembered(load_json("calibration", key), budget)
    if known is None:
        known = computed(events, budget, mode, printed)
        facts = asdict(known)
        del facts["budget"]
        save_json("calibration", key, facts)
    return known


def remembered(facts: Any, budget: Budget) -> Calibration | None:
    """Return the calibration that was written to disk, None if it is unusable."""
    try:
        return Calibration(budget=budget, **facts)
    except TypeError:
        return None


def computed(
    events: Events, budget: Budget, mode: str, printed: str | None
) -> Calibration:
    """Compute a calibration with noise."""
    if mode == "certified":
        z, proof = certified_multiplier(events, budget)
        return Calibration(z, budget, proof.accountant, proof.epsilon, mode)
    if mode == "authors":
        z = authors_multiplier(budget, events)
    else:
        z = printed_multiplier(printed, budget, events)
    proof = certify(events, z, budget.number, budget.adjacency)
    unproved = mode == "paper" and proof.epsilon > budget.epsilon
    label = "paper (not proved)" if unproved else mode
    return Calibration(z, budget, proof.accountant, proof.epsilon, label)


def certified_multiplier(events: Events, budget: Budget) -> tuple[float, Certificate]:
    """Return the smallest z within the budget, and the proof.

    The quick accountants come first. PLD is asked once at their z and searched only
    if it proves less there; being asked near the answer bounds its memory.
    """
    epsilon, delta = budget.epsilon, budget.number
    sampled = any(event.kind == "poisson_gaussian" for event in events)
    z = guess(events, budget)
    if sampled:
        z = coarse_multiplier(events, budget, z)
    else:
        z = smallest_multiplier(
            lambda z: quick(events, z, delta).epsilon, epsilon, z, QUICK_TOLERANCE
        )
        proof = quick(events, z, delta)
        other = slow(events, z, delta, budget.adjacency)
        if not other.epsilon < proof.epsilon * (1 - SLOW_TOLERANCE):
            return z, proof
    proofs: dict[float, Certificate] = {}

    def epsilon_at(z: float) -> float:
        proof = slow(events, z, delta, budget.adjacency)
        proofs[z] = proof
        if proof.epsilon > epsilon:
            proofs[z] = smaller(quick(events, z, delta), proof)
        return proofs[z].epsilon

    z = smallest_multiplier(epsilon_at, epsilon, z, SLOW_TOLERANCE)
    return z, proofs[z]


def coarse_multiplier(events: Events, budget: Budget, start: float) -> float:
    """Return the z of a budget to a few per cent, from a coarse lattice."""

    def epsilon_at(z: float) -> float:
        bound = quick(events, z, budget.number).epsilon
        proved = pld_epsilon(events, z, budget.number, budget.adjacency, COARSE)
        return bound if proved is None else min(bound, proved)

    return smallest_multiplier(epsilon_at, budget.epsilon, start, 1e-2)


def guess(events: Events, budget: Budget) -> float:
    """Return a z near the answer, from the central limit theorem.

    A step of mean square loss s^2 counts like a Gaussian of mu = s (Dong, Roth, Su
    2022, Theorem 3.4); for Poisson sampling s^2 = q^2 (e^(1/z^2) - 1) (Bu, Dong, Long,
    Su, "Deep Learning with Gaussian DP", HDSR 2020). It only starts the search.
    """
    mu = mu_for(budget.epsilon, max(budget.number, 1e-12))
    return max(guess_one(event, len(events), mu) for event in events)


def guess_one(event: Event, shares: int, mu: float) -> float:
    """Return the z of one event that gets an equal share of mu^2."""
    square = mu * mu / shares / event.times
    if event.kind == "poisson_gaussian":
        square = math.log1p(square / event.rate**2)
    return 1 / math.sqrt(square) / event.weight
