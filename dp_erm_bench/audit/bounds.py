"""Bounds on what a threshold test of an audit achieves."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

THRESHOLDS = 400


class Rates(NamedTuple):
    """Bounds that hold together: ``hits`` from below, ``alarms`` from above."""

    hits: Array
    alarms: Array


class Threshold(NamedTuple):
    """A test: the statistic is above ``value``, or below it if ``flipped``.

    Flipped, D' plays the part of D: its runs are the hits.
    """

    value: float
    flipped: bool


def at_least(successes: Counts, trials: Counts | int, level: float) -> Array:
    """Return Clopper and Pearson's lower bound of a probability.

    The largest p with P(Binomial(trials, p) >= successes) <= level: it exceeds the
    true probability with probability at most ``level``.
    """
    k = np.asarray(successes, dtype=np.float64)
    bound = betaincinv(np.maximum(k, 1.0), trials - k + 1.0, level)
    return np.where(k > 0.0, bound, 0.0)


def at_most(successes: Counts, trials: Counts | int, level: float) -> Array:
    """Return Clopper and Pearson's upper bound of a probability, see ``at_least``."""
    return 1.0 - at_least(trials - np.asarray(successes), trials, level)


def rates(first: Array, second: Array, tests: list[Threshold], alpha: float) -> Rates:
    """Return bounds for some tests, each pair wrong with probability <= alpha.

    Half of alpha goes to either side (union bound).
    """
    pair = (first, second)
    values = np.array([test.value for test in tests])
    flipped = np.array([test.flipped for test in tests])
    above = [s.size - np.searchsorted(np.sort(s), values, "right") for s in pair]
    below = [np.searchsorted(np.sort(s), values, "left") for s in pair]
    sizes = [np.where(flipped, t.size, s.size) for s, t in (pair, pair[::-1])]
    return Rates(
        at_least(np.where(flipped, below[1], above[0]), sizes[0], alpha / 2),
        at_most(np.where(flipped, below[0], above[1]), sizes[1], alpha / 2),
    )


def candidates(first: Array, second: Array) -> list[Threshold]:
    """Return thresholds between values that occur, on both sides."""
    values = np.unique(np.concatenate([first, second]))
    middle = values[:-1] + np.diff(values) / 2
    if middle.size > THRESHOLDS:
        middle = middle[np.linspace(0, middle.size - 1, THRESHOLDS).astype(np.int64)]
    return [Threshold(v, flipped) for flipped in (False, True) for v in middle.tolist()]


def excess(rates: Rates, epsilons: Array, deltas: Array) -> Array:
    """Return hits - min over eps of (e^eps alarms + delta(eps)) for each test.

    Positive: no mechanism with this profile can do that.
    """
    allowed = np.exp(epsilons) * rates.alarms[:, None] + deltas
    found: Array = rates.hits - allowed.min(axis=1)
    return found


def epsilon_bound(rates: Rates, delta: float) -> Array:
    """Return the largest epsilon that each test refutes at a delta, at least 0."""
    gain = np.maximum(rates.hits - delta, 0.0)
    with np.errstate(divide="ignore"):
        found: Array = np.log(gain) - np.log(rates.alarms)
    return np.maximum(found, 0.0)


def mu_bound(rates: Rates) -> Array:
    """Return the mu such that a Gaussian with less allows no such test, at least 0."""
    inner = np.clip(rates.alarms, 1e-300, 1.0 - 1e-16)
    with np.errstate(divide="ignore"):
        found: Array = ndtri(rates.hits) - ndtri(inner)
    return np.maximum(found, 0.0)
