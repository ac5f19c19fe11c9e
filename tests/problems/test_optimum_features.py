"""Test the certified optimum for sparse features, which stay sparse."""

import dataclasses
import itertools
import time

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench import registry
from dp_erm_bench.contract.problems import curved_losses
from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.datasets.spec import dataset_spec
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.optimum import composite
from dp_erm_bench.problems.erm.optimum.certified import (
    certified_optimum,
    compute_optimum,
)
from dp_erm_bench.problems.erm.optimum.composite import (
    gram,
    scale_records,
)
from tests.loops import each
from tests.serving import BALLS

LOSSES = curved_losses()
PENALTIES = ["elastic_net", "l1", "l2"]
SHAPES = {"tall": (90, 12), "wide": (30, 80)}


def pair(loss, n, p, density=0.3, seed=0):
    """Return the same data dense and sparse."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p)) * (rng.random((n, p)) < density)
    z = X @ rng.standard_normal(p) / np.sqrt(density * p)
    z += 0.7 * rng.standard_normal(n)
    classes = registry.build("loss", loss).classification
    y = np.where(z > 0.0, 1.0, -1.0) if classes else z
    dense = Dataset("toy", np.asfortranarray(X), y, None, "dense")
    features = sparse.csc_array(X)
    return dense, dataclasses.replace(dense, X=features, content_hash="sparse")


def agree(loss, penalty, constraint, shape, rel=1e-10):
    found = [
        compute_optimum(build_problem(data, loss, penalty, constraint))
        for data in pair(loss, *shape)
    ]
    reasons = {one.reason.split(":")[0] for one in found}
    assert len(reasons) == 1
    if found[0].value is None:
        return found
    assert max(one.gap for one in found) <= 1e-9
    assert found[1].value == pytest.approx(found[0].value, rel=rel)
    return found


@pytest.fixture
def watched(monkeypatch):
    """Refuse to write out more of a sparse array than a small block or a gram."""
    limit = max(composite.SMALL, composite.DIRECT**2)

    def watch(form):
        original = form.toarray

        def toarray(self, *args, **kwargs):
            assert np.prod(self.shape) <= limit, f"{self.shape} made dense"
            return original(self, *args, **kwargs)

        monkeypatch.setattr(form, "toarray", toarray)

    for form in (sparse.csc_array, sparse.csr_array):
        watch(form)


@each("shape", SHAPES)
@each("strength", [1e-3, 0.1])
@each("penalty", PENALTIES)
@each("loss", LOSSES)
def test_penalised_optima_agree(loss, penalty, strength, shape):
    spec = {"name": penalty, "strength": strength}
    dense, same = agree(loss, spec, "none", SHAPES[shape])
    if penalty != "l1" and dense.w is not None:
        np.testing.assert_allclose(same.w, dense.w, atol=1e-7)


@pytest.mark.parametrize("loss", LOSSES)
def test_optima_without_penalty_agree(loss):
    dense, same = agree(loss, "none", "none", SHAPES["tall"])
    assert dense.value is not None
    np.testing.assert_allclose(same.w, dense.w, atol=1e-7)


@each("shape", SHAPES)
@each("name", [*BALLS, "box"])
@each("loss", LOSSES)
def test_optima_over_sets_agree(loss, name, shape):
    if name == "box":
        agree(
            loss, {"name": "box", "lower": -0.05, "upper": 0.1}, "none", SHAPES[shape]
        )
    else:
        agree(loss, "none", {"name": name, "radius": 0.5}, SHAPES[shape])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_conjugate_gradients_certify_what_factors_do(loss, penalty, shape, monkeypatch):
    monkeypatch.setattr(composite, "DIRECT", 5)
    agree(loss, {"name": penalty, "strength": 0.01}, "none", SHAPES[shape], rel=1e-9)


@pytest.mark.parametrize("extra", ["copy", "zero"])
def test_dependent_sparse_features_do_not_change_the_free_minimum(extra):
    data = pair("squared", 90, 12)[1]
    column = data.X[:, [0]] if extra == "copy" else sparse.csc_array((90, 1))
    wider = dataclasses.replace(data, X=sparse.hstack([data.X, column], format="csc"))
    values = [
        compute_optimum(build_problem(d, "squared", "none")).value
        for d in (data, wider)
    ]
    assert values[1] == pytest.approx(values[0], rel=1e-12)


def test_many_sparse_features_without_penalty_are_answered_with_a_reason(monkeypatch):
    monkeypatch.setattr(composite, "DIRECT", 5)
    found = compute_optimum(
        build_problem(pair("logistic", 90, 12)[1], "logistic", "none")
    )
    assert found.value is None
    assert found.reason == "no reference solver for 12 features without penalty"


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("n, p", [(2000, 20_000), (20_000, 2000)])
def test_large_sparse_features_are_never_made_dense(penalty, n, p, watched):
    X = sparse.random_array((n, p), density=1e-3, rng=0, format="csc")
    y = np.where(X @ np.random.default_rng(0).standard_normal(p) > 0.0, 1.0, -1.0)
    data = Dataset("large", X, y, None, "large")
    spec = {"name": penalty, "strength": {"l2": 1e-2}.get(penalty, 2e-4)}
    found = compute_optimum(build_problem(data, "logistic", spec))
    assert found.gap <= 1e-9
    if penalty != "l2":
        assert 0 < np.count_nonzero(found.w) < p


def test_the_watch_sees_what_is_made_dense(watched):
    with pytest.raises(AssertionError, match="made dense"):
        sparse.random_array((2000, 2000), density=1e-4, rng=0, format="csc").toarray()


def test_a_cached_sparse_optimum_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path))
    problems = [
        build_problem(
            pair("logistic", 30, 80)[1], "logistic", {"name": "l1", "strength": 0.02}
        )
        for _ in range(2)
    ]
    first = certified_optimum(problems[0])
    monkeypatch.setattr(
        "dp_erm_bench.problems.erm.optimum.certified.compute_optimum", None
    )
    np.testing.assert_array_equal(certified_optimum(problems[1]).w, first.w)


@pytest.mark.parametrize("form", [sparse.csc_array, sparse.csr_array])
def test_the_gram_of_unsorted_entries(form, monkeypatch):
    monkeypatch.setattr(composite, "SMALL", 0)
    X = np.array([[1.0, 2.0, 3.0], [0.0, 4.0, 5.0]])
    features = form(X)
    for start, end in itertools.pairwise(features.indptr):
        for entries in (features.data, features.indices):
            entries[start:end] = entries[start:end][::-1].copy()
    features.has_sorted_indices = False
    for rows, expected in ((False, X.T @ X), (True, X @ X.T)):
        np.testing.assert_array_equal(np.triu(gram(features, rows)), np.triu(expected))


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
class TestLinear:
    def arrays(self):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((30, 80)) * (rng.random((30, 80)) < 0.3)
        return X, rng.random(30), rng.standard_normal(80)

    def test_margins_of_any_support(self, form):
        X, _, w = self.arrays()
        for kept in (0, 3, 80):
            v = np.where(np.arange(80) < kept, w, 0.0)
            np.testing.assert_allclose(
                composite.Composite(form(X), np.zeros(0), None).margins(v),
                X @ v,
                atol=1e-13,
            )

    def test_rows_are_scaled(self, form):
        X, d, _ = self.arrays()
        features = form(X)
        result = scale_records(features, d)
        assert type(result) is type(features)
        np.testing.assert_allclose(result @ np.eye(80), d[:, None] * X)
        np.testing.assert_array_equal(features @ np.eye(80), X)

    @pytest.mark.parametrize("small", [0, 10**6])
    @pytest.mark.parametrize("rows", [False, True])
    def test_the_gram_has_its_upper_triangle(self, form, rows, small, monkeypatch):
        monkeypatch.setattr(composite, "SMALL", small)
        X = self.arrays()[0]
        expected = X @ X.T if rows else X.T @ X
        np.testing.assert_allclose(
            np.triu(gram(form(X), rows)), np.triu(expected), atol=1e-12
        )

    @pytest.mark.parametrize("l2", [1e-3, 1.0])
    def test_systems_are_solved(self, form, l2):
        X, d, g = self.arrays()
        dense = X.T @ (d[:, None] * X) + l2 * np.eye(80)
        kinds = [(composite.direct_solver, 1e-9)]
        kinds += [(composite._iterative_solver, 2e-2)] * sparse.issparse(form(X))
        for kind, tolerance in kinds:
            solved = kind(form(X), d, l2)(g)
            residual = (dense @ solved - g) / np.sqrt(dense.diagonal())
            assert np.linalg.norm(residual) <= tolerance * np.linalg.norm(g) / np.sqrt(
                l2
            )

    def test_shared_products_of_rows_give_the_same_system(self, form):
        X, d, g = self.arrays()
        features, products = form(X), composite.row_products(form(X), 0.1)
        one, two = (
            composite.direct_solver(features, d, 0.1, k)(g) for k in (None, products)
        )
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-12)
        assert composite.row_products(features, 0.0) is None
        assert composite.row_products(form(X.T), 0.1) is None

    def test_the_smaller_side_decides_how(self, form, monkeypatch):
        monkeypatch.setattr(composite, "DIRECT", 40)
        X, *_ = self.arrays()
        assert not composite.is_inexact(form(X), 0.1)
        assert composite.is_inexact(form(X), 0.0) is sparse.issparse(form(X))


@pytest.fixture(scope="module")
def dorothea():
    from dp_erm_bench.datasets.load import load_dataset
    from dp_erm_bench.errors import DataUnavailable

    try:
        return load_dataset(dataset_spec("dorothea"))
    except DataUnavailable as missing:
        pytest.skip(str(missing))


def test_dorothea_has_the_published_optimum(dorothea, watched):
    spec = {"name": "l1", "strength": 0.01}
    problem = build_problem(dorothea, "logistic", spec)
    zero = np.zeros(problem.p)
    assert problem.p == 88119
    assert np.abs(problem.gradient(zero)).max() == pytest.approx(0.11, rel=1e-3)
    compute_optimum(problem)  # imports
    start = time.process_time()
    found = compute_optimum(problem)
    seconds = time.process_time() - start
    assert found.gap <= 1e-12 and np.count_nonzero(found.w) == 72
    assert problem.value(zero) / found.value - 1.0 == pytest.approx(0.783, abs=1e-3)
    assert seconds <= 3.0, f"{seconds:.2f} s, where 0.2 s is usual"


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("penalty", ["l2", "elastic_net"])
def test_dorothea_is_certified_with_every_loss(dorothea, penalty, name, watched):
    found = compute_optimum(
        build_problem(dorothea, name, {"name": penalty, "strength": 0.02})
    )
    assert found.gap <= 1e-9


def test_the_sparse_lasso_has_the_published_error_at_zero():
    from dp_erm_bench.datasets.load import load_dataset

    problem = build_problem(load_dataset(dataset_spec("sparse_lasso")))
    found = compute_optimum(problem)
    assert found.gap <= 1e-12
    error = problem.value(np.zeros(problem.p)) / found.value - 1.0
    assert error == pytest.approx(0.8733, abs=5e-5)
