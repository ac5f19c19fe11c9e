"""Test properties of every constraint in the registry."""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dp_erm_bench import registry
from dp_erm_bench.constraints.base import UNCOMPILED, Constraint
from dp_erm_bench.constraints.sets import L1Ball, L2Ball, Simplex, WholeSpace
from dp_erm_bench.errors import Unsupported, UsageError
from tests.serving import BALLS

NAMES = registry.names("constraint")
RADII = (1e-3, 1.0, 40.0)
BOUNDED = [
    registry.build("constraint", name, radius=radius)
    for name in BALLS
    for radius in RADII
]
KINDS = list(dict.fromkeys(type(constraint) for constraint in BOUNDED))

every_bounded = pytest.mark.parametrize("constraint", BOUNDED, ids=repr)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture(params=[WholeSpace(), *BOUNDED], ids=repr)
def constraint(request):
    return request.param


def example(name, size=1.0):
    given = registry.target("constraint", name).example(4, size)
    return registry.build("constraint", name, **given)


def points(constraint, size=(200, 7)):
    """Points near, far and very far, with zeros and ties among the entries."""
    rng = np.random.default_rng(0)
    radius = min(constraint.radius, 1e6)
    scale = radius * 10.0 ** rng.uniform(-2.0, 6.0, size=(size[0], 1))
    w = rng.normal(size=size) * scale * (rng.random(size) < 0.7)
    w[::10] = np.round(w[::10] / radius) * radius
    w[-1] = 0.0
    return w


def corners(constraint, p):
    """All vertices of a polytope."""
    kinds = {L1Ball: (-1.0, 1.0), Simplex: (1.0,)}
    signs = kinds[type(constraint)]
    vertices = [sign * row for row in np.eye(p) for sign in signs]
    return constraint.radius * np.array(vertices)


def test_constraints_are_named_like_their_yaml():
    for name in NAMES:
        constraint = example(name)
        assert isinstance(constraint, Constraint) and constraint.name == name
        assert example(name) == constraint
        assert constraint.bounded == (name != "none")
        assert constraint.explicit == (name == "polytope")


@pytest.mark.parametrize("name", NAMES)
def test_examples_have_the_size_asked_for(name):
    """The largest entry of a minimiser; zero is in them, but for the simplex."""
    for size in (0.1, 1.0, 3.0):
        made = example(name, size)
        made.check_features(4)
        assert made.contains(np.zeros(4)) == (name != "simplex")
        if made.bounded:
            far = made.linear_minimiser(-np.eye(4))
            assert np.abs(far).max() == pytest.approx(size, rel=1e-15)


def test_kernels_get_the_code_and_the_radius(constraint):
    assert constraint.kernel == (constraint.code, constraint.radius)
    assert [type(part) for part in constraint.kernel] == [int, float]
    assert math.isfinite(constraint.radius) == constraint.bounded


def test_codes_differ():
    made = [one for one in map(example, NAMES) if one.code != UNCOMPILED]
    assert len({constraint.code for constraint in made}) == len(made)


def test_projections_are_in_the_set(constraint):
    assert constraint.contains(constraint.project(points(constraint))).all()


def test_projection_is_idempotent_and_contracts(constraint):
    unit = min(constraint.radius, 1.0)
    a, b = unit * np.random.default_rng(0).normal(scale=4.0, size=(2, 50, 3))
    once = constraint.project(a)
    np.testing.assert_allclose(constraint.project(once), once, atol=1e-14 * unit)
    moved = np.linalg.norm(once - constraint.project(b), axis=1)
    assert (moved <= np.linalg.norm(a - b, axis=1) + 1e-14 * unit).all()


@every_bounded
def test_projection_is_the_nearest_point(constraint):
    """<w - Pw, s - Pw> <= 0 for all s, so for the s that makes it largest."""
    w = points(constraint)
    nearest = constraint.project(w)
    away = w - nearest
    worst = constraint.linear_minimiser(-away)
    excess = (away * (worst - nearest)).sum(axis=1)
    scale = constraint.radius * np.abs(away).sum(axis=1)
    assert (excess <= 1e-12 * scale).all()
    assert (np.abs(away).sum(axis=1) > constraint.radius).any()


