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
    start: float,
    tolerance: float,
) -> float:
    """Return about the smallest z whose certified epsilon is within a budget.

    A secant search on log z against log epsilon, where accountants are nearly straight
    lines, kept inside a bracket of one refused and one safe z and aimed a little to
    the safe side. It returns a z that was itself evaluated and is safe.

    Parameters
    ----------
    epsilon_at : callable
        Certified epsilon of a z; falls with z, up to rounding. May be infinite.
    epsilon : float
        The budget, positive and finite.
    start : float
        First guess of z.
    tolerance : float
        The epsilon certified ends within [1 - tolerance, 1] times the budget, or z
        within that relative distance of a z that is refused.

    Raises
    ------
    ArithmeticError
        If no z below 1e200 is safe.
    """
    refused, safe, z = 0.0, math.inf, start
    points: list[tuple[float, float]] = []
    while refused < 1e200:
        at = epsilon_at(z)
        points.append((z, at))
        if at <= epsilon:
            safe = z
        else:
            refused = z
        done = at >= epsilon * (1 - tolerance) or safe < 1e-200
        if safe == z and done or safe <= refused * (1 + tolerance):
            return safe
        aim = math.log(epsilon * (1 - tolerance / 2))
        z = next_point(secant(points, aim), refused, safe, len(points) % 7 == 0)
    raise ArithmeticError(f"no noise is certified for epsilon={epsilon}")


def secant(points: list[tuple[float, float]], aim: float) -> float:
    """Return where the line through the last two points meets log epsilon = aim.

    Through a single point goes the line of epsilon = 1/z^2, between the slopes of
    full-batch and of sampled noise. NaN where there is no line.
    """
    usable = [(math.log(z), math.log(e)) for z, e in points if 0 < e < math.inf]
    if not usable:
        return math.nan
    (y, g) = usable[-1]
    (x, f) = usable[-2] if len(usable) > 1 else (y - 1, g + 2)
    if f == g or x == y:
        return math.nan
    return math.exp(max(-600.0, min(600.0, y + (aim - g) * (y - x) / (g - f))))


def next_point(guess: float, refused: float, safe: float, halve: bool) -> float:
    """Return the z to try next: the guess, or where it is of no use a plain step."""
    if refused == 0:
        return guess if 0.1 * safe < guess < safe else 0.7 * safe
    if math.isinf(safe):
        return guess if refused < guess < 10 * refused else 1.4 * refused
    if halve or not refused < guess < safe:
        return refused * math.sqrt(safe / refused)
    return guess
