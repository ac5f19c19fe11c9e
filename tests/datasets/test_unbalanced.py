"""Test unbalanced and equicorrelated classifications: their second moments."""

import numpy as np
import pytest

from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.datasets.synthetic import (
    equicorrelated_classification,
    unbalanced_classification,
)
from dp_erm_bench.errors import UsageError


@pytest.mark.parametrize("ratio", [1.0, 100.0, 1e4])
def test_first_column_has_the_variance_asked_for(ratio):
    X, y = unbalanced_classification(0, n=200, p=6, ratio=ratio)
    np.testing.assert_allclose(np.square(X).mean(axis=0), [ratio, 1, 1, 1, 1, 1])
    assert set(y) == {-1.0, 1.0}


def test_ratio_changes_the_first_column_only():
    (X, y), (Z, z) = (unbalanced_classification(3, n=50, ratio=r) for r in (1, 900))
    np.testing.assert_array_equal(y, z)
    np.testing.assert_array_equal(X[:, 1:], Z[:, 1:])
    np.testing.assert_allclose(30 * X[:, 0], Z[:, 0])


def test_first_column_tells_nothing_and_the_others_do():
    X, y = unbalanced_classification(1, n=20_000, p=5, noise=0.1)
    weight = np.abs(X.T @ y) / len(y)
    assert weight[0] < 0.03 < 0.2 < weight[1:].min()


def test_it_is_a_dataset():
    data = load_dataset(dataset_spec("unbalanced", ratio=9.0, n=30))
    assert (data.n, data.p, data.name) == (30, 10, "unbalanced")
    assert data.bounds is None
    assert data.usual.loss == "logistic"


@pytest.mark.parametrize("correlation", [0.0, 0.4, 1.0])
def test_all_pairs_of_features_have_the_correlation(correlation):
    X, y = equicorrelated_classification(2, n=20_000, p=4, correlation=correlation)
    found = np.corrcoef(X.T)[np.triu_indices(4, 1)]
    np.testing.assert_allclose(found, correlation, atol=0.03)
    np.testing.assert_allclose(np.square(X).mean(axis=0), 1.0)
    assert set(y) == {-1.0, 1.0} and np.corrcoef(X.mean(axis=1), y)[0, 1] > 0.5
    if correlation == 1.0:
        np.testing.assert_allclose(X, X[:, :1] * np.ones(4), atol=1e-12)


def test_a_correlation_above_one_is_refused():
    with pytest.raises(
        UsageError, match="correlation=1.5: must be a number from 0 to 1"
    ):
        equicorrelated_classification(0, correlation=1.5)
