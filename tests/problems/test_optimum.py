import itertools
import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from dp_erm_bench import registry
from dp_erm_bench.constraints.sets import L2Ball
from dp_erm_bench.contract.problems import curved_losses
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.losses.smooth import Logistic, Squared
from dp_erm_bench.paths import cache_dir
from dp_erm_bench.penalties.base import Penalty
from dp_erm_bench.penalties.separable import L1, L2, NoPenalty
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.optimum import (
    certified,
    composite,
    proximal,
    smooth,
    sparse,
)
from tests.loops import each
from tests.penalties.stationary import subdifferential_distance

LOSSES = curved_losses()
SHAPES = {
    "tall": (120, 6, False),
    "square": (60, 60, False),
    "wide": (30, 90, False),
    "ill-scaled": (200, 12, True),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path / "cache"))


def make(loss, penalty="none", strength=None, shape="tall", seed=0):
    n, p, ill = SHAPES[shape] if isinstance(shape, str) else shape
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    if ill:
        X = (X + 2.0 * rng.standard_normal((n, 1))) * 10.0 ** rng.uniform(-3, 3, p)
    w = rng.standard_normal(p) / (np.abs(X).max(axis=0) * np.sqrt(p))
    z = X @ w + 0.7 * rng.standard_normal(n)
    classes = registry.build("loss", loss).classification
    y = np.where(z > 0.0, 1.0, -1.0) if classes else z
    given = {} if strength is None else {"strength": strength}
    return build_problem(dataset_from_arrays(X, y), loss, {"name": penalty, **given})


def stationarity(problem, w):
    """Return the distance of 0 to the subdifferential, relative to its size at 0."""
    gradient = problem.gradient(w)
    scale = np.sqrt(np.square(problem.dataset.X).mean(axis=0))
    distance = subdifferential_distance(problem.penalty, gradient, w) / scale
    return distance.max() / (np.abs(problem.gradient(np.zeros(w.size))) / scale).max()


@each("shape", SHAPES)
@each("strength", [1e-5, 1e-2, 1.0])
@each("penalty", ["elastic_net", "l1", "l2"])
@each("loss", LOSSES)
def test_a_penalised_optimum_is_certified_and_stationary(
    loss, penalty, strength, shape
):
    problem = make(loss, penalty, strength, shape)
    found = certified.certified_optimum(problem)
    if found.value is None:
        assert "close to 0" in found.reason
        assert shape in ("square", "wide") and strength == 1e-5
        return
    assert found.gap <= 1e-9 and found.reason == ""
    assert found.value == problem.value(found.w)
    assert stationarity(problem, found.w) <= 1e-7


@pytest.mark.parametrize("shape", ["tall", "ill-scaled"])
@pytest.mark.parametrize("loss", LOSSES)
def test_an_optimum_without_penalty_is_certified_and_stationary(loss, shape):
    problem = make(loss, shape=shape)
    found = certified.certified_optimum(problem)
    assert found.gap <= 1e-12
    assert stationarity(problem, found.w) <= 1e-9


