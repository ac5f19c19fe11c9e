"""Test one pass of subgradient descent: its reads, draws, steps and refusals."""

import math

import numpy as np
import pytest

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.candidate import run_at
from dp_erm_bench.contract.problems import small_problem
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.problems.erm.build import erm_from_arrays
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.gd import GD
from dp_erm_bench.solvers.one_pass_sgd import OnePassSGD
from dp_erm_bench.solvers.sgd import SGD
from tests.loops import each
from tests.serving import BALLS

SPACES = ["none", *BALLS]


def records(n=60, p=4, sparse=False, **parts):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, p)) * (rng.random((n, p)) < 0.6)
    y = np.where(X.sum(axis=1) + rng.normal(size=n) > 0.0, 1.0, -1.0)
    if sparse:
        from scipy.sparse import csc_array

        X = csc_array(X)
    return erm_from_arrays(X, y, loss="logistic", **parts)


def one_pass(problem, solver, order):
    """Return the means of the iterates before steps on records of an order."""
    oracle = problem.oracle(1, clipped=True)
    size, total = np.array([solver.step_size(problem, 0.0)]), np.zeros(problem.p)
    means = [oracle.w[0].copy()]
    for done, record in enumerate(order, 1):
        total += oracle.w[0]
        batch = np.array([record]), np.array([0, 1])
        quiet = np.zeros((1, problem.p))
        oracle.stochastic_steps(0, batch, quiet, solver.clip, size, 1.0)
        means.append(total / done)
    return means


@each("noise_only", ["on", "off"])
@each("space", SPACES)
@each("sparse", [False, True])
def test_without_noise_it_is_one_pass_sgd_to_the_bit(sparse, space, noise_only):
    given = {} if space == "none" else {"constraint": {"name": space, "radius": 0.5}}
    problem = records(sparse=sparse, penalty="l2", strength=0.3, **given)
    solver = OnePassSGD(clip=0.7, step=3.0, noise_only=noise_only)
    run = run_at(problem, [solver], z=0.0, ahead=True)
    order = run.mechanisms["gradient"].permutation(0)[:30]
    ends = run.iterates()
    assert len(set(order.tolist())) == 30 and len(ends) == 31
    for mean, w in zip(one_pass(problem, solver, order), ends, strict=True):
        assert np.array_equal(mean, w[0])
    assert np.linalg.norm(ends[-1]) > 0.05


def test_records_are_read_once_and_steps_of_noise_read_none():
    problem = records(n=200)
    run = run_at(problem, [OnePassSGD(clip=1.0)])
    read, plain = [], type(problem.oracle(1, clipped=True)).record_sum
    asked = []

    def hear(query, publish):
        asked.append(float(np.abs(query.value).sum()))
        return publish()

    run.mechanisms["gradient"].intercept = hear
    oracle = run.oracle()
    oracle.record_sum = lambda b, rows, clip: (
        read.extend(rows.tolist()) or plain(oracle, b, rows, clip)
    )
    list(run.steps(oracle, range(101)))
    assert len(read) == len(set(read)) == 100
    assert len(asked) == run.releases[0].times == 100 + int(run.schedule.sum())
    assert sum(value > 0.0 for value in asked) <= 100


@pytest.mark.parametrize(("n", "mean"), [(16, 10.605950), (1000, 692.647431)])
def test_the_number_of_steps_has_the_law_of_draws_with_replacement(n, mean):
    problem, solver = records(n=n), OnePassSGD()
    assert solver.expected_steps(problem) == pytest.approx(mean, rel=1e-6)
    m, names = n // 2, [f"trial {k}" for k in range(2000)]
    waits = solver.plan(problem, names)
    assert waits.shape == (2000, m) and not waits[:, 0].any() and waits.min() == 0
    steps = m + waits.sum(axis=1)
    places = np.arange(m)
    deviation = math.sqrt((places * n / (n - places) ** 2).sum() / 2000)
    assert abs(steps.mean() - mean) < 4 * deviation
    late = waits[:, -1]
    fail = (m - 1) / n
    for count in (0, 1, 2):
        chance = (1 - fail) * fail**count
        assert (late == count).mean() == pytest.approx(chance, abs=0.04)
    assert not OnePassSGD(noise_only="off").plan(problem, names[:3]).any()


