"""Test that every algorithm runs on the real sparse datasets, which stay sparse."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from dp_erm_bench.api import fit, load_problem
from dp_erm_bench.datasets.base import Bounds, feature_parts
from dp_erm_bench.errors import DataUnavailable, Unsupported
from dp_erm_bench.problems.erm.build import build_problem
from tests.serving import RISKS, built, constraint_of, known, needs_bounds

SETS = ["libsvm:a9a", "libsvm:w8a", "dorothea", "news20"]
SHORT = {
    "greedy_cd": {"n_iter": 2},
    "random_cd": {"n_iter": 20},
    "sgd": {"n_iter": 20},
    "svrg": {"n_epochs": 1, "n_inner": 5},
    "permutation_sgd": {"passes": 1},
    "one_pass_sgd": {"n_iter": 20},
    "bias_reduced_sgd": {"n_iter": 20},
}


@pytest.fixture(scope="module", params=SETS)
def problem(request):
    try:
        return load_problem(request.param)
    except DataUnavailable as error:
        pytest.skip(str(error))


def served(problem, algorithm):
    """The set's usual problem, or that with what the algorithm needs beside."""
    solver, space = built(algorithm, clip=1.0), constraint_of(algorithm)
    if solver.refusal(problem) is None and not needs_bounds(algorithm):
        return problem
    columns = float(abs(problem.dataset.X).max())
    norm = float(problem.dataset.row_norms.max())
    declared = Bounds(np.full(problem.p, columns), norm * (1 + 1e-12), None)
    data = dataclasses.replace(problem.dataset, bounds=declared)
    # So much convexity that the curvature costs half of the budget at most.
    strength = max(0.1, norm**2 / problem.n)
    return build_problem(data, "logistic", {"name": "l2", "strength": strength}, space)


MATRICES = ("feature_covariance", "newton", "ssp")


# Each algorithm on two of the four sets, by turns.
@pytest.mark.parametrize(
    "algorithm, problem",
    [
        (algorithm, name)
        for k, algorithm in enumerate(RISKS)
        for turn, name in enumerate(SETS)
        if (k + turn) % 2 == 0
    ],
    indirect=["problem"],
)
def test_every_algorithm_runs_on_sparse_data(problem, algorithm):
    problem = served(problem, algorithm)
    assert problem.dataset.sparse
    how = known(algorithm, clip=1.0) | SHORT.get(algorithm, {})
    if algorithm in MATRICES and problem.p > 4000:
        with pytest.raises(Unsupported, match="a p x p matrix takes"):
            fit(problem, algorithm, epsilon=1.0, seed=0, **how)
        return
    found = fit(problem, algorithm, epsilon=1.0, seed=0, **how)
    assert found.w.shape == (problem.p,) and np.isfinite(found.w).all()
    assert 0.0 < found.epsilon_certified <= 1.0
    assert found.w.any() or problem.penalty.l1 > 0.0


@pytest.mark.parametrize("problem", SETS[:3], indirect=True)
def test_without_noise_greedy_steps_descend_on_few_features(problem):
    found = fit(problem, "greedy_cd", epsilon=np.inf, n_iter=5)
    losses = found.trajectory["objective"]
    assert losses.is_monotonic_decreasing and losses.iloc[-1] < losses.iloc[0]
    assert 1 <= np.count_nonzero(found.w) <= 5


def test_a_run_is_never_near_the_dense_array(problem):
    held = sum(part.nbytes for part in feature_parts(problem.dataset.X).values())
    fit(problem, "greedy_cd", epsilon=1.0, clip=1.0, n_iter=1, seed=0)
    tracemalloc.start()
    fit(problem, "greedy_cd", epsilon=1.0, clip=1.0, n_iter=2, seed=0)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= max(3 * held, 800 * (problem.n + problem.p))
    assert peak < 8 * problem.n * problem.p
