"""Test the oracle of a batch of trials against plain numpy and single trials."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp_erm_bench import registry
from dp_erm_bench.datasets.base import Dataset
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.oracles import DenseOracle
from tests.loops import each

CASES = list(itertools.product(registry.names("loss"), ["none", "l1", "l2"]))


def problem_of(loss, penalty, n=37, p=5):
    rng = np.random.default_rng(0)
    X, y = np.asfortranarray(rng.normal(size=(n, p))), rng.normal(size=n)
    X[3] = 0.0
    y = np.sign(y) if registry.build("loss", loss).classification else y
    for array in (X, y):
        array.setflags(write=False)
    data = Dataset("toy", X, y, None, "hash")
    strength = {} if penalty == "none" else {"strength": 0.05}
    return build_problem(data, loss, {"name": penalty, **strength})


PROBLEMS = {case: problem_of(*case) for case in CASES}


@pytest.fixture(params=CASES, ids="-".join)
def problem(request):
    return PROBLEMS[request.param]


def weights(problem, batch, seed=1):
    return np.random.default_rng(seed).normal(size=(batch, problem.p))


def oracle_at(problem, batch=3):
    oracle = DenseOracle(problem, batch)
    oracle.move_to(weights(problem, batch))
    return oracle


def record_gradients(problem, w):
    """Return the gradient of every record's loss at w, (n, p)."""
    data = problem.dataset
    return problem.loss.derivative(data.y, data.X @ w)[:, None] * data.X


def clipped_in_norm(gradients, clip):
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * np.minimum(1.0, clip / np.maximum(norms, 1e-300))


def test_trials_start_at_zero(problem):
    oracle = DenseOracle(problem, 4)
    assert oracle.batch == 4
    assert oracle.w.tolist() == np.zeros((4, problem.p)).tolist()
    assert oracle.margins.tolist() == np.zeros((4, problem.n)).tolist()
    start = problem.value(np.zeros(problem.p))
    np.testing.assert_allclose(oracle.objective(oracle.w), start, rtol=1e-14)


@given(
    case=st.sampled_from(CASES),
    steps=st.lists(st.sampled_from(["prox", "move", "touch", "look"]), max_size=12),
    seed=st.integers(0, 99),
)
def test_margins_stay_right(case, steps, seed):
    problem, rng = PROBLEMS[case], np.random.default_rng(seed)
    oracle = DenseOracle(problem, 3)
    for step in steps:
        if step == "prox":
            j = rng.integers(0, problem.p, size=3)
            oracle.prox_step(j, rng.normal(size=3), rng.exponential(size=3))
        elif step == "move":
            oracle.move_to(rng.normal(size=(3, problem.p)))
        elif step == "touch":
            oracle.w[:, 1] = rng.normal(size=3)
            oracle.touch()
        expected = oracle.w @ problem.dataset.X.T
        if step != "look":
            continue
        np.testing.assert_allclose(oracle.margins, expected, atol=1e-12)
    expected = oracle.w @ problem.dataset.X.T
    np.testing.assert_allclose(oracle.margins, expected, atol=1e-12)
    residuals = problem.loss.derivative(problem.dataset.y, expected)
    np.testing.assert_allclose(oracle.residuals(), residuals, atol=1e-12)


def test_margins_do_not_drift_over_many_steps(problem):
    oracle, rng = oracle_at(problem), np.random.default_rng(5)
    for _ in range(3000):
        j = rng.integers(0, problem.p, size=3)
        oracle.prox_step(j, rng.normal(size=3), np.full(3, 0.1))
    expected = oracle.w @ problem.dataset.X.T
    np.testing.assert_allclose(oracle.margins, expected, atol=1e-11)


def test_prox_step_moves_one_coordinate_of_each_trial(problem):
    oracle = oracle_at(problem)
    before, j = oracle.w.copy(), np.array([4, 0, 0])
    value, step = np.array([0.5, -2.0, 0.0]), np.array([0.3, 1.0, 0.0])
    oracle.prox_step(j, value, step)
    expected = before.copy()
    for b in range(3):
        moved = np.array([before[b, j[b]] - step[b] * value[b]])
        expected[b, j[b]] = problem.penalty.prox(moved, step[b])[0]
    assert oracle.w.tolist() == expected.tolist()
    assert oracle.w[2].tolist() == before[2].tolist()


def test_moving_copies(problem):
    oracle, w = DenseOracle(problem, 2), weights(problem, 2)
    oracle.move_to(w)
    w[:] = 7.0
    assert not (oracle.w == 7.0).any()
    assert oracle.w.flags.c_contiguous


