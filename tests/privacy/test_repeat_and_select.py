"""Test the best of a secret number of runs: law, draws, and secrecy."""

import math

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.accounting.bounds import default_orders
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import certify, delta_at
from dp_erm_bench.errors import BudgetExhausted, Unsupported, UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.repeat_and_select import (
    RepeatAndSelect,
    RepeatAndSelectLaw,
    Runs,
)
from dp_erm_bench.trust.recount import listen_to_run, recount
from tests.loops import each

ONE = Budget(1.0, 1e-6)
RUN = (Gaussian("number", 2.0, 3, 0.5), Laplace("score", 0.01, 1, 4.0))
Y = np.linspace(-60.0, 60.0, 240_001)


def release_of(gamma=0.2, run=RUN):
    return RepeatAndSelect("best", 1.0, 1, gamma=gamma, run=run)


def made(z, name="a", **how):
    return make_mechanisms([release_of(**how)], z, [name])["best"]


class Once:
    """Three numbers and a score, all of nothing."""

    def attempt(self, oracle, mechanisms, schedule):
        numbers = [mechanisms["number"](np.zeros((1, 1))) for _ in range(3)]
        return numbers[-1], float(mechanisms["score"](np.zeros(1))[0])


class Scored(Once):
    """The score alone."""

    def attempt(self, oracle, mechanisms, schedule):
        score = mechanisms["score"](np.zeros(1))
        return score[:, None], float(score[0])


class Silent(Once):
    """Nothing, of scores that are given."""

    def __init__(self, scores=()):
        self.scores = iter(scores)

    def __deepcopy__(self, memo):
        return self  # else each run would begin with the first score

    def attempt(self, oracle, mechanisms, schedule):
        score = next(self.scores, 0.0)
        return np.full((1, 1), score), score


def best_of(mechanism, run=None):
    """What is published, and the runs behind it."""
    mechanism.audit = Runs()
    return mechanism((run or Once()).attempt), mechanism.audit


def numbers_of_runs(gamma, count):
    found = []
    for i in range(count):
        _, runs = best_of(made(0.0, f"trial {i}", gamma=gamma), Silent())
        found.append(len(runs.made))
    return np.array(found)


@pytest.mark.parametrize("gamma", [0.1, 0.6, 1.0])
def test_the_number_of_runs_is_geometric(gamma):
    found = numbers_of_runs(gamma, 1500)
    few = np.minimum(found, 12)
    expected = stats.geom.pmf(np.arange(1, 13), gamma)
    expected[-1] = 1 - expected[:-1].sum()
    kept = expected > 1e-9
    counts = np.bincount(few, minlength=13)[1:]
    assert counts[~kept].sum() == 0
    if kept.sum() > 1:
        chances = counts[kept], expected[kept] * found.size
        assert stats.chisquare(*chances).pvalue > 1e-3


def test_the_number_of_runs_is_cut_where_it_is_declared():
    release = release_of(0.2)
    assert release.most * math.log1p(-0.2) < -1000
    mechanism = release.mechanism(release, 0.0, ["a"])
    mechanism._is_last = lambda number: False
    _, runs = best_of(mechanism, Silent())
    assert len(runs.made) == release.most == 5000


@pytest.mark.parametrize(
    "scores, place",
    [((2.0, math.inf, 1.0, 1.0, 3.0), 2), ((math.nan, 7.0), 1), ((math.inf,) * 2, 0)],
)
def test_the_least_score_wins_and_the_first_of_equals(scores, place):
    mechanism = made(0.0)
    mechanism._is_last = lambda number: number + 1 == len(scores)
    found, runs = best_of(mechanism, Silent(scores))
    assert found.item() == scores[place] and runs.winner == place
    with pytest.raises(BudgetExhausted):
        mechanism(Once().attempt)


def test_runs_share_no_draw_and_repeat():
    heard = [best_of(made(1.0, gamma=0.05))[1] for _ in range(2)]
    numbers = [(*np.ravel(one.outputs), *one.scores) for one in heard]
    assert numbers[0] == numbers[1] and len(heard[0].made) > 3
    assert len(set(numbers[0])) == 2 * len(heard[0].made)


