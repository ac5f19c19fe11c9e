"""Test least squares on the Gram matrix against the dense oracle."""

import numpy as np
import pytest

from dp_erm_bench.constraints.sets import Simplex, WholeSpace
from dp_erm_bench.datasets.base import Bounds, Dataset
from dp_erm_bench.losses.smooth import Squared
from dp_erm_bench.penalties.separable import Box, NoPenalty
from dp_erm_bench.problems.erm import oracles as kinds
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.problems.erm.oracles import REFRESH, DenseOracle, GramOracle
from dp_erm_bench.problems.erm.problem import ERMProblem

BATCH = 3


def boxed(data, lower, upper):
    return ERMProblem(data, Squared(), Box(lower, upper), WholeSpace())


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X, y = np.asfortranarray(rng.normal(size=(50, 6))), rng.normal(size=50)
    data = Dataset("toy", X, y, None, "hash")
    return boxed(data, -0.8, 1.1)


@pytest.fixture
def pair(problem):
    w = np.random.default_rng(1).uniform(-0.8, 1.1, (BATCH, problem.p))
    oracles = DenseOracle(problem, BATCH), GramOracle(problem, BATCH)
    for oracle in oracles:
        oracle.move_to(w)
    return oracles


def same(values, atol=1e-12):
    np.testing.assert_allclose(values[1], values[0], rtol=1e-10, atol=atol)


def unclipped(oracle):
    return np.full((BATCH, oracle.problem.p), np.inf)


def test_chosen_for_least_squares_without_clipping_only(problem):
    assert type(problem.oracle(1)) is DenseOracle
    assert type(problem.oracle(1, clipped=False)) is GramOracle
    data = problem.dataset
    y = np.where(data.y > 0.0, 1.0, -1.0)
    labelled = Dataset("toy", data.X, y, None, "labels")
    logistic = build_problem(labelled, "logistic", "none")
    assert type(logistic.oracle(1, clipped=False)) is DenseOracle
    wide = Dataset("wide", np.asfortranarray(data.X[:4]), data.y[:4], None, "wide")
    few = build_problem(wide, "squared", "none")
    assert type(few.oracle(1, clipped=False)) is DenseOracle


def test_queries(pair):
    j = np.array([0, 5, 2])
    same([oracle.gradient(unclipped(oracle)) for oracle in pair])
    same([oracle.coordinate_gradient(j, np.full(BATCH, np.inf)) for oracle in pair])
    same([oracle.clipped_sum(np.full((BATCH, 1), np.inf)) for oracle in pair])
    same([oracle.objective(oracle.w) for oracle in pair])


def test_gradients_follow_the_steps(pair):
    rng = np.random.default_rng(2)
    p = pair[0].problem.p
    for _ in range(REFRESH + 5):
        j, value = rng.integers(0, p, BATCH), rng.normal(size=BATCH)
        for oracle in pair:
            oracle.gradient(unclipped(oracle))
            oracle.prox_step(j, value, np.full(BATCH, 0.1))
    same([oracle.w for oracle in pair])
    same([oracle.gradient(unclipped(oracle)) for oracle in pair])
    same([oracle.margins for oracle in pair])


def test_compiled_steps(pair):
    rng = np.random.default_rng(3)
    p = pair[0].problem.p
    j, noise = rng.integers(0, p, (BATCH, 80)), rng.normal(size=(BATCH, 80))
    steps, totals = rng.uniform(0.0, 0.5, (BATCH, p)), []
    before = pair[0].w.copy()
    for oracle in pair:
        totals.append(np.zeros((BATCH, p)))
        oracle.gradient(unclipped(oracle))
        oracle.coordinate_steps(j, noise, unclipped(oracle), steps, totals[-1])
    same([oracle.w for oracle in pair])
    same(totals, atol=1e-10)
    same([oracle.gradient(unclipped(oracle)) for oracle in pair])
    assert (pair[0].w != before).any()


def test_a_published_gradient_is_not_changed_by_later_steps(pair):
    gram = pair[1]
    g = gram.gradient(unclipped(gram))
    kept = g.copy()
    gram.prox_step(np.zeros(BATCH, dtype=int), np.ones(BATCH), np.full(BATCH, 0.1))
    np.testing.assert_array_equal(g, kept)


