"""Test compiled steps against the pseudo-code that they implement."""

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench import registry
from dp_erm_bench.kernels import stochastic
from dp_erm_bench.kernels.coins import poisson_gaps
from dp_erm_bench.kernels.dense import coordinate_steps
from dp_erm_bench.kernels.philox import uniforms
from tests.kernels.conftest import of_three_losses
from tests.loops import each
from tests.serving import BALLS

SEED = np.array([5, 7, 11, 13], dtype=np.uint32)


def prox(v, step, psi):
    l1, l2, lower, upper = psi
    shrunk = np.sign(v) * np.maximum(np.abs(v) - step * l1, 0.0) / (1.0 + step * l2)
    return np.clip(shrunk, lower, upper)


def coordinate_reference(loss, arrays, psi, coordinates, noise, clip, steps):
    """Return the iterates after each step of one trial after the other."""
    w, path = arrays.w.copy(), []
    for k in range(coordinates.shape[1]):
        for b, j in enumerate(coordinates[:, k]):
            terms = loss.derivative(arrays.y, arrays.X @ w[b]) * arrays.X[:, j]
            g = np.clip(terms, -clip[b, j], clip[b, j]).mean() + noise[b, k]
            if steps[b, j] > 0.0:
                w[b, j] = prox(w[b, j] - steps[b, j] * g, steps[b, j], psi)
        path.append(w.copy())
    return path


@of_three_losses
@each("batch, n", [(1, 1), (2, 7), (3, 513), (5, 33)])
def test_coordinate_steps(batch, n, loss, make_arrays, make_psi):
    arrays, psi = make_arrays(n, 4, batch, loss), make_psi()
    coordinates = arrays.rng.integers(0, 4, size=(batch, 25))
    noise = 0.1 * arrays.rng.normal(size=(batch, 25))
    clip = arrays.rng.exponential(0.3, size=(batch, 4))
    steps = arrays.rng.exponential(size=(batch, 4))
    steps[:, 2] = 0.0
    path = coordinate_reference(loss, arrays, psi, coordinates, noise, clip, steps)
    before, total = arrays.w.copy(), np.ones((batch, 4))
    data, at = (arrays.X, arrays.y), (arrays.w, arrays.margins, total)
    coordinate_steps(loss, data, psi, at, (coordinates, noise), (clip, steps))
    np.testing.assert_allclose(arrays.w, path[-1], atol=1e-12)
    np.testing.assert_allclose(arrays.margins, arrays.w @ arrays.X.T, atol=1e-12)
    np.testing.assert_allclose(total, 1.0 + np.sum(path, axis=0), atol=1e-11)
    assert (arrays.w[:, 2] == before[:, 2]).all()
    assert not np.array_equal(arrays.w, before)


@of_three_losses
def test_coordinate_steps_do_not_depend_on_how_they_are_cut(
    loss, make_arrays, make_psi
):
    results = []
    for cuts in ([0, 40], [0, 1, 17, 40]):
        arrays, psi = make_arrays(65, 3, 2, loss), make_psi()
        coordinates = arrays.rng.integers(0, 3, size=(2, 40))
        noise = arrays.rng.normal(size=(2, 40))
        clip, total = np.full((2, 3), 0.5), np.zeros((2, 3))
        data, at = (arrays.X, arrays.y), (arrays.w, arrays.margins, total)
        for a, b in zip(cuts[:-1], cuts[1:], strict=True):
            part = (coordinates[:, a:b], np.ascontiguousarray(noise[:, a:b]))
            scales = (clip, np.full((2, 3), 0.3))
            coordinate_steps(loss, data, psi, at, part, scales)
        results.append((arrays.w.tolist(), total.tolist()))
    assert results[0] == results[1]


def record_gradients(loss, arrays, w, clip):
    """Return every record's gradient, clipped in the euclidean norm, (n, p)."""
    g = loss.derivative(arrays.y, arrays.X @ w)[:, None] * arrays.X
    norms = np.linalg.norm(g, axis=1, keepdims=True)
    return g * np.minimum(1.0, clip / np.maximum(norms, 1e-300))


