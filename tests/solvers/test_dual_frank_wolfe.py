"""Test dual Frank-Wolfe: points, gap, sensitivity, and broken copies."""

import dataclasses
import math

import numpy as np
import pytest

from dp_erm_bench import fit, problem_from_arrays
from dp_erm_bench.contract import suite
from dp_erm_bench.contract.problems import small_problem
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.perturbed import (
    maximise_shifted_dual,
    minimise_perturbed,
    without_norm,
)
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.solvers.bounds import norm_bound
from dp_erm_bench.solvers.dual_frank_wolfe import DualFrankWolfe, vertices_of
from dp_erm_bench.solvers.output_perturbation import OutputPerturbation
from dp_erm_bench.solvers.terms import Gaussian
from tests.twins.checks import Narrow

INFINITE, NAME = math.inf, "dual_frank_wolfe"
CHOSEN, STRONG = {"release": "selection"}, 3.0
REFERENCE = {"count": ([0.437124, -0.365886], 0.148190)}
REFERENCE |= {"one": ([0.461204, -0.449164], 0.127814)}


def small(function="count", loss="squared", **parts):
    """Three records, the modulus 0.1; minimised by hand for two norms."""
    X = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, -1.0]])
    y = np.array([1.0, -0.5, 0.25] if loss == "squared" else [1.0, -1.0, 1.0])
    psi = {"name": "cardinality", "function": function, "strength": 0.05, "l2": 0.1}
    return problem_from_arrays(X, y, loss=loss, **{"penalty": psi, **parts})


def served(n=60, l2=0.1, strength=0.02, p=4, **parts):
    rng = np.random.default_rng(4)
    X = rng.uniform(-1.0, 1.0, (n, p))
    y = np.where(X[:, :3] @ [2.0, -1.0, 0.2] + rng.normal(size=n) > 0.0, 1.0, -1.0)
    psi = {"name": "cardinality", "function": "sqrt", "strength": strength, "l2": l2}
    bounds = {"columns": 1.0, "norm": math.sqrt(p), "label": 1.0}
    given = {"loss": "logistic", "penalty": psi, "bounds": bounds, **parts}
    return problem_from_arrays(X, y, **given)


@pytest.mark.parametrize("function", list(REFERENCE))
@pytest.mark.parametrize(
    ("steps", "n_iter", "near"),
    [("2/(t+2)", 400, 2e-3), ("1/(t+2)", 400, 6e-3), ("line_search", 100, 2e-3)],
)
def test_it_reaches_the_reference_minimum(function, steps, n_iter, near):
    made, (w, value) = small(function), REFERENCE[function]
    found = fit(made, NAME, epsilon=INFINITE, seed=0, n_iter=n_iter, steps=steps)
    np.testing.assert_allclose(found.w, w, atol=near)
    assert made.value(found.w) == pytest.approx(value, abs=1e-5)


def test_the_gap_certifies_each_point_and_falls():
    made = served(strength=0.1)
    solver, gaps, above = DualFrankWolfe(n_iter=200), [], []
    inner = without_norm(made)
    s, kappa, norm = np.zeros(4), made.penalty.strength, made.penalty.norm
    for t in range(200):
        theta = solver.minimiser(inner, s, 1e-9)[0]
        gaps.append(kappa * norm.value(theta) - s @ theta)
        above.append(made.value(theta) - made.optimum.value)
        s = s + 2.0 / (t + 2.0) * (kappa * norm.maximiser(theta) - s)
    assert (np.array(above) <= np.array(gaps) + 1e-12).all()
    assert min(gaps[-20:]) < 1e-2 * gaps[0]
    rows = fit(made, NAME, epsilon=INFINITE, seed=0, n_iter=200).trajectory
    told = rows["dual_gap"].to_numpy()
    assert np.isnan(told[0]) and len(told) > 5
    np.testing.assert_allclose(told[1:], np.array(gaps)[rows.iteration[1:] - 1])


def test_the_first_point_is_without_the_norm_and_the_answer_is_the_mean():
    made = served(strength=0.1)
    one, two = (fit(made, NAME, epsilon=INFINITE, n_iter=k).w for k in (1, 2))
    np.testing.assert_allclose(one, without_norm(made).optimum.w, atol=1e-6)
    s = made.penalty.strength * made.penalty.norm.maximiser(one)
    second = DualFrankWolfe().minimiser(without_norm(made), s, 1e-9)[0]
    np.testing.assert_allclose(two, (one + second) / 2, atol=1e-7)


def test_what_is_published_fixes_the_next_question():
    """The noise of step t moves s_(t+1), and no other use of the data does."""
    made = served(strength=0.1)
    a, b = (fit(made, NAME, epsilon=1.0, seed=k, n_iter=3) for k in (0, 1))
    assert not np.array_equal(a.w, b.w)
    again = fit(made, NAME, epsilon=1.0, seed=0, n_iter=3)
    np.testing.assert_array_equal(a.w, again.w)


