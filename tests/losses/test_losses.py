"""Properties of every loss in the registry."""

import dataclasses
import math

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.losses.base import Loss

NAMES = registry.names("loss")
LOSSES = [registry.build("loss", name) for name in NAMES]
Z = np.concatenate([np.linspace(-30, 30, 241), [-1e-9, 1e-9]])


@pytest.fixture(params=LOSSES, ids=NAMES)
def loss(request):
    return request.param


def labels_of(loss):
    return np.array([-1.0, 1.0] if loss.classification else [-3.5, 0.0, 0.25, 40.0])


def pairs(loss, z=Z):
    y = labels_of(loss)
    return np.repeat(y, z.size), np.tile(z, y.size)


def test_there_are_losses_and_they_are_named_like_their_yaml():
    assert NAMES and [loss.name for loss in LOSSES] == NAMES
    assert all(isinstance(loss, Loss) for loss in LOSSES)


def test_codes_differ():
    assert len({loss.code for loss in LOSSES}) == len(LOSSES)


def test_losses_are_frozen_and_equal_by_value(loss):
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.name = "other"
    assert registry.build("loss", loss.name) == loss
    assert hash(registry.build("loss", loss.name)) == hash(loss)


def test_derivative_is_that_of_the_value(loss):
    (y, z), h = pairs(loss), 1e-5
    slope = (loss.value(y, z + h) - loss.value(y, z - h)) / (2 * h)
    scale = 1.0 + np.abs(loss.derivative(y, z))
    assert (np.abs(slope - loss.derivative(y, z)) <= 1e-8 * scale).all()


def test_second_derivative_is_that_of_the_derivative(loss):
    (y, z), h = pairs(loss), 1e-5
    slope = (loss.derivative(y, z + h) - loss.derivative(y, z - h)) / (2 * h)
    np.testing.assert_allclose(loss.second_derivative(y, z), slope, atol=1e-8)


def test_losses_are_convex_and_not_negative(loss):
    y, z = pairs(loss)
    assert (loss.value(y, z) >= 0.0).all()
    assert (loss.second_derivative(y, z) >= 0.0).all()
    for label in labels_of(loss):
        slopes = loss.derivative(np.full(Z.size, label), np.sort(Z))
        assert (np.diff(slopes) >= -1e-15).all()


def test_lipschitz_constant_is_the_supremum(loss):
    far = np.concatenate([Z, [-1e3, 1e3, -1e8, 1e8]])
    slopes = np.abs(loss.derivative(*pairs(loss, far)))
    if math.isfinite(loss.lipschitz):
        assert slopes.max() <= loss.lipschitz
        assert slopes.max() >= loss.lipschitz * (1 - 1e-12)
    else:
        assert slopes.max() > 1e7


def test_smoothness_constant_is_the_maximum(loss):
    curvature = loss.second_derivative(*pairs(loss))
    assert curvature.max() <= loss.smoothness * (1 + 1e-15)
    assert curvature.max() >= loss.smoothness * (1 - 1e-12)


def test_derivative_is_lipschitz_by_the_smoothness_constant(loss):
    rng = np.random.default_rng(0)
    y = rng.choice(labels_of(loss), size=5000)
    a, b = rng.normal(scale=5.0, size=(2, 5000))
    change = np.abs(loss.derivative(y, a) - loss.derivative(y, b))
    assert (change <= loss.smoothness * np.abs(a - b) + 1e-13).all()


@pytest.mark.parametrize("far", [1e3, 1e5])
def test_nothing_overflows(loss, far):
    y, z = pairs(loss, np.array([-far, far]))
    for function in (loss.value, loss.derivative, loss.second_derivative):
        assert np.isfinite(function(y, z)).all()
    # Convex and smooth: the value far out is told by the slopes at both ends.
    value, slope = loss.value(y, z), loss.derivative(y, z)
    assert (value <= loss.value(y, 0 * z) + np.abs(slope * z) * (1 + 1e-12)).all()
    assert (loss.value(y, 0 * z) >= value - slope * z - 1e-9 * np.abs(value)).all()


def test_small_values_keep_their_relative_accuracy(loss):
    if loss.classification:
        y, z = pairs(loss, np.array([40.0, 500.0]))
        value = loss.value(y, y * z)
        np.testing.assert_allclose(value, np.exp(-z), rtol=1e-14)
        np.testing.assert_allclose(loss.derivative(y, y * z), -y * value, rtol=1e-14)
    else:
        y = labels_of(loss)
        assert (loss.value(y, y) == 0.0).all() and (loss.derivative(y, y) == 0.0).all()


def test_labels_broadcast_over_a_batch_of_margins(loss):
    z = np.random.default_rng(1).normal(size=(4, 6))
    y = np.resize(labels_of(loss), 6)
    for function in (loss.value, loss.derivative, loss.second_derivative):
        together = function(y, z)
        assert together.shape == (4, 6)
        assert together.tolist() == [function(y, row).tolist() for row in z]


def test_labels_of_the_domain_are_taken(loss):
    loss.check_labels(labels_of(loss))
    loss.check_labels(np.empty(0))


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_labels_that_are_no_numbers_are_refused(loss, wrong):
    with pytest.raises(UsageError, match=f"^loss={loss.name}: label.* must be "):
        loss.check_labels(np.append(labels_of(loss), wrong))


@pytest.mark.parametrize("wrong", [0.0, 0.5, 2.0, -1.0000001])
def test_classification_takes_two_labels_only(loss, wrong):
    y = np.append(labels_of(loss), wrong)
    if not loss.classification:
        loss.check_labels(y)
        return
    with pytest.raises(UsageError, match=rf"label {wrong:g} is not allowed.*-1 or \+1"):
        loss.check_labels(y)
