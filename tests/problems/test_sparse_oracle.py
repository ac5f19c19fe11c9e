"""Test that a problem has the same numbers dense and sparse, for every solver."""

import numpy as np
import pytest
from scipy.sparse import csc_array

from dp_erm_bench import registry
from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.oracles import DenseOracle, SparseOracle
from tests.loops import each

BATCH = 3


def problems_of(loss):
    rng = np.random.default_rng(5)
    X = np.where(rng.uniform(size=(60, 9)) < 0.3, rng.normal(size=(60, 9)), 0.0)
    X[:, 4] = 0.0
    real = X @ rng.normal(size=9) + 0.1 * rng.normal(size=60)
    y = np.where(real > 0, 1.0, -1.0) if loss.classification else real
    sparse = csc_array(X)
    sparse.indices = sparse.indices.astype(np.int32)
    sparse.indptr = sparse.indptr.astype(np.int32)
    data = [
        Dataset("dense", np.asfortranarray(X), y, None, "same"),
        Dataset("sparse", sparse, y, None, "same"),
    ]
    return [build_problem(one, {"name": loss.name}, "none") for one in data]


@pytest.fixture(params=registry.names("loss"))
def oracles(request):
    dense, sparse = problems_of(registry.build("loss", request.param))
    made = dense.oracle(BATCH), sparse.oracle(BATCH)
    assert isinstance(made[0], DenseOracle)
    assert isinstance(made[1], SparseOracle)
    w = np.random.default_rng(1).normal(size=(BATCH, dense.p))
    for oracle in made:
        oracle.move_to(w)
    return made


def same(pair, atol=1e-12):
    np.testing.assert_allclose(pair[1], pair[0], rtol=1e-10, atol=atol)


@each("clip", [0.2, np.inf])
def test_queries(oracles, clip):
    full = np.full((BATCH, oracles[0].problem.p), clip)
    j = np.array([0, 3, 4])
    same([oracle.margins for oracle in oracles])
    same([oracle.gradient(full) for oracle in oracles])
    same([oracle.coordinate_gradient(j, full[:, 0]) for oracle in oracles])
    same([oracle.clipped_sum(full[:, :1]) for oracle in oracles])
    same([oracle.record_sum(1, np.array([2, 2, 7]), clip) for oracle in oracles])
    same([oracle.objective(oracle.w) for oracle in oracles])
    same([oracle.objective(oracle.w[::-1].copy()) for oracle in oracles])


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("zeros", [False, True])
def test_gradients_of_wide_data(batch, zeros):
    """Of more features than records, and of iterates of which most are zero."""
    rng = np.random.default_rng(4)
    X = np.where(rng.uniform(size=(12, 40)) < 0.3, rng.normal(size=(12, 40)), 0.0)
    w, y = rng.normal(size=(batch, 40)), np.sign(rng.normal(size=12))
    w[:, 4:] *= not zeros
    found = []
    for features in (np.asfortranarray(X), csc_array(X)):
        data = Dataset("wide", features, y, None, "same")
        oracle = build_problem(data, "logistic", "none").oracle(batch)
        oracle.move_to(w)
        found.append((oracle.margins, oracle.clipped_sum(np.full((batch, 1), 0.4))))
    for part in zip(*found, strict=True):
        same(part)
    assert np.abs(found[1][1]).max() > 0.1


# Smooth, with a kink, not convex: what a loss adds to the steps is its derivative.
@pytest.mark.parametrize("oracles", ["logistic", "hinge", "sigmoid"], indirect=True)
def test_steps(oracles):
    rng = np.random.default_rng(2)
    p = oracles[0].problem.p
    j, noise = rng.integers(0, p, (BATCH, 40)), rng.normal(size=(BATCH, 40))
    clip, steps = np.full((BATCH, p), 0.5), np.full((BATCH, p), 0.1)
    batches = rng.integers(0, 60, 20), np.arange(0, 21, 4)
    before = oracles[0].w.copy()
    for oracle in oracles:
        oracle.prox_step(j[:, 0], noise[:, 0], steps[:, 0])
        oracle.coordinate_steps(j, noise, clip, steps, np.zeros((0, p)))
    same([oracle.w for oracle in oracles])
    same([oracle.margins for oracle in oracles])
    for oracle in oracles:
        noises = np.random.default_rng(3).normal(size=(5, p))
        oracle.stochastic_steps(1, batches, noises, 0.7, np.full(5, 0.1), 4.0)
        oracle.touch()
    same([oracle.w for oracle in oracles])
    same([oracle.margins for oracle in oracles])
    assert (before != oracles[0].w).any()


def test_noise_is_for_all_steps_or_none(oracles):
    for oracle in oracles:
        batches, noise = (np.arange(4), np.arange(5)), np.zeros((3, oracle.problem.p))
        with pytest.raises(ValueError, match="3 rows of noise for 4 steps"):
            oracle.stochastic_steps(0, batches, noise, 0.7, np.full(4, 0.1), 4.0)
