"""Test population risk against other formulas and samples, and a broken copy."""

import dataclasses

import numpy as np
import pytest
from scipy import integrate, optimize, special

from dp_erm_bench.api import load_problem
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.datasets.synthetic import MedianLaw, median_regression
from dp_erm_bench.errors import UsageError
from dp_erm_bench.problems.erm.problem import FreshSample
from dp_erm_bench.registry import POPULATION
from dp_erm_bench.results.table import load_results
from dp_erm_bench.runner.experiment import sweep
from tests.loops import each

BALL = {"name": "l2_ball", "radius": 1.0}


def problem(penalty="none", constraint=BALL, loss="absolute", **keys):
    return load_problem("median_regression", loss, penalty, constraint, **keys)


@each("p", [2, 3, 5, 50])
@each("apart", [0.0, 1e-6, 0.01, 0.3, 2.0, 8.0])
def test_the_expected_loss_is_that_of_bessel_and_struve(p, apart):
    b, w = 0.5, np.zeros(p)
    w[0], z, order = apart, apart / 0.5, p / 2 - 1
    found = MedianLaw(np.zeros(p), b).excess_absolute(w[None])[0]
    mean = special.gamma(p / 2) / np.sqrt(np.pi) / special.gamma((p + 1) / 2)
    decay = 1.0
    if z:
        decay = special.iv(order, z) - special.modstruve(order, z)
        decay *= special.gamma(p / 2) * (2 / z) ** order
    expected = apart * mean + b * (decay - 1.0)
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-13)
    # E t^2 = apart^2 / p: near the minimiser the risk is a parabola.
    if 0.0 < apart <= 1e-6:
        assert found == pytest.approx(apart**2 / (2 * b * p), rel=1e-5)


@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize("b", [0.2, 0.5])
def test_the_expected_loss_is_that_of_a_quadrature_over_label_and_direction(p, b):
    """The Laplace density is integrated, too: nothing of its closed form is used."""
    true, w = np.zeros(p), np.full(p, 0.4)
    apart = np.linalg.norm(w)

    def loss(t):
        """Return E|e + t|: twice the integral over e > 0 of max(e, |t|) / 2b exp."""
        near, far = (
            integrate.quad(lambda e: max(e, abs(t)) * np.exp(-e / b) / b, *ends)[0]
            for ends in ((0.0, abs(t)), (abs(t), np.inf))
        )
        return near + far

    def density(u):
        return (1.0 - u * u) ** ((p - 3) / 2)

    ends = {"a": 0.0, "b": np.pi}
    top, mass = (
        integrate.quad(
            lambda a, g=g: g(np.cos(a)) * density(np.cos(a)) * np.sin(a), **ends
        )[0]
        for g in (lambda u: loss(apart * u), lambda u: 1.0)
    )
    found = b + MedianLaw(true, b).excess_absolute(w[None])[0]
    assert found == pytest.approx(top / mass, rel=1e-7)


@pytest.mark.parametrize("p", [1, 2, 5, 30])
def test_the_expected_loss_is_the_mean_of_records_of_the_generator(p):
    n = 200_000
    X, y, true = median_regression(7, n=n, p=p, norm=1.3, noise=0.5)
    rng = np.random.default_rng(3)
    for scale in (0.0, 0.3, 2.0):
        w = true + scale * rng.normal(size=p)
        losses, least = np.abs(y - X @ w), np.abs(y - X @ true)
        law = MedianLaw(true, 0.5)
        excess = law.excess_absolute(w[None])[0]
        for values, expected in ((losses, 0.5 + excess), (losses - least, excess)):
            error = 4.0 * values.std() / np.sqrt(n)
            assert abs(values.mean() - expected) <= error + 1e-15


def test_the_weights_of_the_labels_are_the_population_minimiser():
    true = median_regression(3, n=2, p=4)[2]
    law, rng = MedianLaw(true, 0.5), np.random.default_rng(0)
    ways = rng.normal(size=(200, 4))
    ways /= np.linalg.norm(ways, axis=1, keepdims=True)
    for far in (1e-4, 0.1, 1.0, 10.0):
        assert law.excess_absolute(true + far * ways).min() > 0.0
    found = optimize.minimize(
        lambda w: law.excess_absolute(w[None])[0], np.zeros(4), tol=1e-12
    )
    np.testing.assert_allclose(found.x, true, atol=1e-4)


def test_one_feature_and_no_noise_are_served():
    one = MedianLaw(np.array([1.0]), 0.5).excess_absolute(np.array([[3.0]]))
    assert one[0] == pytest.approx(2.0 + 0.5 * np.expm1(-4.0))
    assert MedianLaw(np.zeros(1), 0.0).excess_absolute(np.array([[3.0]]))[0] == 3.0


def test_the_expectation_is_that_of_fresh_records():
    exact, sample = (problem(n_fresh=n).population for n in ("law", 40_000))
    points = np.random.default_rng(0).normal(size=(4, 5))
    error = 4.0 * 1.5 / np.sqrt(40_000)
    assert np.abs(exact.risk(points) - sample.risk(points)).max() <= error
    assert sample.optimum == pytest.approx(exact.optimum, abs=error)


def test_the_least_risk_in_a_ball_is_at_the_projection():
    inside = problem(n_fresh="law")
    true = inside.dataset.w_true
    assert inside.population.optimum == pytest.approx(0.5, abs=1e-12)
    small = problem(n_fresh="law", constraint={"name": "l2_ball", "radius": 0.4})
    rng = np.random.default_rng(1)
    points = small.constraint.project(0.4 * true + 0.3 * rng.normal(size=(300, 5)))
    excess = small.population.excess(np.vstack([0.4 * true, points]))
    assert abs(excess[0]) <= 1e-12 and excess.min() >= -1e-12
    assert small.optimum.value is None and "population" in small.optimum.reason


