"""Test what the steps of single algorithms do without noise."""

import numpy as np
import pytest

from dp_erm_bench.contract.problems import relative_excess, well_conditioned_problem
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.random_cd import RandomCD
from dp_erm_bench.solvers.sgd import SGD
from tests.solvers.cases import LOSSES, PENALTIES, end, run_at

every_loss = pytest.mark.parametrize("loss", LOSSES)
every_penalty = pytest.mark.parametrize("penalty", PENALTIES)
P = 8


@every_loss
@every_penalty
def test_l1_optima_are_sparse_and_found_so(loss, penalty):
    problem = well_conditioned_problem(loss, penalty)
    w = end(problem, GreedyCD(n_iter=800), 800)
    zeros = np.flatnonzero(problem.optimum.w == 0.0)
    assert zeros.size == 0 or problem.penalty.l1 > 0.0
    border = (problem.optimum.w == -0.1) | (problem.optimum.w == 0.2)
    assert border.any() == problem.penalty.has_box
    assert not w[zeros].any()


def test_constant_steps_do_not_converge():
    """The limit that sgd states can fail: without decay the slope is flat."""
    problem = well_conditioned_problem("squared", "l2").with_smoothness("data")
    lengths = (0, 4_000, 16_000, 64_000)
    solver = SGD(n_iter=64_000, step=0.1)
    run = run_at(problem, [solver], z=0.0, checkpoints=lengths, ahead=True)
    gaps = [relative_excess(problem, w)[0] for w in run.iterates()[1:]]
    assert min(gaps) > 1e-3


def test_the_step_size_falls_as_said():
    problem = well_conditioned_problem("squared", "l2").with_smoothness("data")
    solver = SGD(n_iter=3, step=0.5, decay=2.0, batch_size="full")
    w = run_at(problem, [solver], z=0.0, checkpoints=range(4)).iterates()
    for t in range(3):
        size = 0.5 / problem.smoothness.norm / (1.0 + 2.0 * t)
        moved = w[t][0] - size * problem.gradient(w[t][0])
        expected = problem.penalty.prox(moved, size)
        np.testing.assert_allclose(w[t + 1][0], expected, rtol=1e-12)


@pytest.mark.parametrize("order", ["cyclic", "cyclic_reversed"])
def test_cycles_run_as_named(order):
    problem = well_conditioned_problem("squared", "none")
    schedule = run_at(problem, [RandomCD(order=order, n_iter=2 * P)]).schedule
    cycle = np.arange(P) if order == "cyclic" else np.arange(P)[::-1]
    np.testing.assert_array_equal(schedule[0], np.tile(cycle, 2))


def test_uniform_picks_are_uniform():
    problem = well_conditioned_problem("squared", "none")
    picks = run_at(problem, [RandomCD(n_iter=80_000)]).schedule[0]
    counts = np.bincount(picks, minlength=P)
    assert counts.size == P
    chi2 = (np.square(counts - 10_000) / 10_000).sum()
    assert chi2 < 30.0  # 7 degrees of freedom: once in 10^4


def test_inner_averages_are_those_of_algorithm_1():
    """The mean of theta^1 .. theta^K, from which the next round starts."""
    problem = well_conditioned_problem("logistic", "l1").with_smoothness("data")
    K, names = 5, ("a",)
    inner = run_at(problem, [RandomCD(n_iter=10, n_inner=K)], z=1.0, identities=names)
    inner.mechanisms["measure"].scale[:] = 0.01
    whole = inner.iterates()
    noise = inner.releases[0].draw(inner.mechanisms["measure"].seeds[0], 0, 10) * 0.01
    theta, expected = np.zeros(P), []
    for _ in range(2):
        total = np.zeros(P)
        for _ in range(K):
            k = len(expected)
            j = inner.schedule[0, k]
            size = 1.0 / problem.smoothness.columns[j]
            moved = theta[j] - size * (problem.gradient(theta)[j] + noise[k])
            theta = theta.copy()
            theta[j] = problem.penalty.prox(moved, size)
            total += theta
            expected.append(total / (len(expected) % K + 1))
        theta = total / K
    np.testing.assert_allclose(np.array(whole)[1:, 0], expected, rtol=1e-9)


@every_loss
def test_passes_count_the_work(loss):
    problem, n = well_conditioned_problem(loss, "none"), 200
    for solver, iterations, at in (
        (GreedyCD(n_iter=7), 7, 7.0),
        (RandomCD(passes=3.0), 3 * P, 3.0),
        (RandomCD(passes=3.0, n_iter=4), 4, 0.5),
        (SGD(passes=2.0), 2 * n, 2.0),
        (SGD(passes=2.0, batch_size=50), 8, 2.0),
        (SGD(passes=2.0, batch_size="full"), 2, 2.0),
        (SGD(n_iter=10), 10, 0.05),
    ):
        assert solver.iterations(problem) == iterations
        assert solver.passes_at(problem, iterations) == pytest.approx(at)
