"""Test bias-reduced SGD: levels, length, estimator, and broken copies."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dp_erm_bench import problem_from_arrays
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import certify
from dp_erm_bench.accounting.repeated import largest_count
from dp_erm_bench.constraints.sets import L1Ball
from dp_erm_bench.contract.suite import FAILS
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.printed import ghazi2024
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.bias_reduced_sgd import (
    BiasReducedSGD,
    Levels,
    probabilities,
)
from tests.contract.own import check_named
from tests.loops import each
from tests.solvers.cases import run_at
from tests.twins.checks import Narrow, few_problems

ONE = Budget(1.0, 1e-6)
DIRECTIONS = np.eye(3)[[0, 0, 0, 1, 2, 2, 0, 1]]


def problem(n=64, p=3, seed=0, **parts):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    X /= np.linalg.norm(X, axis=1)[:, None]
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    return problem_from_arrays(X, y, loss="logistic", bounds=1.0, **parts)


def run_of(solver, data, budget=ONE, mode="certified", name="a"):
    return Run(data, [solver], budget, mode, (name,)).declare()


def test_levels_have_the_printed_probabilities():
    expected = [0.500489, 0.250244, 0.125122, 0.062561]
    assert probabilities(1024)[:4] == pytest.approx(expected, abs=1e-6)
    assert [probabilities(n).size for n in (4, 7, 8, 1000, 1024)] == [2, 2, 3, 9, 10]
    drawn = BiasReducedSGD(n_iter=20_000).plan(problem(1024), ["a"]).levels[0]
    shares = np.bincount(drawn, minlength=10)[:4] / drawn.size
    assert shares == pytest.approx(expected, abs=0.015)


def test_printed_noise_and_costs():
    data, solver = problem(1000), BiasReducedSGD(n_iter=3)
    schedule = Levels(np.array([[2, 0, 8]]), np.zeros((1, 3)))
    costs = solver.costs(data, schedule)
    assert costs[0] == pytest.approx(0.0015625)
    assert ghazi2024(costs, 1.0, 1e-6)[0] == pytest.approx(185.551678)


def stopped(costs, epsilon, delta):
    """The loop of Algorithm 4 as it is printed."""
    t = squares = total = 0.0
    while (
        math.sqrt(2 * math.log(4 / delta) * squares) + epsilon / 2 * squares <= 0.5
        and total <= 0.25
    ):
        squares += costs[int(t)] ** 2
        total += costs[int(t)]
        t += 1
    return int(t)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("name", "abc")
def test_the_printed_run_is_that_of_the_algorithm(adjacency, name):
    data, solver = problem(256), BiasReducedSGD(n_iter=2000, clip=1.0)
    run = run_of(solver, data, Budget(1.0, 1e-8, adjacency), "paper", name)
    costs = solver.costs(data, solver.plan(data, [name]))
    assert run.solver.iterations(data) == stopped(costs, 1.0, 1e-8) < 2000
    noise = run.calibration.z * adjacency.of_sum(1.0)
    assert noise == pytest.approx(2 * 32 * math.sqrt(2 * math.log(2e9)))
    assert run.calibration.epsilon_certified < 0.25
    assert run.calibration.label == "paper"


def test_the_printed_noise_is_for_small_epsilons():
    with pytest.raises(Unsupported, match="epsilon=1.5: must be at most 1 for"):
        run_of(BiasReducedSGD(clip=1.0), problem(), Budget(1.5, 1e-6), "paper")


def test_three_records_are_refused():
    with pytest.raises(Unsupported, match="n=3: bias_reduced_sgd needs at least 4"):
        run_of(BiasReducedSGD(clip=1.0), problem(3))


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_run_is_the_longest_prefix_within_the_budget(adjacency):
    data, solver = problem(256), BiasReducedSGD(multiplier=6.0, clip=1.0)
    budget = Budget(1.0, 1e-6, adjacency)
    run, drawn = run_of(solver, data, budget), solver.plan(data, ["a"])
    steps = run.solver.iterations(run.problem)
    assert 0 < steps < solver.n_iter

    def epsilon(count):
        released = solver.releases(data, adjacency, solver.prefix(drawn, count))
        laws = tuple(release.law() for release in released)
        return certify(laws, 6.0, 1e-6, adjacency).epsilon

    assert epsilon(steps) == run.calibration.epsilon_certified <= 1.0
    assert epsilon(steps + 1) > 1.0
    assert np.array_equal(run.schedule.levels, drawn.levels[:, :steps])


def test_the_noise_is_the_same_for_all_budgets_and_levels():
    data, solver = problem(256), BiasReducedSGD(multiplier=6.0, clip=0.5)
    for epsilon in (0.3, 3.0):
        made = run_of(solver, data, Budget(epsilon, 1e-6)).mechanisms
        scales = [float(one.scale[0, 0]) for one in made.values()]
        assert scales == [pytest.approx(6.0 * 2 * 0.5)] * len(scales)


def test_less_budget_makes_a_shorter_run_of_the_same_levels():
    data, solver = problem(256), BiasReducedSGD(multiplier=6.0, clip=1.0)
    runs = [run_of(solver, data, Budget(e, 1e-6)) for e in (0.1, 0.5, 2.0)]
    lengths = [run.solver.iterations(data) for run in runs]
    assert lengths == sorted(lengths) and lengths[0] < lengths[-1]
    longest = runs[-1].schedule.levels[0]
    for run, length in zip(runs, lengths, strict=True):
        assert np.array_equal(run.schedule.levels[0], longest[:length])


def test_no_step_may_be_within_the_budget():
    data, solver = problem(64), BiasReducedSGD(multiplier=0.01, clip=1.0)
    run = run_of(solver, data).record(10)
    assert run.rows.iteration == [0] and run.calibration.epsilon_certified == 0.0
    assert not run.rows.w.any()


def test_rows_tell_the_passes_of_the_levels():
    data, solver = problem(64), BiasReducedSGD(multiplier=9.0, n_iter=40, clip=1.0)
    run = run_of(solver, data).record(8)
    steps = run.schedule.levels.shape[1]
    assert run.rows.iteration[-1] == steps
    read = [2.0 ** (level + 1) + 1 for level in run.schedule.levels[0]]
    assert run.rows.passes[-1] == pytest.approx(sum(read) / 64)
    assert solver.passes_at(data, 40) == pytest.approx(40 * solver.records(data) / 64)


@each("most", [0, 1, 7, 100])
@each("edge", [0, 1, 5, 99, 1000])
def test_the_largest_number(most, edge):
    asked = []

    def holds(count):
        asked.append(count)
        return count <= edge

    assert largest_count(holds, most) == min(most, edge)
    assert max(asked, default=0) <= max(1, 2 * edge + 1)


@pytest.mark.parametrize("mean", ["gaussian", "projection"])
@pytest.mark.parametrize("output", ["average", "uniform"])
def test_without_noise_it_is_sgd_on_single_records(mean, output):
    data = problem(32, penalty="l2", strength=0.1)
    solver = BiasReducedSGD(n_iter=30, step=0.5, mean=mean, output=output)
    run = run_at(data, [solver], z=0.0, identities=("a",), checkpoints=range(31))
    records = make_mechanisms(run.releases, 0.0, ("a",))["single"].sample(0, 32, 30)[0]
    w, size = np.zeros(3), 0.5
    X, y = data.dataset.X, data.dataset.y
    walked = [w]
    for i in records:
        slope = data.loss.derivative(y[i], X[i] @ w) * X[i]
        w = (w - size * slope) / (1 + size * 0.1)
        walked.append(w)
    ends = [v[0] for v in run.iterates()]
    if output == "average":
        means = np.cumsum(walked, axis=0) / np.arange(1, 32)[:, None]
        assert np.allclose(ends, means, rtol=1e-12, atol=1e-14)
    else:
        # Each is one of those before it, and none comes back.
        kept = [int(np.argmin([np.linalg.norm(v - u) for u in walked])) for v in ends]
        assert all(np.allclose(v, walked[k]) for v, k in zip(ends, kept, strict=True))
        assert kept == sorted(kept) and all(k <= t for t, k in enumerate(kept))


def test_the_random_output_is_uniform():
    data, T, kept = problem(8), 5, []
    coins = BiasReducedSGD(n_iter=T).plan(data, [f"t{k}" for k in range(6000)]).coins
    for row in coins:
        kept.append(max([0, *(t + 1 for t in range(T) if row[t] * (t + 2) < 1.0)]))
    counts = np.bincount(kept, minlength=T + 1)
    assert np.abs(counts - 1000).max() < 5 * math.sqrt(1000)


def estimated(noise_of, uses=4000, seed=0):
    """The mean of the estimator, level by level, and its standard error."""
    data = problem_from_arrays(DIRECTIONS, np.ones(8), loss="logistic", bounds=1.0)
    solver = BiasReducedSGD(clip=1.0, mean="projection", n_iter=1)
    total, square, p = 0.0, 0.0, probabilities(8)
    for level in range(p.size):
        schedule = Levels(np.full((1, uses), level), np.zeros((1, uses)))
        released = tuple(solver.releases(data, Adjacency.REPLACE_ONE, schedule))
        names = (f"seed {seed} {level}",)
        made = make_mechanisms(released, noise_of(data, solver, level), names)
        state = solver.start(data.oracle(1), made, schedule)
        state.radius = 0.5
        drawn = np.concatenate([state.estimate_mean(level) for _ in range(uses)])
        total = total + p[level] * drawn.mean(axis=0)
        square = square + p[level] ** 2 * drawn.var(axis=0) / uses
    return total, np.sqrt(square)


def of_the_largest_batch(draws=200_000):
    """The mean of the private mean of all records, by its definition."""
    noise = np.random.default_rng(5).normal(size=(draws, 3)) * 2 * 1.0 * 2.0 / 8
    return L1Ball(0.5).project(-0.5 * DIRECTIONS.mean(axis=0) + noise).mean(axis=0)


def test_the_estimator_has_the_mean_of_the_largest_batch():
    found, error = estimated(lambda *_: 2.0)
    assert np.abs(found - of_the_largest_batch()).max() < 4 * error.max()


@pytest.mark.slow
def test_noise_that_is_fitted_to_the_levels_is_biased():
    """It is as private: no check of privacy can find it, this one does."""

    def fitted(data, solver, level):
        schedule = Levels(np.array([[level]]), np.zeros((1, 1)))
        released = solver.releases(data, Adjacency.REPLACE_ONE, schedule)
        return calibrate(tuple(one.law() for one in released), Budget(0.2, 1e-2)).z

    data = problem_from_arrays(DIRECTIONS, np.ones(8), loss="logistic", bounds=1.0)
    solver = BiasReducedSGD(clip=1.0, mean="projection", n_iter=1)
    fits = [fitted(data, solver, level) for level in range(3)]
    assert fits[2] > 2 * fits[0]
    noises = [2.0 * fit / fits[-1] for fit in fits]
    found, error = estimated(lambda data, solver, level: noises[level])
    assert np.abs(found - of_the_largest_batch()).max() > 5 * error.max()


class HalvesUncharged(BiasReducedSGD):
    def releases(self, problem, adjacency, schedule):
        for release in super().releases(problem, adjacency, schedule):
            size = release.sensitivity / (math.sqrt(2) if release.halves else 1.0)
            yield replace(release, sensitivity=size, weight=1.0)


class SingleUncharged(BiasReducedSGD):
    def start(self, oracle, mechanisms, schedule):
        state = super().start(oracle, mechanisms, schedule)

        def free(value):
            mechanisms["single"](0.0 * value)
            return value

        single = mechanisms["single"]
        free.sample = single.sample
        state.mechanisms = {**mechanisms, "single": free}
        return state


class OneTerm(BiasReducedSGD):
    """C, C, C for C, C, 2 C under ``zero_out``."""

    def releases(self, problem, adjacency, schedule):
        for release in super().releases(problem, adjacency, schedule):
            yield replace(release, zeroed=False)


class Zeroed(BiasReducedSGD):
    """The sensitivity of a term that becomes 0 under ``replace_one``, too."""

    def releases(self, problem, adjacency, schedule):
        return super().releases(problem, Adjacency.ZERO_OUT, schedule)


FOUND = {
    HalvesUncharged: "replay_audit",
    SingleUncharged: "replay_audit",
    OneTerm: "samples_are_those_charged",
    Zeroed: "replay_audit",
}


@pytest.mark.slow
@pytest.mark.parametrize("twin", FOUND, ids=lambda twin: twin.__name__)
def test_broken_twins_are_found(twin):
    candidate = Narrow("twin", twin, {"clip": 0.3})
    with few_problems():
        result = check_named(FOUND[twin]).result(candidate)
    assert result.verdict == FAILS, result


@pytest.mark.slow
@pytest.mark.parametrize("check", sorted({*FOUND.values(), "the_noise_is_recounted"}))
def test_the_sound_one_is_not_accused(check):
    candidate = Narrow("sound", BiasReducedSGD, {"clip": 0.3})
    with few_problems():
        result = check_named(check).result(candidate)
    assert result.verdict != FAILS, result


@pytest.mark.parametrize("nonzeros", [None, 2])
def test_the_ball_of_means_is_that_of_the_declared_non_zeros(nonzeros):
    """Without a declaration all p = 3 entries may be non-zero."""
    X = np.eye(3)[np.arange(9) % 3]
    bounds = {"norm": 1.0} | ({"nonzeros": nonzeros} if nonzeros else {})
    data = problem_from_arrays(X, np.ones(9), loss="sigmoid", bounds=bounds)
    solver = BiasReducedSGD(clip=0.5, mean="projection", n_iter=1)
    run = Run(data, [solver], Budget(math.inf, 0.0), identities=["a"]).declare()
    state = solver.start(data.oracle(1), run.mechanisms, run.schedule)
    assert state.radius == pytest.approx(0.5 * math.sqrt(nonzeros or 3))
    far = np.abs(state.mean(np.full((1, 3), 10.0), 1)).sum()
    assert far == pytest.approx(state.radius)