def rows_of(arrays):
    rows = np.ascontiguousarray(arrays.X)
    return rows, arrays.y, np.linalg.norm(rows, axis=1)


@each("clip", [np.inf, 0.5, 0.0])
@each("p", [1, 2, 5, 8, 9])
def test_record_sums(clip, p, loss, make_arrays):
    arrays = make_arrays(31, p, 1, loss)
    records = np.array([3, 0, 3, 30, 12], dtype=np.int64)
    out = np.full(p, 9.0)
    stochastic.record_sum(loss, rows_of(arrays), arrays.w[0], records, clip, out)
    expected = record_gradients(loss, arrays, arrays.w[0], clip)[records].sum(axis=0)
    np.testing.assert_allclose(out, expected, atol=1e-13)


def test_no_records_no_sum(loss, make_arrays):
    arrays, out = make_arrays(5, 3, 1, loss), np.ones(3)
    none = np.empty(0, dtype=np.int64)
    stochastic.record_sum(loss, rows_of(arrays), arrays.w[0], none, 1.0, out)
    assert (out == 0.0).all()


SPACES = [(name, 0.6) for name in ("none", *BALLS)]


@of_three_losses
@each("space", SPACES)
@each("clip", [np.inf, 0.4])
def test_stochastic_steps(clip, space, loss, make_arrays, make_psi):
    arrays, psi, rng = make_arrays(23, 5, 1, loss), make_psi(), np.random.default_rng(8)
    name, radius = space
    given = {} if name == "none" else {"radius": radius}
    space = registry.build("constraint", name, **given)
    sizes = np.array([2, 0, 5, 1, 0, 23])
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    records = rng.integers(0, 23, size=offsets[-1])
    noise, steps = rng.normal(size=(6, 5)), rng.exponential(0.2, size=6)
    w = arrays.w[0].copy()
    for t in range(6):
        batch = records[offsets[t] : offsets[t + 1]]
        g = record_gradients(loss, arrays, w, clip)[batch].sum(axis=0) + noise[t]
        w = space.project(prox(w - steps[t] * g / 2.5, steps[t], psi))
    draws, scales = (records, offsets, noise), (clip, steps, 2.5)
    at = (arrays.w[0], space.kernel)
    stochastic.stochastic_steps(loss, rows_of(arrays), psi, at, draws, scales)
    np.testing.assert_allclose(arrays.w[0], w, atol=1e-12)


def walk(rate, limit, count=200_000):
    out = np.empty(count, dtype=np.int64)
    u = uniforms(SEED, 0, count)
    used, position, pending = poisson_gaps(u, 0, limit, rate, out)
    return out[:used], position, pending


@pytest.mark.parametrize("rate", [0.9, 0.3, 0.02])
def test_gaps_are_geometric(rate):
    successes, _, _ = walk(rate, 2**62, 50_000)
    gaps = np.diff(np.concatenate([[-1], successes])) - 1
    law = stats.geom(rate, loc=-1)
    edges = np.unique(law.ppf(np.arange(1, 20) / 20))
    counts = np.bincount(np.searchsorted(edges, gaps), minlength=edges.size + 1)
    masses = np.diff(np.concatenate([[0.0], law.cdf(edges), [1.0]]))
    assert stats.chisquare(counts, masses * gaps.size).pvalue > 1e-3


@pytest.mark.parametrize("rate", [0.9, 0.3, 0.02])
def test_walk_ends_at_the_limit_and_names_the_next_success(rate):
    everything, _, _ = walk(rate, 2**62, 3000)
    for limit in (1, 17, int(everything[1000]), int(everything[1000]) + 1):
        successes, position, pending = walk(rate, limit, 3000)
        inside = everything[everything < limit]
        assert successes.tolist() == inside.tolist()
        assert pending == everything[inside.size] >= limit
        assert position == (inside[-1] + 1 if inside.size else 0)


def test_walk_without_enough_uniforms_says_so():
    successes, position, pending = walk(0.5, 10_000, 10)
    assert successes.size == 10
    assert position == successes[-1] + 1
    assert pending == -1
