"""Test releases that take a share of the budget: noise, law and accounting."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.accounting.bounds import pure_epsilon
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import (
    Calibration,
    budget_left,
    calibrate,
    epsilon_spent,
    shared_mechanisms,
    with_shares,
)
from dp_erm_bench.errors import BudgetExhausted, UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import Mechanisms, make_mechanisms
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.l1_laplace import L1Laplace
from tests.loops import each
from tests.privacy.made import law_of

SENSITIVITY = np.array([[1.0, 0.25, 0.0, 8.0]])
BUDGETS = [Budget(e, 1e-6) for e in (0.01, 0.1, 1 / 3, 1.0, 3.7, 10.0)]
GAUSSIAN = (law_of("gaussian", 50),)


def vector(share=0.1, sensitivity=SENSITIVITY):
    return L1Laplace("r", sensitivity, 1, epsilon_share=share)


def mechanism(budget, names=("a",), release=None):
    release = vector() if release is None else release
    return shared_mechanisms((release,), budget, names)[release.name]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_noise_has_the_scale_of_the_formula(epsilon, share):
    made = mechanism(Budget(epsilon, 1e-6), release=vector(share))
    expected = 4 * SENSITIVITY / (share * epsilon)
    np.testing.assert_allclose(made.scale, expected, rtol=1e-14)


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_largest_log_ratio_of_the_densities_is_the_share(budget):
    """sup over outputs of sum_j (|o_j - m_j'| - |o_j - m_j|) / scale_j."""
    change = np.array([[1.0, 0.25, 3.0, 8.0]])
    scale = mechanism(budget, release=vector(0.1, change)).scale
    level = (change / scale).sum()
    assert level == pytest.approx(0.1 * budget.epsilon, rel=1e-14)
    assert epsilon_spent((vector(),), budget) >= level * (1 - 1e-15)
    assert epsilon_spent((vector(),), budget) == pytest.approx(level, rel=1e-14)


def test_draws_follow_the_law_of_the_event():
    made = mechanism(Budget(1.0, 1e-6), names=[str(k) for k in range(4000)])
    zeros = np.zeros((4000, 4))
    noise = made(zeros)
    assert not noise[:, 2].any()
    for j in (0, 1, 3):
        law = stats.laplace(scale=made.scale[0, j])
        assert stats.kstest(noise[:, j], law.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(noise[:, 0], noise[:, 3])[0, 1]) < 0.08
    event = vector().law()
    assert (event.name, event.times, event.weight) == ("laplace", 4, 4.0)


def test_two_entries_are_not_freer_than_their_event_says():
    """The exact delta of two entries that move at once is at most the event's."""
    z, entries = 0.7, 2
    release = vector(sensitivity=np.ones((1, entries)))
    assert pure_epsilon((release.law(),), z) == pytest.approx(1 / z)
    b = z * release.weight
    grid = np.linspace(-40 * b, 40 * b, 4001)
    p, q = (np.exp(-np.abs(grid - m) / b) for m in (0.0, 1.0))
    worst = (np.log(p) - np.log(q)).max() * entries
    assert worst == pytest.approx(1 / z, rel=1e-9)


def test_it_is_counted():
    made = mechanism(Budget(1.0, 1e-6))
    made(np.zeros((1, 4)))
    with pytest.raises(BudgetExhausted, match="r was declared with times=1"):
        made(np.zeros((1, 4)))


def test_draws_belong_to_the_trial():
    both = mechanism(Budget(1.0, 1e-6), ("a", "b"))(np.zeros((2, 4)))
    for b, name in enumerate("ab"):
        alone = mechanism(Budget(1.0, 1e-6), (name,))(np.zeros((1, 4)))
        np.testing.assert_array_equal(both[b], alone[0])
    assert not np.allclose(both[0], both[1])


def test_without_a_budget_there_is_no_noise(monkeypatch):
    monkeypatch.setattr(L1Laplace, "draw", None)
    made = mechanism(Budget("inf", 1e-6))
    values = np.arange(4.0)[None, :]
    np.testing.assert_array_equal(made(values), values)
    assert not made.scale.any()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_a_share_is_a_part(share):
    with pytest.raises(UsageError, match=f"epsilon_share={share}: must be in"):
        vector(share)


@pytest.mark.parametrize("budget", BUDGETS)
def test_shares_and_the_rest_are_the_budget(budget):
    rest = budget_left(budget, (vector(),))
    assert rest.epsilon == pytest.approx(0.9 * budget.epsilon, rel=1e-14)
    assert epsilon_spent((vector(),), budget) + rest.epsilon <= budget.epsilon
    assert (rest.delta, rest.adjacency) == (budget.delta, budget.adjacency)


@each("budget", BUDGETS)
@each("adjacency", Adjacency)
def test_a_certificate_counts_the_share_and_keeps_the_budget(budget, adjacency):
    budget = replace(budget, adjacency=adjacency)
    alone = calibrate(GAUSSIAN, budget_left(budget, (vector(),)))
    both = with_shares(alone, budget, (vector(),))
    assert both.epsilon_certified <= budget.epsilon
    assert both.epsilon_certified == pytest.approx(budget.epsilon, rel=1e-9)
    assert both.epsilon_certified > alone.epsilon_certified
    assert both.z == alone.z > calibrate(GAUSSIAN, budget).z
    assert (both.budget, both.accountant) == (budget, "gdp+pure")


def test_without_shares_nothing_changes():
    budget = Budget(1.0, 1e-6)
    made = calibrate(GAUSSIAN, budget)
    assert budget_left(budget, ()) is budget
    assert with_shares(made, budget, ()) is made


def test_without_a_budget_nothing_is_certified():
    budget = Budget("inf", 1e-6)
    assert budget_left(budget, (vector(),)).epsilon == math.inf
    made = with_shares(calibrate(GAUSSIAN, budget), budget, (vector(),))
    assert made.epsilon_certified == math.inf and made.accountant == "none"


@pytest.mark.parametrize("events", [(), (law_of("laplace", 3),)])
def test_pure_releases_stay_pure(events):
    budget = Budget(1.0, 0.0)
    alone = calibrate(events, budget_left(budget, (vector(),)))
    both = with_shares(alone, budget, (vector(),))
    assert both.accountant == "pure"
    expected = 0.1 if not events else 1.0
    assert both.epsilon_certified == pytest.approx(expected, rel=1e-6)
    assert both.epsilon_certified <= 1.0


def test_a_printed_constant_that_costs_more_is_counted_whole():
    budget = Budget(1.0, 1e-6)
    costly = Calibration(0.1, budget, "gdp", 7.0, "paper (not proved)")
    both = with_shares(costly, budget, (vector(),))
    assert both.epsilon_certified == pytest.approx(7.1)
    assert both.label == "paper (not proved)"


def test_mechanisms_made_later_are_heard_by_an_audit():
    heard = []
    first = shared_mechanisms((vector(),), Budget(1.0, 1e-6), ("a",))
    first.intercept = lambda query, publish: heard.append(query.name) or publish()
    first.include(make_mechanisms([Gaussian("g", 1.0, 1)], 1.0, ("a",)))
    first["g"](np.zeros((1, 3)))
    assert heard == ["g"] and list(first) == ["r", "g"]


def test_two_releases_of_one_name_are_refused():
    first = shared_mechanisms((vector(),), Budget(1.0, 1e-6), ("a",))
    with pytest.raises(ValueError, match="two releases are named r"):
        first.include(make_mechanisms([Gaussian("r", 1.0, 1)], 1.0, ("a",)))
    assert isinstance(first, Mechanisms)
