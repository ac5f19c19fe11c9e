"""Test generated datasets that know the true parameter of their labels."""

import math

import numpy as np
import pytest

from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.datasets.synthetic import quasi_sparse, sparse_lasso
from dp_erm_bench.errors import UsageError
from dp_erm_bench.problems.erm.build import build_problem
from tests.loops import each


@pytest.mark.parametrize("make", [sparse_lasso, quasi_sparse])
def test_a_seed_fixes_everything_and_another_changes_everything(make):
    first, again, other = (make(seed, n=20, p=12) for seed in (0, 0, 1))
    for found, same, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(found, same)
        assert (found != different).any()


def test_the_sparse_lasso_is_the_papers():
    X, y, w = sparse_lasso(2)
    rng = np.random.default_rng(2)
    np.testing.assert_array_equal(X, rng.standard_normal((1000, 1000)))
    v = 100 * rng.standard_normal(10)
    noise = 0.5 * np.linalg.norm(v) * rng.standard_normal(1000)
    np.testing.assert_allclose(y, X[:, :10] @ v + noise)
    np.testing.assert_array_equal(w, np.r_[v, np.zeros(990)])


def test_the_sparse_lassos_error_at_zero_is_the_papers():
    problem = build_problem(load_dataset(dataset_spec("sparse_lasso")))
    error = problem.value(np.zeros(1000)) / problem.optimum.value - 1.0
    assert round(error, 4) == 0.8733


@pytest.mark.parametrize(("tau", "alpha"), [(0, 0.1), (3, 0.0), (12, 0.5)])
def test_quasi_sparse_weights_have_tau_large_entries(tau, alpha):
    _, _, w = quasi_sparse(0, n=20, p=12, tau=tau, alpha=alpha)
    assert (np.abs(w - 1.0) <= 0.1).sum() == tau
    assert (w == alpha).sum() == 12 - tau


def test_quasi_sparse_weights_may_be_in_plateaus():
    X, _, w = quasi_sparse(1, n=20, p=23, tau=10, plateau=5)
    blocks = w[:20].reshape(4, 5)
    assert (blocks == blocks[:, :1]).all() and not w[20:].any()
    large = blocks[blocks[:, 0] > 0.0, 0]
    assert large.size == 2 and (np.abs(large - 1.0) <= 0.1).all()
    assert large[0] != large[1]
    np.testing.assert_array_equal(X, quasi_sparse(1, n=20, p=23)[0])
    places = {
        quasi_sparse(s, n=2, p=20, tau=5, plateau=5)[2].argmax() for s in range(9)
    }
    assert places > {0, 5}


@pytest.mark.parametrize(
    ("plateau", "allowed"),
    [(3, "a divisor of tau = 10, or null"), (0, "an integer >= 1")],
)
def test_a_plateau_that_does_not_divide_is_refused(plateau, allowed):
    told = rf"dataset\.plateau={plateau}: must be {allowed}"
    with pytest.raises(UsageError, match=told):
        load_dataset(dataset_spec("quasi_sparse", tau=10, plateau=plateau))


def test_an_undeclared_plateau_is_in_no_identity():
    spec = dataset_spec("quasi_sparse", n=40, p=6)
    older = {key: value for key, value in spec.items() if key != "plateau"}
    both = [build_problem(load_dataset(one)).identity for one in (spec, older)]
    assert both[0] == both[1]


def test_quasi_sparse_features_obey_the_declared_bounds():
    found = load_dataset(dataset_spec("quasi_sparse", n=500, p=30))
    assert np.abs(found.X).max() <= found.bounds.columns[0]
    assert found.bounds.columns.shape == (30,)
    assert found.bounds.norm == pytest.approx(np.sqrt(90.0))
    np.testing.assert_allclose(np.square(found.X).mean(), 1.0, atol=0.02)
    assert found.w_true.shape == (30,)


def test_quasi_sparse_draws_do_not_depend_on_the_weights():
    first, second = (quasi_sparse(3, alpha=alpha)[0] for alpha in (0.0, 0.3))
    np.testing.assert_array_equal(first, second)
    _, y, w = quasi_sparse(3, noise=0.0)
    np.testing.assert_array_equal(y, np.where(first @ w >= 0, 1.0, -1.0))


def test_the_true_weights_minimise_the_expected_logistic_loss():
    X, y, w = quasi_sparse(0, n=40000, p=10, tau=4, alpha=0.2)
    gradient = -X.T @ (y / (1 + np.exp(y * (X @ w)))) / y.size
    assert np.abs(gradient).max() <= 4 / np.sqrt(y.size)


@pytest.mark.parametrize(
    ("name", "key"), [("quasi_sparse", "tau"), ("sparse_lasso", "support")]
)
def test_more_large_weights_than_features_are_refused(name, key):
    with pytest.raises(UsageError, match=rf"dataset\.{key}=9: must be between 0 and"):
        load_dataset(dataset_spec(name, **{key: 9}, n=20, p=8))


def test_rescaled_columns_forget_the_true_parameter():
    spec = dataset_spec("quasi_sparse", n=50, p=8)
    assert load_dataset(spec).w_true is not None
    assert load_dataset({**spec, "standardise": True}).w_true is None


WRONG = [
    ("n", 1, "an integer >= 2"),
    ("n", 3.5, "an integer >= 2"),
    ("n", "many", "an integer >= 2"),
    ("p", 0, "an integer >= 1"),
    ("p", True, "an integer >= 1"),
    ("noise", -1.0, "a number, finite and >= 0"),
    ("noise", math.nan, "a number, finite and >= 0"),
    ("noise", math.inf, "a number, finite and >= 0"),
    ("noise", None, "a number, finite and >= 0"),
    ("noise", 10**400, "a number, finite and >= 0"),
]
GENERATED = ["log1", "sparse_lasso", "quasi_sparse", "unbalanced"]


@each("name", GENERATED)
@each(("key", "value", "allowed"), WRONG)
def test_a_generator_refuses_what_it_cannot_draw(name, key, value, allowed):
    with pytest.raises(UsageError, match=rf"dataset\.{key}={value}: must be {allowed}"):
        load_dataset(dataset_spec(name, **{key: value}))


@pytest.mark.parametrize("alpha", [math.nan, math.inf, -math.inf, 10**400, "small"])
def test_the_small_weights_are_finite(alpha):
    with pytest.raises(UsageError, match=r"dataset\.alpha=.*a number, finite"):
        load_dataset(dataset_spec("quasi_sparse", alpha=alpha))
    assert load_dataset(dataset_spec("quasi_sparse", alpha=-0.1)).w_true.min() == -0.1
