"""Test records with the largest and smallest floats, and iterates that overflow."""

import itertools
import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from dp_erm_bench import Diverged
from dp_erm_bench.api import fit
from dp_erm_bench.contract.candidate import run_at
from dp_erm_bench.datasets.base import Bounds, record_norms
from dp_erm_bench.datasets.prepare import Recipe, map_features, prepare_arrays
from dp_erm_bench.errors import NotSolved, UsageError
from dp_erm_bench.kernels.projections import project
from dp_erm_bench.problems.erm.build import erm_from_arrays
from dp_erm_bench.problems.erm.objective import ReleasedSmoothness
from dp_erm_bench.problems.mean import problem_from_records
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.bounds import outer_change
from tests.loops import each
from tests.privacy.replaying import replay_audit
from tests.serving import (
    ALGORITHMS,
    BALLS,
    KINDS,
    RISKS,
    built,
    constraint_of,
    known,
    needs_bounds,
    parameters,
)

LARGE = (1e160, 1e200, 1e308)
VALUES = (*LARGE, 1e-170)
PLACED = [
    *((1e160, "row"), (1e200, "entry"), (1e308, "row"), (1e308, "entry")),
    *((1e308, "label"), (1e-170, "entry"), (1e200, "label"), (1e200, "row")),
]
FORMS = (np.asarray, sp.csc_array)
FEW = 12
CLIPPED = [n for n in RISKS if "clip" in parameters(n) and not needs_bounds(n)]
"""The algorithms that serve records without declared bounds, by a threshold."""


def records(value, place):
    """Twelve records of which one has a value in all entries, in one, or as label."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.0, 1.0, (FEW, 3))
    y = np.where(X[:, 0] + 0.3 > 0.0, 1.0, -1.0)
    if place == "row":
        X[3] = value * np.array([1.0, -1.0, 1.0])
    elif place == "entry":
        X[3] = [0.0, value, 0.5]
    else:
        y[3] = value
    return X, y


def posed(algorithm, X, y, form=np.asarray, **given):
    how = {"penalty": "l2", "strength": 0.5, "constraint": constraint_of(algorithm)}
    return erm_from_arrays(form(X), y, **{"loss": "logistic", **how, **given})


def public(problem):
    """The problem with constants that are the same for all records."""
    return problem.with_released(ReleasedSmoothness(np.ones((1, 3)), "declared"))


def short(algorithm, **given):
    return known(algorithm, clip=1.0, n_iter=6, **given)


@pytest.mark.filterwarnings("ignore::dp_erm_bench.errors.ClippedRecords")
@each("value", VALUES)
@each("algorithm", RISKS)
def test_a_fit_with_one_record_of_any_size_is_finite(algorithm, value):
    """With a threshold alone where that is enough; nor is numpy's LinAlgError seen."""
    form, place = FORMS[VALUES.index(value) % 2], "row" if value < 1e300 else "entry"
    X, y = records(value, place)
    clip = needs_bounds(algorithm)
    how = (
        {"bounds": {"norm": 1.0, "columns": 1.0}, "clip_to_bounds": True}
        if clip
        else {}
    )
    made = posed(algorithm, X, y, form, **how)
    found = fit(made, algorithm, epsilon=1.0, delta=1e-3, seed=0, **short(algorithm))
    assert np.isfinite(found.w).all() and found.epsilon_certified <= 1.0
    assert np.isfinite(found.trajectory["nnz"]).all()


@each("value", [1e160, 1e308])
@each("algorithm", ALGORITHMS)
def test_without_noise_it_diverges_or_is_finite(algorithm, value):
    """There is no threshold then: no error of a library, and nothing infinite."""
    X, y = records(value, "row")
    risk = algorithm in RISKS
    made = posed(algorithm, X, y) if risk else problem_from_records(np.tile(X, 20))
    params = known(algorithm, n_iter=6)
    try:
        assert np.isfinite(fit(made, algorithm, epsilon=math.inf, **params).w).all()
    except (Diverged, NotSolved, UsageError) as error:
        assert "\n" not in str(error)


def replayed(algorithm, pair, adjacency, **params):
    """What a run on one problem and its replay on another one differ by."""
    solver = built(algorithm, **short(algorithm, **params))
    one, other = (run_at(p, [solver], 0.3, adjacency=adjacency) for p in pair)
    return replay_audit(
        *(one.mechanisms, lambda _: one.iterates()),
        *(other.mechanisms, lambda _: other.iterates()),
    )


@each("form", FORMS)
@each("loss", ["logistic", "squared"])
@each("algorithm", CLIPPED)
def test_no_record_moves_a_query_by_more_than_is_declared(algorithm, loss, form):
    """Against zeros or another record, whatever its size."""
    for (value, place), adjacency in zip(PLACED, itertools.cycle(Adjacency)):
        if place == "label" and loss == "logistic":
            continue
        X, y = records(value, place)
        other = X.copy()
        other[3] = 0.0 if adjacency is Adjacency.ZERO_OUT else [0.5, -0.5, -1.0]
        pair = [public(posed(algorithm, Z, y, form, loss=loss)) for Z in (X, other)]
        report = replayed(algorithm, pair, adjacency, batch_size=6, step=1.0)
        assert report.violations() == [], (value, place, adjacency)


