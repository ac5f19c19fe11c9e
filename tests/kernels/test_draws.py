"""Test draws of standard distributions: exact transforms, laws, random access."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dp_erm_bench.kernels import draws
from dp_erm_bench.kernels.philox import uniforms

SEED = np.array([2, 71, 82, 81], dtype=np.uint32)
LAWS = {
    "laplace": (draws.laplace, stats.laplace),
    "gumbel": (draws.gumbel, stats.gumbel_r),
    "gaussian": (draws.gaussian, stats.norm),
}
COUNT = 200_000
each_law = pytest.mark.parametrize("draw, law", LAWS.values(), ids=LAWS)


@pytest.fixture(scope="module")
def samples():
    return {draw: draw(SEED, 0, COUNT) for draw, _ in LAWS.values()}


@each_law
def test_draws_fit_the_law(draw, law, samples):
    assert stats.kstest(samples[draw], law.cdf).pvalue > 1e-3


@each_law
def test_moments_are_those_of_the_law(draw, law, samples):
    mean, variance, skewness, kurtosis = (float(m) for m in law.stats(moments="mvsk"))
    x = (samples[draw] - mean) / np.sqrt(variance)
    powers = {1: 0.0, 2: 1.0, 3: skewness, 4: kurtosis + 3.0}
    for power, expected in powers.items():
        deviation = np.std(x**power) / np.sqrt(COUNT)
        assert abs((x**power).mean() - expected) < 4.5 * deviation, power


@each_law
@pytest.mark.parametrize("tail", [1e-2, 1e-3, 1e-4])
def test_both_tails_have_their_mass(draw, law, tail, samples):
    below = int((samples[draw] < law.ppf(tail)).sum())
    above = int((samples[draw] > law.isf(tail)).sum())
    for count in (below, above):
        assert stats.binomtest(count, COUNT, tail).pvalue > 1e-4


@pytest.mark.parametrize("name", ["laplace", "gumbel"])
def test_draws_are_quantiles_of_the_uniforms(name):
    draw, law = LAWS[name]
    u = uniforms(SEED, 0, 5001)
    np.testing.assert_allclose(draw(SEED, 0, 5001), law.ppf(u), rtol=1e-12, atol=1e-14)


def test_gaussians_are_box_and_muller_pairs():
    u = uniforms(SEED, 0, 5000).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log(u[:, 0]))
    angle = 2 * np.pi * u[:, 1]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    given_pairs = draws.gaussian(SEED, 0, 5000).reshape(-1, 2)
    np.testing.assert_allclose(given_pairs, pairs, rtol=1e-12, atol=1e-14)


def test_gaussian_pairs_are_independent(samples):
    first, second = samples[draws.gaussian].reshape(-1, 2).T
    cells = [
        np.searchsorted(stats.norm.ppf(np.arange(1, 8) / 8), x) for x in (first, second)
    ]
    table = np.histogram2d(*cells, bins=8)[0]
    assert stats.chisquare(table.ravel()).pvalue > 1e-3


@each_law
def test_extreme_uniforms_give_finite_draws(draw, law):
    transform = {
        draws.laplace: draws.to_laplace,
        draws.gumbel: draws.to_gumbel,
        draws.gaussian: draws.to_gaussian,
    }[draw]
    least = 2.0**-53
    corners = np.array([least, least, least, 1 - least, 1 - least, least, 0.5, 0.25])
    transform(corners)
    assert np.isfinite(corners).all()
    assert np.abs(corners).max() < 40.0


@each_law
@given(
    start=st.integers(0, 2**36),
    counts=st.lists(st.integers(0, 520), min_size=1, max_size=4),
)
def test_any_split_of_a_range_gives_the_same_bits(draw, law, start, counts):
    whole = draw(SEED, start, sum(counts))
    ends = start + np.cumsum([0, *counts])
    parts = [draw(SEED, int(a), c) for a, c in zip(ends[:-1], counts, strict=True)]
    assert whole.tolist() == np.concatenate(parts).tolist()
