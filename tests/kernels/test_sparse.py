"""The sparse kernels against the dense ones on the same numbers."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

from dp_erm_bench.kernels import dense, sparse, stochastic
from dp_erm_bench.kernels.products import products
from dp_erm_bench.losses.logistic import Logistic


def tuple_of(matrix):
    return matrix.data, matrix.indices, matrix.indptr


@pytest.fixture(params=[1, 2, 5])
def batch(request):
    return request.param


@pytest.fixture
def both(batch, loss, make_arrays):
    """Return arrays with two thirds of the features zero, one column empty."""
    return sparse_of(make_arrays(41, 6, batch, loss))


@pytest.fixture
def matrices(batch, make_arrays):
    """Return such arrays for kernels that take no loss."""
    return sparse_of(make_arrays(41, 6, batch, Logistic()))


def sparse_of(arrays):
    X = np.where(arrays.rng.uniform(size=arrays.X.shape) < 1 / 3, arrays.X, 0.0)
    X[:, 2] = 0.0
    arrays.X = np.asfortranarray(X)
    arrays.margins = arrays.w @ X.T
    arrays.columns = tuple_of(csc_array(arrays.X))
    arrays.rows = tuple_of(csr_array(arrays.X))
    arrays.norms = np.linalg.norm(X, axis=1)
    return arrays


@pytest.mark.parametrize("clip", [0.1, 1.0, np.inf])
def test_gradients(matrices, clip):
    r = matrices.rng.normal(size=matrices.margins.shape)
    c = np.full(matrices.w.shape, clip)
    expected, got = np.empty_like(matrices.w), np.empty_like(matrices.w)
    dense.clipped_gradients(matrices.X, r, c, expected)
    sparse.clipped_gradients(matrices.columns, r, c, got)
    np.testing.assert_allclose(got, expected, atol=1e-14)


def test_the_gram_is_added_to_the_upper_triangle(matrices):
    p = matrices.X.shape[1]
    below = np.tril(np.full((p, p), 7.0), -1)
    out = below + np.triu(np.ones((p, p)))
    sparse.upper_gram(matrices.rows, out)
    np.testing.assert_allclose(
        np.triu(out), np.triu(1 + matrices.X.T @ matrices.X), rtol=1e-12
    )
    np.testing.assert_array_equal(np.tril(out, -1), below)


def test_products(matrices):
    out, back = np.empty_like(matrices.margins), np.empty_like(matrices.w)
    sparse.combinations(matrices.columns, matrices.w, out)
    np.testing.assert_allclose(out, matrices.margins, atol=1e-13)
    products(matrices.columns, matrices.margins, back)
    np.testing.assert_allclose(back, matrices.margins @ matrices.X, atol=1e-12)


def test_products_are_the_same_in_any_company(make_arrays):
    """Eight trials at once, a few beside them, or one alone: bit for bit."""
    many = sparse_of(make_arrays(41, 6, 21, Logistic()))
    by_columns, by_rows, back = (np.empty((21, m)) for m in (41, 41, 6))
    sparse.combinations(many.columns, many.w, by_columns)
    products(many.rows, many.w, by_rows)
    products(many.columns, many.margins, back)
    assert by_rows.tolist() == by_columns.tolist()
    for count in (1, 2, 3, 8, 11):
        some, fewer = np.empty((count, 41)), np.empty((count, 6))
        products(many.rows, many.w[-count:], some)
        products(many.columns, many.margins[-count:], fewer)
        assert some.tolist() == by_rows[-count:].tolist()
        assert fewer.tolist() == back[-count:].tolist()


def test_coordinate_gradients_and_moves(both, loss):
    batch = both.w.shape[0]
    j, c = both.rng.integers(0, 6, batch), np.full(batch, 0.4)
    expected, got = np.empty(batch), np.empty(batch)
    for kernel, X, out in ((dense, both.X, expected), (sparse, both.columns, got)):
        kernel.coordinate_gradients(loss, (X, both.y), both.margins, j, c, out)
    np.testing.assert_allclose(got, expected, atol=1e-14)
    first, second = both.margins.copy(), both.margins.copy()
    by = both.rng.normal(size=batch)
    dense.move_coordinates(both.X, first, j, by)
    sparse.move_coordinates(both.columns, second, j, by)
    np.testing.assert_allclose(second, first, atol=1e-14)


@pytest.mark.parametrize("summed", [True, False])
def test_coordinate_steps(both, loss, make_psi, summed):
    batch, p = both.w.shape
    j, noise = both.rng.integers(0, p, (batch, 30)), both.rng.normal(size=(batch, 30))
    clip, steps = np.full((batch, p), 0.5), both.rng.uniform(0, 0.5, (batch, p))
    results = []
    for kernel, X in ((dense, both.X), (sparse, both.columns)):
        w, z = both.w.copy(), both.margins.copy()
        total = np.zeros((batch if summed else 0, p))
        at, draws, scales = (w, z, total), (j, noise), (clip, steps)
        kernel.coordinate_steps(loss, (X, both.y), make_psi(), at, draws, scales)
        results.append((w, z, total))
    assert not np.array_equal(results[0][0], both.w)
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(second, first, atol=1e-12)


@pytest.mark.parametrize("domain", [(0, np.inf), (1, 0.5)])
def test_stochastic_steps(domain, both, loss, make_psi):
    n, p = both.X.shape
    records, offsets = both.rng.integers(0, n, 25), np.arange(0, 26, 5)
    noise, steps = both.rng.normal(size=(5, p)), both.rng.uniform(0, 0.5, 5)
    results = []
    rows = np.ascontiguousarray(both.X)
    for kernel, X in ((stochastic, rows), (sparse, both.rows)):
        w = both.w[0].copy()
        data, draws = (X, both.y, both.norms), (records, offsets, noise)
        at, scales = (w, domain), (0.7, steps, 5.0)
        kernel.stochastic_steps(loss, data, make_psi(), at, draws, scales)
        results.append(w)
    assert not np.array_equal(results[0], both.w[0])
    np.testing.assert_allclose(results[1], results[0], atol=1e-12)