@pytest.mark.parametrize("l1", [0.0, 0.05])
def test_separable_penalties_are_served(l1):
    psi = {"name": "elastic_net", "strength": l1 + 0.2, "l1_ratio": l1 / (l1 + 0.2)}
    if l1 == 0.0:
        psi = {"name": "l2", "strength": 0.2}
    made = served(penalty=psi)
    found = fit(made, NAME, epsilon=INFINITE, n_iter=300)
    near = 1e-9 if l1 == 0.0 else 2e-3
    assert 0.0 <= found.trajectory["relative_error"].iloc[-1] + 1e-12 <= near


def test_once_without_a_norm_it_is_output_perturbation():
    made = served(penalty={"name": "l2", "strength": 0.2})
    (mine,) = DualFrankWolfe(n_iter=1).releases(made, Adjacency.REPLACE_ONE, None)
    (other,) = OutputPerturbation().releases(made, Adjacency.REPLACE_ONE, None)
    assert mine.sensitivity == other.sensitivity
    ends = [fit(made, NAME, epsilon=1.0, seed=k, n_iter=1).w for k in range(40)]
    theirs = [
        fit(made, "output_perturbation", epsilon=1.0, seed=k, ridge=0).w
        for k in range(40)
    ]
    assert 0.7 < np.std(ends) / np.std(theirs) < 1.4


@pytest.mark.parametrize(("adjacency", "factor"), [("replace_one", 2), ("zero_out", 1)])
def test_the_scale_is_that_of_the_formula(adjacency, factor):
    """S = factor Lambda / (D n) + 2 tolerance; T uses at S sqrt(T) / mu."""
    made = served(n=50, l2=0.05)
    solver = DualFrankWolfe(ridge=0.15, n_iter=9, tolerance=1e-3)
    (release,) = solver.releases(made, Adjacency(adjacency), None)
    expected = factor * 2.0 / ((0.05 + 0.15) * 50) + 2e-3
    assert release.sensitivity == pytest.approx(expected, rel=1e-12)
    assert release.times == 9
    how = {"epsilon": 1.0, "delta": 1e-6, "adjacency": adjacency}
    found = fit(made, NAME, ridge=0.15, n_iter=9, tolerance=1e-3, **how)
    (law,) = [one.law() for one in found.releases]
    z = 3.0 / 0.236704
    assert law.mu_square(z) == pytest.approx(0.236704**2, rel=1e-6)
    assert found.epsilon_certified == pytest.approx(1.0, rel=1e-4)


def test_no_neighbour_moves_a_point_further():
    rng, solver = np.random.default_rng(0), DualFrankWolfe()
    here = served(n=20, l2=0.02)
    (release,) = solver.releases(here, Adjacency.REPLACE_ONE, None)
    X, y, furthest = here.dataset.X, here.dataset.y, 0.0
    for _ in range(30):
        s = 0.02 * here.penalty.norm.maximiser(rng.normal(size=4))
        other = X.copy()
        other[0] = -X[0] if rng.random() < 0.5 else rng.uniform(-1.0, 1.0, 4)
        parts = {"penalty": here.penalty, "bounds": {"columns": 1.0, "norm": 2.0}}
        there = problem_from_arrays(other, y, loss="logistic", **parts)
        ends = [solver.minimiser(without_norm(m), s, 1e-9) for m in (here, there)]
        far = float(np.linalg.norm(ends[0] - ends[1]))
        furthest = max(furthest, far / release.sensitivity.item())
    assert 0.0 < furthest <= 1.0


@pytest.mark.parametrize(
    ("params", "parts", "words"),
    [
        ({}, {"penalty": {"name": "cardinality", "strength": 0.1}}, "strong convexity"),
        ({}, {"penalty": "none"}, "DualFrankWolfe needs strong convexity"),
        (
            {"steps": "line_search"},
            {},
            "steps=line_search: the privacy budget does not .*finite",
        ),
        (
            {"ridge": 0.1},
            {"penalty": {"name": "box", "lower": -1.0, "upper": 1.0}},
            "penalty=box: dual_frank_wolfe needs penalty none",
        ),
        (
            {},
            {"loss": "squared"},
            "loss=squared: DualFrankWolfe needs a loss with a bounded",
        ),
        ({}, {"bounds": None}, "DualFrankWolfe needs declared bounds"),
    ],
)
def test_what_it_refuses_at_a_finite_epsilon(params, parts, words):
    made = served(**parts)
    with pytest.raises(Unsupported, match=words) as found:
        fit(made, NAME, epsilon=1.0, seed=0, **params)
    assert "\n" not in str(found.value)