@each("form", FORMS)
@each("algorithm", ["random_cd", "sgd", "svrg", "one_pass_sgd"])
def test_compiled_steps_leave_the_same_records_out(algorithm, form):
    for value, place in PLACED:
        X, y = records(value, place)
        made = public(posed(algorithm, X, y, form, loss="squared"))
        solver = built(algorithm, **short(algorithm, batch_size=6))
        plain, ahead = (
            run_at(made, [solver], 0.3, ahead=ahead).iterates()[-1]
            for ahead in (False, True)
        )
        np.testing.assert_allclose(plain, ahead, rtol=1e-9, atol=1e-12)


def contributed(loss, x, y, w, form):
    """What one record adds to each query, clipped to 1: sums, and by coordinates."""
    X = np.array([x, np.zeros(3)])
    problem = erm_from_arrays(form(X), np.array([y, 1.0]), loss=loss)
    oracle = problem.oracle(1)
    oracle.move_to(np.array([w]))
    each_one, entries = np.ones((1, 1)), np.ones((1, 3))
    by_entry = [
        oracle.coordinate_gradient(np.array([j]), np.ones(1))[0] for j in range(3)
    ]
    return (
        oracle.clipped_sum(each_one)[0],
        oracle.record_sum(0, np.arange(2), 1.0),
        2.0 * oracle.gradient(entries)[0],
        2.0 * np.array(by_entry),
    )


@each("form", FORMS)
def test_a_record_of_1e200_is_clipped_to_norm_1_and_not_to_0(form):
    for value in LARGE:
        x = [value, -0.5 * value, 0.5 * value]
        found = contributed("logistic", x, -1.0, [0.0, 0.0, 0.0], form)
        direction = np.array(x) / value / np.linalg.norm(np.array(x) / value)
        for total in found[:2]:
            np.testing.assert_allclose(total, direction, rtol=1e-12)
        for total in found[2:]:
            np.testing.assert_array_equal(total, np.sign(x))
    tiny = erm_from_arrays(form(np.diag([1e-170, 1e-170])), np.ones(2), loss="logistic")
    total = tiny.oracle(1).clipped_sum(np.full((1, 1), 1e-180))
    np.testing.assert_allclose(total, [[-1e-180, -1e-180]], rtol=1e-12)


@each("form", FORMS)
def test_a_record_whose_gradient_is_not_finite_contributes_nothing(form):
    cases = [
        ("squared", [1e200, 0.5, 0.0], 1.0, [1.0, 1.0, 1.0]),  # the gradient
        ("squared", [1e308, 0.5, 0.0], 1.0, [9.0, 1.0, 1.0]),  # the margin
        ("squared", [0.5, 4.0, 0.0], -1e308, [0.0, 0.0, 0.0]),  # by its label
        ("logistic", [1e308, -1e308, 0.5], 1.0, [9.0, 9.0, 1.0]),  # no number
    ]
    for case in cases:
        for total in contributed(*case, form):
            np.testing.assert_array_equal(total, np.zeros(3))


@each("form", FORMS)
def test_norms_of_records_neither_overflow_nor_vanish(form):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((9, 5))
    usual = np.sqrt(np.square(X).sum(axis=1))
    scales = np.array([1e160, 1e200, 3e307, 1.0, 1e-160, 1e-170, 1e-300, 0.0, 1e130])
    found = record_norms(form(X * scales[:, None]))
    np.testing.assert_allclose(found, usual * scales, rtol=1e-13)


@each("form", FORMS)
def test_records_are_clipped_to_declared_bounds_whatever_their_size(form):
    unit = np.array([0.6, -0.8, 0.0])
    for value, bound in itertools.product(LARGE, (1.0, 1e-6)):
        X = np.array([value * unit, 0.5 * bound * unit, np.full(3, value)])
        wide = Bounds(np.full(3, np.inf), bound)
        within = map_features("x", form(X), wide)
        dense = within if isinstance(within, np.ndarray) else within.toarray()
        even = np.full(3, 1.0 / math.sqrt(3.0))
        wanted = bound * np.array([unit, 0.5 * unit, even])
        np.testing.assert_allclose(dense, wanted, rtol=1e-14)
    small = Bounds(np.full(3, np.inf), 1e-200)
    within = map_features("x", form(1e-170 * unit[None]), small)
    assert record_norms(within)[0] == pytest.approx(1e-200)


@pytest.mark.parametrize("key", ["columns", "norm", "label"])
def test_bounds_whose_squares_overflow_are_refused_in_a_sentence(key):
    X, y = records(1.0, "row")
    with pytest.raises(UsageError, match=rf"bounds.{key}=1e\+160: .* at most 1e\+150"):
        erm_from_arrays(
            X, y, loss="logistic", bounds={"columns": 1.0, "norm": 3.0, key: 1e160}
        )