def risk_of_an_answer_to_few_records(population_of):
    """The least excess of minimisers on some small training parts."""
    excesses = []
    for seed in range(5):
        fitted = problem("l2", "none", n=30, p=10, seed=seed)
        judged = problem("l2", "none", n=30, p=10, seed=seed, n_fresh=20_000)
        w = fitted.optimum.w[None]
        law = problem("l2", "none", n=30, p=10, seed=seed, n_fresh="law").population
        excesses.append(float((population_of(judged).risk(w) - law.optimum)[0]))
    return min(excesses)


def test_risk_is_that_of_fresh_records_not_of_the_training_part():
    def twin(judged):
        return FreshSample(judged, judged.dataset.X, judged.dataset.y)

    assert risk_of_an_answer_to_few_records(lambda judged: judged.population) > 0.0
    assert risk_of_an_answer_to_few_records(twin) < 0.0


def test_held_out_records_serve_where_no_law_is_known():
    keys = {"test_fraction": 0.3, "n_fresh": 100}
    given = load_problem("breast_cancer", "hinge", "l2", BALL, **keys)
    data, w = given.dataset, np.full((1, given.p), 0.05)
    found = given.measures(w)
    losses = np.maximum(0.0, 1.0 - data.y_test[:100] * (data.X_test[:100] @ w[0]))
    assert found["population_risk"][0] == pytest.approx(losses.mean(), rel=1e-14)
    assert found["excess_risk"][0] > 0.0 and given.optimum.value is not None
    assert given.lacking("excess_risk") == ""


def test_the_expected_objective_has_the_penalty_in_it():
    keys = {"test_fraction": 0.3, "n_fresh": 170}
    penalty = {"name": "l2", "strength": 0.1}
    given = load_problem("breast_cancer", "logistic", penalty, **keys)
    data = given.dataset
    fresh = dataset_from_arrays(data.X_test[:170], data.y_test[:170])
    own = dataclasses.replace(given, dataset=fresh)
    w = np.vstack([np.zeros(given.p), own.optimum.w, given.optimum.w])
    excess = given.measures(w)["excess_objective"]
    expected = own.value(w) - own.optimum.value
    assert excess == pytest.approx(expected, abs=1e-12)
    assert excess[0] > excess[2] > 1e-4 and abs(excess[1]) <= 1e-9
    # Of a law that is known without the penalty nothing is said of the sum.
    absolute = problem(penalty="l2", n_fresh="law").measures(np.zeros((1, 5)))
    assert np.isnan(absolute["excess_objective"]).all()


def test_a_minimum_that_is_not_certified_leaves_no_excess():
    found = problem(constraint="none", n_fresh=50).measures(np.zeros((2, 5)))
    assert np.isnan(found["excess_risk"]).all()
    assert np.isfinite(found["population_risk"]).all()


@pytest.mark.parametrize(
    "name, keys, says",
    [
        ("log1", {"n_fresh": 100}, "dataset.n_fresh=100: must be null without a known"),
        ("log1", {"n_fresh": "law", "test_fraction": 0.5}, "law of the records is not"),
        ("median_regression", {"n_fresh": 0}, "n_fresh=0: must be an integer >= 1"),
        ("median_regression", {"n_fresh": True}, "n_fresh=True"),
        ("median_regression", {"n_fresh": 1.5}, "n_fresh=1.5"),
        ("breast_cancer", {"n_fresh": 999, "test_fraction": 0.2}, "at most 114"),
    ],
)
def test_fresh_records_that_there_are_not_are_refused(name, keys, says):
    with pytest.raises(UsageError, match=says):
        load_problem(name, **keys)


def test_an_expectation_that_is_not_known_is_refused():
    with pytest.raises(UsageError, match="the expectation of loss=huber under"):
        problem(loss="huber", n_fresh="law")


KNOWN = "support_f1"
"""True weights are known whoever judges a model."""


def test_how_a_model_is_judged_moves_no_draw():
    plain, judged = problem("l2"), problem("l2", n_fresh="law")
    assert plain.identity == judged.identity
    assert plain.population is None and {*plain.measures(np.zeros((1, 5)))} == {KNOWN}
    assert dataset_spec("log1", n_fresh=None) == dataset_spec("log1")
    bare = dataclasses.replace(plain, smoothness_kind="data")
    assert bare.lacking("excess_risk") == "the dataset has no n_fresh"


def test_tables_have_the_columns_where_a_trial_is_judged_so(tmp_path):
    usual = {
        **{"loss": "absolute", "penalty": "none", "constraint": BALL},
        **{"algorithm": {"name": "one_pass_sgd"}, "seed": [0, 1]},
    }
    for name, fresh in (("with", {"n_fresh": "law"}), ("without", {})):
        data = {"name": "median_regression", "n": 60, **fresh}
        block = {"panel": "a", "line": "b", "dataset": data, **usual}
        sweep([block], tmp_path / name, n_jobs=1)
        table = load_results(tmp_path / name)
        assert set(POPULATION).issubset(table.columns) == (name == "with")
        if name == "with":
            parts = table["population_risk"] - table["population_optimum"]
            assert np.allclose(parts, table["excess_risk"]) and len(table) > 4
            assert (table["excess_risk"] > 0.0).all()
