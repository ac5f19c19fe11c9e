"""Test the profile test: few false alarms, and detection of wrong guarantees."""

import dataclasses

import numpy as np
import pytest

from dp_erm_bench.accounting.bounds import gdp_epsilon, mu_for
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.certify import certify
from dp_erm_bench.audit.pairs import audited_solver, worst_pair
from dp_erm_bench.audit.profile import (
    OK,
    VIOLATION,
    Guarantee,
    candidate_tests,
    guarantee_of,
    profile_excess,
    rate_bounds,
    verdict,
)
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from tests.privacy.made import law_of

DELTA = 1e-6


def gaussian_guarantee(epsilon):
    budget = Budget(epsilon, DELTA)
    events, z = (law_of("gaussian", 1),), 1 / mu_for(epsilon, DELTA)
    return Guarantee(budget, z, {}, events, epsilon)


def samples(mu, runs, seed):
    """Log-likelihood ratios of N(mu, 1) against N(0, 1)."""
    noise = np.random.default_rng(seed).normal(size=(2, runs))
    return mu * (noise[0] + mu / 2), mu * (noise[1] - mu / 2)


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_false_alarms_are_as_rare_as_stated_where_the_claim_is_tight(epsilon):
    guarantee, mu = gaussian_guarantee(epsilon), mu_for(epsilon, DELTA)
    found = [verdict(*samples(mu, 400, seed), guarantee, 0.2) for seed in range(150)]
    alarms = sum(v.verdict == VIOLATION for v in found)
    # Binomial(150, .2): above 45 with probability 2e-3, and the test is conservative.
    assert alarms <= 45
    above = sum(v.lower_bound > epsilon for v in found)
    shaped = sum(v.gaussian > epsilon for v in found)
    assert above <= 45 and shaped <= 45


def test_choosing_on_the_runs_that_are_judged_would_be_wrong():
    """Why half of the runs are set aside: the same test without it alarms at chance."""
    guarantee, mu = gaussian_guarantee(1.0), mu_for(1.0, DELTA)
    epsilons, deltas = guarantee.profile
    alarms = 0
    for seed in range(60):
        pair = samples(mu, 400, seed)
        bounds = rate_bounds(*pair, candidate_tests(*pair), 1.0)
        alarms += bool((profile_excess(bounds, epsilons, deltas) > 0.0).any())
    assert alarms > 50


@pytest.mark.parametrize(("factor", "runs"), [(2.0, 8000), (10.0, 400)])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_less_noise_than_claimed_is_refuted(epsilon, factor, runs):
    mu = factor * mu_for(epsilon, DELTA)
    found = verdict(*samples(mu, runs, 0), gaussian_guarantee(epsilon))
    assert found.verdict == VIOLATION and found.excess > 0.0
    assert epsilon < found.gaussian < gdp_epsilon(mu, DELTA)


def test_the_profile_test_sees_what_the_classic_bound_does_not():
    mu = 2.0 * mu_for(1.0, DELTA)
    found = verdict(*samples(mu, 20_000, 0), gaussian_guarantee(1.0))
    assert found.verdict == VIOLATION and found.lower_bound < 1.0


def test_a_verdict_states_what_was_claimed_and_how_sure_it_is():
    found = verdict(*samples(0.0, 300, 0), gaussian_guarantee(1.0), 1e-3)
    assert (found.epsilon, found.delta, found.runs) == (1.0, DELTA, 300)
    assert found.confidence == 1.0 - 1e-3 and found.verdict == OK
    assert found.lower_bound == found.gaussian == 0.0 > found.excess


def test_runs_that_are_all_alike_refute_nothing():
    found = verdict(np.zeros(100), np.zeros(100), gaussian_guarantee(1.0))
    assert found.verdict == OK and found.lower_bound == 0.0


def test_leaks_on_every_run_refute_everything():
    found = verdict(np.full(100, 1e9), np.full(100, -1e9), gaussian_guarantee(1.0))
    assert found.verdict == VIOLATION


@pytest.mark.parametrize("algorithm", ["greedy_cd", "random_cd", "sgd", "svrg"])
def test_claims_are_calibrated_as_runs_are(algorithm):
    solver = audited_solver(algorithm, {"n_iter": 4})
    problem = worst_pair(solver, Adjacency.ZERO_OUT).first
    guarantee = guarantee_of(solver, problem, Budget(2.0, "1/n^2", "zero_out"))
    assert guarantee.budget.number == problem.n**-2.0
    assert 2.0 * (1 - 1e-4) < guarantee.epsilon <= 2.0
    proof = certify(
        guarantee.laws, guarantee.z, guarantee.budget.number, Adjacency.ZERO_OUT
    )
    assert proof.epsilon == pytest.approx(guarantee.epsilon, rel=1e-9)
    epsilons, deltas = guarantee.profile
    assert deltas[epsilons >= 2.0].max() <= guarantee.budget.number
    assert guarantee.profile[1] is deltas


def test_the_share_of_private_constants_is_a_part_of_the_guarantee():
    plain, private = (
        audited_solver("random_cd", {"n_iter": 4, "smoothness": kind})
        for kind in ("public", "private")
    )
    problem = worst_pair(plain, Adjacency.ZERO_OUT).first
    budget = Budget(2.0, DELTA, "zero_out")
    guarantees = [guarantee_of(solver, problem, budget) for solver in (plain, private)]
    assert guarantees[1].z > guarantees[0].z and len(guarantees[1].laws) == 2
    both = certify(guarantees[1].laws, guarantees[1].z, DELTA, Adjacency.ZERO_OUT)
    # Composing at once proves no more than adding up.
    assert both.epsilon <= guarantees[1].epsilon <= 2.0


def test_budgets_without_noise_and_releases_without_bound_are_refused():
    solver = audited_solver("random_cd", {"n_iter": 4})
    problem = worst_pair(solver, Adjacency.ZERO_OUT).first
    with pytest.raises(UsageError, match="epsilon=inf"):
        guarantee_of(solver, problem, Budget("inf", DELTA))
    free = dataclasses.replace(problem.dataset, bounds=None)
    unbounded = dataclasses.replace(problem, dataset=free)
    with pytest.raises((Unsupported, UsageError)):
        guarantee_of(solver, unbounded, Budget(1.0, DELTA))


def test_no_shape_is_read_into_a_few_bounded_losses():
    """One pure release has a profile of steps: rates of a Gaussian mean nothing."""
    for kind, times, shaped in (
        ("norm_laplace", 1, False),
        ("laplace", 4, False),
        ("laplace", 20, True),
        ("gaussian", 1, True),
        ("poisson_gaussian", 1, True),
    ):
        rate = {"rate": 0.5} if kind == "poisson_gaussian" else {}
        laws = (law_of(kind, times, **rate),)
        guarantee = dataclasses.replace(gaussian_guarantee(1.0), laws=laws)
        assert guarantee.bell_shaped == shaped
        first, second = samples(1.0, 400, 0)
        assert np.isnan(verdict(first, second, guarantee).gaussian) != shaped