@every_bounded
def test_points_of_the_set_stay_as_they_are(constraint):
    rng = np.random.default_rng(2)
    mixed = rng.dirichlet(np.ones(7), size=50) * constraint.radius
    if type(constraint) is Simplex:
        slack = 1e-14 * constraint.radius
        np.testing.assert_allclose(constraint.project(mixed), mixed, atol=slack)
        return
    inside = 0.9 * mixed * rng.choice([-1.0, 1.0], size=mixed.shape)
    outside = 3.0 * mixed
    both = constraint.project(np.concatenate([inside, outside]))
    assert both[:50].tolist() == inside.tolist()
    assert constraint.project(inside).tolist() == inside.tolist()
    size = 1.0 if type(constraint) is L1Ball else 2.0
    norms = np.linalg.norm(both[50:], ord=size, axis=1)
    beyond = np.linalg.norm(outside, ord=size, axis=1) > constraint.radius
    assert beyond.any()
    np.testing.assert_allclose(norms[beyond], constraint.radius, rtol=1e-13)


def exact_simplex(v, radius):
    """Return the projection in rational arithmetic."""
    v, total, theta = [Fraction(float(x)) for x in v], Fraction(0), None
    for k, x in enumerate(sorted(v, reverse=True), 1):
        total += x
        candidate = (total - Fraction(float(radius))) / k
        theta = candidate if x > candidate else theta
    return np.array([float(max(x - theta, Fraction(0))) for x in v])


@pytest.mark.parametrize("radius", RADII)
def test_projections_on_polytopes_are_exact(radius):
    simplex, ball = Simplex(radius), L1Ball(radius)
    for v in points(simplex):
        expected = exact_simplex(v, radius)
        np.testing.assert_allclose(simplex.project(v), expected, atol=1e-15 * radius)
        inside = sum(abs(Fraction(float(x))) for x in v) <= Fraction(radius)
        face = np.copysign(exact_simplex(np.abs(v), radius), v)
        expected = v if inside else face
        np.testing.assert_allclose(ball.project(v), expected, atol=1e-15 * radius)


@given(arrays(np.float64, st.integers(1, 6), elements=st.floats(-1e9, 1e9)))
def test_hostile_points_are_projected_exactly(v):
    expected = exact_simplex(v, 1.0)
    np.testing.assert_allclose(Simplex(1.0).project(v), expected, atol=1e-15)


def test_projection_works_on_the_last_axis(constraint):
    w = points(constraint, (12, 5)).reshape(3, 4, 5)
    together = constraint.project(w)
    assert together.shape == w.shape
    for a, b in itertools.product(range(3), range(4)):
        alone = constraint.project(w[a, b])
        np.testing.assert_allclose(together[a, b], alone, rtol=1e-14, atol=0.0)


def test_what_is_projected_is_not_changed(constraint):
    w = points(constraint)
    w.setflags(write=False)
    constraint.project(w)
    constraint.contains(w)


@every_bounded
def test_linear_functions_have_no_smaller_value_on_the_set(constraint):
    rng = np.random.default_rng(3)
    g = rng.normal(size=(40, 6))
    least = constraint.linear_minimiser(g)
    assert constraint.contains(least).all()
    feasible = constraint.project(constraint.radius * rng.normal(size=(500, 6)) * 3.0)
    slack = 1e-13 * constraint.radius
    assert ((g @ feasible.T).min(axis=1) + slack >= (g * least).sum(axis=1)).all()
    if constraint.vertex_count(6):
        values = g @ corners(constraint, 6).T
        np.testing.assert_allclose((g * least).sum(axis=1), values.min(axis=1))


@every_bounded
def test_minimisers_are_extreme_points_and_all_of_them(constraint):
    p = 4
    signs = np.array(list(itertools.product([-1.0, 1.0], repeat=p)))
    g = signs * np.random.default_rng(4).uniform(1.0, 2.0, size=(300, 1, p))
    found = {tuple(v) for v in constraint.linear_minimiser(g).reshape(-1, p) + 0.0}
    if constraint.vertex_count(p) is None:
        assert len(found) == 300 * 2**p
    else:
        assert found == {tuple(v) for v in corners(constraint, p) + 0.0}
        assert len(found) == constraint.vertex_count(p)


@every_bounded
def test_ties_go_to_the_lowest_index(constraint):
    for g in (np.array([1.0, -2.0, -2.0, 0.5]), np.zeros(4)):
        s = constraint.linear_minimiser(g)
        assert s.shape == (4,) and constraint.contains(s)
        if type(constraint) is not L2Ball:
            assert s[1 if g.any() else 0] == constraint.radius
            assert np.count_nonzero(s) == 1


