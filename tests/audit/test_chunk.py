"""Test that audit runs are repeatable and independent, in chunks of any size."""

import dataclasses

import numpy as np
import pytest

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit import statistic
from dp_erm_bench.audit.pairs import variants
from dp_erm_bench.audit.statistic import attack_on, named_attack
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.random_cd import RandomCD

BUDGET = Budget(8.0, 1e-6)


def some(runs=60, identity="a", side=0, algorithm="random_cd", adjacency="zero_out"):
    params = variants(algorithm)[0]
    budget = dataclasses.replace(BUDGET, adjacency=adjacency)
    return named_attack(algorithm, params, budget).run(side, runs, identity)


def test_a_chunk_is_repeatable_and_no_two_runs_or_chunks_share_noise():
    first = some()
    np.testing.assert_array_equal(first, some())
    assert first.shape == (60,) and np.unique(first).size == 60
    assert np.intersect1d(first, some(identity="b")).size == 0
    assert np.intersect1d(first, some(side=1)).size == 0
    assert some(runs=0).shape == (0,)


@pytest.mark.parametrize("algorithm", ["greedy_cd", "random_cd", "sgd", "svrg"])
def test_a_run_does_not_depend_on_its_company(algorithm, monkeypatch):
    whole = some(20, algorithm=algorithm)
    np.testing.assert_array_equal(some(5, algorithm=algorithm), whole[:5])
    monkeypatch.setattr(statistic, "BATCH", 7)
    np.testing.assert_array_equal(some(20, algorithm=algorithm), whole)


def test_the_relation_given_is_the_one_that_counts():
    attack = named_attack("sgd", {"n_iter": 2}, Budget(8.0, 1e-6, "zero_out"))
    assert attack.guarantee.budget.adjacency is Adjacency.ZERO_OUT
    assert not attack.pair.second.dataset.X.any()
    again = Budget(8.0, 1e-6, Adjacency.ZERO_OUT)
    assert named_attack("sgd", {"n_iter": 2}, again) is attack


def test_statistics_are_rounded_and_of_the_log_ratio_of_normals():
    """T releases at z: S is N(mu^2 / 2, mu^2) with mu = sqrt(T) / z."""
    attack = attack_on(RandomCD(n_iter=10, step=1e-9), BUDGET)
    first, second = (attack.run(side, 4000, "law") for side in (0, 1))
    np.testing.assert_array_equal(first, np.round(first, statistic.DIGITS))
    mu = np.sqrt(10.0) / attack.guarantee.z
    for sample, centre in ((first, mu**2 / 2), (second, -(mu**2) / 2)):
        assert sample.mean() == pytest.approx(centre, abs=5 * mu / np.sqrt(4000))
        assert sample.std() == pytest.approx(mu, rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["greedy_cd", "sgd", "svrg"])
def test_likelihood_ratios_change_the_measure(algorithm):
    """E_P[1 / (1 + e^S)] = E_Q[1 / (1 + e^-S)], whatever the releases are."""
    for params in variants(algorithm):
        attack = named_attack(algorithm, params, Budget(8.0, 1e-6, "zero_out"))
        first, second = (attack.run(side, 1500, "measure") for side in (0, 1))
        here, there = 1 / (1 + np.exp(first)), 1 / (1 + np.exp(-second))
        deviation = np.hypot(here.std(), there.std()) / np.sqrt(1500)
        assert abs(here.mean() - there.mean()) < 5 * deviation, params
