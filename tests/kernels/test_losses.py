"""Test compiled losses against the classes, for every loss in the registry."""

import pickle

import numpy as np
import pytest

from dp_erm_bench.kernels import losses as kernels
from dp_erm_bench.losses.smooth import Huber, Logistic
from tests.loops import each


def grid(loss):
    """Return labels and margins: all sizes, both signs, both labels."""
    size = np.concatenate([[0.0], np.logspace(-12, 3, 61)])
    z = np.concatenate([-size[::-1], size])
    y = np.array([-1.0, 1.0] if loss.classification else [-7.5, 0.0, 3.25])
    return np.repeat(y, z.size), np.tile(z, y.size)


def test_residuals_are_the_derivative_of_the_class(loss):
    y, z = grid(loss)
    out = np.empty(y.size)
    kernels.residuals(loss, y, z, out)
    expected = loss.derivative(y, z)
    np.testing.assert_allclose(out, expected, rtol=4e-15, atol=1e-300)


def test_the_value_is_that_of_the_class(loss):
    y, z = grid(loss)
    pairs = zip(y[:, None], z[:, None], strict=True)
    values = [kernels.loss_sum(loss, a, b) for a, b in pairs]
    np.testing.assert_allclose(values, loss.value(y, z), rtol=1e-14, atol=2e-16)


@each("size", [1, 2, 7, 8, 9, 511, 513])
def test_sums_of_losses_agree_with_the_class(loss, make_arrays, size):
    arrays = make_arrays(size, 3, 1, loss)
    z = 20.0 * arrays.margins[0]
    total = kernels.loss_sum(loss, arrays.y, z)
    wanted = loss.value(arrays.y, z).sum()
    assert total == pytest.approx(wanted, rel=1e-13, abs=2e-16 * size)


def test_a_diverged_margin_is_not_hidden(loss):
    y, z = np.ones(9), np.zeros(9)
    z[4] = np.nan
    out = np.empty(9)
    kernels.residuals(loss, y, z, out)
    assert np.isnan(out).tolist() == np.isnan(z).tolist()
    assert np.isnan(kernels.loss_sum(loss, y, z))


def test_a_type_is_that_of_the_class_not_of_its_parent():
    class Renamed(Logistic):
        name = "renamed"

    assert Logistic()._numba_type_ == Logistic()._numba_type_
    assert Renamed()._numba_type_ != Logistic()._numba_type_
    assert Huber(1.0)._numba_type_ == Huber(2.0)._numba_type_


def test_types_are_the_same_after_pickling(loss):
    again = pickle.loads(pickle.dumps(loss._numba_type_))
    assert again == loss._numba_type_ and hash(again) == hash(loss._numba_type_)