def test_a_function_that_cannot_be_checked_is_served():
    class Counted:
        def gains(self, order):
            return np.ones(len(order))

    made = served(
        penalty={"name": "submodular", "values": Counted(), "l2": 0.1, "strength": 0.1}
    )
    found = fit(made, NAME, epsilon=1.0, n_iter=2, seed=0)
    assert found.epsilon_certified <= 1.0 and np.isfinite(found.w).all()


# Selections.


def test_without_noise_a_selection_takes_the_same_steps():
    made = served(strength=0.1)
    points = vertices_of(made)
    assert points.shape == (4 * 3 * 2 * 16, 4)
    chosen = fit(made, NAME, epsilon=INFINITE, n_iter=9, release="selection")
    steps = fit(made, NAME, epsilon=INFINITE, n_iter=10)
    assert chosen.trajectory["dual_gap"].iloc[-1] == pytest.approx(
        steps.trajectory["dual_gap"].iloc[-2]
    )
    last = 10 * steps.w - 9 * fit(made, NAME, epsilon=INFINITE, n_iter=9).w
    np.testing.assert_allclose(chosen.w, last, atol=1e-6)


@pytest.mark.parametrize(("adjacency", "factor"), [("replace_one", 2), ("zero_out", 1)])
def test_scores_and_the_recovery_are_charged(adjacency, factor):
    made = served(n=50, l2=0.05, strength=0.3)
    how = {"n_iter": 7, "ridge": 0.15, "tolerance": 1e-3, "recovery_weight": 3.0}
    solver = DualFrankWolfe(release="selection", **how)
    vertex, point = solver.releases(made, Adjacency(adjacency), None)
    moves = factor * 2.0 / (0.2 * 50) + 2e-3
    assert point.sensitivity == pytest.approx(moves)
    assert (point.times, point.weight, vertex.times) == (1, 3.0, 7)
    sizes = np.linalg.norm(vertices_of(made), axis=1)
    np.testing.assert_allclose(vertex.sensitivity, (sizes * moves)[None, :])
    assert sizes.max() == pytest.approx(0.3 * made.penalty.norm.reach(4))
    found = fit(
        made, NAME, epsilon=1.0, adjacency=adjacency, release="selection", **how
    )
    assert 0.98 < found.epsilon_certified <= 1.0


@pytest.mark.parametrize(
    "psi",
    [
        {"name": "cardinality", "function": "sqrt", "strength": 0.1, "l2": 0.1},
        {"name": "l2", "strength": 0.1},
    ],
)
def test_a_selection_needs_listed_vertices(psi):
    made = served(p=9, penalty=psi)
    words = f"release=selection: penalty={psi['name']} has no norm with a list of 2 "
    with pytest.raises(Unsupported, match=words):
        fit(made, NAME, epsilon=1.0, release="selection")


# Objective perturbation and the dual (Proposition 2).


@pytest.mark.parametrize("ridge", [0.9, 0.5])
def test_the_two_sides_agree_through_the_shifted_set_alone(ridge):
    """norm2(w - a)^2 / 2 of records and ridge, [1, -.3, .2] = a, kappa = .4."""
    a, b = np.array([1.0, -0.3, 0.2]), np.array([0.35, -0.2, -0.5])
    root = math.sqrt(3.0 * (1.0 - ridge))
    psi = {"name": "cardinality", "function": "sqrt", "strength": 0.4}
    X, y = root * np.eye(3), root * a / (1.0 - ridge)
    made = problem_from_arrays(X, y, loss="squared", penalty=psi)
    direct = minimise_perturbed(made, b, ridge, 1e-12).w
    np.testing.assert_allclose(direct, [0.392157, 0.0, 0.392157], atol=1e-6)
    u, theta = maximise_shifted_dual(made, b, ridge)
    np.testing.assert_allclose(theta, direct, atol=1e-9)
    np.testing.assert_allclose(u, a - direct, atol=1e-9)
    assert made.penalty.norm.dual(u - b)[0] <= 0.4 + 1e-9
    unshifted, _ = maximise_shifted_dual(made, np.zeros(3), ridge)
    printed = minimise_perturbed(without_norm(made), unshifted + b, ridge, 0.0).w
    np.testing.assert_allclose(printed, [0.25, 0.065685, 0.572865], atol=1e-6)
    assert np.abs(printed - direct).max() >= 0.1


def test_the_shifted_set_agrees_for_a_loss_that_is_not_quadratic():
    made, b = served(strength=0.1), np.array([0.1, -0.05, 0.0, 0.2])
    _, theta = maximise_shifted_dual(made, b, 0.1)
    direct = minimise_perturbed(made, b, 0.1, 1e-11).w
    np.testing.assert_allclose(theta, direct, atol=1e-9)
    box = served(penalty={"name": "box", "lower": -1.0, "upper": 1.0})
    with pytest.raises(Unsupported, match="penalty=box"):
        maximise_shifted_dual(box, b, 0.1)


