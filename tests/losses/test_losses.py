"""Test properties of every loss in the registry."""

import dataclasses
import math

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.losses.kinked import Absolute, Hinge
from dp_erm_bench.losses.smooth import Huber, SmoothedHinge, Squared
from tests.loops import each

NAMES = registry.names("loss")
OTHERS = [Huber(0.1), Huber(30.0), SmoothedHinge(0.01), SmoothedHinge(3.0)]
LOSSES = [*(registry.build("loss", name) for name in NAMES), *OTHERS]
Z = np.concatenate([np.linspace(-30, 30, 241), [-1e-9, 1e-9]])


@pytest.fixture(params=LOSSES, ids=repr)
def loss(request):
    return request.param


def labels_of(loss):
    return np.array([-1.0, 1.0] if loss.classification else [-3.5, 0.0, 0.25, 40.0])


def pairs(loss, z=Z):
    y = labels_of(loss)
    return np.repeat(y, z.size), np.tile(z, y.size)


def test_there_are_losses_and_they_are_named_like_their_yaml():
    assert NAMES and [loss.name for loss in LOSSES[: len(NAMES)]] == NAMES
    assert all(isinstance(loss, Loss) for loss in LOSSES)


def test_losses_are_frozen_and_equal_by_value(loss):
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.name = "other"
    again = registry.build("loss", loss.name, **dataclasses.asdict(loss))
    assert again == loss and hash(again) == hash(loss)
    assert [again == other for other in LOSSES].count(True) == 1


def test_derivative_is_that_of_the_value(loss):
    (y, z), h = pairs(loss), 1e-5
    slope = (loss.value(y, z + h) - loss.value(y, z - h)) / (2 * h)
    scale = 1.0 + np.abs(loss.derivative(y, z))
    jump = np.abs(loss.second_derivative(y, z + h) - loss.second_derivative(y, z - h))
    slack = 1e-8 * scale + h * jump
    off = np.abs(z - y) > h if not loss.smooth else z == z  # any slope serves a kink
    assert (np.abs(slope - loss.derivative(y, z)) <= slack)[off].all()


def test_second_derivative_is_that_of_the_derivative(loss):
    (y, z), h = pairs(loss), 1e-5
    left, right = (
        np.sign(side) / h * (loss.derivative(y, z + side) - loss.derivative(y, z))
        for side in (-h, h)
    )
    # Where it jumps, any value between the two slopes serves.
    least, most = np.minimum(left, right), np.maximum(left, right)
    second = loss.second_derivative(y, z)
    if not loss.smooth:
        off = np.abs(z - y) > h
        assert (second == 0.0).all() and (most[off] == 0.0).all()
        return
    assert (second >= least - 1e-5).all() and (second <= most + 1e-5).all()
    smooth = most - least <= 1e-5
    np.testing.assert_allclose(second[smooth], left[smooth], atol=1e-5)
    assert np.count_nonzero(~smooth) <= 2 * labels_of(loss).size


def test_losses_are_convex_and_not_negative_if_curved_or_kinked(loss):
    y, z = pairs(loss)
    assert (loss.value(y, z) >= 0.0).all() or loss.smoothness == 0.0
    if not loss.convex:
        assert (loss.second_derivative(y, z) < 0.0).any()
        return
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
    elif loss.is_curved:
        assert slopes.max() > 1e7
    else:
        largest = np.abs(labels_of(loss)).max()
        assert slopes.max() == largest == loss.lipschitz_within(1.0, largest)


def test_smoothness_constant_is_the_maximum(loss):
    if not loss.smooth:
        assert loss.smoothness == math.inf and not loss.is_curved
        return
    peak = np.log(2.0 + np.sqrt(3.0))  # of the sigmoid loss
    z = np.append(Z, [-peak, peak])
    curvature = np.abs(loss.second_derivative(*pairs(loss, z)))
    assert curvature.max() <= loss.smoothness * (1 + 1e-15)
    assert curvature.max() >= loss.smoothness * (1 - 1e-12)


def test_derivative_is_lipschitz_by_the_smoothness_constant(loss):
    rng = np.random.default_rng(0)
    y = rng.choice(labels_of(loss), size=5000)
    bound = loss.smoothness if loss.smooth else 0.0  # on one side of the kink
    a, b = rng.normal(scale=5.0, size=(2, 5000))
    change = np.abs(loss.derivative(y, a) - loss.derivative(y, b))
    change = change[loss.smooth | ((a - y) * (b - y) > 0.0)]
    apart = np.abs(a - b)[loss.smooth | ((a - y) * (b - y) > 0.0)]
    assert (change <= bound * apart + 1e-13).all()


@each("far", [1e3, 1e5])
def test_nothing_overflows(loss, far):
    y, z = pairs(loss, np.array([-far, far]))
    for function in (loss.value, loss.derivative, loss.second_derivative):
        assert np.isfinite(function(y, z)).all()
    if not loss.convex:
        return
    # Convex and smooth: the value far out is told by the slopes at both ends.
    value, slope = loss.value(y, z), loss.derivative(y, z)
    assert (value <= loss.value(y, 0 * z) + np.abs(slope * z) * (1 + 1e-12)).all()
    assert (loss.value(y, 0 * z) >= value - slope * z - 1e-9 * np.abs(value)).all()


