"""Test each log-ratio of answers against the law that the mechanism draws from."""

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.releases.base import Release, make_mechanisms
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.l1_laplace import L1Laplace, L1Mechanism
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.laplace_noisy_max import LaplaceNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.trust.twins.base import Answered, NoTwin, required_twin
from tests.privacy.made import release_of

RUNS = 20_000
NAMES = [f"run {i}" for i in range(RUNS)]
FIRST, SECOND = np.array([0.5, -0.2, 0.1]), np.array([-0.3, 0.4, 0.1])


def log_ratio(release, use):
    return required_twin(release).log_ratio(release, use)


def use(answer, first, second, scale):
    rows = len(np.atleast_1d(answer))
    pair = (np.tile(np.atleast_1d(v), (rows, 1)) for v in (first, second))
    return Answered(np.asarray(answer), *pair, np.atleast_2d(scale))


def changed_measure(release, answers, scale):
    """E_P[e^-S f] = E_Q[f] for f = 1 and f = e^-S / (1 + e^-S)."""
    s, t = (log_ratio(release, use(a, FIRST, SECOND, scale)) for a in answers)
    one = np.exp(-s)
    assert one.mean() == pytest.approx(1.0, abs=5 * one.std() / np.sqrt(RUNS))
    here, there = one * np.exp(-s) / (1 + np.exp(-s)), 1 / (1 + np.exp(t))
    deviation = np.hypot(here.std(), there.std()) / np.sqrt(RUNS)
    assert here.mean() == pytest.approx(there.mean(), abs=5 * deviation)
    assert s.mean() > 3 * s.std() / np.sqrt(RUNS)


@pytest.mark.parametrize("kind", [NoisyMax, LaplaceNoisyMax])
def test_selections(kind):
    release = release_of(kind, "r", 1.0, 1)
    answers = []
    for scores in (FIRST, SECOND):
        mechanism = make_mechanisms([release], 1.0, NAMES)["r"]
        answers.append(mechanism(np.tile(scores, (RUNS, 1)), lambda g: g))
    changed_measure(release, answers, 1.0)


def test_selections_with_the_noise_inside():
    release = InsideNoisyMax("r", np.array([[1.0, 2.0, 0.5]]), 1, spread=1.0)
    declared = np.array([1.0, 2.0, 0.5])
    answers = []
    for g in (FIRST, SECOND):
        mechanism = make_mechanisms([release], 1.0, NAMES)["r"]
        rows = np.tile((g + 1.0) * declared, (RUNS, 1))
        answers.append(mechanism(rows, lambda g: np.abs(g) / declared))
    s, t = (
        log_ratio(
            release,
            use(a, (FIRST + 1.0) * declared, (SECOND + 1.0) * declared, declared),
        )
        for a in answers
    )
    assert np.exp(-s).mean() == pytest.approx(1.0, abs=0.02)
    assert np.exp(t).mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("kind", [Gaussian, NormLaplace])
def test_vectors_with_noise_of_one_scale(kind):
    release = release_of(kind, "r", 1.0, 1)
    answers = []
    for v in (FIRST, SECOND):
        mechanism = make_mechanisms([release], 2.0, NAMES)["r"]
        answers.append(mechanism(np.tile(v, (RUNS, 1))))
    changed_measure(release, answers, 2.0)


def test_vectors_with_laplace_noise_of_a_scale_per_entry():
    release = L1Laplace("r", np.array([[1.0, 2.0, 0.0]]), 1)
    scale = 0.7 * release.weight * np.array([1.0, 2.0, 0.0])
    answers = []
    for v in (FIRST, SECOND):
        mechanism = L1Mechanism(release, 0.7, NAMES)
        answers.append(mechanism(np.tile(v, (RUNS, 1))))
    changed_measure(release, answers, scale)


def test_numbers_with_laplace_noise_in_closed_form():
    answers = np.array([-3.0, 0.2, 5.0])
    found = log_ratio(Laplace("r", 1.0, 1), use(answers, 0.4, -0.4, 0.5))
    first, second = (stats.laplace(v, 0.5).logpdf(answers) for v in (0.4, -0.4))
    np.testing.assert_allclose(found, first - second)


@pytest.mark.parametrize("rate", [0.05, 0.5, 1.0])
def test_the_mixture_over_the_coin_in_closed_form(rate):
    answers = np.array([[-3.0, 1.0], [0.2, 0.1], [5.0, -4.0]])
    release = PoissonGaussian("r", 1.0, 1, rate=rate)
    found = log_ratio(release, use(answers, [1.0, 0.5], [-1.0, 0.0], 0.8))

    def mixed(v):
        laws = [stats.multivariate_normal(c, 0.64 * np.eye(2)) for c in (v, [0, 0])]
        inside, outside = (law.pdf(answers) for law in laws)
        return np.log(rate * inside + (1 - rate) * outside)

    np.testing.assert_allclose(found, mixed([1.0, 0.5]) - mixed([-1.0, 0.0]))


@pytest.mark.parametrize("size", [1.0, 100.0])
def test_scores_far_apart_do_not_overflow(size):
    first, second = np.array([0.0, size, 3 * size]), np.zeros(3)
    for kind in (NoisyMax, LaplaceNoisyMax, InsideNoisyMax):
        found = log_ratio(
            release_of(kind, "r", 1.0, 1), use([0, 2], first, second, 0.1)
        )
        assert np.isfinite(found).all() and found[0] < 0.0 < found[1]


def test_a_release_without_density_is_loud():
    class Unheard(Release):
        law = draw = None

    Unheard.__abstractmethods__ = frozenset()
    with pytest.raises(NoTwin, match="its kind, Unheard, names no twin"):
        log_ratio(Unheard("r", 1.0, 1), use([0.0], 0.0, 1.0, 1.0))
