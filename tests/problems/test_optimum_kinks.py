import numpy as np
import pytest
from scipy import optimize

from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.losses.kinked import Absolute
from dp_erm_bench.problems.erm.build import build_problem, erm_from_arrays
from dp_erm_bench.problems.erm.optimum import choice
from dp_erm_bench.problems.erm.optimum.certified import KINKED, compute_optimum

BOX = {"name": "box", "lower": -0.2, "upper": 0.3}
RNG = np.random.default_rng(4)
X = RNG.normal(size=(90, 4))
SCORES = X @ np.array([0.5, -0.3, 0.1, 0.0]) + 0.4 * RNG.laplace(size=90)


def problem_of(loss, **parts):
    y = np.sign(SCORES) if loss == "hinge" else SCORES
    return erm_from_arrays(X, y, loss=loss, **parts)


def by_linear_program(problem, l1=0.0, lower=None, upper=None, ball=None):
    """The minimum by HiGHS: w = a - b, and a slack above the loss of each record."""
    data, n, p = problem.dataset, problem.n, problem.p
    signed = np.hstack([data.X, -data.X])
    if problem.loss.name == "hinge":
        A, b = np.hstack([-data.y[:, None] * signed, -np.eye(n)]), -np.ones(n)
    else:
        A = np.vstack(
            [np.hstack([signed, -np.eye(n)]), np.hstack([-signed, -np.eye(n)])]
        )
        b = np.concatenate([data.y, -data.y])
    if ball is not None:
        A, b = np.vstack([A, [1.0] * 2 * p + [0.0] * n]), np.append(b, ball)
    ends = [(0, upper)] * p + [(0, None if lower is None else -lower)] * p
    cost = np.concatenate([np.full(2 * p, l1), np.full(n, 1.0 / n)])
    found = optimize.linprog(cost, A, b, bounds=ends + [(0, None)] * n, method="highs")
    assert found.status == 0
    return found.fun


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize(
    "parts, program",
    [
        ({"penalty": "l1", "strength": 0.05}, {"l1": 0.05}),
        ({"penalty": BOX}, {"lower": -0.2, "upper": 0.3}),
        ({"constraint": {"name": "l1_ball", "radius": 0.4}}, {"ball": 0.4}),
    ],
)
def test_minima_are_those_of_the_linear_program(loss, parts, program):
    problem = problem_of(loss, **parts)
    found = compute_optimum(problem)
    least = by_linear_program(problem, **program)
    assert found.value == pytest.approx(least, rel=KINKED) and found.gap <= KINKED
    assert found.value >= least - 1e-12


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
@pytest.mark.parametrize(
    "parts",
    [
        {"penalty": "l2", "strength": 0.03},
        {"constraint": {"name": "l2_ball", "radius": 0.2}},
    ],
)
def test_the_certificate_bounds_what_is_lost_anywhere(loss, parts):
    problem, rng = problem_of(loss, **parts), np.random.default_rng(1)
    least = problem.optimum.value
    for size in (1e-8, 1e-4, 0.1, 1.0):
        moved = problem.optimum.w + size * rng.normal(size=problem.p)
        w = problem.constraint.project(moved)
        gap, doubt = choice.certified_gap(problem, w)
        assert not doubt and problem.value(w) - least <= gap + 1e-12


@pytest.mark.parametrize(
    "name, loss, strength",
    [
        ("breast_cancer", "hinge", "1/n"),
        ("breast_cancer", "hinge", 0.1),
        ("median_regression", "absolute", "1/n"),
        ("median_regression", "absolute", 0.1),
    ],
)
def test_minima_with_a_ridge_are_certified(name, loss, strength):
    data = load_dataset(dataset_spec(name))
    penalty = {"name": "l2", "strength": strength}
    found = compute_optimum(build_problem(data, loss, penalty))
    assert found.reason == "" and 0.0 <= found.gap <= KINKED


def test_without_a_penalty_or_a_set_nothing_is_certified():
    assert "there is no penalty" in problem_of("absolute").optimum.reason
    linear = problem_of("linear", penalty="l2", strength=0.1)
    assert "negative" in linear.optimum.reason


def test_a_kink_that_no_smooth_loss_stands_for_is_not_certified(monkeypatch):
    problem = problem_of("absolute", penalty="l2", strength=0.1)
    monkeypatch.setattr(Absolute, "smooth_surrogate", Loss.smooth_surrogate)
    assert "is not smooth" in compute_optimum(problem).reason


def test_labels_that_are_all_met_have_no_relative_error():
    data = dataset_from_arrays(X, np.zeros(90))
    found = build_problem(data, "absolute", {"name": "l2", "strength": 0.1}).optimum
    assert found.value is None and "close to 0" in found.reason