def test_trials_start_inside_the_domain(problem):
    data = problem.dataset
    inside = ERMProblem(data, Squared(), NoPenalty(), Simplex(radius=1.5))
    for oracle in (DenseOracle(inside, 2), GramOracle(inside, 2)):
        np.testing.assert_allclose(oracle.w, np.full((2, problem.p), 0.25))
        np.testing.assert_allclose(oracle.margins, oracle.w @ data.X.T)


def with_bounds(problem):
    data = problem.dataset
    y = np.clip(data.y, -1.0, 1.0)
    columns = np.abs(data.X).max(axis=0)
    norm = float(np.linalg.norm(data.X, axis=1).max())
    bounded = Dataset("bounded", data.X, y, Bounds(columns, norm, 1.0), "bounded")
    return boxed(bounded, -0.8, 1.1)


def test_points_outside_of_the_domain_are_clipped_record_by_record(problem):
    """The declared threshold bounds gradients on the box only."""
    box = with_bounds(problem)
    clip = np.full((BATCH, 1), box.lipschitz * box.dataset.bounds.norm)
    oracles = DenseOracle(box, BATCH), GramOracle(box, BATCH)
    for far in (1.0, 40.0):
        for oracle in oracles:
            oracle.move_to(np.full((BATCH, box.p), far))
        same([oracle.clipped_sum(clip) for oracle in oracles])
    assert np.linalg.norm(oracles[1].clipped_sum(clip), axis=1).max() <= clip[0, 0] * 50


@pytest.mark.parametrize(
    ("far", "times", "product"),
    [(1.0, 1.0, True), (1.0, 0.1, False), (40.0, 1.0, False)],
)
def test_a_product_where_no_derivative_reaches_its_threshold(
    problem, monkeypatch, far, times, product
):
    """The bounds hold on the box only, and a threshold of 0 removes its coordinate."""
    box = with_bounds(problem)
    clip = times * box.lipschitz * np.tile(box.dataset.bounds.columns, (BATCH, 1))
    clip[:, 2] = 0.0
    oracle, products = DenseOracle(box, BATCH), []
    oracle.move_to(np.full((BATCH, box.p), far))
    clipped = Oracle.gradient(oracle, clip)
    monkeypatch.setattr(kinds, "SMALL", 0)
    sums = oracle.transposed_product
    monkeypatch.setattr(
        oracle, "transposed_product", lambda r: products.append(0) or sums(r)
    )
    np.testing.assert_allclose(oracle.gradient(clip), clipped, rtol=1e-12, atol=1e-14)
    assert bool(products) is product
    assert (clipped[:, 2] == 0.0).all() and (clipped[:, 3] != 0.0).all()


def test_derivatives_of_a_loss_from_outside_are_always_clipped(problem, monkeypatch):
    """Its constants are only declared."""
    box = with_bounds(problem)
    clip = box.lipschitz * np.tile(box.dataset.bounds.columns, (BATCH, 1))
    monkeypatch.setattr(kinds, "SMALL", 0)
    monkeypatch.setattr(Squared, "source", {"loss": "own.py"})
    oracle = DenseOracle(box, BATCH)
    monkeypatch.setattr(oracle, "transposed_product", None)
    assert np.isfinite(oracle.gradient(clip)).all()


def test_a_trial_that_is_not_finite_does_not_hide_another_one(problem, monkeypatch):
    box = with_bounds(problem)
    clip = box.lipschitz * np.tile(box.dataset.bounds.columns, (BATCH, 1))
    monkeypatch.setattr(kinds, "SMALL", 0)
    for far in (np.nan, 1e308):
        oracles = DenseOracle(box, BATCH), GramOracle(box, BATCH)
        w = np.array([[far], [40.0], [0.5]]) * np.ones(box.p)
        for oracle in oracles:
            oracle.move_to(w)
            found = oracle.gradient(clip)
            np.testing.assert_allclose(found[1:], Oracle.gradient(oracle, clip)[1:])
            assert (np.abs(found[1]) <= clip[1]).all()
