"""Test noise on a random sketch: its law, its draws, and refused sketches."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import certify
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.gaussian import Gaussian, GaussianLaw, gdp_delta
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.sketched_gaussian import (
    SketchedGaussian,
    SketchedGaussianLaw,
    nodes_of,
)
from dp_erm_bench.trust.recount import listen_to_run, recount
from dp_erm_bench.trust.twins.base import Answered
from dp_erm_bench.trust.twins.sketched_gaussian import SketchedGaussianTwin
from tests.loops import each

ROWS = [1, 20, 120, 1000]
ZERO = "zero_out"


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("mu", [0.0, 0.2])
def test_two_orders_of_integration_agree(rows, mu):
    law, twin = SketchedGaussianLaw(1, rows=rows), SketchedGaussianTwin(4.0, 1, rows)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        found = law.delta(epsilon, 4.0, mu)
        assert twin.delta(epsilon, mu) == pytest.approx(found, rel=1e-3)


@pytest.mark.slow
@each("rows", [1, 2, 3, 120])
@each("z", [1e-4, 0.01, 0.5, 5.0])
@each("epsilon", [0.1, 10.0, 100.0, 500.0])
def test_no_profile_is_below_the_integral(rows, z, epsilon):
    """Adaptive quadrature over R, split where the profile of a Gaussian rises."""
    rise, top = math.sqrt(2 * epsilon) * z * math.sqrt(rows), math.sqrt(rows) + 14

    def inner(r):
        return stats.chi.pdf(r, rows) * gdp_delta(epsilon, r / math.sqrt(rows) / z)

    parts = np.union1d(np.geomspace(1e-12, top, 25), rise * np.linspace(0.5, 2, 16))
    ends = itertools.pairwise(parts[parts <= top])
    exact = sum(
        integrate.quad(inner, *pair, epsabs=0, epsrel=1e-12)[0] for pair in ends
    )
    found = SketchedGaussianLaw(1, rows=rows).delta(epsilon, z, 0.0)
    assert found >= min(1.0, exact) * (1 - 1e-12)
    assert found <= exact * (1 + 1e-6) + 1e-39


def test_epsilons_beyond_the_quadrature_have_the_delta_of_its_last():
    law = SketchedGaussianLaw(1, rows=3)
    assert law.delta(5000.0, 0.01, 0.0) == law.delta(500.0, 0.01, 0.0) > 0.9


@pytest.mark.parametrize("rows", ROWS)
def test_the_curve_is_the_moment(rows):
    orders = np.array([1.5, 4.0, 9.0, 60.0])
    curve = SketchedGaussianLaw(1, rows=rows).rdp(6.0, orders)
    expected = SketchedGaussianTwin(6.0, 1, rows).renyi(orders)
    near = np.isfinite(expected)
    np.testing.assert_allclose(curve[near], expected[near], rtol=1e-6)
    infinite = orders * (orders - 1) >= rows * 36.0
    assert np.isinf(curve[infinite]).all() and np.isfinite(curve[~infinite]).all()


def test_the_sketch_costs_what_the_reference_says():
    """Noise for the vector's change alone: delta 9.85e-6 and 1.09e-6 for 1e-6."""
    plain = calibrate((GaussianLaw(1),), Budget(1.0, 1e-6)).z
    for rows, delta in ((20, 9.85e-6), (1000, 1.09e-6)):
        found = SketchedGaussianLaw(1, rows=rows).delta(1.0, plain, 0.0)
        assert found == pytest.approx(delta, rel=5e-3)
    found = [
        calibrate((SketchedGaussianLaw(1, rows=m),), Budget(1.0, 1e-6)).z for m in ROWS
    ]
    assert found == sorted(found, reverse=True) and found[-1] > plain


def test_draws_of_sketches_have_the_profile_that_is_charged():
    """By Monte Carlo, at a delta that draws see."""
    rows, z, epsilon = 3, 1.5, 0.5
    rng = np.random.default_rng(0)
    lengths = np.linalg.norm(rng.normal(size=(400_000, rows)), axis=1)
    apart = lengths / math.sqrt(rows) / z
    loss = apart * rng.normal(size=apart.size) + apart**2 / 2
    found = np.maximum(-np.expm1(epsilon - loss), 0.0)
    delta = SketchedGaussianLaw(1, rows=rows).delta(epsilon, z, 0.0)
    assert found.mean() == pytest.approx(delta, abs=4 * found.std() / 600)
    assert delta < 0.95 * gdp_delta(epsilon, 1 / z)


