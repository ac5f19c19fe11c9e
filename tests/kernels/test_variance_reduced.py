"""Test compiled variance-reduced steps against the pseudo-code."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from dp_erm_bench.kernels import sparse, stochastic
from tests.kernels.conftest import of_three_losses
from tests.kernels.test_steps import prox, record_gradients, rows_of
from tests.loops import each

EXPECTED = 2.5
SIZES = np.array([2, 0, 5, 1, 0, 23])


def draws(p, seed=8):
    """Batches of six steps, their noise, a snapshot and the gradient there."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    records = rng.integers(0, 23, size=offsets[-1])
    noise, anchor, mean = (
        rng.normal(size=(6, p)),
        rng.normal(size=p),
        rng.normal(size=p),
    )
    return records, offsets, noise, anchor, mean


def reference(loss, arrays, psi, clip, step):
    records, offsets, noise, anchor, mean = draws(arrays.w.shape[1])
    w = arrays.w[0].copy()
    there = record_gradients(loss, arrays, anchor, clip)
    for t in range(SIZES.size):
        batch = records[offsets[t] : offsets[t + 1]]
        here = record_gradients(loss, arrays, w, clip)
        g = (here - there)[batch].sum(axis=0) + noise[t]
        w = prox(w - step * (g / EXPECTED + mean), step, psi)
    return w


def compiled(kernel, rows, loss, arrays, psi, clip, step, cuts=(0, 6)):
    records, offsets, noise, anchor, mean = draws(arrays.w.shape[1])
    _, y, norms = rows_of(arrays)
    w = arrays.w[0].copy()
    data, at = (rows, y, norms), (w, anchor, mean)
    for a, b in zip(cuts[:-1], cuts[1:], strict=True):
        part = (records, offsets[a : b + 1], noise[a:b])
        kernel(loss, data, psi, at, part, (clip, step, EXPECTED))
    return w


@of_three_losses
@each("clip", [np.inf, 0.4, 0.0])
def test_dense_steps_are_those_of_the_pseudo_code(clip, loss, make_arrays, make_psi):
    arrays, psi = make_arrays(23, 5, 1, loss), make_psi()
    expected = reference(loss, arrays, psi, clip, 0.2)
    steps = stochastic.variance_reduced_steps
    rows = rows_of(arrays)[0]
    found = compiled(steps, rows, loss, arrays, psi, clip, 0.2)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    cut = compiled(steps, rows, loss, arrays, psi, clip, 0.2, cuts=(0, 1, 4, 6))
    assert cut.tolist() == found.tolist()


@of_three_losses
@each("clip", [np.inf, 0.4])
def test_sparse_steps_are_those_of_the_dense_ones(clip, loss, make_arrays, make_psi):
    arrays, psi = make_arrays(23, 5, 1, loss), make_psi()
    arrays.X = np.where(np.abs(arrays.X) > 0.8, arrays.X, 0.0)
    rows = csr_array(arrays.X)
    packed = (rows.data, rows.indices, rows.indptr)
    given = (loss, arrays, psi, clip, 0.2)
    found = compiled(sparse.variance_reduced_steps, packed, *given)
    np.testing.assert_allclose(found, reference(*given), atol=1e-12)


def test_clipped_derivatives_stay_within_the_threshold(loss):
    rng = np.random.default_rng(0)
    signs = loss.classification
    for _ in range(200):
        y = rng.choice([-1.0, 1.0]) if signs else rng.normal()
        z, norm, clip = 5.0 * rng.normal(), rng.exponential(), rng.exponential(0.3)
        found = stochastic.clipped_derivative(loss, y, z, norm, clip)
        exact = float(loss.derivative(np.array(y), np.array(z)))
        expected = exact * min(1.0, clip / max(abs(exact) * norm, 1e-300))
        assert found == pytest.approx(expected, abs=1e-14)
        assert abs(found) * norm <= clip * (1 + 1e-12)