def test_the_whole_space_has_no_linear_minimiser():
    with pytest.raises(Unsupported, match="l2_ball, l1_ball or simplex"):
        WholeSpace().linear_minimiser(np.ones(3))


def test_whole_space_moves_nothing():
    w = np.random.default_rng(1).normal(scale=1e6, size=(5, 3))
    assert WholeSpace().project(w).tolist() == w.tolist()
    assert WholeSpace().contains(w).all() and WholeSpace().vertex_count(3) == 0


@every_bounded
def test_points_outside_are_told(constraint):
    step = 1e-9 * constraint.radius
    edge = constraint.linear_minimiser(np.array([-1.0, 0.2, 0.1]))
    assert constraint.contains(edge)
    for direction in np.eye(3):
        if edge @ direction > 0.0:
            assert not constraint.contains(edge + step * direction)
            assert constraint.contains(edge + step * direction, tolerance=1e-8)
    assert not constraint.contains(np.array([0.5, 0.5, math.nan]))
    if type(constraint) is Simplex:
        assert not constraint.contains(np.zeros(3))
        assert not constraint.contains(constraint.radius * np.array([2.0, -1.0, 0.0]))


@pytest.mark.parametrize("radius", RADII)
def test_gauges_are_norms_in_units_of_the_radius(radius):
    w = points(L2Ball(radius))
    for ball, order in ((L2Ball(radius), 2), (L1Ball(radius), 1)):
        gauge = ball.gauge(w)
        np.testing.assert_allclose(gauge, np.linalg.norm(w, order, axis=1) / radius)
        np.testing.assert_allclose(ball.gauge(-3.0 * w), 3.0 * gauge)
        assert (ball.contains(w) == (gauge <= 1.0 + 1e-12)).all()


@every_kind
def test_one_dimension_is_an_interval_or_a_point(kind):
    v = np.array([[-5.0], [-0.5], [0.0], [0.5], [5.0]])
    interval = [[-2.0], [-0.5], [0.0], [0.5], [2.0]]
    expected = [[2.0]] * 5 if kind is Simplex else interval
    assert kind(2.0).project(v).tolist() == expected
    # Those of an l2 ball are listed for no p.
    listed = {Simplex: 1, L2Ball: None}.get(kind, 2)
    assert kind(2.0).vertex_count(1) == listed


@every_bounded
def test_no_margin_exceeds_its_bound_and_one_reaches_it(constraint):
    columns, rng = np.array([0.5, 2.0, 1.0, 0.0]), np.random.default_rng(5)
    for norm in (0.3, 1.0, float(np.linalg.norm(columns)), 10.0):
        X = columns * rng.uniform(-1.0, 1.0, size=(3000, 4))
        X[:16] = columns * list(itertools.product([-1.0, 1.0], repeat=4))
        X[16:20] = np.diag(columns)
        X /= np.maximum(np.linalg.norm(X, axis=1) / norm, 1.0)[:, None]
        largest = constraint.largest_margin(columns, norm)
        best = constraint.linear_minimiser(-X)
        margins = np.abs((X * best).sum(axis=1))
        assert margins.max() <= largest * (1 + 1e-14)
        assert margins.max() >= largest * (1 - 1e-12)


def test_margins_of_the_whole_space_are_unbounded():
    assert WholeSpace().largest_margin(np.array([0.0, 1.0]), 1.0) == math.inf
    assert WholeSpace().largest_margin(np.zeros(2), 0.0) == 0.0


@every_kind
@pytest.mark.parametrize(
    "wrong", [0, 0.0, -1.0, math.inf, math.nan, "big", None, True, [1.0]]
)
def test_wrong_radii_are_refused_in_one_sentence(kind, wrong):
    with pytest.raises(UsageError) as error:
        registry.build("constraint", kind.name, radius=wrong)
    assert str(error.value) == (
        f"constraint.radius={wrong} of {kind.name}: must be a finite number > 0"
    )


@every_kind
def test_constraints_are_frozen_and_equal_by_value(kind):
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind(1.0).radius = 2.0
    assert kind(2) == kind(2.0) != kind(3.0)
    assert repr(kind(2)) == repr(kind(2.0))


def test_a_ball_has_its_edge():
    edge = np.array([0.0, -2.0])
    assert L2Ball(2.0).contains(edge, 0.0)
    assert not L2Ball(2.0).contains(1.001 * edge, 0.0)
