"""Test projected steps: their limits, their needs, and refused constraints."""

import functools
import itertools

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.sgd import SGD
from tests.privacy.replaying import replay_audit
from tests.serving import BALLS, RISKS, SETS, built
from tests.solvers.cases import LOSSES, PENALTIES, run_at, solve

CONSTRAINED = [n for n in RISKS if registry.target("algorithm", n).constrained]
LABEL = 2.0
COLUMNS = np.array([1.0, 2.0, 0.5, 1.5, 1.0])

every_loss = pytest.mark.parametrize("loss", LOSSES)
every_set = pytest.mark.parametrize("ball", SETS)
every_ball = pytest.mark.parametrize("ball", BALLS)


def data(n=150, label=LABEL):
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, size=(n, 5)) * COLUMNS
    y = np.sign(X @ [1.5, 1.0, 0.0, -2.0, 0.3] + 0.8 * rng.normal(size=n))
    bounds = Bounds(COLUMNS, float(np.linalg.norm(COLUMNS)), label)
    return dataset_from_arrays(X, y, bounds=bounds)


@functools.cache
def instance(loss, ball, penalty="none", strength=0.2, radius=0.3, label=LABEL):
    named = {"name": penalty}
    if penalty not in ("none", "box"):
        named["strength"] = strength
    size = registry.target("constraint", ball).example(5, radius)
    space = {"name": ball} | size
    return build_problem(data(label=label), loss, named, space)


def end(problem, solver, length):
    known = problem.with_smoothness("data")
    run = run_at(known, [solver], z=0.0, checkpoints=(0, length), ahead=True)
    return run.iterates()[-1][0]


def frank_wolfe_gap(problem, w):
    """Bound F(w) - min F over the set: F is convex and smooth."""
    g = problem.gradient(w) + problem.penalty.l2 * w
    return g @ (w - problem.constraint.linear_minimiser(g))


@every_loss
@every_ball
@pytest.mark.parametrize("penalty", ["none", "l2"])
def test_without_noise_the_constrained_minimum_is_reached(loss, ball, penalty):
    problem = instance(loss, ball, penalty)
    w = end(problem, SGD(batch_size="full", n_iter=3000), 3000)
    assert problem.constraint.contains(w)
    gap = frank_wolfe_gap(problem, w)
    assert -1e-12 <= gap <= 1e-9 * abs(problem.value(w))
    free = build_problem(problem.dataset, loss, {"name": "l2", "strength": 0.2})
    beyond = end(free, SGD(batch_size="full", n_iter=3000), 3000)
    assert not problem.constraint.contains(beyond)


@every_ball
@pytest.mark.parametrize("batch_size", [1, 10])
def test_stochastic_steps_approach_the_constrained_minimum(ball, batch_size):
    problem = instance("squared", ball)
    best = problem.value(end(problem, SGD(batch_size="full", n_iter=3000), 3000))
    start = problem.value(problem.constraint.project(np.zeros(5)))
    solver = SGD(batch_size=batch_size, n_iter=20_000, step=0.2, decay=0.01)
    w = end(problem, solver, 20_000)
    assert problem.constraint.contains(w)
    assert 0.0 <= problem.value(w) - best + 1e-12 <= 0.02 * (start - best)