@each("gamma", [0.02, 0.1, 0.5, 0.9])
@each("z", [0.5, 5.0, 60.0])
def test_the_law_is_the_library_s(gamma, z):
    from dp_accounting import GaussianDpEvent, LaplaceDpEvent, SelfComposedDpEvent
    from dp_accounting.dp_event import ComposedDpEvent, RepeatAndSelectDpEvent
    from dp_accounting.rdp import RdpAccountant

    orders = default_orders()
    gaussian = SelfComposedDpEvent(GaussianDpEvent(z / 2), 3)
    run = ComposedDpEvent([gaussian, LaplaceDpEvent(4 * z)])
    library = RdpAccountant(orders)
    library.compose(RepeatAndSelectDpEvent(run, 1 / gamma, 1.0))
    law = release_of(gamma).law()
    found = law.rdp(z, orders)
    again = np.minimum.accumulate(found[::-1])[::-1]
    np.testing.assert_allclose(library._rdp, again, rtol=1e-9)
    epsilon = certify((law,), z, 1e-6, Adjacency.REPLACE_ONE).epsilon
    assert library.get_epsilon(1e-6) == pytest.approx(epsilon, rel=1e-9)


def best_density(law, gamma):
    """The density of the least of K numbers: p f'(x)."""
    return law.pdf(Y) * gamma / (gamma + (1 - gamma) * law.cdf(Y)) ** 2


def exact_delta(one, other, epsilon):
    return np.maximum(one - math.exp(epsilon) * other, 0.0).sum() * (Y[1] - Y[0])


SCORES = {
    "laplace": (Laplace, stats.laplace),
    "gaussian": (Gaussian, stats.norm),
}


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("gamma", [0.05, 0.3])
@pytest.mark.parametrize("z", [1.0, 3.0])
def test_the_best_of_noisy_numbers_is_within_its_certificate(kind, gamma, z):
    """The output is the score: its law is known in closed form."""
    release, law = SCORES[kind]
    sides = [best_density(law(at, z), gamma) for at in (0.0, 1.0)]
    assert sides[0].sum() * (Y[1] - Y[0]) == pytest.approx(1.0, abs=1e-6)
    claimed = (release_of(gamma, (release("score", 1.0, 1),)).law(),)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        most = delta_at(claimed, z, Adjacency.REPLACE_ONE, np.array([epsilon]))[0]
        for one, other in (sides, sides[::-1]):
            assert exact_delta(one, other, epsilon) <= most * (1 + 1e-9)


def test_draws_have_the_law_in_closed_form():
    gamma, z = 0.25, 2.0
    scores = (Laplace("score", 1.0, 1),)
    found = []
    for i in range(1500):
        best = made(z, f"trial {i}", gamma=gamma, run=scores)
        found.append(best(Scored().attempt).item())
    below = stats.laplace(0.0, z).cdf

    def best(y):
        # The best is above y if all K runs are: E x^K.
        x = 1 - below(y)
        return 1 - gamma * x / (1 - (1 - gamma) * x)

    assert stats.kstest(found, best).pvalue > 1e-3


RARE = 0.1, 0.2
"""The probability of a good run on D and D', a level of log 2."""


def chances(gamma, published):
    """Exact laws of the best of K coins on both sides; with K if it is published."""
    k = np.arange(1, 4000)
    runs = gamma * (1 - gamma) ** (k - 1)
    sides = []
    for p in RARE:
        bad = runs * (1 - p) ** k
        parts = (bad, runs - bad) if published else ([bad.sum()], [1 - bad.sum()])
        sides.append(np.concatenate(parts))
    return sides


def profile(one, other, epsilon):
    return float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())


