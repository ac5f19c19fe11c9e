"""The accountant of objective perturbation."""

import math

from dp_erm_bench.accounting.search import smallest_true
from dp_erm_bench.releases.events import Event
from dp_erm_bench.releases.objective_gaussian import objective_delta


def objective_epsilon(
    events: tuple[Event, ...], z: float, delta: float
) -> float | None:
    """Return the epsilon of the profile, None for events that it does not know."""
    facts = objective_facts(events, z)
    if facts is None:
        return None
    if delta <= 0:
        return math.inf
    return smallest_true(lambda epsilon: objective_delta(epsilon, *facts) <= delta)


def objective_facts(
    events: tuple[Event, ...], z: float
) -> tuple[float, float, int, float] | None:
    """Return what :func:`objective_delta` is asked of events, but for epsilon.

    None unless they are one minimiser of a Gaussian objective, and Gaussian releases.
    """
    minimisers = [event for event in events if event.kind == "objective"]
    others = [event for event in events if event.kind == "gaussian"]
    alone = len(minimisers) == 1 and minimisers[0].times == 1
    if not alone or len(others) != len(events) - 1:
        return None
    (one,) = minimisers
    square = math.fsum(event.times / event.multiplier(z) ** 2 for event in others)
    return one.multiplier(z), one.curvature, one.terms, math.sqrt(square)