def test_small_values_keep_their_relative_accuracy(loss):
    if loss.name == "logistic":
        y, z = pairs(loss, np.array([40.0, 500.0]))
        value = loss.value(y, y * z)
        np.testing.assert_allclose(value, np.exp(-z), rtol=1e-14)
        np.testing.assert_allclose(loss.derivative(y, y * z), -y * value, rtol=1e-14)
    elif loss.smoothness > 0.0 and loss.convex:
        y = labels_of(loss)
        best = 10.0 * y if loss.classification else y
        for function in (loss.value, loss.derivative):
            assert (function(y, best) == 0.0).all()


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


@each("wrong", [math.nan, math.inf, -math.inf])
def test_labels_that_are_no_numbers_are_refused(loss, wrong):
    with pytest.raises(UsageError, match=f"^loss={loss.name}: label.* must be "):
        loss.check_labels(np.append(labels_of(loss), wrong))


@each("wrong", [0.0, 0.5, 2.0, -1.0000001])
def test_classification_takes_two_labels_only(loss, wrong):
    y = np.append(labels_of(loss), wrong)
    if not loss.classification:
        loss.check_labels(y)
        return
    with pytest.raises(UsageError, match=rf"label {wrong:g} is not allowed.*-1 or \+1"):
        loss.check_labels(y)


def test_huber_is_the_squared_loss_with_its_residual_clipped():
    y, z = pairs(Squared())
    for kappa in (0.2, 1.0, 7.0):
        huber, residual = Huber(kappa), z - y
        clipped = np.clip(Squared().derivative(y, z), -kappa, kappa)
        assert huber.derivative(y, z).tolist() == clipped.tolist()
        near = np.abs(residual) <= kappa
        value = np.where(near, residual**2 / 2, kappa * (np.abs(residual) - kappa / 2))
        np.testing.assert_allclose(huber.value(y, z), value, rtol=1e-14)


@pytest.mark.parametrize("h", [0.01, 0.5, 1.0, 3.0])
def test_the_smoothed_hinge_is_the_hinge_away_from_its_kink(h):
    y, z = pairs(SmoothedHinge(h))
    m, value = y * z, SmoothedHinge(h).value(y, z)
    hinge = np.maximum(1.0 - m, 0.0)
    far = np.abs(1.0 - m) >= h
    np.testing.assert_allclose(value[far], hinge[far], rtol=1e-13, atol=1e-13)
    parabola = (1.0 + h - m) ** 2 / (4.0 * h)
    np.testing.assert_allclose(value[~far], parabola[~far], rtol=1e-12)
    assert (value >= hinge - 1e-13).all()


@each("make, key", [(Huber, "kappa"), (SmoothedHinge, "h")])
@each("wrong", [0, 0.0, -1.0, math.inf, math.nan, "1", None, True, [1.0]])
def test_wrong_parameters_are_refused_in_one_sentence(make, key, wrong):
    with pytest.raises(UsageError) as error:
        registry.build("loss", make.name, **{key: wrong})
    assert str(error.value) == (
        f"loss.{key}={wrong} of {make.name}: must be a finite number > 0"
    )


def test_parameters_may_be_integers():
    assert repr(Huber(2)) == repr(Huber(2.0)) == "Huber(kappa=2.0)"
    assert SmoothedHinge(1) == SmoothedHinge(1.0)


@pytest.mark.parametrize("make", [Hinge, Absolute])
@pytest.mark.parametrize("width", [1e-3, 0.3, 2.0])
def test_what_certifies_a_kink_is_above_it_with_slopes_that_it_has(make, width):
    loss = make()
    (y, z), rounded = pairs(loss), loss.smooth_surrogate(width)
    assert (rounded.value(y, z) >= loss.value(y, z) - 1e-12).all()
    slopes = rounded.derivative(y, z)
    # Fenchel and Young: v z <= phi(z) + phi*(v), and phi*(v) = v y.
    slack = loss.value(y, z) - slopes * (z - y)
    assert (slack >= -1e-12).all() and slack.max() <= width
    far = np.abs(z - y) > width
    assert (slopes == loss.derivative(y, z))[far].all()
    assert (np.abs(slack[far]) <= 1e-12).all()


def test_constants_are_those_of_the_parameters():
    assert (Huber(3.0).lipschitz, Huber(3.0).smoothness) == (3.0, 1.0)
    hinge = SmoothedHinge(0.1)
    assert (hinge.lipschitz, hinge.smoothness) == (1.0, 5.0)


@each("margin, label", [(0.0, 0.0), (2.0, 0.5), (0.3, 9.0)])
def test_derivatives_of_bounded_margins_and_labels_are_bounded(loss, margin, label):
    bound = loss.lipschitz_within(margin, label)
    z = np.linspace(-margin, margin, 41)
    for y in np.linspace(-label, label, 41):
        if loss.classification:
            y = math.copysign(1.0, y)
        assert np.abs(loss.derivative(np.full(41, y), z)).max() <= bound
    if loss.name == "squared":
        assert bound == margin + label
