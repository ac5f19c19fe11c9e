"""Roots of monotone functions, always left on the safe side."""

import math
from collections.abc import Callable


def smallest_true(holds: Callable[[float], bool]) -> float:
    """Return the smallest positive number at which a monotone predicate holds.

    Parameters
    ----------
    holds : callable
        False below some positive number, true above it.

    Returns
    -------
    float
        A number at which it holds, within a few units in the last place of the
        smallest one; infinity if it holds nowhere, about 1e-300 if everywhere.
    """
    high = 1.0
    while not holds(high):
        high *= 16.0
        if math.isinf(high):
            return math.inf
    low = high / 16
    while low > 1e-300 and holds(low):
        high, low = low, low / 16
    while high - low > 4e-16 * high:
        middle = low + (high - low) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def smallest_multiplier(
    epsilon_at: Callable[[float], float],
    epsilon: float,
    safe: float,
    tolerance: float,
) -> float:
    """Return about the smallest z whose certified epsilon is within a budget.

    The search runs on log z against log epsilon, where accountants are nearly
    straight lines: false position, aimed a little to the safe side, with a bisection
    whenever it stalls. It stops at a z that was itself evaluated and is safe.

    Parameters
    ----------
    epsilon_at : callable
        Certified epsilon of a z; falls with z, up to rounding. May be infinite.
    epsilon : float
        The budget, positive and finite.
    safe : float
        First guess of z.
    tolerance : float
        The epsilon certified ends within [1 - tolerance, 1] times the budget, or z
        within that relative distance of a z that is refused.
    """
    at = epsilon_at(safe)
    if at <= epsilon:
        low, low_at = safe, at
        while low_at <= epsilon:
            safe, at = low, low_at
            if at >= epsilon * (1 - tolerance) or low < 1e-200:
                return safe
            low = step_down(safe, at, epsilon)
            low_at = epsilon_at(low)
    else:
        while at > epsilon:
            low, low_at = safe, at
            safe = step_up(low, low_at, epsilon)
            at = epsilon_at(safe)
    return refined(epsilon_at, epsilon, (low, low_at), (safe, at), tolerance)


def step_down(z: float, at: float, epsilon: float) -> float:
    """Return a smaller z, somewhat beyond the goal if epsilon goes like 1/z."""
    return z * min(0.97, max(0.1, (at / epsilon) ** 0.8 * 0.99))


def step_up(z: float, at: float, epsilon: float) -> float:
    """Return a larger z, somewhat beyond the goal if epsilon goes like 1/z."""
    return z * (10.0 if math.isinf(at) else min(10.0, (at / epsilon) ** 1.2 * 1.01))


def refined(
    epsilon_at: Callable[[float], float],
    epsilon: float,
    low: tuple[float, float],
    safe: tuple[float, float],
    tolerance: float,
) -> float:
    """Shrink a bracket (z, epsilon) refused .. safe as ``smallest_multiplier``."""
    stalled = 0
    while safe[1] < epsilon * (1 - tolerance) and safe[0] > low[0] * (1 + tolerance):
        bend = math.log(low[1] / epsilon) if math.isfinite(low[1]) else 0.0
        part = 0.5
        if stalled < 2 and bend > 0 and safe[1] > 0:
            aim = epsilon * (1 - tolerance / 2)
            part = math.log(low[1] / aim) / math.log(low[1] / safe[1])
        z = low[0] * (safe[0] / low[0]) ** min(max(part, 1e-6), 1 - 1e-6)
        at = epsilon_at(z)
        side = at <= epsilon
        stalled = stalled + 1 if (z > (low[0] * safe[0]) ** 0.5) != side else 0
        low, safe = (low, (z, at)) if side else ((z, at), safe)
    return safe[0]