@every_ball
@pytest.mark.parametrize("penalty", ["none", "l2"])
@pytest.mark.parametrize("batch_size", [1, 5, "full"])
def test_compiled_and_plain_steps_agree_and_stay_in_the_set(ball, penalty, batch_size):
    problem = instance("logistic", ball, penalty)
    solvers = [SGD(batch_size=batch_size, n_iter=10, clip=c) for c in (0.5, 2.0)]
    given = {"z": 20.0, "identities": ("a", "b")}
    plain = run_at(problem, solvers, **given).iterates()
    fast = run_at(problem, solvers, **given, ahead=True).iterates()
    for a, b in zip(plain, fast, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
        assert problem.constraint.contains(a).all()
        assert problem.constraint.contains(b).all()
    start = problem.constraint.project(np.zeros((2, 5)))
    assert plain[0].tolist() == start.tolist()
    assert not np.array_equal(plain[0], plain[-1])


def test_the_order_of_prox_and_projection_is_that_of_the_proof():
    """argmin over the set of norm2(u - v)^2 / 2 + step l2 norm2(u)^2 / 2."""
    rng = np.random.default_rng(1)
    for ball in BALLS:
        space = registry.build("constraint", ball)
        penalty, step = registry.build("penalty", "l2", strength=1.7), 0.8
        v = 2.0 * rng.normal(size=(50, 4))
        u = space.project(penalty.prox(v, step))
        slope = u - v + step * penalty.l2 * u
        worst = space.linear_minimiser(slope)
        assert ((slope * (u - worst)).sum(axis=1) <= 1e-12).all()


@pytest.mark.parametrize("penalty", PENALTIES)
@every_ball
def test_sgd_refuses_penalties_for_which_it_has_no_step(penalty, ball):
    problem = instance("logistic", ball, penalty)
    reason = SGD().refusal(problem)
    if penalty in ("none", "l2"):
        assert reason is None
    else:
        assert reason.startswith(f"constraint={ball} with penalty={penalty}: ")
    free = build_problem(problem.dataset, "logistic", penalty_of(problem))
    assert SGD().refusal(free) is None


def penalty_of(problem):
    known = {"strength": 0.2} if hasattr(problem.penalty, "strength") else {}
    return {"name": problem.penalty.name, **known}


@every_set
@pytest.mark.parametrize("algorithm", RISKS)
def test_constraints_are_refused_by_all_who_do_not_keep_them(algorithm, ball):
    solver = built(algorithm, ridge=1.0)
    problem = instance("logistic", ball)
    if algorithm in CONSTRAINED:
        reason = solver.refusal(problem)
        assert reason is None or reason.startswith(f"constraint={ball}: {algorithm} ")
        return
    assert solver.refusal(problem) == (
        f"constraint={ball}: {type(solver).__name__} does not keep its iterates in "
        "this set; use constraint=none or algorithm=gd"
    )
    with pytest.raises(Unsupported, match=f"constraint={ball}"):
        solve(problem, [solver], Budget(1.0, 1e-6), "certified", ["a"], 3)


def test_the_coordinate_methods_are_among_them():
    assert {"sgd", "gd"} <= {*CONSTRAINED}
    assert not {"greedy_cd", "random_cd", "svrg"} & {*CONSTRAINED}


@pytest.mark.parametrize("adjacency", Adjacency)
@every_ball
def test_squared_loss_needs_no_clipping_on_a_bounded_set(ball, adjacency):
    problem, solver = instance("squared", ball), SGD(n_iter=5)
    budget = Budget(1.0, 1e-6, adjacency)
    solved = solve(problem, [solver], budget, "certified", ["a"], 3)
    bound = problem.lipschitz * problem.dataset.bounds.norm
    expected = adjacency.of_sum(bound)
    assert solved.releases[0].sensitivity == pytest.approx(expected, rel=1e-15)
    assert solved.calibration.z > 0.0
    assert solved.problem.constraint.contains(solved.rows.w).all()


@every_ball
def test_without_a_bound_of_the_label_it_does(ball):
    problem = instance("squared", ball, label=None)
    with pytest.raises(Unsupported, match="clip"):
        solve(problem, [SGD(n_iter=5)], Budget(1.0, 1e-6), "certified", ["a"], 3)
    solve(problem, [SGD(n_iter=5, clip=1.0)], Budget(1.0, 1e-6), "certified", ["a"], 3)


def corner_pairs(space, adjacency):
    """Neighbours at the corners of all bounds, in the features and in the label.

    A record of zeros is a neighbour by replacement too.
    """
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=5)))[:12]
    X, y = signs * COLUMNS, LABEL * np.ones(12)
    bounds = Bounds(COLUMNS, float(np.linalg.norm(COLUMNS)), LABEL)
    changes = [(0.0, LABEL), (-1.0, LABEL), (1.0, -LABEL)]
    for factor, label in changes[: 1 if adjacency is Adjacency.ZERO_OUT else 3]:
        other, labels = X.copy(), y.copy()
        other[0] *= factor
        labels[0] = label
        yield [
            build_problem(dataset_from_arrays(*pair, bounds=bounds), *space)
            for pair in ((X, y), (other, labels))
        ]


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("radius", [0.1, 5.0])
@every_ball
def test_what_is_declared_holds_on_the_set_and_is_nearly_reached(
    ball, radius, adjacency
):
    """Where margins exceed labels all gradients lean towards w, none opposes it.

    So in a large set two records differ by little more than the larger of the two:
    half of what is declared for a replaced record.
    """
    space = ("squared", "none", {"name": ball, "radius": radius})
    solvers, largest = [SGD(batch_size="full", n_iter=12)] * 6, 0.0
    for pair in corner_pairs(space, adjacency):
        runs = [
            run_at(p, solvers, z=300.0, identities=(*"abcdef",), adjacency=adjacency)
            for p in pair
        ]
        first, second = runs
        report = replay_audit(
            first.mechanisms,
            lambda _: first.iterates(),  # noqa: B023
            second.mechanisms,
            lambda _: second.iterates(),  # noqa: B023
        )
        assert report.violations() == []
        largest = max(largest, report.ratios["gradient"])
    halved = adjacency is Adjacency.REPLACE_ONE and radius > 1.0
    assert largest > (0.3 if halved else 0.5)
