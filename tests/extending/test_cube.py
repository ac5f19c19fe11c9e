"""Test a constraint from outside the package, in one file."""

import numpy as np
import pytest
from scipy.optimize import minimize

from dp_erm_bench import fit, problem_from_arrays
from dp_erm_bench.errors import Unsupported
from tests.extending.cube.cube import Cube
from tests.loops import each
from tests.serving import RISKS

SERVED = {
    "bias_reduced_sgd",
    "approximate_minima_perturbation",
    "boosting",
    "dual_frank_wolfe",
    "gd",
    "objective_perturbation",
    "output_perturbation",
}


def problem(loss="logistic", radius=0.3, penalty="none", **parts):
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (60, 4))
    y = np.where(X @ [2.0, -1.0, 0.2, 0.0] + rng.normal(size=60) > 0.0, 1.0, -1.0)
    bounds = {"columns": 1.0, "label": 1.0}
    given = {"loss": loss, "penalty": penalty, "bounds": bounds, **parts}
    return problem_from_arrays(X, y, constraint=Cube(radius), **given)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("l2", [0.0, 0.2])
def test_its_optimum_is_certified_and_that_of_another_solver(loss, l2):
    given = problem(loss, penalty={"name": "l2", "strength": l2})
    optimum = given.optimum
    assert optimum.reason == "" and 0.0 <= optimum.gap <= 1e-9
    options = {"ftol": 1e-16, "gtol": 1e-14, "maxiter": 10_000}
    found = minimize(
        given.value, np.zeros(4), bounds=[(-0.3, 0.3)] * 4, options=options
    )
    assert optimum.value == pytest.approx(found.fun, rel=1e-9)
    assert (np.abs(optimum.w) == 0.3).any()


@each("name", RISKS)
def test_who_projects_serves_it_and_all_others_refuse_in_a_sentence(name):
    given = problem("squared", radius=0.1, penalty="l2", strength=0.5)
    if name in SERVED:
        found = fit(given, name, epsilon=1.0, delta=1e-5, seed=0)
        assert found.epsilon_certified <= 1.0
        assert given.constraint.contains(found.w)
        return
    with pytest.raises(Unsupported, match="constraint=cube") as refused:
        fit(given, name, epsilon=1.0, delta=1e-5, seed=0)
    assert "\n" not in str(refused.value)


def test_its_bound_on_margins_serves_the_squared_loss_without_clipping():
    given = problem("squared", radius=0.25)
    assert given.lipschitz == pytest.approx(0.25 * 4 + 1.0)


def test_without_noise_gradient_descent_ends_at_the_optimum():
    found = fit(problem(), "gd", epsilon=float("inf"), seed=0, n_iter=500)
    assert found.trajectory["relative_error"].iloc[-1] == pytest.approx(0.0, abs=1e-9)
