"""Test minimisers of perturbed objectives, and the bounds on their distance."""

import itertools

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench import registry
from dp_erm_bench.constraints.sets import Polytope
from dp_erm_bench.contract.problems import curved_losses, separable_penalties
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.problems.erm import perturbed
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.optimum import steps
from dp_erm_bench.problems.erm.optimum.steps import PerturbedSteps
from dp_erm_bench.problems.erm.perturbed import minimise_perturbed
from tests.loops import each
from tests.penalties.stationary import subdifferential_distance

PENALTIES = {
    "none": {"name": "none"},
    "l1": {"name": "l1", "strength": 0.02},
    "l2": {"name": "l2", "strength": 0.1},
    "elastic_net": {"name": "elastic_net", "strength": 0.05},
    "box": {"name": "box", "lower": -0.3, "upper": 0.2},
}
CONSTRAINTS = {
    "none": "none",
    "l2_ball": {"name": "l2_ball", "radius": 0.5},
    "l1_ball": {"name": "l1_ball", "radius": 0.5},
    "simplex": {"name": "simplex", "radius": 1.0},
    "polytope": {"name": "polytope", **Polytope.example(12, 0.5)},
    "norm_ball": {"name": "norm_ball", "radius": 0.5, "function": "sqrt"},
}
KINKED = [("l1", "none"), ("elastic_net", "none"), ("box", "none")]
FREE = [(penalty, "none") for penalty in PENALTIES]
BOUNDED = [
    (p, c) for p, c in itertools.product(("none", "l2"), CONSTRAINTS) if c != "none"
]


def problem_of(loss="logistic", penalty="l2", constraint="none", p=12, n=60):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, p))
    y = np.where(X @ rng.normal(size=p) > 0.3, 1.0, -1.0)
    given = PENALTIES[penalty], CONSTRAINTS[constraint]
    return build_problem(dataset_from_arrays(X, y), loss, *given)


def linear_term(p=12, size=0.2):
    return size * np.random.default_rng(5).normal(size=p)


def full_gradient(problem, w, linear, ridge):
    return problem.gradient(w) + ridge * w + linear


def test_every_penalty_and_constraint_is_tried():
    assert set(PENALTIES) == set(separable_penalties())
    assert set(CONSTRAINTS) == set(registry.names("constraint"))


@each("loss", curved_losses())
@each(("penalty", "constraint"), FREE)
def test_free_minimisers_are_stationary(loss, penalty, constraint):
    problem, linear, ridge = problem_of(loss, penalty, constraint), linear_term(), 0.3
    found = minimise_perturbed(problem, linear, ridge, 1e-11)
    g = full_gradient(problem, found.w, linear, ridge)
    distance = subdifferential_distance(problem.penalty, g, found.w)
    assert found.distance <= 1e-11
    assert np.linalg.norm(distance) <= 1e-9


@each("loss", curved_losses())
@each(("penalty", "constraint"), BOUNDED)
def test_minimisers_in_a_set_are_fixed_points(loss, penalty, constraint):
    problem, linear, ridge = problem_of(loss, penalty, constraint), linear_term(), 0.3
    found = minimise_perturbed(problem, linear, ridge, 1e-11)
    l2 = problem.penalty.l2
    g = full_gradient(problem, found.w, linear, ridge) + l2 * found.w
    moved = problem.constraint.project(found.w - 0.1 * g)
    assert found.distance <= 1e-11
    assert np.linalg.norm(moved - found.w) <= 1e-10
    assert problem.constraint.contains(found.w, 1e-10)


@each(("penalty", "constraint"), [*FREE, *BOUNDED])
def test_the_distance_is_a_bound(penalty, constraint):
    """A rough answer is no farther from a fine one than it says."""
    problem, linear = problem_of("logistic", penalty, constraint), linear_term()
    fine = minimise_perturbed(problem, linear, 0.05, 1e-12)
    rough = minimise_perturbed(problem, linear, 0.05, 1e-1)
    assert np.linalg.norm(rough.w - fine.w) <= rough.distance + fine.distance


@pytest.mark.parametrize("penalty", ["l2", "elastic_net"])
def test_without_perturbation_it_is_the_reference_optimum(penalty):
    problem = problem_of("logistic", penalty)
    found = minimise_perturbed(problem, np.zeros(12), 0.0, 1e-12)
    assert problem.value(found.w) == pytest.approx(problem.optimum.value, rel=1e-9)


def test_a_linear_term_moves_a_least_squares_answer_exactly():
    rng = np.random.default_rng(0)
    X, y, b = rng.normal(size=(50, 4)), rng.normal(size=50), rng.normal(size=4)
    data = dataset_from_arrays(X, y)
    problem = build_problem(data, "squared", {"name": "l2", "strength": 0.1})
    found = minimise_perturbed(problem, b, 0.2, 1e-12)
    exact = np.linalg.solve(X.T @ X / 50 + 0.3 * np.eye(4), X.T @ y / 50 - b)
    np.testing.assert_allclose(found.w, exact, rtol=1e-10)


