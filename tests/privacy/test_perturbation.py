"""Test releases of methods that solve once: laws, counts, independence."""

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.objective_gaussian import ObjectiveGaussian
from dp_erm_bench.releases.objective_norm_laplace import ObjectiveNormLaplace
from tests.privacy.made import law_of, release_of

TRIALS = [f"trial {i}" for i in range(3000)]
SECRET = (ObjectiveGaussian, ObjectiveNormLaplace)


def vectors_of(kind, size, z=0.8, sensitivity=2.5, weight=1.5, times=2):
    """Noise of scale 3 on zero, of two uses."""
    release = release_of(kind, "noise", sensitivity, times, weight=weight)
    mechanism = make_mechanisms([release], z, TRIALS)["noise"]
    if kind in SECRET:
        return np.stack([mechanism(size) for _ in range(times)])
    return np.stack([mechanism(np.zeros((len(TRIALS), size))) for _ in range(times)])


@pytest.mark.parametrize("size", [1, 2, 5, 64])
@pytest.mark.parametrize("kind", [NormLaplace, ObjectiveNormLaplace])
def test_norms_are_gamma_and_directions_uniform(kind, size):
    for noise in vectors_of(kind, size):
        norms = np.linalg.norm(noise, axis=1)
        assert stats.kstest(norms / 3.0, stats.gamma(size).cdf).pvalue > 1e-4
        first = noise[:, 0] / norms
        if size == 1:
            assert stats.kstest(noise[:, 0] / 3.0, stats.laplace.cdf).pvalue > 1e-4
        else:
            law = stats.beta(0.5, (size - 1) / 2)
            assert stats.kstest(first**2, law.cdf).pvalue > 1e-4
            assert abs(stats.spearmanr(norms, np.abs(first)).statistic) < 0.09
        assert abs(np.sign(first).sum()) < 4.5 * np.sqrt(len(first))


@pytest.mark.parametrize("size", [1, 7])
def test_secret_normal_terms_have_the_accounted_scale(size):
    for noise in vectors_of(ObjectiveGaussian, size):
        assert stats.kstest(noise.ravel() / 3.0, stats.norm.cdf).pvalue > 1e-4


@pytest.mark.parametrize("kind", [NormLaplace, *SECRET])
def test_uses_and_trials_are_independent(kind):
    first, second = vectors_of(kind, 3)
    assert abs(np.corrcoef(first[:, 0], second[:, 0])[0, 1]) < 0.09
    assert abs(np.corrcoef(first[1:, 0], first[:-1, 0])[0, 1]) < 0.09
    assert len(np.unique(first[:, 0])) == len(TRIALS)


@pytest.mark.parametrize("start", [0, 1, 5])
def test_disjoint_draws_share_no_uniform(start, monkeypatch):
    """Draw k owns the places 4 k to 4 k + 3 of the stream."""
    from dp_erm_bench.kernels import draws

    seen = []
    for name in ("gaussian", "laplace"):
        plain = getattr(draws, name)

        def listen(seed, first, count, plain=plain):
            pairs = first // 2 * 2, (first + count + 1) // 2 * 2
            seen.append(pairs)
            return plain(seed, first, count)

        monkeypatch.setattr(draws, name, listen)
    seed = np.arange(4, dtype=np.uint32)
    for count in (1, 2, 3, 8):
        seen.clear()
        NormLaplace.draw(seed, start, count)
        (a, b), (c, d) = sorted(seen)
        assert 4 * start <= a < b <= c < d <= 4 * (start + count)


@pytest.mark.parametrize("kind", [NormLaplace, *SECRET])
def test_one_use_too_many_is_refused(kind):
    mechanism = make_mechanisms([release_of(kind, "noise", 1.0, 1)], 1.0, ["a"])[
        "noise"
    ]
    argument = 3 if kind in SECRET else np.zeros((1, 3))
    mechanism(argument)
    with pytest.raises(
        BudgetExhausted, match="release noise was declared with times=1"
    ):
        mechanism(argument)


@pytest.mark.parametrize("kind", [NormLaplace, *SECRET])
def test_no_noise_is_exactly_zero(kind):
    mechanism = make_mechanisms([release_of(kind, "noise", 1.0, 1)], 0.0, ["a"])[
        "noise"
    ]
    argument = 3 if kind in SECRET else np.zeros((1, 3))
    assert not mechanism(argument).any()


def test_the_events_have_the_numbers_of_the_releases():
    assert NormLaplace("any", 2.0, 7, weight=1.5).law() == law_of(
        "norm_laplace", 7, 1.5
    )
    gaussian = ObjectiveGaussian("any", 2.0, 1, curvature=0.2, terms=2)
    assert gaussian.law() == law_of("objective", 1, curvature=0.2, terms=2)
    pure = ObjectiveNormLaplace("any", 2.0, 1, curvature=0.2)
    assert pure.law() == law_of("objective_pure", 1, curvature=0.2)
    assert pure.law().level(0.5) == pytest.approx(2.2)


def test_a_secret_term_is_no_query_of_the_audit():
    for kind in SECRET:
        mechanism = make_mechanisms([release_of(kind, "noise", 1.0, 1)], 1.0, ["a"])[
            "noise"
        ]
        mechanism.intercept = lambda query, publish: publish()
        with pytest.raises(TypeError, match="replay audit does not apply"):
            mechanism(3)


def test_the_ratio_of_densities_is_bounded_by_the_level():
    rng = np.random.default_rng(0)
    z, move = 0.7, np.array([0.6, 0.0, -0.8])
    points = rng.normal(size=(2000, 3)) * 5
    before = np.linalg.norm(points, axis=1) / z
    after = np.linalg.norm(points - move, axis=1) / z
    level = law_of("norm_laplace", 1).level(z)
    assert np.abs(after - before).max() <= level * (1 + 1e-12)
    assert np.abs(after - before).max() >= 0.95 * level
