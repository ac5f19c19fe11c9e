"""The epsilon of each accountant alone, for all it knows."""

from __future__ import annotations

import math
from collections.abc import Callable

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.certify import gaussian_epsilon, pure_epsilon
from dp_erm_bench.accounting.objective import objective_epsilon
from dp_erm_bench.accounting.pld import pld_epsilon
from dp_erm_bench.accounting.rdp import rdp_epsilon
from dp_erm_bench.accounting.search import smallest_multiplier
from dp_erm_bench.releases.events import Event

Events = tuple[Event, ...]
Epsilon = Callable[[float], float | None]


# rho of one use over the square of its ``strength``.
SHARES = {
    "gaussian": 0.5,
    "laplace": 0.5,
    "norm_laplace": 0.5,
    "pure": 0.5,
    "objective_pure": 0.5,
    "bounded_range": 0.125,
}


def strength(event: Event, z: float) -> float:
    """Return 1 / z of Gaussian noise, else the pure level."""
    return 1 / event.multiplier(z) if event.kind == "gaussian" else event.level(z)


def zcdp_epsilon(events: Events, z: float, delta: float) -> float | None:
    """Return the closed form of concentrated privacy, None if one has none.

    rho is 1 / (2 z^2) for Gaussian noise, eta^2 / 2 for a pure level eta and eta^2 / 8
    for a bounded range; epsilon = rho + 2 sqrt(rho log(1 / delta)) (Bun and
    Steinke, "Concentrated differential privacy", TCC 2016; Cesar and Rogers, ALT 2021).
    """
    total = 0.0
    for event in events:
        if event.kind not in SHARES:
            return None
        total += event.times * SHARES[event.kind] * strength(event, z) ** 2
    return total + 2 * math.sqrt(-total * math.log(delta))


def renyi_epsilon(
    events: Events, z: float, delta: float, zero_out: bool
) -> float | None:
    """Return the epsilon by Renyi accounting; samples by dp_accounting, if zero-out."""
    if all(event.kind != "poisson_gaussian" for event in events):
        return rdp_epsilon(events, z, delta)
    normal = all("gaussian" in event.kind for event in events)
    if not (zero_out and normal):
        return None
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    for event in events:
        step = GaussianDpEvent(event.multiplier(z))
        if event.kind == "poisson_gaussian":
            step = PoissonSampledDpEvent(event.rate, step)
        accountant.compose(step, event.times)
    return float(accountant.get_epsilon(delta))


def accountants(events: Events, budget: Budget) -> dict[str, tuple[Epsilon, str]]:
    """Return each accountant's epsilon of z, and when it has none."""
    delta, adjacency = budget.number, budget.adjacency
    zero_out = adjacency.of_sum(1.0) == 1.0
    return {
        "zcdp": (
            lambda z: zcdp_epsilon(events, z, delta),
            "no closed form is known for samples and objectives",
        ),
        "rdp": (
            lambda z: renyi_epsilon(events, z, delta, zero_out),
            "samples with a replaced record are not offered",
        ),
        "pld": (lambda z: pld_epsilon(events, z, delta, adjacency), "unknown noise"),
        "pure": (lambda z: pure_epsilon(events, z), "Gaussian noise"),
        "profile": (
            lambda z: objective_epsilon(events, z, delta),
            "known for one perturbed objective with Gaussian noise beside it",
        ),
        "exact": (
            lambda z: gaussian_epsilon(events, z, delta),
            "known for Gaussian noise only",
        ),
    }


def multiplier(epsilon_at: Epsilon, epsilon: float, start: float) -> float | None:
    """Return the z that an accountant asks for, None if it has no answer."""
    if epsilon_at(start) is None:
        return None

    def known(z: float) -> float:
        found = epsilon_at(z)
        assert found is not None
        return found

    return smallest_multiplier(known, epsilon, start, 1e-5)
