import numpy as np
import pytest

from dp_erm_bench.datasets.synthetic import linear_classification


@pytest.mark.parametrize("sigma", [1.0, 2.0])
def test_draws_are_features_then_weights_then_noise(sigma):
    X, y = linear_classification(seed=10, n=200, p=5, sigma=sigma)
    rng = np.random.default_rng(10)
    raw = rng.standard_normal((200, 5))
    w = rng.lognormal(0.0, sigma, 5)
    noise = 0.9 * np.linalg.norm(w) * rng.standard_normal(200)
    scaled = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    np.testing.assert_array_equal(X, scaled)
    np.testing.assert_array_equal(y, np.sign(scaled @ w + noise))


def test_columns_are_standardised_and_labels_are_signs():
    X, y = linear_classification(seed=0, n=300, p=20)
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1.0, rtol=1e-12)
    assert set(y) == {-1.0, 1.0}


def test_seeds_differ_and_repeat():
    first, again, other = (linear_classification(seed=s, n=30, p=4) for s in (1, 1, 2))
    np.testing.assert_array_equal(first[0], again[0])
    assert (first[0] != other[0]).all()


def test_without_noise_the_classes_are_separable():
    X, y = linear_classification(seed=3, n=100, p=5, noise=0.0)
    rng = np.random.default_rng(3)
    rng.standard_normal((100, 5))
    assert (y * (X @ rng.lognormal(0.0, 1.0, 5)) > 0.0).all()
