"""Test a batch of trials on one problem: declare, calibrate, run."""

from dataclasses import replace

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.build import build_problem, erm_from_arrays
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.random_cd import RandomCD
from dp_erm_bench.solvers.runs import checkpoints_of
from dp_erm_bench.solvers.sgd import SGD
from tests.loops import each
from tests.serving import (
    RISKS,
    bounds_for,
    built,
    constraint_of,
    fits_noise,
    parameters,
)

ALGORITHMS = RISKS
BUDGET = Budget(1.0, "1/n^2")
INFINITE = Budget("inf", "1/n^2")


@pytest.fixture(scope="module")
def problem():
    return problem_for("sgd")


def problem_for(algorithm, n=50):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0.0, 1.0, -1.0)
    objective = {"loss": "logistic", "penalty": "l2", "strength": 0.5}
    objective["bounds"] = bounds_for(algorithm, X)
    return erm_from_arrays(X, y, **objective, constraint=constraint_of(algorithm))


def made(algorithm, **given):
    return built(algorithm, **{"n_iter": 9, "clip": 1.0, "noise_only": "off", **given})


def trials(algorithm, *given):
    """A batch of some trials, the first one alone if that is how it runs."""
    solvers = [made(algorithm, **one) for one in given]
    return solvers if solvers[0].batchable else solvers[:1]


def run(problem, solvers, budget=BUDGET, calibration="certified", checkpoints=4):
    identities = [f"trial {b}" for b in range(len(solvers))]
    made = Run(problem, solvers, budget, calibration, identities)
    return made.record(checkpoints)


@each("iterations", [0, 1, 2, 7, 50, 51, 1000, 45_312 * 50])
@each("count", [1, 2, 3, 51])
def test_checkpoints_are_even_and_hold_both_ends(iterations, count):
    found = checkpoints_of(iterations, count)
    assert found[0] == 0 and found[-1] == iterations
    assert found == sorted(set(found))
    assert len(found) <= max(count, 2)
    assert all(type(point) is int for point in found)
    steps = np.diff(found)
    assert steps.size == 0 or steps.max() - steps.min() <= 1


@each("algorithm", ALGORITHMS)
def test_rows_are_the_checkpoints_and_end_with_the_iterate(algorithm):
    problem, solvers = problem_for(algorithm), trials(algorithm, {}, {"step": 0.5})
    solved = run(problem, solvers)
    rows, length = solved.rows, solvers[0].iterations(problem)
    assert rows.iteration == ([0, 3, 6, 9] if length == 9 else [0, length])
    assert rows.passes[-1] == solved.solver.passes_at(problem, length)
    assert np.diff(rows.seconds).min() > 0.0
    assert rows.w.shape == (len(solvers), 3)
    np.testing.assert_allclose(rows.objective[-1], problem.value(rows.w), rtol=1e-12)
    np.testing.assert_array_equal(rows.nnz[-1], np.count_nonzero(rows.w, axis=1))
    np.testing.assert_allclose(rows.objective[0], np.log(2.0))
    told = {"predicted_excess"} if algorithm == "newton" else set()
    assert set(rows.measures) == told | {"train_risk"}


@each("algorithm", ALGORITHMS)
def test_noise_is_fixed_once_by_the_declared_releases(algorithm):
    problem = problem_for(algorithm)
    solved = run(problem, [made(algorithm)])
    assert 0.0 < solved.calibration.epsilon_certified <= 1.0
    assert solved.calibration.budget.delta == 1.0 / 50**2
    length = made(algorithm).iterations(problem)
    assert max(release.times for release in solved.releases) == length
    looser = run(problem, [made(algorithm)], Budget(2.0, "1/n^2"))
    assert (looser.calibration.z < solved.calibration.z) == fits_noise(algorithm)
    other = run(problem, [made(algorithm, clip=5.0)])
    assert other.calibration.z == solved.calibration.z


@each("algorithm", ALGORITHMS)
def test_no_noise_without_a_budget(algorithm):
    solved = run(problem_for(algorithm), [made(algorithm, clip=None)], INFINITE)
    assert solved.calibration.z == 0.0
    assert solved.calibration.epsilon_certified == np.inf


@each("algorithm", ALGORITHMS)
def test_a_budget_needs_finite_sensitivities(algorithm):
    problem = problem_for(algorithm)
    bare = replace(problem, dataset=replace(problem.dataset, bounds=None))
    with pytest.raises(Unsupported, match="declared bounds") as caught:
        run(bare, [made(algorithm, clip=None)])
    clips = "clip" in parameters(algorithm)
    assert ("clipping" in str(caught.value)) == clips


@each("algorithm", ALGORITHMS)
@each("calibration", registry.names("calibration"))
def test_calibrations_that_an_algorithm_lacks_are_refused(algorithm, calibration):
    problem, solver = problem_for(algorithm), made(algorithm)
    if calibration in solver.calibrations:
        budget = BUDGET
        if solver.printed_constant == "arora2020" and calibration == "paper":
            # Printed for many records and small epsilon.
            problem, budget = problem_for(algorithm, n=500), Budget(0.1, 1e-6)
        solved = run(problem, [solver], budget, calibration)
        assert solved.calibration.label.startswith(calibration)
    else:
        with pytest.raises(Unsupported, match=f"calibration={calibration}: must be"):
            run(problem, [solver], calibration=calibration)


def test_the_paper_calibration_runs_the_printed_variant(problem):
    solved = run(problem, [GreedyCD(clip=1.0)], calibration="paper")
    assert solved.solvers[0].noise == "poster"
    assert solved.releases[0].law().name == "pure"


def test_unsupported_pairs_are_refused_before_anything_runs(problem):
    with pytest.raises(Unsupported, match="n_inner=4: must divide"):
        run(problem, [RandomCD(n_iter=9, n_inner=4, clip=1.0)])
    with pytest.raises(Unsupported, match="batch_size=51: must be at most n=50"):
        run(problem, [SGD(batch_size=51, clip=1.0)])


def test_the_constants_are_those_asked_for(problem):
    assert run(problem, [made("sgd")]).problem.smoothness.kind == "data"
    with pytest.raises(Unsupported, match="smoothness=public"):
        run(problem, [made("sgd", smoothness="public")])


def test_held_out_records_are_measured(problem):
    data = problem.dataset
    held = replace(data, X_test=data.X[:7], y_test=data.y[:7])
    solved = run(replace(problem, dataset=held), [made("greedy_cd")], INFINITE)
    margins = held.X_test @ solved.rows.w[0] * held.y_test
    assert solved.rows.measures["test_accuracy"][-1][0] == np.mean(margins > 0.0)
    squared = build_problem(held, "squared", "none")
    rows = run(squared, [made("greedy_cd")], INFINITE).rows
    names = ("test_objective", "test_risk", "rmse", "r2")
    found = {name: len(values) for name, values in rows.measures.items()}
    assert found == dict.fromkeys(names, 4)


def test_recording_is_not_on_the_clock(problem, monkeypatch):
    import time

    from dp_erm_bench.run import Recorder

    add = Recorder.add

    def slow(*given):
        time.sleep(0.02)
        add(*given)

    monkeypatch.setattr(Recorder, "add", slow)
    assert run(problem, [made("greedy_cd")]).rows.seconds[-1] < 0.06