def test_the_step_is_that_of_the_bound():
    problem = records(n=50, constraint={"name": "l2_ball", "radius": 3.0})
    solver, square = OnePassSGD(clip=2.0), 25 * 4.0
    assert solver.step_size(problem, 0.0) == pytest.approx(3.0 / math.sqrt(square))
    square += solver.expected_steps(problem) * problem.p * 7.0**2
    assert solver.step_size(problem, 7.0) == pytest.approx(3.0 / math.sqrt(square))
    given = OnePassSGD(clip=2.0, radius=1.0, step=0.5)
    assert given.step_size(problem, 0.0) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("adjacency", "factor"), [(Adjacency.REPLACE_ONE, 2), (Adjacency.ZERO_OUT, 1)]
)
def test_noise_falls_on_one_record_and_a_known_order_costs_more(adjacency, factor):
    problem, budget = records(n=1000), Budget(1.0, 1e-8, adjacency)
    scales = {}
    for order in ("secret", "given"):
        run = Run(problem, [OnePassSGD(clip=3.0, order=order)], budget)
        (release,) = run.releases
        assert np.ravel(release.sensitivity) == [3.0 * factor]
        assert run.calibration.epsilon_certified == pytest.approx(1.0, rel=1e-6)
        scales[order] = float(run.mechanisms["gradient"].scale.max())
    # As delta and as delta / 2 of one Gaussian mechanism.
    found = scales["given"] / scales["secret"]
    assert 1.02 < found < 1.03
    first = run.mechanisms["gradient"].next_records(0, 3)
    assert first.tolist() == [0, 1, 2]


def test_the_potential_of_power_two_is_euclidean():
    problem = records(penalty="none")
    euclidean, mirror = (
        run_at(problem, [OnePassSGD(clip=1.0, mirror=mirror, power=2.0)]).iterates()
        for mirror in ("euclidean", "p_norm")
    )
    np.testing.assert_allclose(euclidean, mirror, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "parts", "sentence"),
    [
        ({"mirror": "p_norm"}, {"penalty": "l1", "strength": 0.1}, "mirror=p_norm: "),
        (
            {"mirror": "p_norm"},
            {"constraint": {"name": "l1_ball", "radius": 1.0}},
            "mirror=p_norm: this mirror map needs constraint=none, and penalty none",
        ),
    ],
)
def test_what_it_has_no_step_for_is_refused(given, parts, sentence):
    reason = OnePassSGD(clip=1.0, **given).refusal(records(**parts))
    assert reason.startswith(sentence) and "\n" not in reason


def test_one_record_is_too_few_for_half_of_them():
    with pytest.raises(UsageError, match="has one record, at least two are needed"):
        records(n=1)
    assert OnePassSGD().iterations(records(n=2)) == 1
    assert OnePassSGD().iterations(records(n=3)) == 2


@pytest.mark.parametrize("power", [1.0, 0.5, 2.5])
def test_a_power_without_a_potential_is_refused(power):
    allowed = f"power={power}: must be a number > 1 and <= 2"
    with pytest.raises(UsageError, match=allowed):
        OnePassSGD(mirror="p_norm", power=power)


def test_private_constants_are_of_no_use_to_it():
    with pytest.raises(Unsupported, match="smoothness=private: OnePassSGD uses no"):
        private = OnePassSGD(clip=1.0, smoothness="private")
        Run(records(), [private], Budget(1.0, 1e-6)).declare()


@pytest.mark.parametrize("batch", ["full", 5])
@pytest.mark.parametrize("ahead", [False, True])
def test_sgd_returns_the_mean_of_the_iterates_after_the_start(batch, ahead):
    problem = small_problem("logistic", "l2", "l2_ball").with_smoothness("public")
    given = {"batch_size": batch, "n_iter": 12, "clip": 0.5, "step": 4.0}
    last, mean = (
        run_at(
            problem,
            [SGD(output=output, **given)] * 2,
            identities=("a", "b"),
            ahead=ahead,
        ).iterates()
        for output in ("last", "average")
    )
    assert np.array_equal(last[0], mean[0])
    for t in range(1, 13):
        expected = np.mean(last[1 : t + 1], axis=0)
        np.testing.assert_allclose(mean[t], expected, rtol=1e-9, atol=1e-13)
    if batch == "full":
        same = {"n_iter": 12, "clip": 0.5, "step": 4.0, "output": "average"}
        of_gd = run_at(problem, [GD(**same)], z=0.0).iterates()[-1]
        of_sgd = run_at(problem, [SGD(output="average", **given)], z=0.0).iterates()
        np.testing.assert_allclose(of_sgd[-1], of_gd, rtol=1e-9)
