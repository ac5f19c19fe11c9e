"""Test the real data files: published facts, and the papers' errors at w = 0."""

import numpy as np
import pytest

from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.problems.erm.build import build_problem

FACTS = [
    ("electricity", 45312, 8, 19237),
    ("california", 20640, 8, None),
    ("madelon", 2600, 500, 1300),
    ("wine", 6497, 12, None),
    ("communities", 1993, 100, None),
]

# Relative error at w = 0, with the digits that papers.md prints.
ERRORS = [
    ("electricity", False, 0.2447, 4),
    ("electricity", True, 0.3586, 4),
    ("california", False, 3.402, 3),
    ("california", True, 0.0963, 4),
    ("madelon", True, 0.05124, 5),
]

GENERATED_ERRORS = [("log1", 0.6347, 4), ("log2", 0.7435, 4)]


def error_at_zero(dataset):
    problem = build_problem(dataset)
    optimum = problem.optimum
    assert optimum.gap <= 1e-12, optimum.reason
    return problem.value(np.zeros(problem.p)) / optimum.value - 1.0


@pytest.mark.parametrize(("name", "n", "p", "positive"), FACTS)
def test_shape_and_class_counts(mirror, name, n, p, positive):
    found = load_dataset(dataset_spec(name, standardise=False))
    assert (found.n, found.p) == (n, p)
    if positive is not None:
        assert (found.y == 1.0).sum() == positive
        assert set(found.y) == {-1.0, 1.0}


def test_electricity_is_as_distributed(mirror):
    found = load_dataset(dataset_spec("electricity"))
    np.testing.assert_allclose(
        found.X[1],
        [0.0, 2.0, 0.021277, 0.051699, 0.415055, 0.003467, 0.422915, 0.414912],
    )
    assert found.y[1] == 1.0 and found.y[4] == -1.0
    np.testing.assert_array_equal(found.X.max(axis=0), found.bounds.columns)


def test_california_has_scikit_learns_columns(mirror):
    found = load_dataset(dataset_spec("california"))
    expected = [8.3252, 41.0, 880 / 126, 129 / 126, 322.0, 322 / 126, 37.88, -122.23]
    np.testing.assert_allclose(found.X[0], expected)
    assert found.y[0] == pytest.approx(4.526)
    assert found.bounds is None


def test_wine_has_both_colours_and_communities_no_gap(mirror):
    wine = load_dataset(dataset_spec("wine", standardise=False))
    np.testing.assert_array_equal(
        wine.X[0], [7.4, 0.7, 0, 1.9, 0.076, 11, 34, 0.9978, 3.51, 0.56, 9.4, 1]
    )
    assert (wine.y.min(), wine.y.max(), wine.X[:, -1].sum()) == (3, 9, 1599)
    communities = load_dataset(dataset_spec("communities"))
    np.testing.assert_array_equal(communities.X[0, :4], [0.19, 0.33, 0.02, 0.9])
    assert communities.y[0] == 0.2 and communities.bounds.label == 1


def test_madelon_has_the_challenges_check_sum(mirror):
    found = load_dataset(dataset_spec("madelon", standardise=False))
    assert found.X[:2000].sum() == 488083511
    assert found.X[2000:].sum() == 146395833


@pytest.mark.parametrize(("name", "standardise", "error", "digits"), ERRORS)
def test_error_at_zero_is_the_papers(mirror, name, standardise, error, digits):
    spec = dataset_spec(name, standardise=standardise)
    assert round(error_at_zero(load_dataset(spec)), digits) == error


@pytest.mark.parametrize(("name", "error", "digits"), GENERATED_ERRORS)
def test_error_at_zero_of_the_generated_problems(name, error, digits):
    assert round(error_at_zero(load_dataset(dataset_spec(name))), digits) == error
