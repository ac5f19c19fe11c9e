"""Compiled losses against the classes, for every loss in the registry."""

import numpy as np
import pytest

from dp_erm_bench.kernels import residuals as kernels


def grid(loss):
    """Return labels and margins: all sizes, both signs, both labels."""
    size = np.concatenate([[0.0], np.logspace(-12, 3, 61)])
    z = np.concatenate([-size[::-1], size])
    y = np.array([-1.0, 1.0] if loss.classification else [-7.5, 0.0, 3.25])
    return np.repeat(y, z.size), np.tile(z, y.size)


def test_residuals_are_the_derivative_of_the_class(loss):
    y, z = grid(loss)
    out = np.empty(y.size)
    kernels.residuals(loss.kernel, y, z, out)
    expected = loss.derivative(y, z)
    np.testing.assert_allclose(out, expected, rtol=4e-15, atol=1e-300)


def test_one_record_has_the_same_derivative(loss):
    y, z = grid(loss)
    out = np.empty(y.size)
    kernels.residuals(loss.kernel, y, z, out)
    one_by_one = [
        kernels.derivative(loss.kernel, a, b) for a, b in zip(y, z, strict=True)
    ]
    np.testing.assert_allclose(out, one_by_one, rtol=1e-15)


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 511, 513])
def test_sums_of_losses_agree_with_the_class(loss, make_arrays, size):
    arrays = make_arrays(size, 3, 1, loss)
    z = 20.0 * arrays.margins[0]
    total = kernels.loss_sum(loss.kernel, arrays.y, z)
    assert total == pytest.approx(loss.value(arrays.y, z).sum(), rel=1e-13)


def test_single_losses_agree_with_the_class(loss):
    y, z = grid(loss)
    pairs = zip(y[:, None], z[:, None], strict=True)
    values = [kernels.loss_sum(loss.kernel, a, b) for a, b in pairs]
    np.testing.assert_allclose(values, loss.value(y, z), rtol=1e-14, atol=2e-16)


def test_a_diverged_margin_is_not_hidden(loss):
    y, z = np.ones(9), np.zeros(9)
    z[4] = np.nan
    out = np.empty(9)
    kernels.residuals(loss.kernel, y, z, out)
    assert np.isnan(out).tolist() == np.isnan(z).tolist()
    assert np.isnan(kernels.loss_sum(loss.kernel, y, z))


@pytest.mark.parametrize("size", [0, 3])
def test_an_unknown_code_raises(size):
    y, out = np.ones(size), np.zeros(size)
    for call in (
        lambda: kernels.residuals((99, 0.0), y, y, out),
        lambda: kernels.derivative((99, 0.0), 1.0, 1.0),
        lambda: kernels.loss_sum((99, 0.0), y, y),
    ):
        with pytest.raises(ValueError, match="no kernel has this loss's code"):
            call()
    assert not out.any()


def test_every_loss_of_the_package_has_kernels(loss):
    assert loss.code in kernels.CODES and loss.uncompiled is None
