"""Test private smoothness constants: sensitivity, noise, floor, and access."""

import numpy as np
import pytest

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import shared_mechanisms
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.objective import clipped_squares, square_bounds
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.smoothness import smoothness_releases, with_constants
from tests.privacy.replaying import replay_audit

RADIUS = np.array([1.0, 0.5, 4.0])
LOSSES = ("logistic", "squared")
every_loss = pytest.mark.parametrize("loss", LOSSES)
every_adjacency = pytest.mark.parametrize("adjacency", Adjacency)


def features(n=20, seed=1):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (n, 3)) * RADIUS


def problem_of(X, loss="logistic", declared=True):
    bounds = Bounds(RADIUS, float(np.linalg.norm(RADIUS)), 1.0) if declared else None
    y = np.where(np.arange(len(X)) % 2, 1.0, -1.0)
    return build_problem(dataset_from_arrays(X, y, bounds=bounds), loss, "none")


def released(problem, epsilon=1.0, names=("a",), source="auto"):
    budget = Budget(epsilon, 1e-6)
    shares = smoothness_releases(problem, "private", source, budget.adjacency)
    mechanisms = shared_mechanisms(shares, budget, names)
    return with_constants(problem, "private", source, mechanisms).smoothness


def record_pairs(adjacency, rng):
    """A record, and what its neighbour has in place of it."""
    corner = RADIUS * np.array([1.0, -1.0, 1.0])
    yield corner, np.zeros(3)
    for _ in range(20):
        x = rng.uniform(-1.0, 1.0, 3) * RADIUS
        other = rng.uniform(-1.0, 1.0, 3) * RADIUS
        yield x, np.zeros(3) if adjacency is Adjacency.ZERO_OUT else other


@every_loss
@every_adjacency
def test_neighbours_differ_by_at_most_the_sensitivity_and_reach_it(loss, adjacency):
    X, reached = features(), 0.0
    (release,) = smoothness_releases(problem_of(X, loss), "private", "auto", adjacency)
    for x, other in record_pairs(adjacency, np.random.default_rng(0)):
        means = []
        for record in (x, other):
            X[3] = record
            problem = problem_of(X, loss)
            bounds, _ = square_bounds(problem.dataset, problem.loss, "declared")
            means.append(clipped_squares(problem.dataset, problem.loss, bounds))
        change = np.abs(means[0] - means[1])
        assert (change <= release.sensitivity[0] * (1 + 1e-9)).all()
        reached = max(reached, (change / release.sensitivity[0]).min())
    assert reached == pytest.approx(1.0)


@every_loss
def test_records_beyond_the_bounds_are_cut_off(loss):
    """Of a public b_j, whatever the records: here they are far larger."""
    problem = problem_of(100.0 * features(), loss, declared=False)
    H = problem.loss.smoothness
    bounds = H * RADIUS**2
    found = clipped_squares(problem.dataset, problem.loss, bounds)
    assert (found <= bounds).all() and (found > 0.5 * bounds).all()


@every_loss
@every_adjacency
def test_noise_and_floor_are_those_of_the_formula(loss, adjacency):
    problem, epsilon, n, p = problem_of(features(), loss), 3.0, 20, 3
    budget = Budget(epsilon, 1e-6, adjacency)
    shares = smoothness_releases(problem, "private", "auto", adjacency)
    mechanisms = shared_mechanisms(shares, budget, ("a",))
    b = problem.loss.smoothness * RADIUS**2
    expected = p * b / (n * 0.1 * epsilon)
    np.testing.assert_allclose(mechanisms["smoothness"].scale[0], expected)
    made = with_constants(problem, "private", "auto", mechanisms).smoothness
    assert (made.columns >= expected * (1 - 1e-12)).all()


def test_floors_are_reached_and_left():
    names = tuple(map(str, range(200)))
    columns = released(problem_of(features()), 1.0, names).columns
    floor = columns.min(axis=0)
    at = (columns == floor).mean(axis=0)
    assert ((at > 0.2) & (at < 0.95)).all()


@every_loss
def test_without_a_budget_they_are_those_of_the_data(loss):
    problem = problem_of(features(), loss)
    exact = problem.with_smoothness("data").smoothness.columns
    made = released(problem, "inf", ("a", "b")).columns
    np.testing.assert_allclose(made, np.tile(exact, (2, 1)), rtol=1e-13)


def test_a_large_budget_comes_near_the_data():
    problem = problem_of(features(n=4000))
    exact = problem.with_smoothness("data").smoothness.columns
    made = released(problem, 10.0, tuple(map(str, range(50)))).columns
    np.testing.assert_allclose(made.mean(axis=0), exact, rtol=0.02)
    assert np.abs(made / exact - 1.0).max() < 0.1


def test_every_trial_has_its_own_and_keeps_it_in_any_batch():
    problem = problem_of(features(n=4000))
    both = released(problem, 1.0, ("a", "b")).columns
    turned = released(problem, 1.0, ("c", "b", "a")).columns
    np.testing.assert_array_equal(both, turned[[2, 1]])
    assert not np.allclose(both[0], both[1], rtol=1e-6)


def test_other_kinds_release_nothing():
    problem = problem_of(features())
    for kind in ("auto", "public", "data"):
        assert smoothness_releases(problem, kind, "auto", Adjacency.ZERO_OUT) == ()
        kept = with_constants(problem, kind, "auto", shared_mechanisms((), None, "a"))
        assert kept.smoothness.kind == ("public" if kind == "auto" else kind)


def audit(source, adjacency=Adjacency.REPLACE_ONE, scaled=1.0):
    """Publish the constants of two neighbours, the second with the first's answers."""
    X = features()
    X[0] = RADIUS
    other = X.copy()
    other[0] = 0.0
    seen, budget = [], Budget(2.0, 1e-6, adjacency)

    def side(problem):
        shares = smoothness_releases(problem, "private", source, adjacency)
        for release in shares:
            object.__setattr__(release, "sensitivity", scaled * release.sensitivity)

        def run(mechanisms):
            made = with_constants(problem, "private", source, mechanisms)
            return [made.smoothness.columns]

        return shared_mechanisms(shares, budget, ("a", "b")), run

    for problem in (problem_of(X), problem_of(other)):
        seen += side(problem)
    return replay_audit(*seen)


@every_adjacency
def test_the_audit_sees_the_release_and_finds_it_sound(adjacency):
    report = audit("declared", adjacency)
    assert report.violations() == []
    assert report.ratios == {"smoothness": pytest.approx(1.0)}


def test_the_audit_finds_a_sensitivity_that_is_too_small():
    found = audit("declared", scaled=0.5).violations()
    assert found == ["release smoothness differs by 2 times its declared sensitivity"]


def test_bounds_of_the_data_are_seen_to_depend_on_them():
    """Why they are listed as uncharged: the scale of the noise is not public."""
    report = audit("data")
    assert "sensitivities depend on the data" in report.violations()
