"""Test smoothness constants against the curvature of the data term."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench import registry
from dp_erm_bench.contract.problems import curved_losses
from dp_erm_bench.datasets.base import Bounds, Dataset
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.problems.erm import objective as module
from dp_erm_bench.problems.erm.objective import Smoothness
from tests.loops import each

NAMES = curved_losses()
LOSSES = [registry.build("loss", name) for name in NAMES]
KINDS = ("public", "data")


@pytest.fixture(params=LOSSES, ids=NAMES)
def loss(request):
    return request.param


def dataset(loss, n=40, p=6, bounded=True, seed=0):
    rng = np.random.default_rng(seed)
    X = np.asfortranarray(rng.normal(size=(n, p)) * np.logspace(-1, 1, p))
    X[:, 0] = 0.0
    y = np.sign(rng.normal(size=n))
    norm = float(np.linalg.norm(X, axis=1).max())
    bounds = Bounds(np.abs(X).max(axis=0), norm) if bounded else None
    return Dataset("toy", X, y, bounds, "hash")


def hessian(data, loss, w):
    curvature = loss.second_derivative(data.y, data.X @ w)
    return data.X.T * curvature @ data.X / data.n


def hessians(data, loss):
    weights = np.random.default_rng(1).normal(size=(20, data.p))
    yield from (
        hessian(data, loss, scale * w) for w in weights for scale in (0, 0.1, 1)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_coordinate_constants_dominate_the_curvature(loss, kind):
    data = dataset(loss)
    M = Smoothness(kind, data, loss).columns
    assert M.shape == (data.p,)
    for H in hessians(data, loss):
        assert (np.diag(H) <= M * (1 + 1e-12)).all()


@each("kind", KINDS)
@each("n, p", [(40, 6), (6, 40)])
def test_norm_constant_dominates_the_curvature(loss, kind, n, p):
    data = dataset(loss, n, p)
    beta = Smoothness(kind, data, loss).norm
    assert isinstance(beta, float)
    for H in hessians(data, loss):
        assert np.linalg.eigvalsh(H)[-1] <= beta * (1 + 1e-12)


@pytest.mark.parametrize("n, p", [(40, 6), (6, 40)])
def test_constants_from_the_data_are_attained(loss, n, p):
    data, margins = dataset(loss, n, p), np.linspace(-3.0, 3.0, 121)
    most = loss.second_derivative(data.y, margins[:, None]).max(axis=0)
    steepest = data.X.T * most @ data.X / n  # where phi'' is largest, for each record
    constants = Smoothness("data", data, loss)
    np.testing.assert_allclose(constants.columns, np.diag(steepest), rtol=1e-12)
    assert constants.norm == pytest.approx(np.linalg.eigvalsh(steepest)[-1], rel=1e-12)


def test_constants_from_the_data_do_not_exceed_the_public_ones(loss):
    data = dataset(loss)
    public, private = (Smoothness(kind, data, loss) for kind in KINDS)
    assert (private.columns <= public.columns).all()
    assert private.norm <= public.norm


def test_public_constants_come_from_the_bounds_alone(loss):
    data = dataset(loss)
    other = Dataset("toy", 0.5 * data.X, -data.y, data.bounds, "other")
    one, two = (Smoothness("public", d, loss) for d in (data, other))
    assert one.columns.tolist() == two.columns.tolist()
    assert one.norm == two.norm
    np.testing.assert_allclose(one.columns, loss.smoothness * data.bounds.columns**2)
    assert one.norm == pytest.approx(loss.smoothness * data.bounds.norm**2)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_column_has_no_curvature(loss, kind):
    assert Smoothness(kind, dataset(loss), loss).columns[0] == 0.0


def test_auto_is_public_where_bounds_are_declared(loss):
    assert Smoothness("auto", dataset(loss), loss).kind == "public"
    assert Smoothness("auto", dataset(loss, bounded=False), loss).kind == "data"


def test_public_without_bounds_is_refused_in_one_sentence(loss):
    with pytest.raises(Unsupported) as error:
        Smoothness("public", dataset(loss, bounded=False), loss)
    assert str(error.value) == (
        "smoothness=public: dataset toy declares no bounds; declare bounds, or use "
        "smoothness=data, which reads the records"
    )


def test_unknown_kinds_are_refused_in_one_sentence(loss):
    with pytest.raises(UsageError) as error:
        Smoothness("secret", dataset(loss), loss)
    assert str(error.value) == (
        "smoothness=secret: must be one of auto, public, data, private"
    )
    with pytest.raises(UsageError, match="each fit publishes its own"):
        Smoothness("private", dataset(loss), loss)


@pytest.mark.parametrize("n, p", [(60, 30), (30, 60)])
def test_lanczos_finds_the_same_eigenvalue(loss, n, p, monkeypatch):
    data = dataset(loss, n, p)
    expected = Smoothness("data", data, loss).norm
    monkeypatch.setattr(module, "_DENSE_EIGENVALUES", 10)
    assert Smoothness("data", data, loss).norm == pytest.approx(expected, rel=1e-9)


def test_lanczos_finds_an_eigenvector_orthogonal_to_ones(loss, monkeypatch):
    # Columns in opposite pairs: the top eigenvector is (1, -1, 1, -1, ...).
    rng = np.random.default_rng(2)
    column = rng.normal(size=(400, 1))
    X = np.asfortranarray(column * np.tile([3.0, -3.0], 10))
    data = Dataset("pairs", X, np.sign(column[:, 0]), None, "hash")
    expected = loss.smoothness * float(np.linalg.norm(X, 2) ** 2) / 400
    monkeypatch.setattr(module, "_DENSE_EIGENVALUES", 10)
    assert Smoothness("data", data, loss).norm == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("largest", [1000, 10])
@pytest.mark.parametrize("n, p", [(60, 30), (30, 60)])
def test_sparse_features_have_the_constants_of_dense_ones(
    loss, n, p, largest, monkeypatch
):
    data = dataset(loss, n, p)
    X = np.asfortranarray(np.where(np.abs(data.X) > 0.5, data.X, 0.0))
    dense = Smoothness("data", dataclasses.replace(data, X=X), loss)
    features = sparse.csc_array(X)
    same = Smoothness("data", dataclasses.replace(data, X=features), loss)
    monkeypatch.setattr(module, "_DENSE_EIGENVALUES", largest)
    assert same.columns.shape == (p,) and type(same.columns) is np.ndarray
    np.testing.assert_allclose(same.columns, dense.columns, rtol=1e-13)
    assert same.norm == pytest.approx(dense.norm, rel=1e-9)


def test_many_sparse_features_need_neither_their_gram_nor_a_dense_copy(loss):
    X = sparse.random_array((3000, 200_000), density=1e-4, rng=0, format="csc")
    data = Dataset("wide", X, np.ones(3000), None, "hash")
    constants = Smoothness("data", data, loss)
    v = np.random.default_rng(0).normal(size=200_000)
    for _ in range(300):
        v = X.T @ (X @ (v / np.linalg.norm(v)))
    below = loss.smoothness * np.linalg.norm(v) / 3000  # a Rayleigh quotient
    assert below <= constants.norm <= 1.01 * below
    assert np.count_nonzero(constants.columns) == np.count_nonzero(np.diff(X.indptr))


@pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])
def test_features_that_are_all_zero_have_no_curvature(loss, form, monkeypatch):
    data = Dataset("zero", form(np.zeros((30, 20))), np.ones(30), None, "hash")
    for largest in (1000, 10):
        monkeypatch.setattr(module, "_DENSE_EIGENVALUES", largest)
        constants = Smoothness("data", data, loss)
        assert constants.norm == 0.0 and not constants.columns.any()
