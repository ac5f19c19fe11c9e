"""Test the sigmoid loss: smooth, not convex, judged by the gradient's norm."""

import math

import numpy as np
import pytest

from dp_erm_bench import fit, problem_from_arrays
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.losses.smooth import Sigmoid


def problem(penalty="none", **parts):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (80, 3))
    y = np.where(X @ [2.0, -1.0, 0.5] + 0.3 * rng.normal(size=80) > 0.0, 1.0, -1.0)
    given = {"bounds": {"columns": 1.0}, "penalty": penalty, **parts}
    return problem_from_arrays(X, y, loss="sigmoid", **given)


def test_it_counts_errors_smoothly():
    loss, z = Sigmoid(), np.array([-50.0, 0.0, 50.0])
    np.testing.assert_allclose(loss.value(np.ones(3), z), [1.0, 0.5, 0.0], atol=1e-20)
    assert loss.value(1.0, 700.0) > 0.0


def test_the_bend_is_largest_where_it_is_said():
    """At s (1 - s) (1 - 2 s) with s = (3 - sqrt(3)) / 6."""
    s = (3 - math.sqrt(3)) / 6
    bend = Sigmoid().second_derivative(1.0, math.log(1 / s - 1))
    assert bend == pytest.approx(1 / (6 * math.sqrt(3)))


@pytest.mark.parametrize("algorithm", ["output_perturbation", "objective_perturbation"])
def test_who_needs_convexity_refuses_it(algorithm):
    with pytest.raises(Unsupported, match="loss=sigmoid is not convex: the privacy of"):
        fit(problem("l2", strength=1.0), algorithm, epsilon=1.0)


def test_no_optimum_is_certified_and_none_is_compared_with():
    found = fit(problem(), "gd", epsilon=math.inf, n_iter=5)
    assert found.trajectory["relative_error"].isna().all()
    assert problem().optimum.reason == "no certificate: loss sigmoid is not convex"


def test_gradient_descent_comes_to_rest():
    made = problem()
    found = fit(made, "gd", epsilon=math.inf, n_iter=400)
    norms = found.trajectory["gradient_norm"].to_numpy()
    assert norms[0] == pytest.approx(np.linalg.norm(made.gradient(np.zeros(3))))
    assert norms[-1] == pytest.approx(np.linalg.norm(made.gradient(found.w)))
    assert norms[-1] < 0.2 * norms[0]


STILL = [
    {"penalty": "l1", "strength": 10.0},
    {"constraint": {"name": "l2_ball", "radius": 1e-9}},
]


@pytest.mark.parametrize("parts", STILL)
def test_a_point_at_rest_has_no_gradient(parts):
    """A penalty so strong, or a ball so small, that nothing moves."""
    measured = problem(**parts).measures(np.zeros((2, 3)))
    np.testing.assert_allclose(measured["gradient_norm"], 0.0, atol=1e-8)


def test_a_convex_loss_has_no_such_column():
    X, y = np.eye(4), np.array([1.0, -1.0, 1.0, -1.0])
    found = fit(problem_from_arrays(X, y, loss="logistic"), "gd", epsilon=math.inf)
    assert "gradient_norm" not in found.trajectory


@pytest.mark.parametrize("algorithm", ["gd", "sgd", "bias_reduced_sgd"])
def test_private_algorithms_serve_it(algorithm):
    how = {"multiplier": 8.0} if algorithm == "bias_reduced_sgd" else {}
    found = fit(problem(), algorithm, epsilon=1.0, delta=1e-6, clip=0.5, seed=0, **how)
    assert 0.0 < found.epsilon_certified <= 1.0
    assert np.isfinite(found.trajectory["gradient_norm"]).all()
