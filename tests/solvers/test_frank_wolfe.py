"""Test private Frank-Wolfe: its steps, its sparsity, its sensitivity."""

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.solvers.frank_wolfe import FrankWolfe
from tests.loops import each
from tests.solvers.cases import solve

HULL = np.random.default_rng(1).normal(size=(14, 9)) * (np.arange(9) < 7)
SETS = ["l1_ball", "polytope", "simplex"]
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
    size = {"radius": radius}
    if constraint in ("none", "polytope"):
        size = {} if constraint == "none" else {"vertices": HULL}
    chosen = {"name": constraint} | size
    return build_problem(data, loss, parts.get("penalty", "none"), chosen)


def iterates(solver, problem, z=0.0, names=("a",), clipped=True):
    releases = list(solver.releases(problem, Adjacency.REPLACE_ONE, None))
    oracle = problem.oracle(len(names), clipped=clipped)
    mechanisms = make_mechanisms(releases, z, names)
    checkpoints = list(range(solver.n_iter + 1))
    return [w.copy() for w in solver.iterates(oracle, mechanisms, checkpoints, None)]


@each("loss", LOSSES)
@each("constraint", SETS)
@each("l2", [0.0, 0.3])
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
@pytest.mark.parametrize("constraint", SETS)
def test_sparse_features_make_the_same_steps(constraint, loss):
    solver = FrankWolfe(n_iter=25)
    dense, light = (
        iterates(solver, problem_of(constraint, loss, made=made), 2.0, ("a", "b"))
        for made in (None, sparse.csc_array)
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
    oracle = problem.oracle(1, clipped=True)
    mechanisms = make_mechanisms(releases, 1.0, ["a"])
    for _ in solver.iterates(oracle, mechanisms, [0, 3000], None):
        pass
    np.testing.assert_allclose(oracle.margins, oracle.product(oracle.w), atol=1e-11)


def test_the_constant_part_is_the_parameter():
    problem = problem_of()
    first, second = iterates(FrankWolfe(n_iter=1, parts="constant", step=0.25), problem)
    vertex = problem.constraint.linear_minimiser(problem.gradient(first[0]))
    np.testing.assert_allclose(second[0], 0.25 * vertex)


@each("adjacency", list(Adjacency))
@each("clip", [None, 0.5])
@each("constraint", SETS)
def test_the_sensitivity_is_that_of_the_vertices(constraint, clip, adjacency):
    problem = problem_of(constraint)
    (release,) = FrankWolfe(clip=clip).releases(problem, adjacency, None)
    columns = problem.dataset.bounds.columns if clip is None else np.full(9, clip)
    wide = {
        "l1_ball": 2.0 * np.concatenate([columns, columns]),
        "simplex": 2.0 * columns,
        "polytope": np.abs(HULL) @ columns,
    }[constraint]
    change = (2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0) * wide / 50
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


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_sensitivity_of_a_polytope_is_reached(adjacency):
    """The hinge far from its margin: a record's gradient is -y x, at a corner."""
    columns = np.array([1.0, 2.0, 0.5])
    hull = [[1.0, -1.0, 2.0], [0.0, 3.0, 0.0], [-1.0, -1.0, -1.0]]
    bounds = Bounds(columns, float(np.linalg.norm(columns)), 1.0)
    small = {"name": "polytope", "vertices": (1e-3 * np.array(hull)).tolist()}
    for k, vertex in enumerate(hull):
        X = np.zeros((2, 10, 3))
        X[0, 0] = columns * np.sign(vertex)
        X[1, 0] = -X[0, 0] if adjacency is Adjacency.REPLACE_ONE else 0.0
        pair = [
            build_problem(
                dataset_from_arrays(x, np.ones(10), bounds=bounds),
                "smoothed_hinge",
                "none",
                small,
            )
            for x in X
        ]
        products = [p.constraint.vertex_products(p.gradient(np.zeros(3))) for p in pair]
        (release,) = FrankWolfe().releases(pair[0], adjacency, None)
        moved = np.abs(products[0] - products[1])
        assert (moved <= np.ravel(release.sensitivity) * (1.0 + 1e-12)).all()
        assert moved[k] == pytest.approx(np.ravel(release.sensitivity)[k], rel=1e-12)


def test_a_ball_by_its_vertices_is_the_ball():
    """Same noise, same choices: vertices in the order of the ball's own."""
    ball = problem_of("l1_ball")
    corners = {"name": "polytope", "vertices": 2.0 * np.vstack([np.eye(9), -np.eye(9)])}
    made = build_problem(ball.dataset, "logistic", "none", corners)
    for adjacency in Adjacency:
        scales = [
            np.ravel(next(FrankWolfe().releases(p, adjacency, None)).sensitivity)
            for p in (ball, made)
        ]
        np.testing.assert_allclose(*scales, rtol=1e-15)
    found = [iterates(FrankWolfe(n_iter=30), p, 3.0, ("a", "b")) for p in (ball, made)]
    np.testing.assert_allclose(*found, rtol=1e-9, atol=1e-12)
    budget = Budget(1.0, 1e-6)
    z = {
        solve(p, [FrankWolfe(n_iter=5)], budget, "certified", ["a"], 2).calibration.z
        for p in (ball, made)
    }
    assert len(z) == 1


@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_over_a_polytope_is_certified_and_reached(loss):
    problem = problem_of("polytope", loss)
    best = problem.optimum
    assert best.gap <= 1e-9 and problem.constraint.contains(best.w)
    w = iterates(FrankWolfe(n_iter=3000), problem)[-1][0]
    g = problem.gradient(best.w)
    assert g @ (best.w - problem.constraint.linear_minimiser(g)) <= 1e-8 * best.value
    assert -1e-9 <= problem.value(w) / best.value - 1.0 <= 1e-2
    ridge = problem_of("polytope", loss, penalty={"name": "l2", "strength": 0.1})
    assert "penalty l2 over constraint polytope" in ridge.optimum.reason


def test_gradient_steps_and_one_answer_stay_in_a_polytope():
    problem = problem_of("polytope", penalty={"name": "l2", "strength": 0.2})
    for name, given in (("gd", {"n_iter": 30}), ("output_perturbation", {})):
        solver = registry.build("algorithm", name, **given)
        budget = Budget(1.0, 1e-6)
        ended = solve(problem, [solver], budget, "certified", ["a"], 3)
        assert problem.constraint.contains(ended.rows.w, 1e-9).all()


@pytest.mark.parametrize("name", ["sgd", "permutation_sgd", "mirror_descent"])
def test_methods_without_a_step_for_a_polytope_refuse_it(name):
    reason = registry.build("algorithm", name).refusal(problem_of("polytope"))
    assert reason.startswith(f"constraint=polytope: {name} has ")


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
