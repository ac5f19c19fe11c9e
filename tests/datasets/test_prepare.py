import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import (
    Recipe,
    dataset_from_arrays,
    prepare_arrays,
    split_masks,
    standardise_columns,
)
from dp_erm_bench.datasets.records import label_signs
from dp_erm_bench.errors import UsageError


def prepared(X, y, **recipe):
    return prepare_arrays("toy", (X, y), Recipe(**recipe))


def toy(n=40, p=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) * 3.0 + 5.0, rng.permutation(np.arange(n) % 2)


@pytest.mark.parametrize("pair", [(-1, 1), (0, 1), (1, 2)])
def test_two_labels_become_signs_in_their_order(pair):
    y = np.array([pair[0], pair[1], pair[1]], dtype=float)
    np.testing.assert_array_equal(label_signs("toy", y), [-1.0, 1.0, 1.0])


@pytest.mark.parametrize("labels", [[1, 1], [0, 2], [1, 2, 3], [0.5, 1]])
def test_other_labels_are_refused_by_value(labels):
    with pytest.raises(UsageError, match=r"dataset toy: labels .* -1/1, 0/1 or 1/2"):
        label_signs("toy", np.array(labels, dtype=float))


@given(st.integers(2, 200), st.floats(0.05, 0.95), st.integers(0, 5))
def test_split_is_a_partition_of_the_size_asked_for(n, fraction, seed):
    train, test = split_masks(n, fraction, seed)
    assert (train ^ test).all()
    assert test.sum() == round(n * fraction)
    np.testing.assert_array_equal(split_masks(n, fraction, seed)[0], train)


def test_split_depends_on_the_seed_and_not_on_the_generators_stream():
    masks = [split_masks(50, 0.5, seed)[1] for seed in (0, 1)]
    assert (masks[0] != masks[1]).any()
    plain = np.random.default_rng(0).permutation(50)[:25]
    assert set(plain) != set(np.flatnonzero(masks[0]))


@given(st.integers(0, 50), st.floats(-3, 3), st.floats(-6, 6))
def test_standardised_columns_have_mean_zero_and_variance_one(seed, power, shift):
    X = np.random.default_rng(seed).standard_normal((30, 4)) * 10.0**power + shift
    (Z,) = standardise_columns(X)
    np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(Z.std(axis=0), 1.0, rtol=1e-9)


@pytest.mark.parametrize("constant", [0.0, 1.0, -0.1, 1e9 / 3.0])
def test_constant_columns_become_zero_also_in_the_test_set(constant):
    X, _ = toy()
    X[:, 1] = constant
    Z, T = standardise_columns(X, X[:5] + 1.0)
    assert (Z[:, 1] == 0.0).all() and (T[:, 1] == 0.0).all()
    assert np.abs(Z[:, [0, 2]]).min() > 0.0


def test_the_test_set_is_scaled_by_the_statistics_of_train():
    X, y = toy()
    plain = prepared(X, y, test_fraction=0.25)
    scaled = prepared(X, y, test_fraction=0.25, standardise=True)
    mean, scale = plain["X"].mean(axis=0), plain["X"].std(axis=0)
    np.testing.assert_allclose(scaled["X_test"], (plain["X_test"] - mean) / scale)
    np.testing.assert_array_equal(scaled["y_test"], plain["y_test"])
    assert abs(scaled["X_test"].mean()) > 1e-6


def test_split_keeps_every_record_with_its_label():
    X, y = toy()
    arrays = prepared(X, y, test_fraction=0.3, seed=4)
    rows = np.vstack([arrays["X"], arrays["X_test"]])
    labels = np.concatenate([arrays["y"], arrays["y_test"]])
    order, expected = np.lexsort(rows.T), np.lexsort(X.T)
    np.testing.assert_array_equal(rows[order], X[expected])
    np.testing.assert_array_equal(labels[order], 2.0 * y[expected] - 1.0)


def test_arrays_are_float64_column_major_read_only_and_nobody_elses():
    X, y = toy()
    X = np.asfortranarray(X)
    arrays = prepared(X, y)
    assert arrays["X"].flags.f_contiguous and arrays["X"].dtype == np.float64
    assert not any(array.flags.writeable for array in arrays.values())
    assert not np.shares_memory(arrays["X"], X) and X.flags.writeable


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    X, y = toy()
    X[3, 1] = bad
    with pytest.raises(UsageError, match="X holds a value that is not finite"):
        prepared(X, y)
    target = np.where(np.arange(40) == 3, bad, 0.0)
    with pytest.raises(UsageError, match="y holds a value that is not finite"):
        prepared(toy()[0], target, classification=False)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_empty_data_are_refused(shape):
    with pytest.raises(UsageError, match="is empty"):
        prepared(np.zeros(shape), np.zeros(shape[0]))


def test_unequal_lengths_are_refused():
    with pytest.raises(UsageError, match=r"must be \(n, p\) and \(n,\)"):
        prepared(np.zeros((4, 2)), np.zeros(5))


@pytest.mark.parametrize("fraction", [0.01, 0.999])
def test_a_split_that_leaves_one_side_empty_is_refused(fraction):
    with pytest.raises(UsageError, match=rf"dataset\.test_fraction={fraction}"):
        prepared(*toy(), test_fraction=fraction)


def test_dataset_from_arrays_copies_and_hashes():
    X, y = toy()
    found = dataset_from_arrays(X, y)
    X[0, 0] += 1.0
    assert found.X[0, 0] == X[0, 0] - 1.0
    assert found.content_hash == dataset_from_arrays(found.X, found.y).content_hash
    assert found.content_hash != dataset_from_arrays(X, y).content_hash
    assert (found.n, found.p, found.uncharged) == (40, 3, ())


@pytest.mark.parametrize(
    ("columns", "norm", "label", "sentence"),
    [
        ([1.0, 1.0], 9.0, None, r"bounds\.columns .* has 2 values"),
        ([1.0, 0.5, 1.0], 9.0, None, "feature 1 exceeds its declared bound 0.5"),
        ([1.0, 1.0, 1.0], 1.5, None, r"bounds\.norm"),
        ([1.0, 1.0, 1.0], 9.0, 0.5, r"bounds\.label"),
    ],
)
def test_broken_bounds_are_refused(columns, norm, label, sentence):
    bounds = Bounds(np.array(columns), norm, label)
    with pytest.raises(UsageError, match=sentence):
        dataset_from_arrays(np.ones((4, 3)), np.ones(4), bounds=bounds)


def test_bounds_that_hold_exactly_are_kept():
    bounds = Bounds(np.ones(3), float(np.sqrt(3.0)), 1.0)
    found = dataset_from_arrays(np.ones((4, 3)), np.ones(4), bounds=bounds)
    assert found.bounds is bounds
