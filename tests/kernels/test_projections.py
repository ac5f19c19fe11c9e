"""Test compiled projections against those by sorting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dp_erm_bench import registry
from dp_erm_bench.kernels.projections import project
from tests.serving import BALLS

NAMES = ["none", *BALLS]

every_name = pytest.mark.parametrize("name", NAMES)


def made(name, radius):
    return registry.build("constraint", name, **({} if name == "none" else radius))


def projected(constraint, v):
    w = np.array(v, dtype=np.float64)
    project(constraint.kernel, w)
    return w


def nearest(name, v, radius):
    """Return the projection that sorts (Held, Wolfe, Crowder 1974), (..., p).

    With v_(1) >= v_(2) >= .. that on the simplex is max(v - theta, 0), theta =
    (v_(1) + .. + v_(k) - radius) / k for the largest k such that v_(k) > theta.
    """
    if name not in ("simplex", "l1_ball"):
        return made(name, {"radius": radius}).project(v)
    if name == "l1_ball":
        inside = np.abs(v).sum(axis=-1, keepdims=True) <= radius
        moved = np.copysign(nearest("simplex", np.abs(v), radius), v)
        return np.where(inside, v, moved)
    shifted = np.maximum(v - v.max(axis=-1, keepdims=True), -2.0 * radius)
    ordered = -np.sort(-shifted, axis=-1)
    theta = (np.cumsum(ordered, axis=-1) - radius) / np.arange(1, v.shape[-1] + 1)
    last = np.count_nonzero(ordered > theta, axis=-1, keepdims=True) - 1
    return np.maximum(shifted - np.take_along_axis(theta, last, axis=-1), 0.0)


@every_name
@pytest.mark.parametrize("radius", [1e-3, 1.0, 50.0])
@pytest.mark.parametrize("p", [1, 2, 7, 8, 9, 200])
def test_projections_are_those_by_sorting(name, radius, p):
    rng, constraint = np.random.default_rng(p), made(name, {"radius": radius})
    for scale in radius * 10.0 ** np.arange(-3.0, 7.0):
        points = rng.normal(size=(4, 5, p)) * scale * (rng.random((4, 5, p)) < 0.7)
        expected = nearest(name, points, radius)
        np.testing.assert_allclose(
            constraint.project(points), expected, atol=1e-14 * radius
        )
        for v, one in zip(points.reshape(20, p), expected.reshape(20, p), strict=True):
            np.testing.assert_allclose(
                projected(constraint, v), one, atol=1e-14 * radius
            )


@pytest.mark.parametrize("name", BALLS)
@given(v=arrays(np.float64, st.integers(1, 8), elements=st.floats(-1e12, 1e12)))
def test_hostile_points_are_projected(name, v):
    constraint = made(name, {"radius": 1.0})
    found = projected(constraint, v)
    np.testing.assert_allclose(found, nearest(name, v, 1.0), atol=1e-14)
    assert constraint.contains(found)


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.0 - 1e-6])
def test_geometric_entries_end_the_search_for_the_threshold(ratio):
    """Each pass of the search leaves out few of such entries."""
    v = 3.0 - ratio ** np.arange(2000.0)
    for name in ("simplex", "l1_ball"):
        constraint = made(name, {"radius": 0.7})
        found = projected(constraint, v)
        np.testing.assert_allclose(found, nearest(name, v, 0.7), atol=1e-14)


@pytest.mark.parametrize("name", ["none", "l1_ball", "l2_ball"])
def test_points_inside_stay_bit_for_bit(name):
    constraint = made(name, {"radius": 1.0})
    v = np.random.default_rng(0).normal(size=30)
    v *= 0.999 / np.abs(v).sum()
    assert projected(constraint, v).tolist() == v.tolist()
    assert projected(constraint, np.zeros(3)).tolist() == [0.0] * 3


def test_ties_share_what_is_taken():
    simplex, ball = (made(name, {"radius": 1.0}) for name in ("simplex", "l1_ball"))
    assert projected(simplex, np.full(4, 7.0)).tolist() == [0.25] * 4
    assert projected(ball, [-7.0, 7.0]).tolist() == [-0.5, 0.5]
    assert projected(simplex, [-3.0, -1e9]).tolist() == [1.0, 0.0]


@every_name
def test_a_diverged_iterate_is_not_hidden(name):
    constraint = made(name, {"radius": 1.0})
    for v in ([1.0, np.nan, 3.0], [np.nan] * 3, [np.inf, np.nan, 0.0]):
        assert np.isnan(projected(constraint, v)).any()


def test_an_unknown_code_raises():
    w = np.ones(3)
    with pytest.raises(ValueError, match="no kernel projects"):
        project((99, 1.0), w)
    assert w.tolist() == [1.0] * 3
