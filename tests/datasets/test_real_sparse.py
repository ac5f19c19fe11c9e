"""Test the sparse real data files: facts, the papers' numbers, time and memory."""

import time
import tracemalloc

import numpy as np
import pytest

from dp_erm_bench.datasets import load
from dp_erm_bench.datasets.base import feature_parts
from dp_erm_bench.datasets.load import load_dataset
from dp_erm_bench.datasets.records import column_max
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.problems.erm.build import build_problem

# records, features, non-zeros, positive labels
FACTS = [
    ("dorothea", 800, 88119, 727760, 78),
    ("mushrooms", 8124, 112, 170604, 4208),
    ("news20", 15935, 62061, 1272569, None),
]
LARGE = ["dorothea", "news20", "libsvm:w8a"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(autouse=True)
def shared(isolated, kept, monkeypatch):
    """Parse each large file once for all tests."""
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(kept))


def size(dataset):
    return sum(part.nbytes for part in feature_parts(dataset.X).values())


@pytest.mark.parametrize(("name", "n", "p", "nnz", "positive"), FACTS)
def test_shape_entries_and_classes(mirror, name, n, p, nnz, positive):
    found = load_dataset(dataset_spec(name))
    assert (found.n, found.p, found.X.nnz, found.sparse) == (n, p, nnz, True)
    assert set(found.y) == {-1.0, 1.0}
    assert positive is None or (found.y == 1.0).sum() == positive


def test_news20_has_twenty_classes_of_which_some_are_positive(mirror):
    few, all_but_one = (
        load_dataset(dataset_spec("news20", positive=classes))
        for classes in ([20], list(range(1, 20)))
    )
    np.testing.assert_array_equal(few.y, -all_but_one.y)
    assert 0 < (few.y == 1.0).sum() < 1000


def test_dorothea_keeps_the_non_empty_columns_of_all(mirror):
    found = load_dataset(dataset_spec("dorothea"))
    full = load_dataset(dataset_spec("dorothea", drop_empty=False))
    assert full.p == 100000 and full.X.nnz == found.X.nnz == 727760
    assert (column_max(found.X) == 1.0).all()
    kept = np.flatnonzero(np.diff(full.X.indptr))
    np.testing.assert_array_equal(full.X[:, kept].indices, found.X.indices)
    assert found.uncharged == ("dropped columns",) and full.uncharged == ()
    assert found.bounds.columns.shape == (88119,) and (found.bounds.columns == 1).all()


def test_dorotheas_largest_penalty_is_the_papers(mirror):
    found = load_dataset(dataset_spec("dorothea"))
    assert round(np.abs(found.X.T @ found.y).max() / (2 * found.n), 4) == 0.1100


def test_dorotheas_optimum_is_the_papers(mirror):
    problem = build_problem(load_dataset(dataset_spec("dorothea")))
    optimum = problem.optimum
    assert optimum.gap <= 1e-9, optimum.reason
    error = problem.value(np.zeros(problem.p)) / optimum.value - 1.0
    assert round(error, 3) == 0.783
    assert np.count_nonzero(optimum.w) == 72


@pytest.mark.alone
@pytest.mark.parametrize("name", LARGE)
def test_a_prepared_dataset_loads_at_once_and_is_mapped(mirror, name, is_mapped):
    load_dataset(dataset_spec(name))
    load._load_dataset.cache_clear()
    start = time.perf_counter()
    found = load_dataset(dataset_spec(name))
    assert time.perf_counter() - start < 1.0
    assert all(map(is_mapped, feature_parts(found.X).values()))


@pytest.mark.parametrize("name", LARGE)
def test_memory_is_a_small_multiple_of_the_entries(mirror, name):
    wanted = size(load_dataset(dataset_spec(name)))
    load._load_dataset.cache_clear()
    tracemalloc.start()
    found = load_dataset(dataset_spec(name))
    found.rows, found.row_norms  # noqa: B018
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held <= 1.5 * wanted and peak <= 3 * wanted
    assert peak < 8 * found.n * found.p / 4


@pytest.mark.parametrize("name", ["dorothea", "mushrooms"])
def test_a_split_or_scaled_dataset_stays_sparse(mirror, name):
    spec = dataset_spec(name, standardise="scale", test_fraction=0.25)
    found = load_dataset(spec)
    assert found.sparse and not isinstance(found.X_test, np.ndarray)
    assert found.X_test.shape[1] == found.p
    means = np.asarray(found.X.power(2).mean(axis=0))
    np.testing.assert_allclose(means[means > 0], 1.0)
    assert "standardisation" in found.uncharged
