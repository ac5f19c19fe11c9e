"""Test every algorithm with smoothness=private, in every variant."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.sparse import csc_array

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.limits import noise_on_vectors
from dp_erm_bench.contract.problems import small_problem
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.runner.execute import facts_of_trial, uncharged_uses
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.random_cd import RandomCD
from tests.serving import RISKS as NAMES
from tests.serving import built, constraint_of
from tests.solvers.cases import (
    VARIANTS,
    label,
    run_at,
    solve,
    solver_of,
)

ALGORITHMS = [n for n in NAMES if registry.target("algorithm", n).uses_smoothness]
SERVED = [
    (name, given)
    for name, given in VARIANTS
    if name in ALGORITHMS
    and given.get("noise") != "poster"
    and given.get("inner") != "bias_reduced_sgd"  # knows no smoothness
]
every_variant = pytest.mark.parametrize("variant", SERVED, ids=label)
every_batch = pytest.mark.parametrize(
    "variant",
    [one for one in SERVED if registry.target("algorithm", one[0]).batchable],
    ids=label,
)
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)
BUDGET = Budget(1.0, "1/n^2")


def private(variant, **given):
    return solver_of(variant, smoothness="private", **{"clip": 1.0, **given})


def solved(algorithm, budget=BUDGET, calibration="certified", problem=None, **given):
    if problem is None:
        problem = small_problem("logistic", "l2")
    given = {"n_iter": 8, "clip": 1.0, **given}
    solver = registry.build("algorithm", algorithm, **given)
    return solve(problem, [solver], budget, calibration, ["a"], 5)


@every_batch
@pytest.mark.parametrize("clip", [0.7, None])
def test_compiled_and_plain_steps_agree_on_constants_of_their_own(variant, clip):
    problem = small_problem("logistic", "l2")
    solvers = [private(variant, clip=clip, step=s) for s in (0.5, 1.0, 0.2)]
    names = ("a", "b", "c")
    given = {"identities": names, "epsilon": 60.0}
    plain = run_at(problem, solvers, **given)
    fast = run_at(problem, solvers, **given, ahead=True)
    for a, b in zip(plain.iterates(), fast.iterates(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    M = plain.problem.smoothness.columns
    assert M.shape == (3, 6) and np.unique(M[:, 0]).size == 3


@every_batch
@pytest.mark.parametrize("ahead", [False, True])
def test_trials_do_not_depend_on_their_batch(variant, ahead):
    problem = small_problem("logistic", "l2")
    named = {"a": 0.5, "b": 1.0, "c": 2.0}
    made = {k: private(variant, clip=c) for k, c in named.items()}
    alone = {
        k: run_at(problem, [s], identities=(k,), ahead=ahead).iterates()[-1][0]
        for k, s in made.items()
    }
    solvers = [made[k] for k in "cab"]
    together = run_at(problem, solvers, identities=tuple("cab"), ahead=ahead)
    for w, k in zip(together.iterates()[-1], "cab", strict=True):
        np.testing.assert_allclose(w, alone[k], rtol=1e-9, atol=1e-12)


@every_variant
def test_uses_are_exactly_those_declared(variant):
    run = run_at(small_problem("logistic", "l2"), [private(variant)], ahead=True)
    run.iterates()
    assert run.mechanisms["smoothness"].used == 1
    assert len(run.mechanisms) > 1
    for mechanism in run.mechanisms.values():
        assert mechanism.used == mechanism.release.times


@pytest.mark.parametrize("algorithm", ["greedy_cd", "random_cd"])
def test_columns_of_zeros_are_never_updated(algorithm):
    solver = solver_of((algorithm, {}), smoothness="private", clip=1.0)
    problem = small_problem("logistic", "none")
    last = run_at(problem, [solver], z=100.0, ahead=True).iterates()[-1]
    assert last[0, 2] == 0.0 and last.any()


@every_algorithm
def test_without_a_budget_coordinate_methods_run_as_with_the_data(algorithm):
    infinite = Budget("inf", "1/n^2")
    known = solved(algorithm, infinite, smoothness="data", clip=None)
    made = solved(algorithm, infinite, smoothness="private", clip=None)
    trace = known.problem.smoothness.columns.sum()
    assert made.problem.smoothness.norm[0, 0] == pytest.approx(trace)
    assert made.calibration.epsilon_certified == math.inf
    if algorithm == "mirror_descent":
        return  # step sizes by the largest M_j, which both know
    if noise_on_vectors(known.releases):  # step sizes by the trace, not the eigenvalue
        scale = trace / known.problem.smoothness.norm
        made = solved(
            algorithm, infinite, smoothness="private", clip=None, step=float(scale)
        )
    np.testing.assert_allclose(made.rows.w, known.rows.w, rtol=1e-9, atol=1e-13)


@every_algorithm
@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_certificate_covers_both(algorithm, adjacency, epsilon):
    budget = Budget(epsilon, "1/n^2", adjacency)
    made = solved(algorithm, budget, smoothness="private")
    plain = solved(algorithm, budget, smoothness="public")
    rest = Budget(0.9 * epsilon, "1/n^2", adjacency)
    part = solved(algorithm, rest, smoothness="public")
    assert 0.999 * epsilon < made.calibration.epsilon_certified <= epsilon
    assert made.calibration.z == pytest.approx(part.calibration.z, rel=1e-4)
    assert made.calibration.z > plain.calibration.z
    assert made.calibration.budget == budget.resolve_delta(made.problem.n)
    assert [r.name for r in made.shares] == ["smoothness"]
    assert len(made.releases) == len(plain.releases)


@every_algorithm
def test_the_table_says_what_was_charged(algorithm):
    told = facts_of_trial(solved(algorithm, smoothness="private"), 0)
    assert told["smoothness"] == "private" and told["uncharged"] == []
    seen = solved(algorithm, smoothness="private", smoothness_bounds="data")
    assert facts_of_trial(seen, 0)["uncharged"] == ["smoothness_bounds"]
    assert facts_of_trial(seen, 0)["epsilon_certified"] <= 1.0
    assert facts_of_trial(seen, 0)["params"]["smoothness_bounds"] == "data"


@every_algorithm
def test_no_iterations_cost_the_constants_alone(algorithm):
    made = solved(algorithm, smoothness="private", n_iter=0).calibration
    assert made.epsilon_certified == pytest.approx(0.1) and made.accountant == "pure"


@pytest.mark.parametrize("rule", ["GS-r", "GS-s"])
def test_poster_noise_is_refused(rule):
    with pytest.raises(Unsupported, match="noise=poster with smoothness=private"):
        solved("greedy_cd", rule=rule, noise="poster", smoothness="private")
    with pytest.raises(Unsupported, match="noise=poster with smoothness=private"):
        solved("greedy_cd", calibration="paper", rule=rule, smoothness="private")


@pytest.mark.parametrize(
    "algorithm, calibration", [("random_cd", "paper"), ("sgd", "authors")]
)
def test_other_constants_are_taken_at_what_is_left(algorithm, calibration):
    made = solved(algorithm, calibration=calibration, smoothness="private")
    rest = solved(
        algorithm, Budget(0.9, "1/n^2"), calibration=calibration, smoothness="public"
    )
    assert made.calibration.z == pytest.approx(rest.calibration.z, rel=1e-9)
    total = rest.calibration.epsilon_certified + 0.1
    assert made.calibration.epsilon_certified == pytest.approx(total, rel=1e-6)
    assert made.calibration.label == rest.calibration.label == calibration


def sparse_twin(problem):
    """The same problem with sparse features, for which most entries are zero."""
    X = problem.dataset.X * (np.abs(problem.dataset.X) > 0.4)
    given = {"y": problem.dataset.y, "bounds": problem.dataset.bounds}
    kinds = (X, csc_array(X))
    return [
        dataclasses.replace(problem, dataset=dataset_from_arrays(kind, **given))
        for kind in kinds
    ]


@every_algorithm
def test_sparse_features_give_the_same_numbers(algorithm):
    dense, thin = sparse_twin(small_problem("logistic", "l2"))
    assert thin.dataset.sparse and not dense.dataset.sparse
    for source in ("declared", "data"):
        given = {"smoothness": "private", "smoothness_bounds": source}
        full = solved(algorithm, problem=dense, **given)
        made = solved(algorithm, problem=thin, **given)
        np.testing.assert_allclose(
            made.problem.smoothness.columns, full.problem.smoothness.columns, rtol=1e-12
        )
        np.testing.assert_allclose(made.rows.w, full.rows.w, rtol=1e-9, atol=1e-12)


def test_thresholds_and_steps_follow_the_trials_constants():
    problem = small_problem("logistic", "l2")
    solvers = [RandomCD(n_iter=10, clip=2.0, smoothness="private")] * 2
    run = run_at(problem, solvers, identities=("a", "b"))
    run.iterates()
    M = run.problem.smoothness.columns
    bounds = 2.0 * np.sqrt(M / M.sum(axis=1, keepdims=True))
    expected = run.budget.adjacency.of_mean(bounds, problem.n)
    np.testing.assert_allclose(run.mechanisms["measure"].release.sensitivity, expected)
    greedy = run_at(problem, [GreedyCD(clip=2.0, smoothness="private")])
    greedy.iterates()
    assert greedy.mechanisms["select"].release.sensitivity.shape == (1, 6)


@pytest.mark.parametrize("algorithm", sorted(set(NAMES) - set(ALGORITHMS)))
def test_who_uses_no_constants_releases_none(algorithm):
    problem = small_problem("logistic", "l2", constraint_of(algorithm))
    problem = problem.with_smoothness("data")
    solver = built(algorithm, smoothness="private", clip=1.0, ridge=1.0)
    with pytest.raises(Unsupported, match="smoothness=private: .* uses no smoothness"):
        solve(problem, [solver], BUDGET, "certified", ["a"], 5)
    solver = built(algorithm, clip=1.0, ridge=1.0)
    found = solve(problem, [solver], BUDGET, "certified", ["a"], 5)
    assert uncharged_uses(found.problem, found.solvers[0]) == [*solver.uncharged]
