"""Test balls of structured norms: projections, vertices, margins and solvers."""

import math

import numpy as np
import pytest

from dp_erm_bench import fit, problem_from_arrays, registry
from dp_erm_bench.constraints.base import UNCOMPILED
from dp_erm_bench.constraints.norm_ball import NormBall
from dp_erm_bench.constraints.sets import L1Ball
from dp_erm_bench.errors import UsageError
from tests.loops import each
from tests.norms.families import FAMILIES, LAPPED, SETS, P, listed, mixed
from tests.norms.test_families import POINTS, ROWS, projected
from tests.serving import RISKS

BALLS = {
    "count": NormBall(0.7),
    "sqrt": NormBall(0.7, function="sqrt"),
    "capped": NormBall(2.0, function="capped", cap=3),
    "one": NormBall(0.3, function="one"),
    "lapped": NormBall(1.5, "groups", groups=LAPPED, weights=[[1.0, 0.5, 2.0]]),
    "range": NormBall(4.0, "range"),
    "table": NormBall(1.0, "submodular", values=listed(mixed)),
}
every_ball = pytest.mark.parametrize("name", BALLS)


def bound_of(name):
    return np.array([FAMILIES[name][1](list(A)) for A in SETS])


@every_ball
def test_projection_is_the_nearest_point_of_all_2_6_sets(name):
    """<z - Pz, v - Pz> <= 0 for all v = +-radius 1_A / F(A)."""
    ball, bound = BALLS[name], bound_of(name)
    ball.check_features(P)
    for z in [*POINTS, 1e6 * POINTS[1]]:
        near = ball.project(z)
        assert ball.contains(near)
        away = z - near
        best = ball.radius * (ROWS @ np.abs(away) / bound).max()
        scale = ball.radius * np.abs(away).sum()
        assert best - away @ near <= 1e-9 * scale
        if ball.gauge(z) <= 1.0:
            np.testing.assert_array_equal(near, z)


@every_ball
def test_projection_is_the_prox_at_its_own_step(name):
    """The prox by a program of all sets, at the step that projection found."""
    ball, bound = BALLS[name], bound_of(name)
    for z in POINTS[1:4]:
        near = ball.project(z)
        t = ball.omega.dual(z - near)[0]
        np.testing.assert_allclose(near, z - projected(z, t * bound), atol=1e-7)


@every_ball
def test_the_linear_minimiser_is_the_best_vertex(name):
    ball, rows = BALLS[name], np.array(POINTS)
    far = ball.linear_minimiser(rows)
    products, points = ball.vertex_products(rows), ball.vertex_points(np.arange(1), P)
    assert products.shape == (len(rows), ball.vertex_count(P)) and points.shape == (
        1,
        P,
    )
    scale = 1e-12 * (1.0 + np.abs(rows).max(axis=1))
    assert (np.abs((far * rows).sum(axis=1) - products.min(axis=1)) <= scale).all()
    assert ball.contains(far).all()
    np.testing.assert_allclose(ball.gauge(far), 1.0, rtol=1e-12)
    sizes = ball.vertex_sizes(np.abs(rows))
    assert (sizes >= np.abs(products) - scale[:, None]).all()


@every_ball
def test_no_margin_exceeds_the_largest(name):
    ball, random = BALLS[name], np.random.default_rng(0)
    columns, norm = np.array([1.0, 0.2, 0.7, 1.0, 0.0, 0.4]), 1.1
    x = columns * random.choice([-1.0, 1.0], (200, P))
    x *= np.minimum(1.0, norm / np.linalg.norm(x, axis=1, keepdims=True))
    reached = np.abs((ball.linear_minimiser(x) * x).sum(axis=1)).max()
    assert reached <= ball.largest_margin(columns, norm) * (1 + 1e-12)
    only = ball.largest_margin(columns, 100.0)
    best = ball.radius * (ROWS @ columns / bound_of(name)).max()
    assert only == pytest.approx(best)


def test_the_ball_of_the_count_is_the_l1_ball():
    ball, other = BALLS["count"], L1Ball(0.7)
    z = np.random.default_rng(1).normal(size=(20, 9))
    np.testing.assert_allclose(ball.project(z), other.project(z), atol=1e-13)
    np.testing.assert_array_equal(ball.linear_minimiser(z), other.linear_minimiser(z))
    assert ball.vertex_count(9) == 18
    # Long records: here a bound by the norm alone is not that of single entries.
    assert ball.largest_margin(np.full(9, 2.0), 3.0) == other.largest_margin(
        np.full(9, 2.0), 3.0
    )


