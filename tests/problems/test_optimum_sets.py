"""Test the certified optimum over boxes, balls and the simplex, for every loss."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import optimize

from dp_erm_bench import registry
from dp_erm_bench.contract.problems import curved_losses
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.optimum.certified import compute_optimum
from dp_erm_bench.problems.erm.optimum.choice import ball_gap
from dp_erm_bench.problems.erm.optimum.composite import Composite
from dp_erm_bench.problems.erm.optimum.faces import (
    BoxRegion,
    CrossRegion,
    SimplexRegion,
)
from tests.loops import each
from tests.serving import BALLS

LOSSES = curved_losses()
SHAPES = {"tall": (120, 6), "square": (40, 40), "wide": (20, 60)}
REGIONS = {"l1_ball": CrossRegion, "simplex": SimplexRegion}


def data(loss, n, p, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, p))
    z = X @ rng.standard_normal(p) / np.sqrt(p) + 0.7 * rng.standard_normal(n)
    classes = registry.build("loss", loss).classification
    return dataset_from_arrays(X, np.where(z > 0.0, 1.0, -1.0) if classes else z)


def over(loss, name, radius, shape=(120, 6), penalty="none", seed=0):
    spec = {"name": name, "radius": radius}
    return build_problem(data(loss, *shape, seed), loss, penalty, spec)


def boxed(loss, lower, upper, shape=(120, 6)):
    spec = {"name": "box", "lower": lower, "upper": upper}
    return build_problem(data(loss, *shape), loss, spec)


def check(problem, project):
    """Assert that the optimum is certified, feasible, and not beaten nearby."""
    found = compute_optimum(problem)
    if found.value is None:
        assert "close to 0" in found.reason
        return found
    assert found.gap <= 1e-9 and found.reason == ""
    np.testing.assert_allclose(project(found.w), found.w, atol=1e-12)
    assert found.value == problem.value(found.w)
    rng = np.random.default_rng(1)
    lowest = found.value * (1.0 - found.gap) * (1.0 - 1e-13)
    for size in (1e-6, 1e-2, 1.0):
        noise = size * rng.standard_normal((50, problem.p))
        assert problem.value(project(found.w + noise)).min() >= lowest
    return found


@each("shape", SHAPES)
@each("radius", [0.1, 1.0, 10.0])
@each("name", BALLS)
@each("loss", LOSSES)
def test_the_optimum_over_a_set_is_certified(loss, name, radius, shape):
    problem = over(loss, name, radius, SHAPES[shape])
    found = check(problem, problem.constraint.project)
    if found.value is None:
        assert shape != "tall" and radius > 0.1


@each("shape", SHAPES)
@each("width", [0.02, 0.2, 2.0])
@each("loss", LOSSES)
def test_the_optimum_over_a_box_is_certified(loss, width, shape):
    problem = boxed(loss, -0.5 * width, width, SHAPES[shape])
    found = check(problem, lambda w: np.clip(w, -0.5 * width, width))
    if found.value is None:
        assert shape != "tall" and width > 0.02


@each("name", BALLS)
@each("loss", LOSSES)
def test_an_l2_penalty_over_a_set_is_certified(loss, name):
    problem = over(loss, name, 0.5, penalty={"name": "l2", "strength": 0.1})
    assert check(problem, problem.constraint.project).value is not None


@pytest.mark.parametrize("name", ["l2_ball", "l1_ball"])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_large_set_has_the_optimum_of_the_whole_space(loss, name):
    free = compute_optimum(build_problem(data(loss, 120, 6), loss, "none"))
    assert compute_optimum(over(loss, name, 1e3)).value == pytest.approx(
        free.value, rel=1e-12
    )
    large = compute_optimum(boxed(loss, -50.0, 50.0))
    assert large.value == pytest.approx(free.value, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_larger_sets_have_lower_optima_on_their_border(loss):
    for name in ("l2_ball", "l1_ball"):
        values = []
        for radius in (0.05, 0.1, 0.2):
            problem = over(loss, name, radius)
            found = compute_optimum(problem)
            assert problem.constraint.gauge(found.w) == pytest.approx(1.0, rel=1e-12)
            values.append(found.value)
        assert values == sorted(values, reverse=True) and len(set(values)) == 3


@pytest.mark.parametrize("name", ["l1_ball", "simplex"])
@pytest.mark.parametrize("loss", LOSSES)
def test_vertices_and_faces_are_reached_exactly(loss, name):
    found = compute_optimum(over(loss, name, 0.5, SHAPES["wide"]))
    assert 0 < np.count_nonzero(found.w) < 40


def slsqp(problem, name, radius):
    """Minimise by a general-purpose solver, in positive and negative parts."""
    p = problem.p

    def smooth(v):
        return float(problem.value(v[:p] - v[p:]))

    kind = "eq" if name == "simplex" else "ineq"
    slack = {"type": kind, "fun": lambda v: radius - v.sum()}
    top = 0.0 if name == "simplex" else radius
    bounds = [(0.0, radius)] * p + [(0.0, top)] * p
    start = np.concatenate([np.full(p, 0.4 * radius / p), np.full(p, top * 0.3 / p)])
    return optimize.minimize(
        smooth, start, method="SLSQP", bounds=bounds, constraints=[slack], tol=1e-12
    )


@pytest.mark.parametrize("name", ["l1_ball", "simplex"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_general_purpose_solver_finds_nothing_lower(loss, name):
    problem = over(loss, name, 0.7)
    found, other = compute_optimum(problem), slsqp(problem, name, 0.7)
    assert found.value <= other.fun * (1.0 + 1e-9)
    assert found.value == pytest.approx(other.fun, rel=1e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_box_agrees_with_quasi_newton_steps(loss):
    problem = boxed(loss, -0.1, 0.2)
    other = optimize.minimize(
        lambda w: float(problem.value(w)),
        np.zeros(6),
        jac=problem.gradient,
        method="L-BFGS-B",
        bounds=[(-0.1, 0.2)] * 6,
    )
    found = compute_optimum(problem)
    assert found.value <= other.fun * (1.0 + 1e-12)
    assert found.value == pytest.approx(other.fun, rel=1e-6)


@pytest.mark.parametrize("name", BALLS)
@given(
    w=arrays(float, 5, elements=st.floats(-3, 3)),
    g=arrays(float, 5, elements=st.floats(-3, 3)),
)
def test_the_gap_is_that_of_the_linear_minimiser(name, w, g):
    constraint = registry.build("constraint", name, radius=1.5)
    w = constraint.project(w)
    expected = float(g @ (w - constraint.linear_minimiser(g)))
    if name == "l2_ball":
        X = np.eye(5)
        problem = Composite(X, w - 5.0 * g, registry.build("loss", "squared"), 0.0, 0.0)
        np.testing.assert_allclose(problem.gradient(w), g, atol=1e-12)
        gap = ball_gap(problem, 1.5, w)
    else:
        gap = REGIONS[name](constraint).gap(w, g)
    assert 0.0 <= gap == pytest.approx(expected, abs=1e-11)


@given(
    w=arrays(float, 4, elements=st.floats(-1, 2)),
    g=arrays(float, 4, elements=st.floats(-3, 3)),
)
def test_the_gap_of_a_box_is_that_of_its_worst_corner(w, g):
    ends = np.where(g > 0.0, -1.0, 2.0)
    assert BoxRegion(-1.0, 2.0).gap(w, g) == pytest.approx(
        float(g @ (w - ends)), abs=1e-12
    )


@pytest.mark.parametrize("name", ["l1_ball", "simplex"])
@given(w=arrays(float, 8, elements=st.floats(-3, 3)))
def test_projections_leave_no_rounding_in_place_of_zeros(name, w):
    constraint = registry.build("constraint", name, radius=1.5)
    projected = REGIONS[name](constraint).project(w)
    np.testing.assert_allclose(projected, constraint.project(w), atol=1e-13)
    size = np.abs(projected)
    assert (size[size != 0.0] > 5e-16 * size.sum()).all()


@pytest.mark.parametrize("name", ["l1_ball", "simplex"])
@given(
    w=arrays(float, 8, elements=st.floats(-3, 3)),
    g=arrays(float, 8, elements=st.floats(-3, 3)),
)
def test_small_moves_within_a_face_stay_in_the_set(name, w, g):
    region = REGIONS[name](registry.build("constraint", name, radius=1.5))
    w = region.project(w)
    free, across = region.face(w, g)
    d = np.zeros(8)
    d[free] = np.where(w[free] != 0.0, np.abs(w[free]), 0.0)
    d[free] *= np.random.default_rng(0).uniform(-1, 1, free.size)
    if across is not None:
        moving = d[free] != 0.0
        if moving.any():
            normal = np.where(moving, across, 0.0)
            d[free] -= normal * (normal @ d[free]) / (normal @ normal)
    smallest = np.abs(w[w != 0.0]).min(initial=math.inf)
    largest = np.abs(d).max()
    step = 0.0 if largest == 0.0 else min(1e-3, 0.1 * smallest / largest)
    moved = w + step * d
    if across is not None:
        np.testing.assert_allclose(region.project(moved), moved, atol=1e-12)


@pytest.mark.parametrize("name", BALLS)
@pytest.mark.parametrize("penalty", ["l1", "elastic_net", "box"])
def test_sets_with_penalties_that_no_solver_serves_say_so(name, penalty):
    spec = {"name": penalty, **({} if penalty == "box" else {"strength": 0.1})}
    found = compute_optimum(over("squared", name, 1.0, penalty=spec))
    assert found.value is None and found.w is None
    assert found.reason.startswith("no reference solver for") and penalty in (
        found.reason
    )


@pytest.mark.parametrize("ends", [(-math.inf, 1.0), (0.0, math.inf)])
def test_a_box_that_is_not_bounded_has_no_certificate(ends):
    found = compute_optimum(boxed("squared", *ends))
    assert found.value is None
    assert found.reason == "no certificate for an unbounded box"


def test_a_box_of_the_whole_space_is_no_box():
    whole = compute_optimum(boxed("squared", -math.inf, math.inf))
    free = compute_optimum(build_problem(data("squared", 120, 6), "squared", "none"))
    assert whole.value == free.value