def test_sparse_features_give_the_same():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 8)) * (rng.random((40, 8)) < 0.4)
    y = np.where(rng.random(40) < 0.5, 1.0, -1.0)
    answers = [
        minimise_perturbed(
            build_problem(dataset_from_arrays(made, y), "logistic", PENALTIES["l2"]),
            linear_term(8),
            0.0,
            1e-12,
        ).w
        for made in (X, sparse.csc_array(X))
    ]
    np.testing.assert_allclose(*answers, rtol=1e-8, atol=1e-12)


def test_a_huge_term_and_a_tiny_ridge_are_still_verified():
    problem = problem_of("huber", "none")
    found = minimise_perturbed(problem, linear_term(size=50.0), 1e-3, 1e-8)
    g = full_gradient(problem, found.w, linear_term(size=50.0), 1e-3)
    assert np.linalg.norm(g) <= 1e-3 * 1e-6
    assert found.distance <= 1e-6


def test_what_newton_leaves_is_polished(monkeypatch):
    """For wide sparse features its steps are inexact, and end early."""
    problem, linear = problem_of("logistic", "l2"), linear_term()
    exact = minimise_perturbed(problem, linear, 0.3, 1e-11)
    near = exact.w + 1e-5
    monkeypatch.setattr(perturbed, "newton_minimiser", lambda *given: (near, np.inf))
    found = minimise_perturbed(problem, linear, 0.3, 1e-11)
    assert found.distance <= 1e-11
    assert np.linalg.norm(found.w - exact.w) <= 2e-11
    rough = minimise_perturbed(problem, linear, 0.3, 1e-3)
    assert 2e-11 < rough.distance <= 1e-3


@pytest.fixture
def newton_alone(monkeypatch):
    """All problems are solved by proximal Newton steps, and by nothing else."""
    monkeypatch.setattr(steps, "LARGE", 0)
    monkeypatch.setattr(steps, "UNCOMPILED", None)
    monkeypatch.setattr(PerturbedSteps, "take_accelerated_steps", None)


@each("loss", ["logistic", "squared", "huber"])
@each(("penalty", "constraint"), [*KINKED, *BOUNDED])
def test_proximal_newton_steps_alone_find_the_minimiser(
    newton_alone, loss, penalty, constraint
):
    problem, linear = problem_of(loss, penalty, constraint), linear_term()
    found = minimise_perturbed(problem, linear, 0.05, 1e-10)
    g = full_gradient(problem, found.w, linear, 0.05)
    assert found.distance <= 1e-10
    if constraint == "none":
        distance = subdifferential_distance(problem.penalty, g, found.w)
        assert np.linalg.norm(distance) <= 1e-9
    else:
        g = g + problem.penalty.l2 * found.w
        moved = problem.constraint.project(found.w - 0.1 * g)
        assert np.linalg.norm(moved - found.w) <= 1e-10


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_few_newton_steps_do_on_an_ill_conditioned_problem(
    newton_alone, monkeypatch, form
):
    """A product with the features is rare: accelerated steps need hundreds here."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 15)) * np.geomspace(1.0, 0.02, 15)
    y = np.where(X @ rng.normal(size=15) > 0.1, 1.0, -1.0)
    data, ball = dataset_from_arrays(form(X), y), {"name": "l1_ball", "radius": 10}
    problem, calls = build_problem(data, "logistic", PENALTIES["none"], ball), []
    gradient = PerturbedSteps.gradient

    def counted(self, w):
        calls.append(w)
        return gradient(self, w)

    monkeypatch.setattr(PerturbedSteps, "gradient", counted)
    found = minimise_perturbed(problem, linear_term(15, 0.01), 1e-4, 1e-9)
    assert found.distance <= 1e-9
    assert len(calls) <= 60


def test_where_newton_steps_fail_accelerated_ones_follow(monkeypatch):
    problem, linear = problem_of("logistic", "none", "l1_ball"), linear_term()
    exact = minimise_perturbed(problem, linear, 0.05, 1e-11)
    wrong = 1e-2 * np.eye(problem.p)
    monkeypatch.setattr(steps, "LARGE", 0)
    monkeypatch.setattr(PerturbedSteps, "hessian", lambda *given: wrong)
    failing = PerturbedSteps(problem, linear, 0.05)
    assert failing.newton_pays
    assert failing.take_newton_steps(np.zeros(problem.p), 1e-11).distance > 1e-3
    found = minimise_perturbed(problem, linear, 0.05, 1e-11)
    assert found.distance <= 1e-11
    assert np.linalg.norm(found.w - exact.w) <= 2e-11


def test_newton_steps_are_for_many_records_of_few_features(monkeypatch):
    def pays(n, p):
        problem = problem_of(p=p, n=n, constraint="simplex")
        return PerturbedSteps(problem, linear_term(p), 0.1).newton_pays

    assert pays(10_000, 12)
    assert not pays(60, 12)
    assert not pays(10_000, 40)
    polytope = problem_of(p=12, n=10_000, constraint="polytope")
    assert not PerturbedSteps(polytope, linear_term(12), 0.1).newton_pays
    monkeypatch.setattr(steps, "LARGE", 0)
    assert pays(60, 12)
    assert not pays(60, 61)
