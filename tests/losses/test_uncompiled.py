"""Test that a loss that cannot be compiled is refused by name, and never diverges."""

from dataclasses import replace

import numpy as np
import pytest

from dp_erm_bench import fit, problem_from_arrays
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.kernels.losses import loss_sum, residuals
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.losses.smooth import Logistic


class Exponential(Loss):
    name = "exponential"
    classification = True
    lipschitz = smoothness = 30.0

    def value(self, y, z):
        return np.exp(-y * z)

    def derivative(self, y, z):
        return -y * np.exp(-y * z)

    def second_derivative(self, y, z):
        return np.exp(-y * z)

    def check_labels(self, y):
        pass


class Steep(Logistic):
    """What it calls is no part of a class of numbers."""

    name = "steep"

    def derivative(self, y, z):
        return 2.0 * super().derivative(y, z)


class Lost(Exponential):
    def value(self, y, z):
        return self.scale * y * z


class Renamed(Logistic):
    name = "renamed"


def problem_of(loss):
    X, y = np.array([[1.0, -1.0], [0.5, 2.0], [-1.0, 0.5]]), np.array([1.0, -1.0, 1.0])
    return replace(
        problem_from_arrays(X, y, loss="logistic", penalty="none"), loss=loss
    )


@pytest.mark.parametrize("algorithm", ["gd", "random_cd", "sgd"])
@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Lost(), "loss=exponential: .* its value cannot be compiled, .*'scale'"),
        (Steep(), "loss=steep: no algorithm runs on it, as its derivative cannot be "),
    ],
)
def test_a_fit_is_refused_in_one_sentence(algorithm, loss, words):
    with pytest.raises(Unsupported, match=words) as caught:
        fit(problem_of(loss), algorithm, epsilon=1.0, clip=1.0, seed=0)
    assert "\n" not in str(caught.value)


def test_a_loss_that_changes_no_number_is_served():
    found, known = (
        fit(problem_of(loss), "gd", epsilon=np.inf, n_iter=2, step=1.0)
        for loss in (Renamed(), Logistic())
    )
    assert found.w.tolist() == known.w.tolist()


def test_a_loss_of_ones_own_has_kernels_of_its_own():
    loss = Exponential()
    y, z, out = np.array([1.0, -1.0]), np.array([0.3, 2.0]), np.empty(2)
    residuals(loss, y, z, out)
    np.testing.assert_allclose(out, loss.derivative(y, z), rtol=1e-14)
    assert loss_sum(loss, y, z) == pytest.approx(loss.value(y, z).sum(), rel=1e-14)