def published(z, trials=400, rows=6, p=5):
    release = SketchedGaussian("r", 0.5, 1, rows=rows)
    made = make_mechanisms([release], z, [str(k) for k in range(trials)])["r"]
    value = np.tile(np.arange(1.0, p + 1.0), (trials, 1))
    answer = made(value)
    return answer[..., :-1], answer[..., -1], value, made


def test_sketch_and_noise_have_their_laws_and_are_apart():
    A, b, value, made = published(2.0)
    assert made.scale.tolist() == [[1.0]] * 400
    noise = b - np.einsum("bmp,bp->bm", A, value)
    entries = A.ravel() * math.sqrt(6)
    for sample in (noise.ravel(), entries):
        assert stats.kstest(sample, stats.norm.cdf).pvalue > 1e-4
    assert abs(np.corrcoef(noise[:, 0], A[:, 0, 0])[0, 1]) < 0.2
    quiet, exact, *_ = published(0.0)
    np.testing.assert_array_equal(quiet, A)
    np.testing.assert_allclose(exact, np.einsum("bmp,bp->bm", A, value), rtol=1e-12)


@pytest.mark.parametrize("others", [(), (Gaussian("g", 1.0, 2),)])
@pytest.mark.parametrize("times", [1, 3])
def test_a_run_is_recounted(others, times):
    releases = [SketchedGaussian("r", 2.0, times, rows=12), *others]
    laws = tuple(release.law() for release in releases)
    calibration = calibrate(laws, Budget(1.0, 1e-6, ZERO))
    assert calibration.accountant == ("profile" if times == 1 else "rdp")
    for spoil in (False, True):
        mechanisms = make_mechanisms(releases, calibration.z, ["a", "b"])
        heard = listen_to_run(mechanisms)
        mechanisms["r"].scale *= 0.5 if spoil else 1.0
        for name, uses in (("r", times), ("g", 2 if others else 0)):
            for _ in range(uses):
                mechanisms[name](np.zeros((2, 5)))
        found = recount(mechanisms, calibration, witnesses=heard)
        assert bool(found.complaint(calibration)) is spoil


def test_a_sketch_that_is_not_the_streams_is_heard():
    release = SketchedGaussian("r", 1.0, 1, rows=4)
    calibration = calibrate((release.law(),), Budget(1.0, 1e-6))
    mechanisms = make_mechanisms([release], calibration.z, ["a"])
    plain = mechanisms["r"].publish

    def doubled(value):
        answer = plain(value)
        twice = 2.0 * answer
        twice[..., -1] += answer[..., -1] - 2.0 * answer[..., -1]
        twice[..., -1] += np.einsum("bmp,bp->bm", answer[..., :-1], value)
        return twice

    mechanisms["r"].publish = doubled
    heard = listen_to_run(mechanisms)
    mechanisms["r"](np.ones((1, 3)))
    found = recount(mechanisms, calibration, witnesses=heard)
    assert "is certified" in found.complaint(calibration)


def test_the_log_ratio_is_that_of_the_densities():
    A, b, value, _ = published(2.0, trials=3)
    other = value + 0.25
    use = Answered(np.concatenate([A, b[..., None]], axis=2), value, other, 1.0)
    ratio = SketchedGaussianTwin.log_ratio(None, use)
    means = (np.einsum("bmp,bp->bm", A, v) for v in (value, other))
    first, second = (stats.norm(mean).logpdf(b).sum(axis=1) for mean in means)
    np.testing.assert_allclose(ratio, first - second, rtol=1e-9)


def test_rows_are_counted():
    with pytest.raises(ValueError, match="rows=0"):
        SketchedGaussianLaw(1, rows=0)
    assert isinstance(SketchedGaussian("r", 1.0, 1, rows=3).law(), Law)
    assert certify((SketchedGaussianLaw(1, rows=3),), 0.0, 1e-6, ZERO).epsilon == np.inf


@pytest.mark.parametrize("rows", ROWS)
def test_the_nodes_have_all_of_the_mass(rows):
    assert nodes_of(rows)[1].sum() == pytest.approx(1.0, abs=1e-13)
