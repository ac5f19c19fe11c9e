"""Test the sparse kernels against the dense ones on the same numbers."""

import numpy as np
import pytest
from scipy.sparse import csc_array, csr_array

from dp_erm_bench import registry
from dp_erm_bench.kernels import dense, lazy, sparse, stochastic
from dp_erm_bench.kernels.lazy import few_entries
from dp_erm_bench.kernels.products import products, upper_weighted_gram
from dp_erm_bench.losses.smooth import Logistic
from tests.kernels.conftest import of_three_losses
from tests.loops import each
from tests.serving import BALLS


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
    weights = matrices.rng.normal(size=len(matrices.X))
    expected = np.triu(out) + np.triu(matrices.X.T @ (matrices.X * weights[:, None]))
    upper_weighted_gram(matrices.rows, weights, out)
    np.testing.assert_allclose(np.triu(out), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(np.tril(out, -1), below)


def test_products(matrices):
    out, back = np.empty_like(matrices.margins), np.empty_like(matrices.w)
    sparse.combinations(matrices.columns, matrices.w, out)
    np.testing.assert_allclose(out, matrices.margins, atol=1e-13)
    products(matrices.columns, matrices.margins, back)
    np.testing.assert_allclose(back, matrices.margins @ matrices.X, atol=1e-12)


def test_products_are_the_same_in_any_company(make_arrays):
    """Four trials at once, two of them, or one alone: bit for bit."""
    many = sparse_of(make_arrays(41, 6, 21, Logistic()))
    by_columns, by_rows, back = (np.empty((21, m)) for m in (41, 41, 6))
    sparse.combinations(many.columns, many.w, by_columns)
    products(many.rows, many.w, by_rows)
    products(many.columns, many.margins, back)
    assert by_rows.tolist() == by_columns.tolist()
    sparse.combinations(many.rows, many.margins, scattered := np.empty((21, 6)))
    assert scattered.tolist() == back.tolist()
    for count in (*range(1, 9), 11, 13, 18):
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


def test_a_column_of_many_entries_is_gathered_in_parts(loss, make_arrays):
    many = sparse_of(make_arrays(1900, 3, 1, loss))
    assert 2 * 256 < np.count_nonzero(many.X[:, 0]) < 3 * 256
    j, c, out = np.zeros(1, np.int64), np.full(1, 0.4), np.empty(1)
    sparse.coordinate_gradients(loss, (many.columns, many.y), many.margins, j, c, out)
    r = loss.derivative(many.y, many.margins[0])
    mean = np.clip(r * many.X[:, 0], -0.4, 0.4).mean()
    np.testing.assert_allclose(out, mean, atol=1e-14)


@of_three_losses
@each("summed", [True, False])
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


@of_three_losses
@each("noisy", [True, False])
@each("domain", [(0, np.inf), (1, 0.5)])
def test_stochastic_steps(domain, noisy, both, loss, make_psi):
    """An array of no rows stands for a noise of zeros."""
    n, p = both.X.shape
    records, offsets = both.rng.integers(0, n, 25), np.arange(0, 26, 5)
    noise, steps = both.rng.normal(size=(5, p)), both.rng.uniform(0, 0.5, 5)
    results = []
    rows, quiet = np.ascontiguousarray(both.X), np.empty((0, p))
    zeros = noise if noisy else np.zeros((5, p))
    for kernel, X, given in (
        (stochastic, rows, zeros),
        (sparse, both.rows, noise if noisy else quiet),
        (stochastic, rows, noise if noisy else quiet),
    ):
        w = both.w[0].copy()
        data, draws = (X, both.y, both.norms), (records, offsets, given)
        at, scales = (w, domain), (0.7, steps, 5.0)
        kernel.stochastic_steps(loss, data, make_psi(), at, draws, scales)
        results.append(w)
    assert not np.array_equal(results[0], both.w[0])
    np.testing.assert_allclose(results[1], results[0], atol=1e-12)
    assert results[2].tolist() == results[0].tolist()


INFINITE = {"lower": -np.inf, "upper": np.inf}
PSIS = {
    "elastic net on a box": {"l1": 0.02},
    "a box without zero": {"lower": 0.01},
    "l1": {"l1": 0.02, "l2": 0.0, **INFINITE},
    "l2": {"l1": 0.0, **INFINITE},
    # A scale of about 6^-450, below the least number.
    "strong l2": {"l1": 0.0, "l2": 50.0, **INFINITE},
    "none": {"l1": 0.0, "l2": 0.0, **INFINITE},
}


@each("start", ["zero", "few", "all"])
@each("space", ["none", *BALLS])
@each("psi", PSIS)
def test_steps_by_their_entries(psi, space, start, make_arrays, make_psi):
    """In the coordinates that are not zero alone, as with a noise of zeros."""
    data = sparse_of(make_arrays(61, 90, 1, Logistic()))
    first = data.w[0] * {"zero": 0.0, "few": np.arange(90) % 9 == 0, "all": 1.0}[start]
    given = {} if space == "none" else {"radius": 0.8}
    domain = registry.build("constraint", space, **given).kernel
    data.rows[0][data.rows[2][5] : data.rows[2][6]] = data.X[5] = 0.0
    records, offsets = data.rng.integers(0, 61, 900), np.arange(0, 901, 2)
    offsets[100:120] = offsets[100]  # batches without records, then a large one
    scales = 0.7, data.rng.uniform(0, 0.2, 450), 2.0
    psi, zeros, results = make_psi(**PSIS[psi]), np.zeros((450, 90)), []
    rows = np.ascontiguousarray(data.X), data.y, data.norms
    for kernel, form, draws in (
        (stochastic.stochastic_steps, rows, (records, offsets, zeros)),
        (lazy.quiet_steps, (data.rows, data.y, data.norms), (records, offsets)),
    ):
        at = first.copy(), domain
        kernel(Logistic(), form, psi, at, draws, scales)
        results.append(at[0])
    assert not np.array_equal(results[0], first)
    np.testing.assert_allclose(results[1], results[0], atol=1e-12)
    assert np.array_equal(results[1] == 0.0, results[0] == 0.0)


def test_steps_go_by_their_entries_where_these_are_few(matrices):
    """A record has two entries on average."""
    assert few_entries(matrices.rows, 800, np.array([0, 2, 4, 7]))
    assert not few_entries(matrices.rows, 40, np.array([0, 1, 2]))
    assert not few_entries(matrices.rows, 800, np.array([0, 100]))
    offsets, w, results = np.arange(0, 42), np.zeros(800), []
    order, steps = np.arange(41), np.full(41, 0.3)
    data = matrices.rows, matrices.y, matrices.norms
    for noise in (np.zeros((0, 800)), np.zeros((41, 800))):
        at, draws = (w.copy(), (2, 0.1)), (order, offsets, noise)
        psi, scales = np.array([0.0, 0.1, -np.inf, np.inf]), (0.4, steps, 1.0)
        sparse.stochastic_steps(Logistic(), data, psi, at, draws, scales)
        results.append(at[0])
    np.testing.assert_allclose(results[0], results[1], atol=1e-14)
    assert 0.05 < np.abs(results[0]).sum() < 0.1 + 1e-9
