"""Test algorithms on degenerate data, dense and sparse, and refused input."""

import numpy as np
import pytest
import scipy.sparse as sp

from dp_erm_bench.api import fit
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.errors import DataUnavailable, UsageError
from dp_erm_bench.problems.erm.build import build_problem, erm_from_arrays
from tests.loops import each
from tests.serving import RISKS, bounds_for, built, constraint_of, known

N = 30
STRENGTH = 2.0
"""So large that two records have convexity enough for objective perturbation."""
FORMS = [np.asarray, sp.csc_array, sp.csr_matrix]
RNG = np.random.default_rng(0)
COLUMN = RNG.standard_normal(N)
SIGNS = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
EDGES = {
    "one column": COLUMN[:, None],
    "an empty column": np.column_stack([COLUMN, np.zeros(N)]),
    "a constant column": np.column_stack([COLUMN, np.ones(N)]),
    "only empty columns": np.zeros((N, 2)),
    "two records": np.array([[1.0, 0.0], [0.0, 2.0]]),
}
SHORT = {"greedy_cd": {"n_iter": 3}, "random_cd": {"passes": 2.0}}


def problem(X, penalty="l2"):
    y = SIGNS if len(X) == N else np.array([1.0, -1.0])
    return X, y, {"loss": "logistic", "penalty": penalty, "strength": STRENGTH}


# Both sparse forms become one when a problem is made: the second meets one edge.
CASES = [(edge, form) for form in FORMS[:2] for edge in EDGES]
CASES += [("an empty column", FORMS[2])]


@each("edge, form", CASES)
@each("algorithm", RISKS)
def test_every_algorithm_runs_at_the_edge(algorithm, edge, form):
    X, y, objective = problem(EDGES[edge])
    objective["constraint"] = constraint_of(algorithm)
    objective["bounds"] = bounds_for(algorithm, X)
    made = erm_from_arrays(form(X), y, **objective)
    assert made.dataset.sparse == (form is not np.asarray)
    if reason := built(algorithm, clip=1.0).refusal(made):
        assert reason.startswith(f"n={len(X)}: ")
        return
    how = known(algorithm, clip=1.0) | SHORT.get(algorithm, {})
    found = fit(made, algorithm, epsilon=1.0, seed=0, **how)
    assert np.isfinite(found.w).all() and found.epsilon_certified <= 1.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_an_empty_column_gets_no_weight_at_the_optimum(form, penalty):
    X, y, objective = problem(EDGES["an empty column"], penalty)
    optimum = erm_from_arrays(form(X), y, **objective).optimum
    assert optimum.w[1] == 0.0 and optimum.gap <= 1e-9


def changed(key, value):
    """Return features and labels of which one is replaced."""
    X, y = np.column_stack([COLUMN, np.ones(N)]), SIGNS.copy()
    (X if key == "X" else y).flat[3] = value
    return X, y


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_finite_is_refused(form, bad):
    for key in ("X", "y"):
        X, y = changed(key, bad)
        with pytest.raises(UsageError, match=f"{key} holds a value that is not finite"):
            erm_from_arrays(form(X), y, loss="logistic")


@pytest.mark.parametrize("form", FORMS)
def test_labels_outside_the_losss_domain_are_refused_by_value(form):
    X, y = changed("y", 0.5)
    with pytest.raises(UsageError, match="label 0.5 is not allowed"):
        erm_from_arrays(form(X), y, loss="logistic")


@pytest.mark.parametrize("form", FORMS)
def test_a_record_outside_the_bounds_is_refused(form):
    X, y = changed("X", 50.0)
    with pytest.raises(UsageError, match="feature 1 exceeds its declared bound 9"):
        erm_from_arrays(form(X), y, loss="logistic", bounds=9.0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (1, 2)])
def test_empty_data_and_a_single_record_are_refused(form, shape):
    with pytest.raises(UsageError, match="is empty|one record, at least two"):
        erm_from_arrays(form(np.zeros(shape)), np.ones(shape[0]), loss="squared")


def test_text_and_complex_numbers_are_no_features():
    for X in (sp.csc_array(np.eye(2) * 1j), np.array([["a"], ["b"]])):
        with pytest.raises(UsageError, match="numbers"):
            erm_from_arrays(X, np.ones(2), loss="squared")


@pytest.mark.parametrize("name", ["libsvm:heart_scale", "breast_cancer", "mushrooms"])
def test_a_usual_objective_suits_its_data(name):
    try:
        data = load_dataset(dataset_spec(name))
    except DataUnavailable as error:
        pytest.skip(str(error))
    assert build_problem(data).optimum.gap <= 1e-9
