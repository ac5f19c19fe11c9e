"""Test polytopes given by vertices: projections, margins, and refused input."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dp_erm_bench import registry
from dp_erm_bench.constraints.sets import L1Ball, Polytope, Simplex, hull_weights
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import UsageError
from dp_erm_bench.problems.erm.build import build_problem
from tests.loops import each

TRIANGLE = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]
P = 5


def cross(radius=1.0, p=P):
    return Polytope((radius * np.vstack([np.eye(p), -np.eye(p)])).tolist())


def hull(m=12, p=P, seed=0, centre=0.0):
    rng = np.random.default_rng(seed)
    return Polytope((centre + rng.normal(size=(m, p))).tolist())


TWINS = [
    (cross(0.7), L1Ball(0.7)),
    (Polytope(2.0 * np.eye(P)), Simplex(2.0)),
]
HULLS = [cross(), hull(), hull(3), hull(40), hull(8, centre=50.0), Polytope(np.eye(P))]

every_twin = pytest.mark.parametrize(("made", "twin"), TWINS, ids=("cross", "simplex"))
every_hull = pytest.mark.parametrize("made", HULLS, ids=range(len(HULLS)))


def points(size, scale, seed=1):
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=size) * (rng.random(size) < 0.7)


@every_twin
@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 10.0, 1e3, 1e6])
def test_projections_are_those_of_the_set_with_these_vertices(made, twin, scale):
    w = points((60, P), scale)
    # Of a point far away its own rounding is what is left.
    slack = 1e-13 * twin.radius + 1e-15 * scale
    np.testing.assert_allclose(made.project(w), twin.project(w), atol=slack * 10)


@every_twin
@given(w=arrays(np.float64, P, elements=st.floats(-100.0, 100.0)))
def test_hostile_points_are_projected_as_there(made, twin, w):
    np.testing.assert_allclose(made.project(w), twin.project(w), atol=1e-10)


@every_twin
def test_all_else_is_that_of_the_twin(made, twin):
    g, bounds = points((30, P), 1.0), np.array([0.5, 2.0, 1.0, 0.0, 1.5])
    assert made.vertex_count(P) == twin.vertex_count(P)
    unbounded = np.where(bounds == 2.0, np.inf, bounds)
    sizes = [("vertex_sizes", b) for b in (bounds, unbounded, np.full(P, np.inf))]
    for name, given_ in (("vertex_products", g), *sizes):
        found, expected = getattr(made, name)(given_), getattr(twin, name)(given_)
        np.testing.assert_allclose(found, expected, atol=1e-15)
    least = [(s.linear_minimiser(g) * g).sum(axis=1) for s in (made, twin)]
    np.testing.assert_allclose(*least, atol=1e-15)
    for norm in (0.3, 1.0, 10.0):
        margins = [s.largest_margin(bounds, norm) for s in (made, twin)]
        assert margins[0] == pytest.approx(margins[1], rel=1e-15)
    assert (made.contains(g) == twin.contains(g)).all()
    assert made.contains(twin.project(g)).all()


@every_hull
@pytest.mark.parametrize("scale", [0.3, 3.0, 300.0, 1e5])
def test_projection_is_the_nearest_point(made, scale):
    """<w - Pw, v - Pw> <= 0 for every vertex v."""
    w = made.points.mean(axis=0) + points((40, P), scale)
    nearest = made.project(w)
    away = w - nearest
    excess = away @ made.points.T - (away * nearest).sum(axis=1, keepdims=True)
    size = np.abs(made.points).sum(axis=1).max()
    assert excess.max() <= 1e-12 * size * max(np.abs(away).max(), made.radius)
    assert made.contains(nearest).all()
    np.testing.assert_allclose(made.project(nearest), nearest, atol=1e-13 * size)


@every_hull
def test_mixtures_of_vertices_stay_as_they_are(made):
    rng = np.random.default_rng(2)
    inside = rng.dirichlet(np.ones(len(made.points)), size=30) @ made.points
    np.testing.assert_allclose(made.project(inside), inside, atol=1e-13 * made.radius)
    assert made.contains(inside).all() and made.contains(made.points).all()
    beyond = made.points[0] + 1e-6 * (made.points[0] - made.points.mean(axis=0))
    far = made.points[np.abs(made.points).sum(axis=1).argmax()]
    assert not made.contains(1.001 * far)
    assert made.contains(beyond, tolerance=1e-4)


def test_weights_are_a_mean_of_the_vertices():
    for m in (1, 2, 30):
        weights = hull_weights(points((m, 4), 1.0, seed=m) + 0.5)
        assert (weights >= 0.0).all() and weights.sum() == pytest.approx(1.0)
    assert hull_weights(np.zeros((4, 2))).tolist() == [0.25] * 4


def test_a_point_and_repeated_vertices_are_polytopes():
    point = Polytope([[1.0, -2.0]])
    assert point.project(np.array([[5.0, 5.0], [1.0, -2.0]])).tolist() == [[1, -2]] * 2
    twice = Polytope(TRIANGLE + TRIANGLE)
    w = points((20, 2), 2.0)
    np.testing.assert_allclose(
        twice.project(w), Polytope(TRIANGLE).project(w), atol=1e-14
    )
    origin = Polytope([[0.0, 0.0], [0.0, 0.0]])
    assert origin.project(np.array([3.0, 1e9])).tolist() == [0.0, 0.0]


def test_a_diverged_iterate_is_not_hidden():
    made = Polytope(TRIANGLE)
    w = np.array([[np.nan, 0.0], [np.inf, 1.0], [1e308, 1e308], [0.1, 0.2]])
    found = made.project(w)
    assert np.isnan(found[:2]).all() and np.isfinite(found[3]).all()
    assert made.contains(w).tolist() == [False, False, False, True]


def test_projection_works_on_the_last_axis_and_changes_nothing():
    made, w = hull(), points((3, 4, P), 3.0)
    w.setflags(write=False)
    together = made.project(w)
    assert together.shape == w.shape
    assert together[1, 2].tolist() == made.project(w[1, 2]).tolist()


def test_ties_go_to_the_first_vertex():
    assert Polytope(TRIANGLE).linear_minimiser(np.zeros(2)).tolist() == [1.0, 0.0]
    assert Polytope(TRIANGLE).linear_minimiser(-np.ones(2)).tolist() == [1.0, 0.0]


@pytest.mark.parametrize("norm", [0.3, 1.0, 10.0])
def test_no_margin_exceeds_its_bound(norm):
    made, columns = hull(), np.array([0.5, 2.0, 1.0, 0.0, 1.5])
    X = columns * np.random.default_rng(5).uniform(-1.0, 1.0, size=(3000, P))
    X = np.concatenate([X, columns * np.sign(made.points), norm * made.points])
    X = np.clip(X, -columns, columns)
    X /= np.maximum(np.linalg.norm(X, axis=1) / norm, 1.0)[:, None]
    largest = np.abs(X @ made.points.T).max()
    bound = made.largest_margin(columns, norm)
    assert largest <= bound * (1.0 + 1e-14)
    if norm == 10.0:  # then the corner of the columns' bounds is a record
        assert largest >= bound * (1.0 - 1e-14)


def test_files_and_lists_make_equal_sets(tmp_path):
    rows = hull().points
    np.save(tmp_path / "v.npy", rows)
    np.savetxt(tmp_path / "v.csv", rows, delimiter=",", fmt="%.17g")
    listed = Polytope(rows.tolist())
    for given_ in (rows, str(tmp_path / "v.npy"), tmp_path / "v.csv"):
        made = Polytope(given_)
        assert made == listed and hash(made) == hash(listed)
        assert repr(made) == repr(listed) and str(tmp_path) not in repr(made)
    assert Polytope([[0, 1], [1, 0]]) == Polytope([[-0.0, 1.0], [1.0, 0.0]])
    assert repr(Polytope([[-0.0]])) == repr(Polytope([[0]]))


def test_a_key_is_that_of_the_content(tmp_path):
    data = dataset_from_arrays(np.eye(2), np.array([1.0, -1.0]))
    np.savetxt(tmp_path / "v.csv", TRIANGLE, delimiter=",")
    keys = {
        build_problem(data, "logistic", "none", {"name": "polytope", "vertices": v}).key
        for v in (TRIANGLE, str(tmp_path / "v.csv"), np.array(TRIANGLE))
    }
    assert len(keys) == 1
    other = {"name": "polytope", "vertices": TRIANGLE[::-1]}
    assert build_problem(data, "logistic", "none", other).key not in keys


WRONG = {
    "none": None,
    "empty": [],
    "an empty point": [[]],
    "one point without its list": [1.0, 2.0],
    "ragged": [[1.0, 0.0], [1.0]],
    "not finite": [[1.0, math.inf]],
    "nan": [[math.nan, 0.0]],
    "words": [["1", "2"]],
    "booleans": [[True, False]],
    "too deep": [[[1.0]]],
    "a number": 3.0,
    "complex": [[1j, 2.0]],
    "huge integers": [[10**400, 1]],
    "a mapping": {"a": 1},
    "long": [[math.nan] * 1000],
}


def refused(given_):
    with pytest.raises(UsageError) as error:
        registry.build("constraint", "polytope", vertices=given_)
    said = str(error.value)
    assert said.startswith("constraint.vertices=") and "\n" not in said
    assert len(said) < 400
    return said


@each("wrong", WRONG)
def test_wrong_vertices_are_refused_in_one_sentence(wrong):
    assert "must be a list of points" in refused(WRONG[wrong])


def test_without_vertices_it_is_refused():
    with pytest.raises(UsageError, match="vertices=None: must be a list of points"):
        registry.build("constraint", "polytope")


def test_files_that_are_no_vertices_are_refused(tmp_path):
    contents = {"a.csv": "1,2\n3\n", "b.csv": "", "c.csv": "x,y\n", "d.npy": "no"}
    contents |= {"e.txt": "1,2\n", "f.csv": "1,nan\n", "g.npy": ""}
    for name, text in contents.items():
        (tmp_path / name).write_text(text)
        assert "must be a list of points" in refused(str(tmp_path / name)), name
    np.save(tmp_path / "h.npy", np.array([{"a": 1}]), allow_pickle=True)
    assert "must be a list of points" in refused(str(tmp_path / "h.npy"))
    assert "cannot be read" in refused(str(tmp_path / "missing.csv"))
    (tmp_path / "folder.npy").mkdir()
    assert "cannot be read" in refused(str(tmp_path / "folder.npy"))


def test_vertices_of_another_space_are_refused():
    data = dataset_from_arrays(np.eye(3), np.array([1.0, -1.0, 1.0]))
    with pytest.raises(UsageError, match="of 2 coordinates: must have 3, one per"):
        build_problem(
            data, "logistic", "none", {"name": "polytope", "vertices": TRIANGLE}
        )


def test_it_is_frozen_and_equal_by_value():
    made = Polytope(TRIANGLE)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.vertices = None
    assert made == Polytope(TRIANGLE) != Polytope(TRIANGLE[::-1])
    assert dataclasses.replace(made) == made
    assert made.kernel == (4, 1.0)
