"""Test kernels over dense features against plain numpy."""

import numpy as np
import pytest

from dp_erm_bench.kernels import dense
from dp_erm_bench.kernels.projections import prox
from dp_erm_bench.losses.smooth import Logistic
from dp_erm_bench.penalties.base import SeparablePenalty
from tests.loops import each

BATCHES = range(1, 10)
ANY = Logistic()
"""The loss whose labels arrays have, for kernels that take none."""
# Odd lengths on both sides of a block of 512 rows.
SIZES = [1, 7, 511, 513, 1025]


def thresholds(rng, shape):
    """Return thresholds of all kinds: tight, loose, none, zero."""
    c = rng.exponential(0.5, size=shape)
    kind = rng.integers(0, 6, size=shape)
    return np.where(kind == 0, np.inf, np.where(kind == 1, 0.0, c))


def clipped_mean(X, r, clip):
    terms = r[:, :, None] * X
    return np.clip(terms, -clip[:, None, :], clip[:, None, :]).mean(axis=1)


def gradients(X, r, clip):
    out = np.full(clip.shape, 7.0)
    dense.clipped_gradients(X, r, clip, out)
    return out


@each("batch", BATCHES)
@each("n", SIZES)
def test_clipped_gradients(n, batch, loss, make_arrays):
    arrays = make_arrays(n, 5, batch, loss, seed=n + batch)
    r = np.empty((batch, n))
    dense.all_residuals(loss, arrays.y, arrays.margins, r)
    np.testing.assert_allclose(r, loss.derivative(arrays.y, arrays.margins), rtol=1e-13)
    clip = thresholds(arrays.rng, (batch, 5))
    expected = clipped_mean(arrays.X, r, clip)
    np.testing.assert_allclose(gradients(arrays.X, r, clip), expected, atol=1e-14)


@pytest.mark.parametrize("batch", BATCHES)
def test_no_threshold_is_exceeded_whatever_the_residuals(batch, make_arrays):
    arrays = make_arrays(513, 4, batch, ANY)
    r = arrays.rng.standard_cauchy((batch, 513)) * 1e6
    r[:, ::7] = np.inf
    X = np.asfortranarray(np.where(arrays.X == 0.0, 1.0, arrays.X))
    X.setflags(write=False)
    clip = arrays.rng.exponential(size=(batch, 4))
    assert (np.abs(gradients(X, r, clip)) <= clip * (1 + 1e-13)).all()


@pytest.mark.parametrize("n", SIZES)
def test_a_replaced_record_moves_the_gradient_by_two_thresholds(n, make_arrays):
    arrays = make_arrays(n, 4, 5, ANY)
    clip = np.full((5, 4), 0.25)
    r = 100.0 * arrays.rng.normal(size=(5, n))
    other = r.copy()
    other[:, n // 2] *= -1.0
    change = np.abs(gradients(arrays.X, r, clip) - gradients(arrays.X, other, clip))
    assert (change <= 2 * 0.25 / n * (1 + 1e-9)).all()
    assert change.max() == pytest.approx(2 * 0.25 / n)


@each("batch", BATCHES)
def test_coordinate_gradients(batch, loss, make_arrays):
    for n in SIZES:
        arrays = make_arrays(n, 6, batch, loss, seed=n)
        j = arrays.rng.integers(0, 6, size=batch)
        clip = thresholds(arrays.rng, batch)
        out = np.empty(batch)
        data = arrays.X, arrays.y
        dense.coordinate_gradients(loss, data, arrays.margins, j, clip, out)
        r = loss.derivative(arrays.y, arrays.margins)
        full = clipped_mean(arrays.X, r, np.repeat(clip[:, None], 6, axis=1))
        np.testing.assert_allclose(out, full[np.arange(batch), j], atol=1e-14)


@pytest.mark.parametrize("batch", BATCHES)
def test_moved_margins(batch, make_arrays):
    arrays = make_arrays(33, 4, batch, ANY)
    j = arrays.rng.integers(0, 4, size=batch)
    deltas = arrays.rng.normal(size=batch)
    deltas[0] = 0.0
    before = arrays.margins.copy()
    dense.move_coordinates(arrays.X, arrays.margins, j, deltas)
    expected = before + deltas[:, None] * arrays.X[:, j].T
    np.testing.assert_allclose(arrays.margins, expected, rtol=0, atol=1e-14)
    assert (arrays.margins[0] == before[0]).all()


@each("l1", [0.0, 0.3])
@each("l2", [0.0, 0.7])
@each("box", [(-np.inf, np.inf), (-1.0, 0.5), (0.0, np.inf)])
def test_prox_is_that_of_the_penalty(l1, l2, box, make_psi):
    penalty = SeparablePenalty()
    penalty.l1, penalty.l2, (penalty.lower, penalty.upper) = l1, l2, box
    psi = make_psi(l1, l2, *box)
    for step in (0.0, 0.1, 2.0):
        v = np.concatenate([np.linspace(-3, 3, 61), [0.0, step * l1, -step * l1]])
        compiled = [prox(value, step, psi) for value in v]
        np.testing.assert_allclose(compiled, penalty.prox(v, step), rtol=1e-15)
