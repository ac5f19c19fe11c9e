"""Test published smoothness constants, and the means that they are made of."""

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench.contract.problems import small_problem
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.losses.smooth import Logistic, Squared
from dp_erm_bench.problems.erm.objective import (
    ReleasedSmoothness,
    Smoothness,
    clipped_squares,
    square_bounds,
)
from dp_erm_bench.problems.erm.problem import ERMProblem

RADIUS = np.array([1.0, 2.0, 0.0, 5.0])
LOSSES = [Logistic(), Squared()]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
every_storage = pytest.mark.parametrize("storage", ["dense", "sparse"])


def dataset(storage="dense", declared=True, n=30):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1.0, 1.0, (n, 4)) * RADIUS
    X[rng.random((n, 4)) < 0.4] = 0.0
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    bounds = Bounds(RADIUS, float(np.linalg.norm(RADIUS)), 1.0) if declared else None
    features = sparse.csc_array(X) if storage == "sparse" else X
    return X, dataset_from_arrays(features, y, bounds=bounds)


@every_loss
@every_storage
def test_clipped_squares_are_the_clipped_means(loss, storage):
    X, data = dataset(storage)
    bounds = loss.smoothness * np.array([0.3, 10.0, 0.0, 4.0])
    terms = np.minimum(loss.smoothness * X**2, bounds)
    found = clipped_squares(data, loss, bounds)
    np.testing.assert_allclose(found, terms.mean(axis=0), rtol=1e-14)
    assert found[1] > 0.0 and found[2] == 0.0
    assert found[0] < loss.smoothness * (X[:, 0] ** 2).mean()


@every_loss
@every_storage
def test_wide_bounds_give_the_constants_of_the_data(loss, storage):
    _, data = dataset(storage)
    exact = Smoothness("data", data, loss).columns
    for source in ("declared", "data"):
        bounds, _ = square_bounds(data, loss, source)
        found = clipped_squares(data, loss, bounds)
        np.testing.assert_allclose(found, exact, rtol=1e-13)


@every_loss
@every_storage
def test_bounds_are_declared_or_the_largest(loss, storage):
    X, data = dataset(storage)
    H = loss.smoothness
    bounds, source = square_bounds(data, loss, "data")
    np.testing.assert_allclose(bounds, H * (X**2).max(axis=0), rtol=1e-15)
    assert source == "data"
    for given in ("auto", "declared"):
        bounds, source = square_bounds(data, loss, given)
        np.testing.assert_array_equal(bounds, H * RADIUS**2)
        assert source == "declared"


@every_storage
def test_without_declared_bounds_the_datas_are_taken_or_refused(storage):
    _, data = dataset(storage, declared=False)
    assert square_bounds(data, Logistic(), "auto")[1] == "data"
    with pytest.raises(Unsupported) as caught:
        square_bounds(data, Logistic(), "declared")
    assert str(caught.value).startswith("smoothness_bounds=declared: dataset")


def test_only_bounds_of_the_data_are_uncharged():
    columns = np.ones((2, 3))
    assert ReleasedSmoothness(columns, "declared").uncharged == ()
    assert ReleasedSmoothness(columns, "data").uncharged == ("smoothness_bounds",)


@every_loss
def test_the_trace_bounds_the_largest_eigenvalue(loss):
    for seed in range(20):
        X = np.random.default_rng(seed).normal(size=(25, 6))
        data = dataset_from_arrays(X, np.ones(25))
        exact = Smoothness("data", data, loss)
        trace = ReleasedSmoothness(exact.columns[None, :], "data").norm
        assert trace.shape == (1, 1)
        assert exact.norm <= trace[0, 0] <= 6 * exact.norm


def test_a_problem_carries_published_constants_until_told_others():
    problem = small_problem("logistic", "l2")
    assert isinstance(problem, ERMProblem)
    columns = np.arange(12.0).reshape(2, 6)
    carrying = problem.with_released(ReleasedSmoothness(columns, "data"))
    assert carrying.smoothness.kind == "private"
    np.testing.assert_array_equal(carrying.smoothness.columns, columns)
    np.testing.assert_array_equal(carrying.smoothness.norm, [[15.0], [51.0]])
    assert carrying.key == problem.key
    assert carrying.with_smoothness("data").smoothness.kind == "data"