@pytest.mark.parametrize("gamma", [0.02, 0.05])
def test_a_published_k_exceeds_what_hidden_k_gives(gamma):
    """A run tells good from bad, at level log 2; only K is secret besides.

    The certificate is not reached: compared is the level of all that hides K.
    """
    level = math.log(2)
    claimed = (release_of(gamma, (Laplace("score", 1.0, 1),)).law(),)
    epsilon = certify(claimed, 1 / level, 0.01, Adjacency.REPLACE_ONE).epsilon
    hidden, told = chances(gamma, False), chances(gamma, True)
    for one, other in (hidden, hidden[::-1]):
        assert profile(one, other, epsilon) <= 0.01
    # Of a level of 3 log 2, as any geometric number of pure runs.
    assert profile(*hidden, 3 * level) == 0.0 < 1e-3 < profile(*told, 3 * level)


@pytest.mark.parametrize("gamma", [0.05, 0.3])
def test_one_run_for_all_is_refuted(gamma):
    """K runs that are charged as one: the exact law is beyond the claim."""
    sides, one = [best_density(stats.norm(at, 1.0), gamma) for at in (0, 1)], 1e-3
    alone = (Gaussian("score", 1.0, 1).law(),)
    epsilon = certify(alone, 1.0, one, Adjacency.REPLACE_ONE).epsilon
    deltas = [exact_delta(a, b, epsilon) for a, b in (sides, sides[::-1])]
    assert max(deltas) > 1.5 * one


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_run_is_recounted(adjacency):
    release, budget = release_of(), Budget(1.0, 1e-6, adjacency)
    calibration = calibrate((release.law(),), budget)
    mechanisms = make_mechanisms([release], calibration.z, ["b"])
    witnesses = listen_to_run(mechanisms)
    mechanisms["best"](Once().attempt)
    counted = recount(mechanisms, calibration, witnesses=witnesses)
    assert not counted.complaint(calibration)


def half_of_the_scale(mechanism):
    mechanism.scale = mechanism.scale / 2


def half_in_the_runs(mechanism):
    kept = mechanism.listen

    def listen(mechanisms):
        kept(mechanisms)
        mechanisms["number"].scale = mechanisms["number"].scale / 2

    mechanism.listen = listen


def a_use_too_many(mechanism):
    kept = mechanism.listen

    def listen(mechanisms):
        kept(mechanisms)
        mechanisms["number"].used = 1

    mechanism.listen = listen


@pytest.mark.parametrize("fault", [half_of_the_scale, half_in_the_runs, a_use_too_many])
def test_faults_in_the_runs_are_recounted(fault):
    calibration = calibrate((release_of().law(),), ONE)
    larger = RUN[0].__class__("number", 2.0, 4, 0.5)
    mechanisms = make_mechanisms([release_of(run=(larger, RUN[1]))], calibration.z, "a")
    fault(mechanisms["best"])
    best_of(mechanisms["best"])
    counted = recount(mechanisms, calibration, {"best": release_of()})
    assert counted.complaint(calibration).startswith("epsilon")


def test_sensitivities_are_those_of_the_claim():
    """Runs whose mechanisms are made with half of the sensitivity."""
    calibration = calibrate((release_of().law(),), ONE)
    less = Gaussian("number", 1.0, 3, 0.5)
    mechanisms = make_mechanisms([release_of(run=(less, RUN[1]))], calibration.z, "a")
    best_of(mechanisms["best"])
    assert not recount(mechanisms, calibration).complaint(calibration)
    counted = recount(mechanisms, calibration, {"best": release_of()})
    assert counted.complaint(calibration).startswith("epsilon")


def test_what_is_refused():
    with pytest.raises(UsageError, match=r"gamma=1.5: must be in \(0, 1\]"):
        release_of(1.5)
    with pytest.raises(UsageError, match="pick of a run is a NoisyMax: must be one of"):
        release_of(run=(NoisyMax("pick", 1.0, 1),))
    with pytest.raises(UsageError, match="best of a run is a RepeatAndSelect"):
        release_of(run=(release_of(),))
    with pytest.raises(Unsupported, match="delta=0: must be positive"):
        calibrate((release_of().law(),), Budget(1.0, 0.0))
    with pytest.raises(ValueError, match="one trial at a time"):
        make_mechanisms([release_of()], 1.0, ["a", "b"])
    assert RepeatAndSelectLaw(1, 1.0, 0.5, ()).rdp(1.0, np.array([2.0]))[0] > 0
