"""Test a problem without labels and its solver, from outside, in two files."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dp_erm_bench import fit, problem_from_arrays, registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit import profile
from dp_erm_bench.audit.pairs import audited_solver
from dp_erm_bench.audit.statistic import LEAK, attack_on
from dp_erm_bench.cli.main import main
from dp_erm_bench.contract.candidate import candidate_of
from dp_erm_bench.contract.suite import FAILS, OK
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.run import Run
from tests.contract.own import check_named, results
from tests.loops import each

FOLDER = Path(__file__).parent / "private_mean"
NOISY_MEAN = str(FOLDER / "noisy_mean.py")
RUNS = 1000


def problem(n=50, p=4):
    made = registry.target("algorithm", NOISY_MEAN).serves
    rng = np.random.default_rng(5)
    records = rng.normal(size=(n, p)) + 1.0
    return made(records / np.linalg.norm(records, axis=1, keepdims=True))


def labelled():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1.0, 1.0, (20, 3))
    return problem_from_arrays(X, np.sign(X[:, 0]), loss="logistic", bounds=1.0)


def test_it_is_two_files():
    assert len(list(FOLDER.glob("*.py"))) <= 6


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_a_fit_publishes_the_mean_with_the_noise_of_its_sensitivity(adjacency):
    given = problem()
    found = fit(given, NOISY_MEAN, epsilon=2.0, adjacency=adjacency, seed=3)
    assert found.epsilon_certified <= 2.0 and not found.checked
    (release,) = found.releases
    moved = {"replace_one": 2.0, "zero_out": 1.0}[adjacency] / given.n
    assert release.sensitivity == pytest.approx(moved)
    rows = found.trajectory
    assert rows["objective"].iloc[0] == pytest.approx(np.linalg.norm(given.mean))
    assert rows["objective"].iloc[-1] == pytest.approx(given.value(found.w))
    assert rows["relative_error"].isna().all() and found.uncharged == ()


def test_seeds_and_records_tell_draws_apart_and_no_noise_leaves_the_mean():
    given, other = problem(), problem(n=51)
    first = [fit(given, NOISY_MEAN, epsilon=1.0, seed=1).w for _ in range(2)]
    np.testing.assert_array_equal(*first)
    assert (fit(given, NOISY_MEAN, epsilon=1.0, seed=2).w != first[0]).all()
    noise = fit(other, NOISY_MEAN, epsilon=1.0, seed=1).w - other.mean
    ratios = noise / (first[0] - given.mean)
    assert np.ptp(ratios) > 1e-6
    exact = fit(given, NOISY_MEAN, epsilon=float("inf"), seed=1)
    np.testing.assert_array_equal(exact.w, given.mean)


def test_the_runner_records_a_batch_of_it():
    given = problem()
    solver = registry.build("algorithm", NOISY_MEAN)
    run = Run(given, [solver] * 3, Budget(1.0, 1e-6), identities=["a", "b", "c"])
    rows = run.record(5).rows
    assert rows.iteration == [0, 1] and rows.w.shape == (3, 4)
    assert np.ptp(rows.w, axis=0).min() > 0.0
    assert rows.measures == {}


def test_it_keeps_all_that_is_checked(capsys):
    assert main(["check", NOISY_MEAN]) == 0
    assert "all checks pass (" in capsys.readouterr().out


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_its_claim_is_audited_on_the_neighbours_that_it_names(adjacency):
    budget = Budget(8.0, 1e-6, adjacency)
    attack = attack_on(audited_solver(NOISY_MEAN, {}), budget)
    sides = [attack.run(side, RUNS, "mean") for side in (0, 1)]
    found = profile.verdict(*sides, attack.guarantee, 1e-4)
    assert found.verdict == profile.OK
    assert abs(sides[0]).max() < LEAK and sides[0].mean() > 0.0 > sides[1].mean()


def solver_with(**methods):
    made = registry.target("algorithm", NOISY_MEAN)
    return dataclasses.dataclass(frozen=True)(type("Wrong", (made,), methods))()


def test_too_small_a_sensitivity_is_refuted():
    def releases(self, problem, adjacency, schedule):
        yield Gaussian("mean", 0.5 * adjacency.of_mean(problem.radius, problem.n), 1)

    attack = attack_on(solver_with(releases=releases), Budget(8.0, 1e-6))
    sides = [attack.run(side, RUNS, "wrong") for side in (0, 1)]
    assert profile.verdict(*sides, attack.guarantee, 1e-4).verdict == "VIOLATION"


def test_data_beside_the_mechanism_are_a_leak():
    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        yield oracle.w
        for _ in checkpoints[1:]:
            mean = np.tile(oracle.problem.mean, (oracle.batch, 1))
            yield mechanisms["mean"](mean) + 1e-3 * mean

    attack = attack_on(solver_with(iterates=iterates), Budget(8.0, 1e-6))
    assert abs(attack.run(0, 20, "leak")).min() == LEAK


@each("name", registry.names("algorithm"))
def test_algorithms_of_another_problem_refuse_it_in_a_sentence(name):
    with pytest.raises(Unsupported) as refused:
        fit(problem(), name, epsilon=1.0, seed=0)
    made = registry.target("algorithm", name)
    assert str(refused.value) == (
        f"{made.__name__} is for {made.serves.kind} only, not for the mean in a ball"
    )


def test_its_solver_refuses_another_problem_in_a_sentence():
    sentence = (
        "NoisyMean is for the mean in a ball only, not for empirical risk minimisation"
    )
    with pytest.raises(Unsupported, match=sentence):
        fit(labelled(), NOISY_MEAN, epsilon=1.0, seed=0)


def test_what_is_of_empirical_risk_minimisation_only_is_refused_in_a_sentence():
    with pytest.raises(Unsupported, match="have no smoothness constants"):
        fit(problem(), NOISY_MEAN, epsilon=1.0, seed=0, smoothness="private")
    with pytest.raises(Unsupported, match="problems of the mean in a ball do not"):
        _ = problem().gradient_rms
    with pytest.raises(UsageError, match="a record has norm"):
        type(problem())(np.full((3, 2), 5.0))


def test_it_is_checked_on_the_neighbours_that_its_problem_names():
    found = list(results(candidate_of(NOISY_MEAN)))
    verdicts = {one.check: one.verdict for one in found}
    assert FAILS not in verdicts.values()
    for kept in ("replay_audit", "sensitivities_are_tight", "the_noise_is_recounted"):
        assert verdicts[kept] == OK


def test_the_check_finds_a_wrong_sensitivity_and_a_leak():
    def releases(self, problem, adjacency, schedule):
        yield Gaussian("mean", 0.5 * adjacency.of_mean(problem.radius, problem.n), 1)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        yield oracle.w
        for _ in checkpoints[1:]:
            mean = np.tile(oracle.problem.mean, (oracle.batch, 1))
            yield mechanisms["mean"](mean) + 1e-3 * mean

    for wrong in ({"releases": releases}, {"iterates": iterates}):
        candidate = candidate_of(type(solver_with(**wrong)))
        assert check_named("replay_audit").result(candidate).verdict == FAILS


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_the_check_finds_sampled_terms_that_are_larger_than_is_charged(factor):
    """Norms of records are in [0, 1]: so is the change of their sum, and each term."""

    def releases(self, problem, adjacency, schedule):
        change = factor * adjacency.of_sum(problem.radius, signed=False)
        yield PoissonGaussian("mean", change, 1, rate=0.3)

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        problem, ask = oracle.problem, mechanisms["mean"]
        norms = np.linalg.norm(problem.records, axis=1)
        yield oracle.w
        for _ in checkpoints[1:]:
            samples = [ask.sample(b, problem.n, 1)[0] for b in range(oracle.batch)]
            total = ask(np.array([norms[sample].sum() for sample in samples]))
            yield np.tile(total[:, None] / problem.n, problem.p)

    candidate = candidate_of(type(solver_with(releases=releases, iterates=iterates)))
    found = check_named("samples_are_those_charged").result(candidate)
    assert found.verdict == (OK if factor == 2.0 else FAILS)
    if factor == 1.0:
        assert "own term is 1 times the declared sensitivity" in found.reason
        assert check_named("replay_audit").result(candidate).verdict == OK
