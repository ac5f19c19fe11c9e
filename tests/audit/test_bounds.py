"""Test the binomial confidence bounds and the threshold tests of audits."""

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.audit.profile import (
    RateBounds,
    Threshold,
    at_least,
    at_most,
    candidate_tests,
    epsilon_bound,
    mu_bound,
    profile_excess,
    rate_bounds,
)


@pytest.mark.parametrize("level", [1e-6, 0.01, 0.3])
def test_bounds_are_those_of_clopper_and_pearson(level):
    k = np.arange(51)
    low, high = at_least(k, 50, level), at_most(k, 50, level)
    assert low[0] == 0.0 and high[-1] == 1.0
    np.testing.assert_allclose(stats.binom.sf(k[1:] - 1, 50, low[1:]), level)
    np.testing.assert_allclose(stats.binom.cdf(k[:-1], 50, high[:-1]), level)


@pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.97])
def test_bounds_fail_no_more_often_than_they_say(p):
    k = np.arange(101)
    law = stats.binom.pmf(k, 100, p)
    assert law[at_least(k, 100, 0.05) > p].sum() <= 0.05
    assert law[at_most(k, 100, 0.05) < p].sum() <= 0.05


def test_a_threshold_counts_both_sides():
    first, second = np.array([1.0, 2.0, 3.0, 4.0]), np.array([-1.0, 0.0, 1.0, 2.0])
    tests = [Threshold(1.5, False), Threshold(1.5, True)]
    found = rate_bounds(first, second, tests, 0.1)
    np.testing.assert_allclose(found.hits, [at_least(3, 4, 0.05), at_least(3, 4, 0.05)])
    np.testing.assert_allclose(found.alarms, at_most(np.array([1, 1]), 4, 0.05))


def test_candidates_stand_between_values_and_are_not_too_many():
    found = candidate_tests(np.array([0.0, 1.0, 1.0]), np.array([4.0]))
    assert [t.value for t in found] == [0.5, 2.5] * 2
    assert [t.flipped for t in found] == [False, False, True, True]
    many = candidate_tests(np.arange(5000.0), np.arange(5000.0))
    assert len(many) == 800
    assert candidate_tests(np.ones(3), np.ones(3)) == []


def test_the_excess_is_over_the_smallest_allowance():
    epsilons, deltas = np.array([0.0, 1.0]), np.array([0.5, 0.0])
    found = profile_excess(
        RateBounds(np.array([0.4, 0.9]), np.array([0.1, 0.3])), epsilons, deltas
    )
    np.testing.assert_allclose(found, [0.4 - 0.1 * np.e, 0.9 - 0.8])


def test_lower_bounds_in_closed_form():
    found = RateBounds(np.array([0.5, 0.1, 0.0]), np.array([0.1, 0.5, 0.2]))
    np.testing.assert_allclose(epsilon_bound(found, 0.1), [np.log(4.0), 0.0, 0.0])
    exact = stats.norm.ppf(0.5) - stats.norm.ppf(0.1)
    np.testing.assert_allclose(mu_bound(found), [exact, 0.0, 0.0])
