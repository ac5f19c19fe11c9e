"""Test the errors in papers and libraries that docs/privacy.md describes."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from dp_erm_bench.accounting.bounds import gdp_epsilon, mu_for
from dp_erm_bench.releases.gaussian import gdp_delta


def minimiser(labels, strength):
    """Minimise sum |w - y_i| + strength |w|: piecewise linear, so at a corner."""
    corners = np.unique(np.append(labels, 0.0))
    values = np.abs(corners[:, None] - labels).sum(axis=1) + strength * np.abs(corners)
    return float(corners[values.argmin()])


def test_without_strong_convexity_a_minimiser_jumps():
    """Claimed for lambda = 50, L = 1: at most 2 L / lambda = .04."""
    n, far, strength = 101, 1e4, 50.0
    labels = np.where(np.arange(n) < 75, far, 0.0)
    other = labels.copy()
    other[75] = far
    moved = abs(minimiser(other, strength) - minimiser(labels, strength))
    assert moved == far > 2e5 * (2.0 / strength)


@pytest.mark.parametrize(
    ("epsilon", "found"), [(0.5, 3.8e-3), (1.0, 8.7e-3), (4.0, 6.2e-2)]
)
def test_the_noise_of_a_utility_proof_is_too_small(epsilon, found):
    """sigma = L R2 sqrt(log(1/delta) + eps) / (lambda eps): half of Delta, no 4."""
    delta = 1e-6
    sigma = math.sqrt(math.log(1 / delta) + epsilon) / epsilon / 2  # Delta = 1
    assert gdp_delta(epsilon, 1 / sigma) == pytest.approx(found, rel=0.02)
    sound = 1 / mu_for(epsilon, delta)
    assert sound > 2 * sigma / 1.1
    assert gdp_delta(epsilon, 1 / sound) <= delta


def test_two_accountants_of_a_library_differ_by_two():
    """z = 10, five uses, delta = 1e-6: 1.995 and 1.014 for the same event."""
    event = SelfComposedDpEvent(GaussianDpEvent(10.0), 5)
    relation = NeighboringRelation.REPLACE_ONE
    pld = PLDAccountant(neighboring_relation=relation)
    rdp = RdpAccountant(neighboring_relation=relation)
    found = [a.compose(event).get_epsilon(1e-6) for a in (pld, rdp)]
    assert found == pytest.approx([1.99453, 1.01417], rel=1e-3)
    once, twice = (gdp_epsilon(c * math.sqrt(5) / 10, 1e-6) for c in (1, 2))
    assert found[0] == pytest.approx(twice, rel=1e-3)
    assert once < found[1] < 1.1 * once
