"""Test the printed noise of greedy selection on coordinates of unequal scale."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.papers.instances import (
    INSTANCES,
    Instance,
    cell_probabilities,
    one_iteration,
    profile_from_below,
    quiet_wins,
    violation_factor,
    violation_table,
)
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from tests.loops import each
from tests.privacy.made import law_of

ONE = INSTANCES[0]


@pytest.mark.parametrize(
    ("instance", "least", "found"),
    [
        (INSTANCES[0], 20.0, 20.384),
        (INSTANCES[1], 1.41, 1.4459),
        (INSTANCES[2], 3.1, 3.851),
    ],
)
def test_the_claim_is_broken(instance, least, found):
    factor = violation_factor(instance)
    assert factor >= least
    assert factor == pytest.approx(found, rel=2e-3)


@pytest.mark.parametrize("instance", INSTANCES)
def test_equal_coordinates_are_safe(instance):
    equal = Instance(1.0, instance.rivals, instance.n_iter, instance.delta)
    assert violation_factor(equal) == 0.0


@pytest.mark.parametrize("instance", INSTANCES[:2])
def test_half_the_sensitivity_is_safe(instance):
    facts = {**vars(instance), "adjacency": "zero_out"}
    assert violation_factor(Instance(**facts)) == 0.0


def test_the_noise_is_the_printed_one():
    assert ONE.z == pytest.approx(4 * math.sqrt(math.log(1e8)))
    twice = Instance(30.0, 20, 1, 1e-8, epsilon=2.0)
    assert twice.z == pytest.approx(ONE.z / 2)


@each("kappa", [1.0, 3.0, 30.0])
@each("lead", [-40.0, -3.0, 0.5, 25.0])
def test_who_wins_against_an_adaptive_quadrature(kappa, lead):
    instance = Instance(kappa, 4, 1, 1e-6)
    z = instance.z
    quiet, loud = stats.laplace(scale=z / kappa), stats.laplace(scale=z)

    def density(x):
        return quiet.pdf(x) * loud.cdf(lead + x) ** 4

    points = sorted({-400.0, -30.0, -1.0, 0.0, 1.0, -lead, 30.0, 400.0})
    expected = sum(
        integrate.quad(density, a, b, epsabs=0, epsrel=1e-10, limit=300)[0]
        for a, b in zip(points, points[1:], strict=False)
    )
    assert quiet_wins(instance, lead) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("lead", [-1.0, 0.5, 4.0])
def test_who_wins_against_the_mechanism_that_runs(lead):
    # The quiet coordinate first, all gradients far from zero, in units of 2 / n.
    instance = Instance(5.0, 3, 1, 1e-3)
    sensitivity = np.array([[1 / 5, 1.0, 1.0, 1.0]])
    uses, names = 10, [f"trial {i}" for i in range(4000)]
    release = InsideNoisyMax("select", sensitivity, uses, spread=5.0)
    mechanism = make_mechanisms([release], instance.z, names)["select"]
    gradient = np.tile([1000 + lead, 1000.0, 1000.0, 1000.0], (len(names), 1))
    won = sum(int((mechanism(gradient, np.abs) == 0).sum()) for _ in range(uses))
    expected = quiet_wins(instance, lead)
    assert stats.binomtest(won, uses * len(names), expected).pvalue > 1e-3


def test_our_certificate_does_not_claim_the_instance():
    radius = np.array([1.0, 1.0, 1.0 / 30])
    M = np.ones(3)
    scores = radius / np.sqrt(M)
    release = InsideNoisyMax("select", radius, 1, spread=scores.max() / scores.min())
    assert release.law().spread == pytest.approx(30.0)
    # The proved level, (1 + kappa) / z, is above what is claimed there: no proof.
    assert release.law().level(ONE.z) > 1.0
    assert (
        calibrate(
            (release.law(), law_of("laplace", 1)),
            Budget(1, 1e-8),
            "paper",
            "mangold2023",
        ).label
        == "paper (not proved)"
    )


def test_equal_competitors_win_equally_often():
    assert quiet_wins(Instance(1.0, 4, 1, 1e-6), 0.0) == pytest.approx(0.2, rel=1e-7)


def test_the_neighbour_is_one_record_away():
    # Every log-ratio is within the level (1 + kappa) / z of the selection and 1 / z.
    one, other = one_iteration(ONE, 0.5)
    assert one.sum() == pytest.approx(1) and other.sum() == pytest.approx(1)
    level = (1 + ONE.kappa) / ONE.z + 1 / ONE.z
    assert np.abs(np.log(one / other)).max() <= level
    moved, still = cell_probabilities(ONE.z)
    assert np.log(moved / still).max() == pytest.approx(1 / ONE.z)
    assert np.log(moved / still).min() == pytest.approx(-1 / ONE.z)


def test_cells_only_lose_a_little():
    fine, coarse = cell_probabilities(5.0, 4000), cell_probabilities(5.0, 60)
    for e in (-0.1, 0.0, 0.1):
        profiles = [np.maximum(p - math.exp(e) * q, 0).sum() for p, q in (fine, coarse)]
        assert profiles[1] <= profiles[0] + 1e-15
        assert profiles[1] == pytest.approx(profiles[0], rel=1e-2)
        exact = -math.expm1((e - 0.2) / 2)
        assert profiles[0] == pytest.approx(exact, rel=1e-4)


def test_two_iterations_are_the_product_of_one():
    once = Instance(100.0, 30, 1, 1e-10)
    twice = INSTANCES[2]
    # The noise of T = 2 on one iteration, and on two.
    one, other = one_iteration(twice, 0.5)
    by_hand = sum(
        np.maximum(p * one - math.e * q * other, 0.0).sum()
        for p, q in zip(one, other, strict=True)
    )
    assert profile_from_below(twice, 0.5) == pytest.approx(by_hand)
    assert once.z < twice.z


def test_the_table_has_a_row_per_instance_and_spread():
    rows = violation_table(INSTANCES[:2], (20.0, 30.0))
    assert [row["kappa"] for row in rows] == [20.0, 30.0] * 2
    assert {row["study"] for row in rows} == {"violation"}
    factors = [row["factor"] for row in rows]
    assert factors[0] < factors[1] and factors[2] < 1 < factors[3]