@settings(max_examples=60)
@given(
    loss=st.sampled_from(LOSSES),
    penalty=st.sampled_from(["elastic_net", "l1", "l2"]),
    power=st.floats(-4.0, 1.0),
    n=st.integers(2, 40),
    p=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_no_point_is_better_than_the_certificate_allows(
    loss, penalty, power, n, p, seed
):
    problem = make(loss, penalty, 10.0**power, (n, p, False), seed)
    found = certified.compute_optimum(problem)
    if found.value is None:
        assert found.reason
        return
    rng = np.random.default_rng(seed)
    lowest = found.value * (1.0 - found.gap) * (1.0 - 1e-14)
    for size in (1e-8, 1e-4, 1.0):
        near = found.w + size * rng.standard_normal((50, p))
        assert problem.value(near).min() >= lowest


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_a_general_purpose_solver_finds_nothing_lower(loss, penalty):
    problem = make(loss, penalty, 0.05)

    def split(v):
        kink = problem.penalty.value(v[:6]) + problem.penalty.value(v[6:])
        margins = problem.dataset.X @ (v[:6] - v[6:])
        return problem.loss.value(problem.dataset.y, margins).mean() + kink

    found = certified.certified_optimum(problem)
    bounds = [(0.0, None)] * 12
    start = np.full(12, 0.1)
    other = optimize.minimize(split, start, method="L-BFGS-B", bounds=bounds)
    assert found.value <= other.fun
    assert found.value == pytest.approx(other.fun, rel=1e-6)


def test_ridge_regression_has_its_closed_form():
    problem = make("squared", "l2", 0.3)
    X, y, n = problem.dataset.X, problem.dataset.y, problem.n
    expected = np.linalg.solve(X.T @ X / n + 0.3 * np.eye(6), X.T @ y / n)
    np.testing.assert_allclose(problem.optimum.w, expected, rtol=1e-10)


@pytest.mark.parametrize("rho", [0.01, 1.0, 100.0])
def test_splitting_ends_at_the_minimiser_whatever_weight_it_begins_with(rho):
    lasso = make("logistic", "l1", 0.05)
    X, y, l1 = lasso.dataset.X, lasso.dataset.y, 0.05
    smooth_part = composite.Composite(X, y, lasso.loss)

    def prox(v, step):
        return np.sign(v) * np.maximum(np.abs(v) - step * l1, 0.0)

    points = proximal.admm_points(smooth_part, prox, rho, np.zeros(6))
    end = next(itertools.islice(points, proximal.MOST_SPLIT, None))
    np.testing.assert_allclose(end, lasso.optimum.w, rtol=1e-6, atol=1e-9)


def test_a_step_along_a_face_ends_exactly_where_a_coordinate_is_0():
    lasso = make("squared", "l1", 0.1)
    whole = composite.Composite(lasso.dataset.X, lasso.dataset.y, lasso.loss, 0.1)
    w, off = lasso.optimum.w.copy(), int(np.argmin(np.abs(lasso.optimum.w)))
    w[off] = 1e-3
    _, hit, *_ = sparse._orthant_steps(whole, w, near=True)
    assert lasso.optimum.w[off] == hit[off] == 0.0 and np.count_nonzero(hit) > 1


def test_lasso_above_the_largest_gradient_is_exactly_zero():
    largest = np.abs(make("squared").gradient(np.zeros(6))).max()
    above = make("squared", "l1", 1.0001 * largest).optimum
    below = make("squared", "l1", 0.999 * largest).optimum
    assert (above.w == 0.0).all() and above.gap == 0.0
    assert np.count_nonzero(below.w) == 1


def test_sparse_optimum_has_exact_zeros_off_its_support():
    found = make("logistic", "l1", 0.02, "wide").optimum
    assert 0 < np.count_nonzero(found.w) < 30


def test_the_array_is_read_only():
    with pytest.raises(ValueError, match="read-only"):
        make("squared", "l2", 0.1).optimum.w[0] = 1.0


def test_scaling_the_units_of_features_does_not_change_the_free_minimum():
    problem = make("logistic")
    scaled = dataset_from_arrays(
        problem.dataset.X * [1e-6, 1e6, 1, 1, 1, 1], problem.dataset.y
    )
    found = build_problem(scaled, "logistic", "none").optimum
    assert found.value == pytest.approx(problem.optimum.value, rel=1e-12)


@pytest.mark.parametrize("extra", ["copy", "combination", "zero"])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_dependent_features_do_not_change_the_free_minimum(loss, extra):
    problem = make(loss)
    X = problem.dataset.X
    column = {"copy": X[:, 0], "combination": X @ np.arange(6.0), "zero": 0.0 * X[:, 0]}
    wider = dataset_from_arrays(np.column_stack([X, column[extra]]), problem.dataset.y)
    found = build_problem(wider, loss, "none").optimum
    assert found.value == pytest.approx(problem.optimum.value, rel=1e-12)


def test_features_that_are_all_zero_leave_the_value_at_zero():
    dataset = dataset_from_arrays(np.zeros((4, 2)), np.array([1.0, -1.0, 1.0, 1.0]))
    found = build_problem(dataset, "logistic", "none").optimum
    assert found.value == pytest.approx(math.log(2.0))


def test_separable_classes_without_penalty_have_no_optimum():
    X = np.random.default_rng(0).standard_normal((50, 3))
    dataset = dataset_from_arrays(X, np.sign(X[:, 0]))
    found = build_problem(dataset, "logistic", "none").optimum
    assert (found.value, found.w, found.gap) == (None, None, None)
    assert "separable" in found.reason or "close to 0" in found.reason


def test_quasi_separable_classes_without_penalty_have_no_optimum():
    # The first feature separates all but two equal records of opposite labels.
    X = np.array([[1.0, 0.5], [2.0, -1.0], [-1.0, 0.3], [-2.0, 1.0], [0, 1], [0, 1]])
    dataset = dataset_from_arrays(X, np.array([1.0, 1.0, -1.0, -1.0, 1.0, -1.0]))
    found = build_problem(dataset, "logistic", "none").optimum
    assert found.value is None and "ill-conditioned" in found.reason
    ridge = build_problem(dataset, "logistic", {"name": "l2", "strength": 1e-3}).optimum
    assert ridge.gap <= 1e-9


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_interpolation_has_no_optimum(loss):
    found = make(loss, shape="wide").optimum
    assert found.value is None and found.reason


def test_labels_that_are_all_zero_have_no_optimum():
    dataset = dataset_from_arrays(np.ones((3, 1)), np.zeros(3))
    found = build_problem(dataset, "squared", {"name": "l2", "strength": 1.0}).optimum
    assert found.value is None and "close to 0" in found.reason


@pytest.mark.parametrize("strength", [1e-4, 1e-2])
def test_a_loss_that_the_solvers_do_not_know_by_name_is_served(strength):
    class Tilted(Logistic):
        def value(self, y, z):
            return super().value(y, 2.0 * z) / 4.0

        def derivative(self, y, z):
            return super().derivative(y, 2.0 * z) / 2.0

        def second_derivative(self, y, z):
            return super().second_derivative(y, 2.0 * z)

    base = make("logistic")
    for penalty in (NoPenalty(), L1(strength), L2(strength)):
        fields = (base.dataset, Tilted(), penalty, base.constraint)
        found = certified.compute_optimum(type(base)(*fields))
        assert found.gap <= 1e-9


def test_both_parts_of_an_elastic_net_are_served():
    class Elastic(L1):
        l2 = 0.05

    base = make("squared", shape="wide")
    problem = type(base)(base.dataset, Squared(), Elastic(0.1), base.constraint)
    found = certified.compute_optimum(problem)
    assert found.gap <= 1e-9
    assert stationarity(problem, found.w) <= 1e-9
    assert 0 < np.count_nonzero(found.w) < 90


class OtherBall(L2Ball):
    name = "ball"


def test_boxes_and_other_sets_are_answered_with_a_reason():
    class Box(L2):
        lower = 0.0

    base = make("squared")
    box = type(base)(base.dataset, base.loss, Box(0.1), base.constraint)
    ball = type(base)(base.dataset, base.loss, L1(0.1), OtherBall())
    assert "box" in certified.compute_optimum(box).reason
    assert "ball" in certified.compute_optimum(ball).reason


@pytest.mark.parametrize("radius", [0.1, 5.0])
def test_a_set_of_another_name_is_served_by_its_projection(radius):
    base = make("logistic")
    parts = (base.dataset, base.loss, L2(0.1))
    one, other = (
        certified.compute_optimum(type(base)(*parts, ball(radius)))
        for ball in (L2Ball, OtherBall)
    )
    assert other.gap <= 1e-9
    assert other.value == pytest.approx(one.value, rel=1e-9)
    np.testing.assert_allclose(other.w, one.w, atol=1e-4)


def test_a_failed_solver_is_never_certified(monkeypatch):
    problem = make("logistic", "l2", 0.1)
    monkeypatch.setattr(smooth, "minimise_ridge", lambda problem: np.zeros(6))
    found = certified.certified_optimum(problem)
    assert found.value is None and "the relative gap reached is" in found.reason


class TestCache:
    def forbid(self, monkeypatch):
        def compute(problem):
            raise AssertionError("computed again")

        monkeypatch.setattr(certified, "compute_optimum", compute)

    def stored(self):
        (path,) = (cache_dir() / "optimum").glob("*.json")
        return path

    @pytest.mark.parametrize("penalty", ["l1", "l2"])
    def test_the_second_answer_is_read_and_bit_equal(self, penalty, monkeypatch):
        first = certified.certified_optimum(make("logistic", penalty, 0.01))
        self.forbid(monkeypatch)
        second = certified.certified_optimum(make("logistic", penalty, 0.01))
        assert (second.value, second.gap) == (first.value, first.gap)
        np.testing.assert_array_equal(second.w, first.w)
        assert not second.w.flags.writeable

    def test_a_reason_is_cached_too(self, monkeypatch):
        first = certified.certified_optimum(make("logistic", shape="wide"))
        self.forbid(monkeypatch)
        second = certified.certified_optimum(make("logistic", shape="wide"))
        assert second.reason == first.reason != ""

    def test_another_objective_is_another_entry(self):
        values = {make("logistic", "l2", s).optimum.value for s in (0.1, 0.2)}
        assert len(values) == 2
        assert len(list((cache_dir() / "optimum").iterdir())) == 2

    @pytest.mark.parametrize(
        "change",
        [
            {"w": [0.0]},
            {"w": "text"},
            {"value": 0.123},
            {"value": None},
            {"gap": None},
            {"format": -1},
            {"w": None},
        ],
    )
    def test_a_damaged_entry_is_computed_again(self, change):
        problem = make("logistic", "l2", 0.1)
        first = certified.certified_optimum(problem)
        record = json.loads(self.stored().read_text())
        self.stored().write_text(json.dumps(record | change))
        second = certified.certified_optimum(problem)
        np.testing.assert_array_equal(second.w, first.w)
        assert json.loads(self.stored().read_text()) == record

    @pytest.mark.parametrize("text", ["", "[1, 2]", "null", "{}"])
    def test_an_entry_of_another_kind_is_computed_again(self, text):
        problem = make("logistic", "l2", 0.1)
        certified.certified_optimum(problem)
        self.stored().write_text(text)
        assert certified.certified_optimum(problem).gap <= 1e-9


@dataclass(frozen=True)
class Ridge(Penalty):
    """The l2 penalty, as one that is not separable."""

    name = "ridge"
    strong_convexity = 0.1
    quadratic = True

    def value(self, w):
        return 0.05 * np.square(w).sum(axis=-1)

    def prox(self, v, step):
        return v / (1.0 + 0.1 * step)

    def dual_distance(self, w, u):
        return 1.0, float(np.square(u - 0.1 * w).sum()) / 0.2


def test_the_minimum_of_the_whole_space_is_not_certified_over_a_set():
    base = make("logistic", "l2", 0.1)
    parts = (base.dataset, base.loss, Ridge())
    free = certified.compute_optimum(type(base)(*parts, base.constraint))
    assert free.value == pytest.approx(base.optimum.value, rel=1e-9)
    found = certified.compute_optimum(type(base)(*parts, L2Ball(1e-3)))
    assert found.reason == (
        "no reference solver for penalty ridge over constraint l2_ball"
    )
