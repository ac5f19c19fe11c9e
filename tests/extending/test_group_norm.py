"""Test a penalty from outside the package that is not separable, in one file."""

import numpy as np
import pytest

from dp_erm_bench import fit, problem_from_arrays
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.penalties.base import SeparablePenalty
from tests.extending.group_norm.group_norm import GroupNorm
from tests.loops import each
from tests.serving import RISKS

SERVED = {
    "gd": {},
    "boosting": {"n_iter": 5},
    "output_perturbation": {"ridge": 0.5},
    "objective_perturbation": {"ridge": 0.5},
    "approximate_minima_perturbation": {"ridge": 0.5},
    "permutation_sgd": {"batch_size": "full"},
}
BOUNDS = {"columns": 5.0, "norm": 8.0}


def problem(loss="logistic", strength=0.1, p=6, **parts):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, p))
    w = np.where(np.arange(p) < 2, 2.0, 0.0)
    y = np.where(X @ w + rng.normal(size=80) > 0.0, 1.0, -1.0)
    psi = GroupNorm(strength)
    return problem_from_arrays(X, y, loss=loss, penalty=psi, bounds=BOUNDS, **parts)


def by_coordinates(given):
    """Minimise over one group after the other, each by scipy: no prox, no gradient."""
    from scipy.optimize import minimize

    w, p = np.full(given.p, 0.1), given.p
    for _ in range(60):
        before = given.value(w)
        for first in range(0, p, 2):

            def along(part, first=first):
                moved = w.copy()
                moved[first : first + 2] = part
                return given.value(moved)

            starts = (w[first : first + 2], np.zeros(2))
            options = {"xatol": 1e-11, "fatol": 1e-15, "maxiter": 4000}
            found = [
                minimize(along, at, method="Nelder-Mead", options=options)
                for at in starts
            ]
            ends = [*(one.x for one in found), np.zeros(2)]
            w[first : first + 2] = min(ends, key=along)
        if before - given.value(w) <= 1e-13:
            break
    return given.value(w), w


@pytest.mark.parametrize("loss", ["logistic", "squared", "smoothed_hinge"])
def test_its_optimum_is_certified_and_that_of_another_solver(loss):
    given = problem(loss)
    optimum = given.optimum
    assert optimum.reason == "" and 0.0 <= optimum.gap <= 1e-9
    value, w = by_coordinates(given)
    assert optimum.value == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(optimum.w, w, atol=1e-4)
    dead = given.penalty.norms(optimum.w) == 0.0
    assert dead.any() and not dead.all()


def test_the_gap_is_the_distance_to_the_dual_of_least_squares():
    given = problem("squared")
    X, y, w = given.dataset.X, given.dataset.y, np.array([0.3, -0.2, 0, 0, 1.0, 0.5])
    v = X @ w - y
    u = -X.T @ v / given.n
    s, distance = given.penalty.dual_distance(w, u)
    assert s == pytest.approx(min(1.0, 0.1 / given.penalty.norms(u).max()))
    assert given.penalty.norms(s * u).max() <= 0.1 * (1 + 1e-12)
    assert distance == pytest.approx(given.penalty.value(w) - s * u @ w)
    assert (1 - s) * 0.5 * np.mean(v**2) + distance >= given.value(w) - (
        given.optimum.value * (1 + 1e-9)
    )


@pytest.mark.parametrize("strength", [1e-3, 10.0])
def test_weak_and_strong_penalties_are_certified(strength):
    optimum = problem(strength=strength).optimum
    assert optimum.gap <= 1e-9
    assert optimum.w.any() == (strength < 1.0)


@each("name", RISKS)
def test_algorithms_serve_it_and_all_others_refuse_in_a_sentence(name):
    given = problem()
    extra = SERVED.get(name, {})
    if name in SERVED:
        found = fit(given, name, epsilon=2.0, seed=0, **extra)
        assert found.epsilon_certified <= 2.0 and np.isfinite(found.w).all()
        assert found.trajectory["relative_error"].notna().all()
        return
    with pytest.raises(Unsupported) as refused:
        fit(given, name, epsilon=2.0, seed=0, **extra)
    assert str(refused.value).startswith("penalty=group_norm is not separable")


def test_without_noise_gradient_descent_ends_at_the_optimum():
    given = problem()
    found = fit(given, "gd", epsilon=float("inf"), seed=0, n_iter=2_000)
    assert found.trajectory["relative_error"].iloc[-1] == pytest.approx(0.0, abs=1e-9)


def test_without_noise_output_perturbation_is_the_ridged_optimum():
    given, ridge = problem(), 0.5
    found = fit(given, "output_perturbation", epsilon=float("inf"), seed=0, ridge=ridge)
    g = given.gradient(found.w) + ridge * found.w
    step = found.w - given.penalty.prox(found.w - g, 1.0)
    assert np.abs(step).max() <= 1e-8


def test_rows_of_a_batch_have_their_own_steps():
    psi, rng = GroupNorm(0.7, 3), np.random.default_rng(0)
    v, step = rng.normal(size=(4, 6)), rng.uniform(0.1, 3.0, (4, 1))
    rows = [psi.prox(row, float(size[0])) for row, size in zip(v, step, strict=True)]
    np.testing.assert_array_equal(psi.prox(v, step), rows)


def test_groups_that_do_not_divide_the_features_are_refused():
    with pytest.raises(UsageError, match=r"penalty\.size=2: must divide p=5"):
        problem(p=5)


def test_over_a_constraint_no_step_serves_it_and_no_optimum_is_certified():
    given = problem(constraint="l2_ball")
    assert given.optimum.value is None
    assert given.optimum.reason == (
        "no reference solver for penalty group_norm over constraint l2_ball"
    )
    with pytest.raises(Unsupported, match="gd cannot combine a projection"):
        fit(given, "gd", epsilon=1.0, seed=0)


def test_a_separable_penalty_has_no_methods_of_its_own():
    with pytest.raises(TypeError, match="derive from Penalty"):

        class Own(SeparablePenalty):
            def prox(self, v, step):
                return v
