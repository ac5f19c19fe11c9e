"""Test the certificate and each solver behind the reference optimum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dp_erm_bench.losses.smooth import Logistic, Squared
from dp_erm_bench.penalties.base import SeparablePenalty
from dp_erm_bench.problems.erm.optimum.composite import (
    Composite,
    direct_solver,
    duality_gap,
)
from dp_erm_bench.problems.erm.optimum.smooth import (
    free_gap,
    minimise_free,
    minimise_ridge,
    newton_minimiser,
)
from dp_erm_bench.problems.erm.optimum.sparse import (
    minimise_sparse,
    polish_signs,
    relative_gap,
)

PENALTIES = [(0.0, 0.1), (0.1, 0.0), (0.05, 0.2), (0.0, 1e-3), (1e-3, 0.0)]
LOSSES = [Logistic(), Squared()]


def data(n=40, p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = np.asfortranarray(rng.standard_normal((n, p)))
    return X, np.where(X[:, 0] + rng.standard_normal(n) > 0.0, 1.0, -1.0)


def minimised(problem):
    return minimise_sparse(problem) if problem.l1 else minimise_ridge(problem)


def gap_at(problem, w):
    return duality_gap(problem, SeparablePenalty(problem.l1, problem.l2), w)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("l1", "l2"), PENALTIES)
@given(w=arrays(float, 5, elements=st.floats(-5, 5).map(lambda v: round(v, 1))))
def test_the_gap_bounds_the_distance_to_the_minimum(loss, l1, l2, w):
    problem = Composite(*data(), loss, l1, l2)
    distance = problem.value(w) - problem.value(minimised(problem))
    assert gap_at(problem, w) >= distance - 1e-12


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("l1", "l2"), PENALTIES)
def test_the_gap_vanishes_at_the_minimum_and_only_there(loss, l1, l2):
    problem = Composite(*data(), loss, l1, l2)
    best = minimised(problem)
    gaps = [gap_at(problem, best + d) for d in (0.0, 1e-4, 1e-2)]
    assert gaps[0] <= 1e-14 < 1e-11 < gaps[1] < gaps[2]


@pytest.mark.parametrize(("l1", "l2"), [(0.1, 0.0), (0.0, 0.1), (0.05, 0.2)])
def test_the_gap_is_primal_minus_dual_for_least_squares(l1, l2):
    X, y = data()
    w = np.array([0.3, -0.2, 0.0, 1.0, 0.0])
    dual = y - X @ w
    u = X.T @ dual / y.size
    if l2 == 0.0:
        s = min(1.0, l1 / np.abs(u).max())
        # The bound on the conjugate that the certificate uses: s phi*(v).
        conjugate = s * (0.5 * dual**2 - dual * y)
        conjugate_penalty = 0.0
    else:
        conjugate = 0.5 * dual**2 - dual * y
        excess = np.maximum(np.abs(u) - l1, 0.0)
        conjugate_penalty = np.square(excess).sum() / (2.0 * l2)
    problem = Composite(X, y, Squared(), l1, l2)
    expected = problem.value(w) + conjugate.mean() + conjugate_penalty
    assert gap_at(problem, w) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shape", [(30, 5), (5, 30), (12, 12)])
@pytest.mark.parametrize("l2", [1e-6, 1.0])
def test_the_newton_system_is_solved_in_either_dimension(shape, l2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape)
    d, g = rng.random(shape[0]), rng.standard_normal(shape[1])
    dense = X.T @ (d[:, None] * X) + l2 * np.eye(shape[1])
    solved = direct_solver(X, d, l2)(g)
    np.testing.assert_allclose(dense @ solved, g, atol=1e-7)


def test_a_singular_newton_system_still_gives_a_descent_direction():
    X, _ = data()
    X[:, 1] = X[:, 0]
    g = X.T @ np.ones(40)
    assert g @ direct_solver(X, np.ones(40), 0.0)(g) > 0.0


def test_newton_is_damped_where_full_steps_diverge():
    # A start so far that the curvature is nearly 0: a full step overshoots.
    X = np.ones((2, 1), order="F")
    y = np.array([1.0, -1.0])
    w, decrement = newton_minimiser(Composite(X, y, Logistic()), np.array([8.0]))
    assert abs(w[0]) <= 1e-9 and decrement <= 1e-18


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_quasi_newton_start_ends_at_the_same_point(loss, monkeypatch):
    problem = Composite(*data(200, 10), loss, l2=0.01)
    expected = minimise_ridge(problem)
    monkeypatch.setattr("dp_erm_bench.problems.erm.optimum.smooth.HEAVY", 0.0)
    np.testing.assert_allclose(minimise_ridge(problem), expected, rtol=1e-9, atol=1e-12)


def test_the_bound_without_penalty_is_the_exact_gap_of_least_squares():
    X, y = data()
    problem = Composite(X, y, Squared())
    w = minimise_free(problem)
    bound, reason = free_gap(problem, w)
    expected = np.linalg.lstsq(X, y)[0]
    assert reason == "" and 0.0 <= bound <= 1e-20
    np.testing.assert_allclose(w, expected, rtol=1e-10)


def test_nearly_dependent_features_are_not_certified_without_penalty():
    X, y = data()
    X = np.column_stack([X, X[:, 0] + 1e-7 * X[:, 1] ** 2])
    problem = Composite(X, y, Squared())
    bound, reason = free_gap(problem, minimise_free(problem))
    assert bound == np.inf and "nearly dependent" in reason


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("start", ["zero", "dense", "wrong signs"])
def test_polish_never_raises_the_gap(loss, start):
    X, y = data(60, 8)
    problem = Composite(X, y, loss, 0.02, 0.0)
    best = minimise_sparse(problem)
    w = {"zero": 0.0 * best, "dense": best + 0.01, "wrong signs": -best}[start]
    polished = polish_signs(problem, w)
    assert relative_gap(problem, polished) <= relative_gap(problem, w)
    assert relative_gap(problem, polish_signs(problem, best)) <= 1e-12


@pytest.mark.parametrize("seed", range(5))
def test_a_wide_lasso_with_small_penalty_is_certified(seed):
    X, y = data(40, 120, seed)
    problem = Composite(X, y, Squared(), 1e-3, 0.0)
    w = minimise_sparse(problem)
    assert relative_gap(problem, w) <= 1e-9
    assert np.count_nonzero(w) <= 40
