"""Test outer products, curvatures and metrics against numpy, dense and sparse."""

import numpy as np
import pytest
from scipy.sparse import csc_array

from dp_erm_bench import registry
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.losses.smooth import Logistic
from dp_erm_bench.problems.erm import second_order as so
from dp_erm_bench.problems.erm.build import erm_from_arrays
from tests.loops import each

B, N, P = 3, 70, 6
RNG = np.random.default_rng(2)
X = np.where(RNG.random((N, P)) < 0.5, RNG.normal(size=(N, P)), 0.0)
SIGNS = np.where(RNG.random(N) < 0.5, 1.0, -1.0)
W = RNG.normal(size=(B, P))
FORMS = [np.asarray, csc_array]
L2 = {"penalty": "l2", "strength": 1.0}


def oracle_of(form=np.asarray, loss="logistic", y=SIGNS, batch=B):
    oracle = erm_from_arrays(form(X), y, loss=loss, **L2).oracle(batch)
    oracle.move_to(W[:batch])
    return oracle


@pytest.fixture(params=[1 << 22, 5])
def blocks(request, monkeypatch):
    """One block, and blocks of as few records as may be."""
    monkeypatch.setattr(so, "BLOCK", request.param)


@each("form", FORMS)
def test_sums_of_outer_products_are_those_of_numpy(form, blocks):
    oracle = oracle_of(form)
    signed = RNG.normal(size=(B, N))
    for weights in (None, np.abs(signed), signed, np.zeros((B, N))):
        made = so.unpack_symmetric(so.outer_products(oracle, weights), P)
        q = np.ones((B, N)) if weights is None else weights
        expected = np.stack([X.T @ (X * one[:, None]) for one in q])
        np.testing.assert_allclose(made, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(so.label_products(oracle), (X.T @ SIGNS)[None])


def test_a_packed_matrix_is_as_long_as_its_frobenius_norm_and_comes_back():
    A = RNG.normal(size=(B, P, P))
    A += A.transpose(0, 2, 1)
    vector = so.pack_symmetric(A)
    assert vector.shape == (B, P * (P + 1) // 2)
    np.testing.assert_allclose(
        np.linalg.norm(vector, axis=1), np.linalg.norm(A, axis=(1, 2)), rtol=1e-12
    )
    np.testing.assert_allclose(so.unpack_symmetric(vector, P), A, rtol=1e-12)


def test_noise_of_the_rebuilt_matrix_is_s_on_the_diagonal_and_less_off_it():
    """s and s / sqrt 2, entry by entry, symmetric, to 5 deviations of 4000 draws."""
    s, p = 3.0, 4
    noise = so.unpack_symmetric(s * RNG.normal(size=(4000, p * (p + 1) // 2)), p)
    assert (noise == noise.transpose(0, 2, 1)).all()
    expected = np.where(np.eye(p) == 1.0, s, s / np.sqrt(2.0))
    np.testing.assert_allclose(noise.std(axis=0), expected, rtol=5 / np.sqrt(8000))


@each("loss", registry.names("loss"))
def test_curvatures_are_second_derivatives_within_their_bound(loss):
    oracle = oracle_of(loss=loss)
    q, H = so.curvatures(oracle), oracle.loss.smoothness
    z, step = oracle.margins, 1e-6
    if oracle.loss.smooth:
        up, down = (oracle.loss.derivative(SIGNS, z + d) for d in (step, -step))
        np.testing.assert_allclose(q, (up - down) / (2 * step), atol=1e-8)
    assert (np.abs(q) <= H).all()
    assert (q >= 0.0).all() == oracle.loss.convex
    oracle.move_to(np.full((B, P), 1e308) * np.sign(W))
    assert np.isfinite(so.curvatures(oracle)).all()


def test_weights_are_cut_off_at_the_bound_whatever_a_loss_computes(monkeypatch):
    oracle = oracle_of()
    oracle.move_to(0.0 * W)
    monkeypatch.setattr(Logistic, "smoothness", 0.1)  # not 1/4
    for weights in (so.curvatures, so.secants):
        assert (weights(oracle) == 0.1).all()


@each("loss", ["logistic", "squared", "huber", "smoothed_hinge"])
def test_parabolas_by_secants_lie_above_the_loss_and_touch_it(loss):
    oracle = oracle_of(loss=loss)
    assert so.secant_refusal(oracle.problem) is None
    q, z, y = so.secants(oracle), oracle.margins, SIGNS
    at, slope = oracle.loss.value(y, z), oracle.loss.derivative(y, z)
    for far in np.linspace(-6.0, 6.0, 97):
        bound = at + slope * far + 0.5 * q * far**2
        assert (oracle.loss.value(y, z + far) <= bound + 1e-12).all()
    assert (q >= 0.0).all() and (q <= oracle.loss.smoothness).all()
    assert (q >= so.curvatures(oracle) - 1e-12).mean() > 0.99


def test_secants_of_the_logistic_loss_have_the_papers_form():
    oracle = oracle_of()
    oracle.move_to(W * np.array([[1.0], [1e-5], [1e-7]]))
    z = oracle.margins
    safe = np.where(z == 0.0, 1e-9, z)
    expected = np.tanh(safe / 2.0) / (2.0 * safe)
    np.testing.assert_allclose(so.secants(oracle), expected, rtol=1e-10)


@each("loss", ["sigmoid", "absolute", "linear", "hinge"])
def test_other_losses_have_no_known_bound(loss):
    problem = erm_from_arrays(X, SIGNS, loss=loss, **L2)
    assert "a quadratic upper bound is known only for" in so.secant_refusal(problem)


@each("form", FORMS)
@each("clip", [0.05, 0.5, np.inf])
def test_gradients_are_clipped_in_a_geometry_of_each_trial(form, clip, blocks):
    oracle = oracle_of(form)
    Q = RNG.normal(size=(B, P, P))
    found = so.Geometry(oracle, Q).clipped_sum(np.full((B, 1), clip))
    for b in range(B):
        g = X * oracle.loss.derivative(SIGNS, X @ W[b])[:, None] @ Q[b]
        length = np.linalg.norm(g, axis=1, keepdims=True)
        g *= np.minimum(1.0, clip / np.maximum(length, 1e-300))
        np.testing.assert_allclose(found[b], g.sum(axis=0), rtol=1e-10, atol=1e-12)


def test_a_geometry_of_the_identity_clips_as_the_oracle():
    oracle, clip = oracle_of(), np.array([[0.1], [0.3], [np.inf]])
    Q = np.stack([np.eye(P)] * B)
    found = so.Geometry(oracle, Q).clipped_sum(clip)
    np.testing.assert_allclose(found, oracle.clipped_sum(clip), rtol=1e-12, atol=1e-13)


@each("form", FORMS)
def test_records_that_are_not_finite_add_nothing_in_a_geometry(form):
    oracle = oracle_of(form, loss="squared", y=SIGNS)
    oracle.move_to(np.full((B, P), 1e308) * np.sign(W))
    Q = np.stack([1e10 * np.eye(P)] * B)
    found = so.Geometry(oracle, Q).clipped_sum(np.ones((B, 1)))
    assert np.isfinite(found).all() and (np.linalg.norm(found, axis=1) <= N).all()


def test_images_that_underflow_or_are_no_number_are_clipped_all_the_same():
    opposite = np.array([[1e200, 0.0], [-1e200, 0.0]])
    cases = [([1e-170, 0.0], 1e-160 * np.eye(2), 1e150), ([1e150] * 2, opposite, 1.0)]
    for x, Q, y in cases:
        arrays = np.array([x, [0.0, 0.0]]), np.array([y, 1.0])
        oracle = erm_from_arrays(*arrays, loss="squared", **L2).oracle(1)
        found = so.Geometry(oracle, Q[None]).clipped_sum(np.full((1, 1), 1e-200))
        assert norm2(found) <= 1e-200 * (1 + 1e-12)


@each("lift", ["clip", "add"])
@each("floor", [0.0, 0.5, 50.0])
def test_systems_are_solved_with_lifted_eigenvalues(lift, floor):
    A = X.T @ X / 10.0 - 0.3 * np.eye(P) * (floor > 0.0)
    g, ridge = RNG.normal(size=P), 0.1
    values, V = np.linalg.eigh(A)
    up = np.maximum(values, 0.0) + floor
    d = (up if lift == "add" else np.maximum(values, floor)) + ridge
    expected = V @ ((V.T @ g) / d)
    np.testing.assert_allclose(
        so.solve_system(A, g, floor, ridge, lift), expected, rtol=1e-9
    )


@each("lift", ["clip", "add"])
def test_a_singular_matrix_is_refused_where_nothing_lifts_it(lift):
    A = np.diag([1.0, 0.0])
    with pytest.raises(Unsupported, match="is singular, because nothing raises"):
        so.solve_system(A, np.ones(2), 0.0, 0.0, lift)
    assert np.isfinite(so.solve_system(A, np.ones(2), 1e-3, 0.0, lift)).all()


@each("p", [2, 40])
def test_what_overflowed_is_no_number_whatever_its_size(p):
    for found in so.eigen_decomposition(np.full((p, p), np.inf)):
        assert np.isnan(found).all()


def test_a_matrix_that_is_too_large_is_refused_with_its_bytes():
    wide = csc_array((np.ones(2), ([0, 1], [0, 99_999])), shape=(2, 100_000))
    problem = erm_from_arrays(wide, SIGNS[:2], loss="logistic", **L2)
    reason = so.matrix_refusal(problem)
    assert reason.startswith("p=100000: a p x p matrix takes 8e+10 bytes")
    assert so.matrix_refusal(oracle_of().problem) is None