@each(
    "algorithm, given, words",
    [
        ("newton", {"bounds": 1e145}, "norm=1.73205e+145"),
        (
            "newton",
            {"loss": {"name": "smoothed_hinge", "h": 1e-300}},
            "of the loss)=1.22474e+150",
        ),
        ("feature_covariance", {"bounds": 1e-150}, "norm=1.73205e-150"),
        ("ssp", {"bounds": 1e145}, "norm=1.73205e+145"),
        ("ssp", {"loss": "squared", "label": 1e-200}, "label=1e-200"),
    ],
)
def test_sums_of_squares_that_are_no_usual_floats_are_refused(algorithm, given, words):
    """What vanishes has no noise: R = 1e-162, R^2 = 0, and curvatures of 1e300."""
    (X, y), given = records(1.0, "row"), {"bounds": 1.0, "label": 1.0, **given}
    R, Y = given.pop("bounds"), given.pop("label")
    bounds = {"columns": R, "label": Y}
    made = posed(algorithm, R * X, Y * y, bounds=bounds, **given)
    reason = built(algorithm).refusal(made)
    assert words in reason and "must be 0, or between 1e-140 and 1e+140" in reason
    change = outer_change(made, Adjacency.ZERO_OUT, made.loss.smoothness)
    assert math.isinf(change) or words.startswith("label")


@each("how", [True, "scale"])
def test_columns_of_any_size_are_standardised(how):
    rng = np.random.default_rng(0)
    scales = np.array([1e307, 1e-170, 1.0, 1e160])
    X = rng.standard_normal((50, 4))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    usual, odd = (
        prepare_arrays("x", (Z, y), Recipe(standardise=how))["X"]
        for Z in (X, X * scales)
    )
    np.testing.assert_allclose(odd, usual, rtol=1e-12, atol=1e-12)


@each("name", BALLS)
def test_points_of_any_size_are_projected_into_balls(name):
    ball = KINDS[name](radius=2.0)
    for size in (1e160, 1e200, 1e308):
        w = size * np.array([1.0, 0.9, -1.0])
        moved = w.copy()
        project(ball.kernel, moved)
        for one in (ball.project(w), moved):
            assert ball.contains(one) and np.abs(one).max() > 0.9
    small = KINDS[name](radius=1e-200)
    tiny = np.array([1e-170, 0.0, 0.0])
    assert np.linalg.norm(small.project(tiny) * 1e200) == pytest.approx(1.0)
    project(small.kernel, tiny)
    assert np.linalg.norm(tiny * 1e200) == pytest.approx(1.0)


def test_points_of_any_size_are_projected_into_the_ball_in_the_max_norm():
    ball = KINDS["l2_ball"](radius=2.0)
    usual = ball.project_linf(np.array([1e9, 0.5, -1e9]))
    for size in (1e160, 1e308):
        moved = ball.project_linf(np.array([size, 0.5, -size]))
        assert ball.contains(moved) and np.abs(moved - usual).max() < 1.5


# Runs.

WILD = {"step": 1e30, "n_iter": 60}


def wild(**given):
    X, y = records(1.0, "row")
    made = erm_from_arrays(X, y, loss="squared")
    return fit(made, "gd", epsilon=math.inf, seed=0, **WILD, **given)


def test_a_run_that_diverges_publishes_nothing():
    with pytest.raises(Diverged, match="gd diverged: .* nothing is published") as seen:
        wild()
    error = pickle.loads(pickle.dumps(seen.value))
    assert str(error) == str(seen.value) and error.seconds > 0.0
    assert error.epsilon_certified == math.inf == error.certificate["epsilon_certified"]
    assert error.certificate["accountant"] == seen.value.certificate["accountant"]
    assert not hasattr(error, "w") and "w" not in error.certificate


def test_what_is_spent_by_a_run_that_diverges_is_certified():
    X, y = records(1.0, "row")
    made = erm_from_arrays(X, y, loss="squared", penalty="l2", strength=0.1)
    with pytest.raises(Diverged) as seen:
        fit(made, "gd", epsilon=1.0, delta=1e-3, seed=0, clip=1.0, n_iter=9, step=1e308)
    assert 0.9 < seen.value.epsilon_certified <= 1.0
    assert [one.name for one in seen.value.certificate["releases"]] == ["gradient"]


def test_permutation_sgd_refuses_what_could_overflow():
    X, y = records(1.0, "row")
    how = {"epsilon": 1.0, "delta": 1e-3, "passes": 2, "batch_size": 1, "step": 1.0}

    def made(labels, **bounds):
        bounds = {"norm": 2.0, **bounds}
        return posed("permutation_sgd", X, labels, loss="squared", bounds=bounds)

    largest = float(np.abs(y).max())
    for problem, clip in (
        (made(y, label=largest), 1e150),
        (made(y), 1.0),  # whose labels only the records tell
    ):
        with pytest.raises(UsageError, match="gradient could overflow"):
            fit(problem, "permutation_sgd", clip=clip, **how)
    calm = made(y, label=largest)
    assert np.isfinite(fit(calm, "permutation_sgd", clip=1.0, **how).w).all()
