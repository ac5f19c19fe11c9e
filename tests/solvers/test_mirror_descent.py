"""Test private mirror descent: maps, steps and refusals. DP-GD is tested, too."""

import math

import numpy as np
import pytest

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.solvers.gd import GD
from dp_erm_bench.solvers.mirror_descent import MAPS, MirrorDescent, smoothness_in_l1
from dp_erm_bench.solvers.sgd import SGD
from tests.solvers.cases import solve

SETS = {"none": "none", "simplex": {"name": "simplex", "radius": 3.0}}
SETS["l1_ball"] = {"name": "l1_ball", "radius": 3.0}
ROUND = {**SETS, "l2_ball": {"name": "l2_ball", "radius": 1.0}}


def problem_of(constraint="simplex", loss="logistic", penalty="none", p=7):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, (60, p))
    y = np.sign(X @ rng.normal(size=p) + 0.2 * rng.normal(size=60))
    bounds = Bounds(np.ones(p), math.sqrt(p), 1.0)
    data = dataset_from_arrays(X, y, bounds=bounds)
    return build_problem(data, loss, penalty, ROUND[constraint])


def iterates(solver, problem, z=0.0, names=("a",)):
    releases = list(solver.releases(problem, Adjacency.REPLACE_ONE, None))
    oracle = problem.oracle(len(names), clipped=True)
    mechanisms = make_mechanisms(releases, z, names)
    checkpoints = list(range(solver.n_iter + 1))
    return [w.copy() for w in solver.iterates(oracle, mechanisms, checkpoints, None)]


def test_on_the_simplex_weights_are_multiplied():
    problem, solver = problem_of(), MirrorDescent(n_iter=6, step=0.8)
    size = 0.8 / smoothness_in_l1(problem).item()
    w = np.full(7, 3.0 / 7)
    for found in iterates(solver, problem):
        np.testing.assert_allclose(found[0], w, rtol=1e-10)
        w = w * np.exp(-size / 3.0 * problem.gradient(w))
        w *= 3.0 / w.sum()


def test_on_the_ball_both_signs_have_weights():
    problem, solver = problem_of("l1_ball"), MirrorDescent(n_iter=6, step=0.8)
    size = 0.8 / smoothness_in_l1(problem).item()
    u = v = np.full(7, 3.0 / 14)
    for found in iterates(solver, problem):
        np.testing.assert_allclose(found[0], u - v, rtol=1e-9, atol=1e-13)
        g = problem.gradient(u - v)
        u, v = u * np.exp(-size / 3.0 * g), v * np.exp(size / 3.0 * g)
        u, v = (3.0 * part / (u.sum() + v.sum()) for part in (u, v))


def test_the_inverse_link_of_the_p_norm_inverts_the_link():
    problem = problem_of("none")
    mirror = MAPS["none"](problem, np.zeros((2, 7)))
    w = np.random.default_rng(0).normal(size=(2, 7))
    q = 1.0 + 1.0 / math.log(7)
    norm = (np.abs(w) ** q).sum(axis=1, keepdims=True) ** (1.0 / q)
    mirror.dual = np.sign(w) * np.abs(w) ** (q - 1.0) / norm ** (q - 2.0)
    np.testing.assert_allclose(mirror.primal(mirror.dual), w, rtol=1e-10)
    mirror.dual = 1e-200 * mirror.dual
    np.testing.assert_allclose(mirror.primal(mirror.dual), 1e-200 * w, rtol=1e-9)


@pytest.mark.parametrize("constraint", MAPS)
@pytest.mark.parametrize("z", [1.0, 1e6])
def test_iterates_stay_in_the_set_whatever_the_noise(constraint, z):
    problem = problem_of(constraint)
    for w in iterates(MirrorDescent(n_iter=30), problem, z, ("a", "b")):
        assert np.isfinite(w).all()
        assert problem.constraint.contains(w, 1e-9).all()


@pytest.mark.parametrize("constraint", MAPS)
@pytest.mark.parametrize("penalty", ["none", {"name": "l2", "strength": 0.2}])
def test_every_step_of_size_one_descends(constraint, penalty):
    """The smoothness in the L1 norm is a bound, and the potentials' modulus is 1."""
    problem = problem_of(constraint, penalty=penalty)
    values = [problem.value(w[0]) for w in iterates(MirrorDescent(n_iter=60), problem)]
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] < values[0]


@pytest.mark.parametrize("cls", [MirrorDescent, GD])
def test_the_average_is_that_of_the_iterates_after_the_start(cls):
    problem = problem_of()
    last = iterates(cls(n_iter=9), problem, 5.0)
    mean = iterates(cls(n_iter=9, output="average"), problem, 5.0)
    np.testing.assert_allclose(mean[0], last[0])
    np.testing.assert_allclose(mean[-1], np.mean(last[1:], axis=0), rtol=1e-10)


@pytest.mark.parametrize("cls", [MirrorDescent, GD])
@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("clip", [None, 0.4])
def test_one_noisy_sum_a_step(cls, adjacency, clip):
    problem = problem_of()
    (release,) = cls(n_iter=5, clip=clip).releases(problem, adjacency, None)
    bound = math.sqrt(7) if clip is None else clip
    factor = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    assert release.sensitivity == pytest.approx(factor * bound)
    assert (release.law().name, release.times) == ("gaussian", 5)


def test_the_noise_is_exact():
    """T = 50, (1, 1e-6): z = sqrt(50) / .236704."""
    solver = MirrorDescent(n_iter=50)
    ended = solve(problem_of(), [solver], Budget(1.0, 1e-6), "certified", ["a"], 2)
    assert ended.calibration.z == pytest.approx(math.sqrt(50) / 0.236704, rel=1e-5)
    assert ended.calibration.accountant == "gdp"


def test_unknown_sets_and_rough_penalties_are_refused():
    ball = problem_of("l2_ball")
    assert "constraint=l2_ball" in MirrorDescent().refusal(ball)
    rough = problem_of("simplex", penalty={"name": "l1", "strength": 0.1})
    assert "penalty=l1" in MirrorDescent().refusal(rough)
    assert "penalty=l1" in GD().refusal(rough)


@pytest.mark.parametrize("constraint", SETS)
def test_gd_is_sgd_with_all_records(constraint):
    problem = problem_of(constraint)
    full = SGD(n_iter=12, batch_size="full", step=0.7, clip=0.9)
    plain = GD(n_iter=12, step=0.7, clip=0.9)
    oracle = problem.oracle(1, clipped=True)
    releases = list(full.releases(problem, Adjacency.REPLACE_ONE, None))
    mechanisms = make_mechanisms(releases, 0.0, ["a"])
    other = [w.copy() for w in full.iterates(oracle, mechanisms, range(13), None)]
    np.testing.assert_allclose(iterates(plain, problem), other, rtol=1e-10)


def test_columns_without_data_leave_the_p_norm_at_zero():
    data = dataset_from_arrays(np.zeros((5, 3)), np.ones(5))
    problem = build_problem(data, "squared", {"name": "l2", "strength": 0.1})
    found = iterates(MirrorDescent(n_iter=3), problem.with_smoothness("data"))
    assert not np.any(found)