def test_vertices_are_listed_up_to_a_hundred_thousand():
    assert NormBall(1.0, function="one").vertex_count(16) == 2**16
    assert NormBall(1.0, function="one").vertex_count(17) is None
    assert NormBall(1.0, function="sqrt").vertex_count(10) == 3**10 - 1
    assert NormBall(1.0, function="sqrt").vertex_count(11) is None
    pairs = [[j, j + 1] for j in range(0, 60, 2)]
    assert NormBall(1.0, "groups", groups=pairs).vertex_count(60) == 30 * 4
    with pytest.raises(NotImplementedError, match="no list of vertices"):
        NormBall(1.0, function="sqrt").vertex_products(np.zeros(40))


def problem(constraint, loss="logistic", n=80, p=P):
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (n, p))
    y = np.where(X[:, :3].sum(axis=1) + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    bounds = {"columns": 1.0, "label": 1.0}
    return problem_from_arrays(X, y, loss=loss, constraint=constraint, bounds=bounds)


@pytest.mark.parametrize(
    ("name", "loss"), [*zip(BALLS, ["logistic", "squared"] * 4, strict=False)]
)
def test_optima_on_balls_are_certified_and_reached(name, loss):
    made = problem(BALLS[name], loss)
    assert made.optimum.reason == "" and made.optimum.gap <= 1e-9
    if name in ("lapped", "range", "table"):  # the same steps, slower
        return
    found = fit(made, "gd", epsilon=math.inf, seed=0, n_iter=400)
    assert found.trajectory["relative_error"].iloc[-1] <= 1e-6
    walked = fit(made, "frank_wolfe", epsilon=math.inf, seed=0, n_iter=400)
    assert 0.0 <= walked.trajectory["relative_error"].iloc[-1] <= 3e-2


@each("algorithm", RISKS)
def test_every_algorithm_serves_or_refuses_it(algorithm):
    made = problem(BALLS["sqrt"])
    given = {
        "output_perturbation": {"ridge": 0.5},
        "objective_perturbation": {"ridge": 0.5},
        "approximate_minima_perturbation": {"ridge": 0.5},
        "dual_frank_wolfe": {"ridge": 0.5},
        "permutation_sgd": {"batch_size": "full"},
        "bias_reduced_sgd": {},
        "frank_wolfe": {"n_iter": 20},
        "gd": {"n_iter": 20},
        "boosting": {"n_iter": 5},
    }
    reason = registry.build("algorithm", algorithm, **given.get(algorithm, {})).refusal(
        made
    )
    if algorithm in given and algorithm != "permutation_sgd":
        assert reason is None
        found = fit(made, algorithm, epsilon=1.0, seed=0, **given[algorithm])
        assert found.epsilon_certified <= 1.0
        assert made.constraint.contains(found.w)
    else:
        assert "constraint=norm_ball" in reason and "\n" not in reason


def test_without_a_list_frank_wolfe_refuses_and_gd_serves():
    made = problem({"name": "norm_ball", "function": "sqrt"}, p=20)
    refused = registry.build("algorithm", "frank_wolfe").refusal(made)
    assert refused.startswith("constraint=norm_ball: frank_wolfe needs a set with")
    assert fit(made, "gd", epsilon=1.0, seed=0, n_iter=5).epsilon_certified <= 1.0
    assert made.optimum.gap <= 1e-9


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"norm": "lasso"},
            "constraint.norm=lasso: must be one of cardinality, groups",
        ),
        ({"norm": "range", "cap": 3}, "constraint.cap=3: must be left out with norm="),
        ({"function": "capped"}, "constraint.cap=null: must be a finite number >= 1"),
        ({"norm": "groups"}, "constraint.groups=null: must be a list of groups"),
        (
            {"norm": "groups", "groups": [[0, 1]]},
            "constraint.groups: no group has coordinate 2, 3, 4, 5, whose penalty",
        ),
        (
            {"norm": "submodular", "values": [0.0, 1.0, 1.0, 3.0]},
            "constraint.values: F is not submodular: F({0}) = 1 + F({1}) = 1",
        ),
        (
            {"radius": 0.0},
            "constraint.radius=0.0 of norm_ball: must be a finite number",
        ),
    ],
)
def test_bad_input_is_refused_in_one_sentence(given, words):
    with pytest.raises(UsageError) as error:
        problem({"name": "norm_ball", **given})
    text = str(error.value)
    assert text.startswith(words) and "\n" not in text


def test_equal_balls_have_one_key():
    assert BALLS["lapped"] == NormBall(
        1.5, "groups", groups=[list(g) for g in LAPPED], weights=(1.0, 0.5, 2.0)
    )
    assert BALLS["sqrt"].code == UNCOMPILED and not BALLS["sqrt"].explicit
    w = np.array([[np.nan, 0.0, 1.0], [0.1, 0.0, 0.1]])
    near = BALLS["sqrt"].project(w)
    assert np.isnan(near[0]).all() and (near[1] == w[1]).all()
