"""The epsilon of each accountant alone, for all it knows."""

from __future__ import annotations

from collections.abc import Callable

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.certify import (
    Laws,
    gaussian_epsilon,
    profile_epsilon,
    pure_epsilon,
)
from dp_erm_bench.accounting.pld import pld_epsilon
from dp_erm_bench.accounting.rdp import library_epsilon, rdp_epsilon, zcdp_epsilon
from dp_erm_bench.accounting.search import smallest_multiplier

Epsilon = Callable[[float], float | None]


def renyi_epsilon(laws: Laws, z: float, delta: float, zero_out: bool) -> float | None:
    """Return the epsilon by Renyi accounting; samples by dp_accounting, if zero-out."""
    if not any(law.sampled for law in laws):
        return rdp_epsilon(laws, z, delta)
    if not (zero_out and all(law.normal for law in laws)):
        return None
    return library_epsilon(laws, z, delta)


def accountants(laws: Laws, budget: Budget) -> dict[str, tuple[Epsilon, str]]:
    """Return each accountant's epsilon of z, and when it has none."""
    delta, adjacency = budget.number, budget.adjacency
    zero_out = adjacency.of_sum(1.0) == 1.0
    return {
        "zcdp": (
            lambda z: zcdp_epsilon(laws, z, delta),
            "no closed form is known for samples and objectives",
        ),
        "rdp": (
            lambda z: renyi_epsilon(laws, z, delta, zero_out),
            "samples with a replaced record are not offered",
        ),
        "pld": (lambda z: pld_epsilon(laws, z, delta, adjacency), "unknown noise"),
        "pure": (lambda z: pure_epsilon(laws, z), "Gaussian noise"),
        "profile": (
            lambda z: profile_epsilon(laws, z, delta),
            "known for one perturbed objective with Gaussian noise beside it",
        ),
        "exact": (
            lambda z: gaussian_epsilon(laws, z, delta),
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