@each("batch", [1, 2, 5])
def test_unclipped_gradient_is_that_of_the_problem(problem, batch):
    oracle = oracle_at(problem, batch)
    g = oracle.gradient(np.full((batch, problem.p), np.inf))
    expected = [problem.gradient(w) for w in oracle.w]
    np.testing.assert_allclose(g, expected, atol=1e-13)


@each("batch", [1, 2, 5])
def test_gradient_is_clipped_per_record_and_coordinate(problem, batch):
    oracle = oracle_at(problem, batch)
    clip = np.random.default_rng(2).exponential(0.3, size=(batch, problem.p))
    expected = [
        np.clip(record_gradients(problem, w), -c, c).mean(axis=0)
        for w, c in zip(oracle.w, clip, strict=True)
    ]
    g = oracle.gradient(clip)
    np.testing.assert_allclose(g, expected, atol=1e-13)
    for j in range(problem.p):
        one = oracle.coordinate_gradient(np.full(batch, j), clip[:, j])
        np.testing.assert_allclose(one, g[:, j], atol=1e-14)


@each("clip", [np.inf, 0.7, 0.05])
def test_sums_are_clipped_in_the_euclidean_norm(problem, clip):
    oracle = oracle_at(problem)
    expected = [
        clipped_in_norm(record_gradients(problem, w), clip).sum(axis=0)
        for w in oracle.w
    ]
    total = oracle.clipped_sum(np.full((3, 1), clip))
    np.testing.assert_allclose(total, expected, atol=1e-12)
    everybody = np.arange(problem.n)
    for b in range(3):
        one = oracle.record_sum(b, everybody, clip)
        np.testing.assert_allclose(one, expected[b], atol=1e-12)


@each("clip", [0.7, 0.05])
def test_one_record_adds_at_most_the_threshold(problem, clip):
    oracle = oracle_at(problem)
    for i in range(problem.n):
        g = oracle.record_sum(1, np.array([i]), clip)
        whole = record_gradients(problem, oracle.w[1])[i]
        assert np.linalg.norm(g) <= clip * (1 + 1e-12)
        assert np.linalg.norm(g) == pytest.approx(min(np.linalg.norm(whole), clip))
        assert g @ whole == pytest.approx(np.linalg.norm(g) * np.linalg.norm(whole))


def test_thresholds_may_differ_between_trials(problem):
    oracle = oracle_at(problem)
    thresholds = np.array([[0.1], [np.inf], [2.0]])
    total = oracle.clipped_sum(thresholds)
    for b, clip in enumerate(thresholds[:, 0]):
        alone = oracle.record_sum(b, np.arange(problem.n), clip)
        np.testing.assert_allclose(total[b], alone, atol=1e-12)


def test_a_batch_equals_its_trials(problem):
    batch = 6
    together, w = oracle_at(problem, batch), weights(problem, batch)
    clip = np.random.default_rng(3).exponential(0.3, size=(batch, problem.p))
    g, sums = together.gradient(clip), together.clipped_sum(clip[:, :1])
    values = together.objective(together.w)
    for b in range(batch):
        alone = DenseOracle(problem, 1)
        alone.move_to(w[b : b + 1])
        np.testing.assert_allclose(alone.gradient(clip[b : b + 1])[0], g[b], atol=1e-14)
        alone_sum = alone.clipped_sum(clip[b : b + 1, :1])[0]
        np.testing.assert_allclose(alone_sum, sums[b], atol=1e-13)
        assert alone.objective(alone.w)[0] == pytest.approx(values[b], rel=1e-13)


def test_objective_is_the_value_of_the_problem(problem):
    oracle = oracle_at(problem)
    expected = problem.value(oracle.w)
    np.testing.assert_allclose(oracle.objective(oracle.w), expected, rtol=1e-13)
    other = weights(problem, 3, seed=9)
    np.testing.assert_allclose(
        oracle.objective(other), problem.value(other), rtol=1e-13
    )
    margins = oracle.w @ problem.dataset.X.T
    np.testing.assert_allclose(oracle.margins, margins, atol=1e-12)


def test_a_diverged_trial_is_seen_and_leaves_the_others_alone(problem):
    oracle = oracle_at(problem)
    before = oracle.objective(oracle.w)
    oracle.w[1] = np.nan
    oracle.touch()
    after = oracle.objective(oracle.w)
    assert not np.isfinite(after[1])
    np.testing.assert_allclose(after[[0, 2]], before[[0, 2]], rtol=1e-13)
