"""Private Frank-Wolfe: its steps, its sparsity, its sensitivity."""

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.privacy.adjacency import Adjacency
from dp_erm_bench.privacy.budget import Budget
from dp_erm_bench.privacy.mechanisms import make_mechanisms
from dp_erm_bench.problems.build import build_problem
from dp_erm_bench.problems.oracles import make_oracle
from dp_erm_bench.runner.solve import solve
from dp_erm_bench.solvers.frank_wolfe import FrankWolfe

SETS = ["l1_ball", "simplex"]
LOSSES = ["logistic", "squared"]


def problem_of(
    constraint="l1_ball", loss="logistic", radius=2.0, made=None, n=50, **parts
):
    rng = np.random.default_rng(7)
    X = rng.uniform(-1.0, 1.0, (n, 9)) * (rng.random((n, 9)) < 0.6)
    y = np.sign(X @ rng.normal(size=9) + 0.1)
    columns = np.linspace(1.0, 2.0, 9)
    bounds = Bounds(columns, float(np.linalg.norm(columns)), 1.0)
    data = dataset_from_arrays(X if made is None else made(X), y, bounds=bounds)
    chosen = {"name": constraint, "radius": radius} if constraint != "none" else "none"
    return build_problem(data, loss, parts.get("penalty", "none"), chosen)


def iterates(solver, problem, z=0.0, names=("a",), clipped=True):
    releases = list(solver.releases(problem, Adjacency.REPLACE_ONE, None))
    oracle = make_oracle(problem, len(names), clipped=clipped)
    mechanisms = make_mechanisms(releases, z, names)
    checkpoints = list(range(solver.n_iter + 1))
    return [w.copy() for w in solver.iterates(oracle, mechanisms, checkpoints, None)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("constraint", SETS)
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_without_noise_it_is_the_textbook_algorithm(constraint, loss, l2):
    penalty = {"name": "l2", "strength": l2}
    problem = problem_of(constraint, loss, penalty=penalty)
    w = problem.constraint.project(np.zeros(9))
    for t, found in enumerate(iterates(FrankWolfe(n_iter=30), problem)[1:]):
        g = problem.gradient(w) + l2 * w
        vertex = problem.constraint.linear_minimiser(g)
        w = w + 2.0 / (t + 2.0) * (vertex - w)
        np.testing.assert_allclose(found[0], w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("constraint", SETS)
def test_the_gram_oracle_makes_the_same_steps(constraint):
    problem, solver = problem_of(constraint, "squared"), FrankWolfe(n_iter=25)
    pairs = zip(
        iterates(solver, problem, 2.0, ("a", "b")),
        iterates(solver, problem, 2.0, ("a", "b"), clipped=False),
        strict=True,
    )
    for plain, fast in pairs:
        np.testing.assert_allclose(plain, fast, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_sparse_features_make_the_same_steps(loss):
    solver = FrankWolfe(n_iter=25)
    dense = iterates(solver, problem_of(loss=loss), 2.0, ("a", "b"))
    light = iterates(
        solver, problem_of(loss=loss, made=sparse.csc_array), 2.0, ("a", "b")
    )
    np.testing.assert_allclose(dense, light, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("constraint", SETS)
@pytest.mark.parametrize("parts", ["decreasing", "constant"])
def test_iterates_stay_in_the_set_and_are_sparse(constraint, parts):
    problem = problem_of(constraint)
    for t, w in enumerate(iterates(FrankWolfe(n_iter=6, parts=parts), problem, 50.0)):
        assert problem.constraint.contains(w, 1e-9).all()
        if constraint == "l1_ball":
            assert np.count_nonzero(w) <= t


def test_margins_do_not_drift():
    problem = problem_of()
    solver = FrankWolfe(n_iter=3000)
    releases = list(solver.releases(problem, Adjacency.REPLACE_ONE, None))
    oracle = make_oracle(problem, 1, clipped=True)
    mechanisms = make_mechanisms(releases, 1.0, ["a"])
    for _ in solver.iterates(oracle, mechanisms, [0, 3000], None):
        pass
    np.testing.assert_allclose(oracle.margins, oracle.product(oracle.w), atol=1e-11)


def test_the_constant_part_is_the_parameter():
    problem = problem_of()
    first, second = iterates(FrankWolfe(n_iter=1, parts="constant", step=0.25), problem)
    vertex = problem.constraint.linear_minimiser(problem.gradient(first[0]))
    np.testing.assert_allclose(second[0], 0.25 * vertex)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("constraint", SETS)
def test_the_sensitivity_is_that_of_the_vertices(constraint, clip, adjacency):
    problem = problem_of(constraint)
    (release,) = FrankWolfe(clip=clip).releases(problem, adjacency, None)
    columns = problem.dataset.bounds.columns if clip is None else np.full(9, clip)
    wide = np.concatenate([columns, columns]) if constraint == "l1_ball" else columns
    change = (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) * 2.0 * wide / 50
    np.testing.assert_allclose(release.sensitivity, change[None, :])


def test_the_noise_has_the_reference_scales():
    """n = 1000, T = 50, L1 = radius = 1, (1, 1e-6): Talwar's, Gumbel's, Laplace's."""
    X = np.sign(np.random.default_rng(0).normal(size=(1000, 3)))
    bounds = Bounds(np.ones(3), 3**0.5, 1.0)
    data = dataset_from_arrays(X, X[:, 0], bounds=bounds)
    problem = build_problem(
        data, "logistic", "none", {"name": "l1_ball", "radius": 1.0}
    )
    cases = [
        ("laplace", "paper", 0.0743384),
        ("gumbel", "paper", 0.0743384),
        ("gumbel", "certified", 0.0632621),
        ("laplace", "certified", 0.116397),
    ]
    for noise, calibration, scale in cases:
        solver = FrankWolfe(n_iter=50, noise=noise)
        ended = solve(problem, [solver], Budget(1.0, 1e-6), calibration, ["a"], 2)
        assert ended.calibration.z * 2 / 1000 == pytest.approx(scale, rel=2e-4)
        ran = "laplace" if calibration == "paper" else noise
        assert ended.solvers[0].noise == ran
    assert (
        solve(
            problem,
            [FrankWolfe(n_iter=50, noise="laplace")],
            Budget(1.0, 1e-6),
            "paper",
            ["a"],
            2,
        ).calibration.label
        == "paper (not proved)"
    )


@pytest.mark.parametrize("constraint", ["none", "l2_ball"])
def test_sets_without_vertices_are_refused(constraint):
    with pytest.raises(Unsupported, match=f"constraint={constraint}: .*l1_ball"):
        solve(
            problem_of(constraint),
            [FrankWolfe()],
            Budget(1.0, 1e-6),
            "certified",
            ["a"],
            2,
        )


def test_penalties_that_are_not_smooth_are_refused():
    problem = problem_of(penalty={"name": "l1", "strength": 0.1})
    assert "penalty=l1" in FrankWolfe().refusal(problem)


@pytest.mark.parametrize("step", [0.0, 1.5])
def test_a_part_beyond_the_vertex_is_refused(step):
    with pytest.raises(UsageError, match="step=.*> 0 and <= 1"):
        FrankWolfe(step=step)
