"""Without noise and clipping every solver reaches the reference optimum."""

import functools

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.greedy_rules import RULES
from dp_erm_bench.solvers.random_cd import ORDERS, RandomCD
from dp_erm_bench.solvers.sgd import SGD
from dp_erm_bench.solvers.svrg import SVRG
from tests.solvers.cases import LOSSES, PENALTIES, Run, objective_problem

every_loss = pytest.mark.parametrize("loss", LOSSES)
every_penalty = pytest.mark.parametrize("penalty", PENALTIES)
P = 8


@functools.cache
def instance(loss, penalty, noise=2.0):
    """Well conditioned and, by noisy labels, far from separable."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(200, P)) * np.linspace(0.8, 1.3, P)
    w = rng.normal(size=P) * (np.arange(P) < 5)
    y = np.where(X @ w + noise * rng.normal(size=200) > 0.0, 1.0, -1.0)
    strength = 0.05 if penalty == "l1" else 0.1
    box = {"lower": -0.1, "upper": 0.2}  # minima lie on its border
    data = dataset_from_arrays(X, y)
    problem = objective_problem(data, loss, penalty, strength, **box)
    assert problem.optimum.value is not None
    return problem


def gap(problem, w):
    best = problem.optimum.value
    return problem.value(w) / best - 1.0


def end(problem, solver, length, ahead=True):
    known = problem.with_smoothness("data")
    run = Run(known, [solver], z=0.0, checkpoints=(0, length), ahead=ahead)
    return run.iterates()[-1][0]


@every_loss
@every_penalty
@pytest.mark.parametrize("rule", RULES)
def test_greedy_cd_reaches_the_optimum(loss, penalty, rule):
    problem = instance(loss, penalty)
    w = end(problem, GreedyCD(rule=rule, n_iter=800), 800)
    assert abs(gap(problem, w)) <= 1e-9


@every_loss
@every_penalty
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n_inner", [None, 4 * P])
def test_random_cd_reaches_the_optimum(loss, penalty, order, n_inner):
    problem, length = instance(loss, penalty), 1600 * P
    solver = RandomCD(order=order, n_iter=length, n_inner=n_inner)
    assert abs(gap(problem, end(problem, solver, length))) <= 1e-9


@every_loss
@every_penalty
def test_full_batch_sgd_reaches_the_optimum(loss, penalty):
    problem = instance(loss, penalty)
    solver = SGD(batch_size="full", n_iter=600)
    assert abs(gap(problem, end(problem, solver, 600))) <= 1e-8


@every_loss
@every_penalty
def test_l1_optima_are_sparse_and_found_so(loss, penalty):
    problem = instance(loss, penalty)
    w = end(problem, GreedyCD(n_iter=800), 800)
    zeros = np.flatnonzero(problem.optimum.w == 0.0)
    assert zeros.size == 0 or problem.penalty.l1 > 0.0
    border = (problem.optimum.w == -0.1) | (problem.optimum.w == 0.2)
    assert border.any() == problem.penalty.boxed
    assert not w[zeros].any()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_sgd_with_falling_steps_converges_like_one_over_t(loss, batch_size):
    problem = instance(loss, "l2").with_smoothness("data")
    lengths = np.array([1_000, 4_000, 16_000, 64_000])
    names = tuple(f"seed {k}" for k in range(20))
    curvature = smallest_curvature(problem)
    beta = problem.smoothness.norm
    step, decay = 0.1, 0.1 * curvature / beta / 1.5
    solvers = [SGD(n_iter=64_000, batch_size=batch_size, step=step, decay=decay)]
    checkpoints = (0, *lengths.tolist())
    run = Run(
        problem,
        solvers * len(names),
        z=0.0,
        identities=names,
        checkpoints=checkpoints,
        ahead=True,
    )
    gaps = [gap(problem, w).mean() for w in run.iterates()[1:]]
    slope = np.polyfit(np.log(lengths), np.log(gaps), 1)[0]
    assert slope <= -0.9, (slope, gaps)
    assert gaps[-1] < 3e-3


def smallest_curvature(problem):
    """Modulus of strong convexity at the optimum."""
    X, y = problem.dataset.X, problem.dataset.y
    weights = problem.loss.second_derivative(y, X @ problem.optimum.w)
    hessian = (X.T * weights) @ X / problem.n
    return np.linalg.eigvalsh(hessian)[0] + problem.penalty.l2


def test_constant_steps_do_not_converge():
    """The test above can fail: without decay the slope is flat."""
    problem = instance("squared", "l2").with_smoothness("data")
    lengths = (0, 4_000, 16_000, 64_000)
    solver = SGD(n_iter=64_000, step=0.1)
    run = Run(problem, [solver], z=0.0, checkpoints=lengths, ahead=True)
    gaps = [gap(problem, w)[0] for w in run.iterates()[1:]]
    assert min(gaps) > 1e-3


def test_the_step_size_falls_as_said():
    problem = instance("squared", "l2").with_smoothness("data")
    solver = SGD(n_iter=3, step=0.5, decay=2.0, batch_size="full")
    w = Run(problem, [solver], z=0.0, checkpoints=range(4)).iterates()
    for t in range(3):
        size = 0.5 / problem.smoothness.norm / (1.0 + 2.0 * t)
        moved = w[t][0] - size * problem.gradient(w[t][0])
        expected = problem.penalty.prox(moved, size)
        np.testing.assert_allclose(w[t + 1][0], expected, rtol=1e-12)


@pytest.mark.parametrize("order", ["cyclic", "cyclic_reversed"])
def test_cycles_run_as_named(order):
    problem = instance("squared", "none")
    schedule = Run(problem, [RandomCD(order=order, n_iter=2 * P)]).schedule
    cycle = np.arange(P) if order == "cyclic" else np.arange(P)[::-1]
    np.testing.assert_array_equal(schedule[0], np.tile(cycle, 2))


def test_uniform_picks_are_uniform():
    problem = instance("squared", "none")
    picks = Run(problem, [RandomCD(n_iter=80_000)]).schedule[0]
    counts = np.bincount(picks, minlength=P)
    assert counts.size == P
    chi2 = (np.square(counts - 10_000) / 10_000).sum()
    assert chi2 < 30.0  # 7 degrees of freedom: once in 10^4


def test_inner_averages_are_those_of_algorithm_1():
    """The mean of theta^1 .. theta^K, from which the next round starts."""
    problem = instance("logistic", "l1").with_smoothness("data")
    K, names = 5, ("a",)
    inner = Run(problem, [RandomCD(n_iter=10, n_inner=K)], z=1.0, identities=names)
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
    problem, n = instance(loss, "none"), 200
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


def test_every_algorithm_has_a_limit_test():
    tested = {GreedyCD, RandomCD, SGD, SVRG}
    assert {registry.target("algorithm", k) for k in registry.names("algorithm")} <= (
        tested
    )