# Broken twins.


@dataclasses.dataclass(frozen=True)
class Twin(DualFrankWolfe):
    """Declares as many points as there are, of another sensitivity."""

    def change(self, problem, adjacency):
        raise NotImplementedError

    def releases(self, problem, adjacency, schedule):
        yield Gaussian("minimiser", self.change(problem, adjacency), self.n_iter)


class NoRidge(Twin):
    """Counts the curvature of the data: another data set may have less."""

    def change(self, problem, adjacency):
        hessian = problem.dataset.X.T @ problem.dataset.X / problem.n
        curvature = self.modulus(problem) + float(np.linalg.eigvalsh(hessian)[-1])
        return adjacency.of_mean(norm_bound(problem, None), problem.n) / curvature


class Printed(Twin):
    """1 / n for 2 / (D n), as printed."""

    def change(self, problem, adjacency):
        return norm_bound(problem, None) / problem.n


class ToleranceUnpaid(Twin):
    """Ends within the tolerance of the minimiser, on a side that the data choose."""

    def change(self, problem, adjacency):
        moved = adjacency.of_mean(norm_bound(without_norm(problem), None), problem.n)
        return moved / self.modulus(problem)

    def minimiser(self, problem, linear, tolerance, start=None):
        found = DualFrankWolfe.minimiser(self, problem, linear, 1e-9, start)
        side = np.sign(problem.dataset.X[0].sum()) / np.sqrt(problem.p)
        return found + tolerance * side


class Unpaid(DualFrankWolfe):
    """Declares the selections and not the point that is read off at the end, (13)."""

    def releases(self, problem, adjacency, schedule):
        yield from list(super().releases(problem, adjacency, schedule))[:1]

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        free = {"minimiser": lambda point: point, "vertex": mechanisms["vertex"]}
        return super().iterates(oracle, free, checkpoints, schedule)


class NormsForgotten(DualFrankWolfe):
    """Charges each score as if its vertex had norm 1."""

    def releases(self, problem, adjacency, schedule):
        vertex, point = super().releases(problem, adjacency, schedule)
        moves = np.full_like(vertex.sensitivity, np.max(point.sensitivity))
        yield NoisyMax("vertex", moves, vertex.times)
        yield point


class SearchesTheData(DualFrankWolfe):
    """The mean of noisy points by the parts of a line search.

    The points themselves move no further than declared: no instance is known.
    """

    unbounded_reason = ""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        points, parts = [], []

        def heard(point):
            points.append(mechanisms["minimiser"](point))
            return points[-1]

        def searched(*args):
            parts.append(DualFrankWolfe.part(self, *args))
            return parts[-1]

        object.__setattr__(self, "part", searched)
        free = {"minimiser": heard}
        for w in super().iterates(oracle, free, checkpoints, schedule):
            total = sum(parts)
            seen = zip(parts, points, strict=True)
            yield sum(a * v for a, v in seen) / total if total else w


class WithANorm(Narrow):
    """On the l1 norm, so strong that selections and searches have something to do."""

    def objectives(self):
        return [("logistic", "l1", "none")]

    def problems(self, variant):
        return [small_problem("logistic", "l1")]

    def neighbours(self, family, adjacency, parts, strength):
        return super().neighbours(family, adjacency, parts, STRONG)

    def corners(self, parts, adjacency=Adjacency.REPLACE_ONE, strength=STRONG):
        return super().corners(parts, adjacency, STRONG)


FOUND = {
    NoRidge: ("declarations_know_no_data", {}),
    Printed: ("replay_audit", {"ridge": 0.01}),
    ToleranceUnpaid: ("replay_audit", {"tolerance": 40.0}),
    Unpaid: ("replay_audit", CHOSEN),
    NormsForgotten: ("replay_audit", {**CHOSEN, "ridge": 0.01}),
    SearchesTheData: ("replay_audit", {"steps": "line_search", "ridge": 0.3}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "twin",
    [
        # A line search solves twenty times a step.
        pytest.param(twin, marks=[pytest.mark.slow] if twin is SearchesTheData else [])
        for twin in FOUND
    ],
    ids=lambda twin: twin.__name__,
)
def test_broken_twins_are_found(twin):
    check, preset = found_by(twin)
    assert check.result(WithANorm("twin", twin, preset)).verdict == suite.FAILS


def found_by(twin):
    name, preset = FOUND[twin]
    return next(one for one in suite.CHECKS if one.run.__name__ == name), preset


@pytest.mark.slow
@pytest.mark.parametrize("twin", FOUND, ids=lambda twin: twin.__name__)
def test_the_sound_one_is_not_accused(twin):
    check, preset = found_by(twin)
    sound = WithANorm("sound", DualFrankWolfe, {**preset, "steps": "2/(t+2)"})
    assert check.result(sound).verdict == suite.OK
