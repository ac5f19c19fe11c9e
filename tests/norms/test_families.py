"""Test every norm against all 2^6 - 1 sets, by programs independent of norms."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog, nnls

from dp_erm_bench.norms.cardinality import CardinalityNorm
from dp_erm_bench.norms.extreme import signed_vectors
from dp_erm_bench.norms.groups import GroupNorm
from tests.loops import each
from tests.norms.families import FAMILIES, POINT, SETS, P

RANDOM = np.random.default_rng(5)
POINTS = [POINT, *(RANDOM.normal(size=(4, P)) * [[0.1], [1.0], [1.0], [20.0]])]
POINTS += [np.array([1.0, 1.0, 0.0, 0.0, 1.0, -1.0]), np.zeros(P)]
ROWS = np.array([[float(j in A) for j in range(P)] for A in SETS])

PRINTED = {
    "count": (2.7, 1.1, [0.6, -0.1, 0, 0, -0.8, 0]),
    "one": (1.1, 2.7, [0.85, -0.4, 0, 0.25, -0.85, 0.05]),
    "sqrt": (1.678718, 1.414214, [0.775736, -0.304649, 0, 0.169615, -0.8, 0]),
    "capped": (2.4, 1.1, [0.6, -0.175, 0, 0.175, -0.8, 0.05]),
    "groups": (2.0, 1.4, [0.6, -0.4, 0, 0.25, -0.8, 0.05]),
}
"""Omega, Omega* and the prox of 0.3 Omega at POINT, computed elsewhere."""

WIDTHS = {
    "count": 4.787307,
    "one": 1.653996,
    "sqrt": 2.681255,
    "capped": 3.637891,
    "log1p": 2.080970,
    "groups": 2.652774,
}


@pytest.fixture(params=FAMILIES)
def family(request):
    norm, F = FAMILIES[request.param]
    norm.check_features(P)
    return norm, np.array([F(list(A)) for A in SETS])


def projected(z, bound):
    """The nearest s with |s|(A) <= bound_A: the least-distance program as NNLS."""
    size = np.abs(z)
    G, h = -ROWS, ROWS @ size - bound
    if (h <= 0.0).all():
        return z
    scale = np.abs(h).max()
    system = np.vstack([G.T, h / scale])
    goal = np.append(np.zeros(P), 1.0)
    u, _ = nnls(system, goal, maxiter=10_000)
    left = system @ u - goal
    return np.copysign(size - scale * left[:P] / left[P], z)


def test_omega_and_its_maximiser_solve_the_linear_program(family):
    norm, bound = family
    for w in POINTS:
        best = linprog(-np.abs(w), A_ub=ROWS, b_ub=bound, method="highs")
        assert norm.value(w) == pytest.approx(-best.fun, abs=1e-7)
        s = norm.maximiser(w)
        assert s @ w == pytest.approx(norm.value(w), abs=1e-12)
        assert (ROWS @ np.abs(s) <= bound * (1 + 1e-12)).all()


def test_the_dual_norm_is_the_largest_ratio_of_all_sets(family):
    norm, bound = family
    for s in POINTS:
        ratios = ROWS @ np.abs(s) / bound
        value, mask = norm.dual(s)
        assert value == pytest.approx(ratios.max(), abs=1e-12)
        assert ratios[SETS.index(tuple(np.flatnonzero(mask)))] == pytest.approx(value)


@each("tau", [0.03, 0.3, 1.0])
def test_prox_and_projection_solve_the_quadratic_program(family, tau):
    norm, bound = family
    for z in POINTS:
        nearest = projected(z, tau * bound)
        np.testing.assert_allclose(norm.project(z, tau), nearest, atol=1e-7)
        np.testing.assert_allclose(norm.prox(z, tau), z - nearest, atol=1e-7)


def test_indicators_have_the_value_of_their_set(family):
    norm, bound = family
    np.testing.assert_allclose(norm.of_masks(ROWS > 0), bound, rtol=1e-14)


def test_the_reach_is_the_norm_of_the_longest_vertex_or_a_bound(family):
    norm, bound = family
    values = dict(zip(map(frozenset, SETS), bound, strict=True)) | {frozenset(): 0.0}
    longest = {frozenset(): 0.0}
    for A in map(frozenset, SETS):
        steps = ((A - {j}, values[A] - values[A - {j}]) for j in A)
        longest[A] = max(longest[B] + gain**2 for B, gain in steps)
    exact = math.sqrt(longest[frozenset(range(P))])
    assert norm.reach(P) >= exact * (1 - 1e-12)
    assert not norm.exact_reach or norm.reach(P) == pytest.approx(exact)


def test_the_spread_bounds_all_sets(family):
    norm, bound = family
    sizes = np.sqrt(ROWS.sum(axis=1)) / bound
    assert norm.spread(P) >= sizes.max() * (1 - 1e-12)


def test_extreme_points_are_on_the_sphere_and_their_hull_has_all(family):
    norm, _ = family
    masks = norm.dense_sets(P)
    points = (
        signed_vectors(masks)
        / norm.of_masks(masks).repeat(2 ** masks.sum(axis=1))[:, None]
    )
    np.testing.assert_allclose(norm.value(points), 1.0, rtol=1e-14)
    assert len(np.unique(points, axis=0)) == len(points)
    for s in POINTS:
        assert (points @ s).max() == pytest.approx(norm.dual(s)[0], abs=1e-12)


@pytest.mark.parametrize("name", ["count", "one", "capped", "groups"])
def test_no_extreme_point_is_a_mean_of_others(name):
    norm, _ = FAMILIES[name]
    points = signed_vectors(masks := norm.dense_sets(P))
    points = points / norm.of_masks(masks).repeat(2 ** masks.sum(axis=1))[:, None]
    for i, point in enumerate(points):
        rest = np.delete(points, i, axis=0)
        system = np.vstack([rest.T, np.ones(len(rest))])
        _, left = nnls(system, np.append(point, 1.0), maxiter=10_000)
        assert left > 1e-3


@pytest.mark.parametrize("name", PRINTED)
def test_values_that_were_computed_elsewhere(name):
    norm, (omega, dual, prox) = FAMILIES[name][0], PRINTED[name]
    assert norm.value(POINT) == pytest.approx(omega, abs=5e-7)
    assert norm.dual(POINT)[0] == pytest.approx(dual, abs=5e-7)
    np.testing.assert_allclose(norm.prox(POINT, 0.3), prox, atol=5e-7)


@pytest.mark.parametrize("name", WIDTHS)
def test_widths_that_were_computed_elsewhere(name):
    assert FAMILIES[name][0].width(P) == pytest.approx(WIDTHS[name], abs=5e-7)


def test_widths_at_a_hundred_features():
    assert CardinalityNorm("one").width(100) == pytest.approx(2.746958, abs=5e-7)
    assert CardinalityNorm("sqrt").width(100) == pytest.approx(12.603597, abs=5e-7)
    assert CardinalityNorm("count").width(100) == pytest.approx(
        100 * math.sqrt(2 / math.pi)
    )


def test_a_width_is_the_mean_of_draws(family):
    norm, _ = family
    draws = None if norm.checked else 500
    mean, error = norm.sampled_width(P, draws)
    assert draws or error <= 0.005 * mean
    if norm.checked:
        assert abs(mean - norm.width(P)) <= 4 * error
    else:
        twin = FAMILIES["table"][0]
        assert abs(mean - twin.sampled_width(P)[0]) <= 4 * error


def test_the_vertices_are_the_greedy_points_of_all_orders(family):
    norm, bound = family
    F = dict(zip(SETS, bound, strict=True))
    points = np.zeros((math.factorial(P), P))
    for row, order in zip(points, itertools.permutations(range(P)), strict=True):
        values = [F.get(tuple(sorted(order[:k])), 0.0) for k in range(P + 1)]
        row[list(order)] = np.diff(values)
    every = np.unique(points.round(6) + 0.0, axis=0)
    found = norm.vertices(P).round(6) + 0.0
    assert len(found) == (2.0 ** np.count_nonzero(every, axis=1)).sum()
    assert len(np.unique(found, axis=0)) == len(found)
    np.testing.assert_array_equal(np.unique(np.abs(found), axis=0), every)


@pytest.mark.parametrize(
    ("norm", "p", "count"),
    [
        (CardinalityNorm("one"), 2000, 4000),
        (CardinalityNorm("count"), 16, 2**16),
        (CardinalityNorm("count"), 17, None),
        (CardinalityNorm("sqrt"), 8, None),
        (GroupNorm([range(100), range(100, 300)]), 300, 200 * 400),
        (GroupNorm([range(200), range(200, 500)]), 500, None),
    ],
)
def test_vertices_are_listed_up_to_a_hundred_thousand(norm, p, count):
    found = norm.vertices(p)
    assert (found is None) == (count is None)
    assert found is None or found.shape == (count, p)
