"""Test the whole privacy profile against exact ones and certificates."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from dp_erm_bench.accounting.certify import certify, delta_at, quick_certificate
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.gaussian import gdp_delta
from dp_erm_bench.releases.objective_gaussian import objective_delta
from tests.privacy.made import law_of

GRID = np.array([0.0, 0.05, 0.1, 0.3, 1.0])
MIXED = [
    ((law_of("gaussian", 10), law_of("laplace", 2, weight=20.0)), 13.0),
    ((law_of("laplace", 10), law_of("bounded_range", 10)), 20.0),
    ((law_of("poisson_gaussian", 10, rate=0.25),), 5.0),
    ((law_of("pure", 10, spread=2.0),), 40.0),
]


def test_gaussian_releases_have_their_exact_profile():
    events = (law_of("gaussian", 4, weight=2.0), law_of("gaussian", 9))
    mu = math.sqrt(4 / 4 + 9) / 7.0
    found = delta_at(events, 7.0, Adjacency.ZERO_OUT, GRID)
    np.testing.assert_allclose(found, [gdp_delta(e, mu) for e in GRID], rtol=1e-12)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("case", MIXED, ids=lambda c: c[0][0].name)
def test_the_profile_and_the_certificate_are_inverse(case, adjacency):
    events, z = case
    deltas = delta_at(events, z, adjacency, GRID)
    assert (np.diff(deltas) < 0.0).all()
    for epsilon, delta in zip(GRID[1:], deltas[1:], strict=True):
        if delta > 1e-9:
            proved = certify(events, z, float(delta), adjacency).epsilon
            assert proved == pytest.approx(epsilon, rel=1e-5)
    assert (deltas > 1e-9).sum() > 2


@pytest.mark.parametrize(
    ("adjacency", "relation", "noise"),
    [
        (Adjacency.ZERO_OUT, dp_accounting.NeighboringRelation.REPLACE_SPECIAL, 1.0),
        (Adjacency.REPLACE_ONE, dp_accounting.NeighboringRelation.REPLACE_ONE, 2.0),
    ],
)
def test_sampled_profiles_agree_with_another_library(adjacency, relation, noise):
    """Its noise is relative to one record's bound, ours to the sensitivity."""
    event = (law_of("poisson_gaussian", 5, rate=0.2),)
    ours = delta_at(event, 2.0, adjacency, GRID)
    accountant = dp_accounting.pld.PLDAccountant(relation)
    gaussian = dp_accounting.GaussianDpEvent(2.0 * noise)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.2, gaussian), 5)
    theirs = [accountant.get_delta(e) for e in GRID]
    np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-9)


def test_laplace_profiles_agree_with_another_library():
    ours = delta_at((law_of("laplace", 8),), 10.0, Adjacency.ZERO_OUT, GRID)
    one = pld.from_laplace_mechanism(10.0, value_discretization_interval=1e-5)
    theirs = one.self_compose(8).get_delta_for_epsilon(GRID.tolist())
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-9)


def test_where_the_lattice_knows_nothing_renyi_proves():
    """Objective perturbation with another release has no privacy-loss law here."""
    one = law_of("objective", 1, curvature=0.01, terms=2)
    both = (one, law_of("gaussian", 1, weight=10.0))
    deltas = delta_at(both, 4.0, Adjacency.REPLACE_ONE, np.array([0.5, 1.0, 2.0]))
    for epsilon, delta in zip((0.5, 1.0, 2.0), deltas, strict=True):
        proved = quick_certificate(both, 4.0, float(delta)).epsilon
        assert proved == pytest.approx(epsilon, rel=1e-6)
    alone = delta_at((one,), 4.0, Adjacency.REPLACE_ONE, np.array([1.0]))
    assert alone[0] == objective_delta(1.0, 4.0, 0.01, 2)
    assert alone[0] < deltas[1]


def test_nothing_is_proved_without_noise_and_nothing_lost_without_releases():
    event = (law_of("laplace", 1),)
    assert delta_at(event, 0.0, Adjacency.ZERO_OUT, GRID).tolist() == [1.0] * 5
    assert delta_at(event, 1e-3, Adjacency.ZERO_OUT, GRID).tolist() == [1.0] * 5
    assert delta_at((), 0.0, Adjacency.ZERO_OUT, GRID).tolist() == [0.0] * 5


def test_a_kind_that_nobody_knows_is_refused():
    with pytest.raises(TypeError, match="no accountant knows"):
        delta_at((law_of("magic", 1),), 1.0, Adjacency.ZERO_OUT, GRID)
