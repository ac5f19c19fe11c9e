"""Test methods that publish one answer: sensitivities, laws, refusals."""

import math

import numpy as np
import pytest
from scipy import stats

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import NotSolved, Unsupported
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.oracles import DenseOracle
from dp_erm_bench.problems.erm.perturbed import Minimiser
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.solvers import one_solve
from dp_erm_bench.solvers.approximate_minima_perturbation import (
    ApproximateMinimaPerturbation,
)
from dp_erm_bench.solvers.objective_perturbation import ObjectivePerturbation
from dp_erm_bench.solvers.output_perturbation import OutputPerturbation
from dp_erm_bench.solvers.permutation_sgd import PermutationSGD
from tests.loops import each
from tests.solvers.cases import solve

BOTH = list(Adjacency)
SOLVED = (OutputPerturbation, ObjectivePerturbation, ApproximateMinimaPerturbation)


def unit_problem(n=1000, p=4, l2=0.01, loss="logistic", X=None, y=None, **parts):
    """A problem whose records have norm at most 1, as declared."""
    rng = np.random.default_rng(2)
    if X is None:
        X = rng.normal(size=(n, p))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
        y = np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    bounds = Bounds(np.ones(X.shape[1]), 1.0, 1.0)
    data = dataset_from_arrays(X, y, bounds=bounds)
    penalty = {"name": "l2", "strength": l2} if l2 else "none"
    return build_problem(data, loss, parts.get("penalty", penalty), **_set(parts))


def _set(parts):
    return {"constraint": parts["constraint"]} if "constraint" in parts else {}


def declared(solver, problem, adjacency=Adjacency.REPLACE_ONE):
    return list(solver.releases(problem, adjacency, solver.plan(problem, ["a"])))


def run(solver, problem, epsilon=1.0, delta=1e-6, seed="a", adjacency="replace_one"):
    budget = Budget(epsilon, delta, adjacency)
    return solve(problem, [solver], budget, "certified", [seed], 2)


def test_output_noise_has_the_reference_scales():
    """n = 1000, l2 = .01, Lambda = 1, (1, 1e-6): Delta .2, sigma .844936."""
    problem = unit_problem()
    (release,) = declared(OutputPerturbation(), problem)
    assert release.sensitivity == pytest.approx(0.2, rel=1e-6)
    z = run(OutputPerturbation(), problem).calibration.z
    assert z * 0.2 == pytest.approx(0.844936, rel=1e-5)
    pure = run(OutputPerturbation(noise="gamma"), problem, delta=0).calibration
    assert pure.z * 0.2 == pytest.approx(0.2, rel=1e-6)
    assert pure.accountant == "pure"


@each("adjacency", BOTH)
@each("loss", ["logistic", "huber", "smoothed_hinge"])
@each("parts", [{}, {"constraint": {"name": "l2_ball", "radius": 0.4}}])
def test_no_neighbour_moves_the_minimiser_further(loss, parts, adjacency):
    rng, solver = np.random.default_rng(0), OutputPerturbation()
    problem = unit_problem(n=30, l2=0.2, loss=loss, **parts)
    X, y = problem.dataset.X.copy(), problem.dataset.y.copy()
    (release,) = declared(solver, problem, adjacency)
    exact = solver.minimiser(problem, np.zeros(4), 1e-9)
    ratios = []
    for _ in range(20):
        other = X.copy()
        x = rng.normal(size=4)
        zeroed = adjacency is Adjacency.ZERO_OUT
        other[0] = (
            0.0 if zeroed else -X[0] if rng.random() < 0.5 else x / np.linalg.norm(x)
        )
        moved = unit_problem(X=other, y=y, l2=0.2, loss=loss, **parts)
        far = np.linalg.norm(solver.minimiser(moved, np.zeros(4), 1e-9) - exact)
        ratios.append(far / release.sensitivity.item())
    assert 0.0 < max(ratios) <= 1.0


@pytest.mark.parametrize("adjacency", BOTH)
def test_the_sensitivity_is_attained_where_the_loss_is_linear(adjacency):
    solver = OutputPerturbation()
    here, there = np.zeros((5, 1)), np.zeros((5, 1))
    here[0], there[0] = 1.0, (-1.0 if adjacency is Adjacency.REPLACE_ONE else 0.0)
    w, v = (
        solver.minimiser(
            unit_problem(X=X, y=np.ones(5), l2=2.0, loss="smoothed_hinge"),
            np.zeros(1),
            1e-9,
        )
        for X in (here, there)
    )
    problem = unit_problem(X=here, y=np.ones(5), l2=2.0, loss="smoothed_hinge")
    (release,) = declared(solver, problem, adjacency)
    assert np.abs(w - v).item() == pytest.approx(release.sensitivity.item(), rel=1e-6)


@pytest.mark.parametrize("cls", SOLVED)
def test_problems_without_strong_convexity_are_refused(cls):
    with pytest.raises(Unsupported, match="needs strong convexity.*ridge"):
        run(cls(), unit_problem(l2=0.0))
    assert np.isfinite(run(cls(ridge=0.1), unit_problem(l2=0.0)).rows.w).all()


@pytest.mark.parametrize("cls", SOLVED)
def test_problems_without_declared_bounds_are_refused(cls):
    rng = np.random.default_rng(0)
    data = dataset_from_arrays(rng.normal(size=(50, 3)), np.sign(rng.normal(size=50)))
    problem = build_problem(data, "logistic", {"name": "l2", "strength": 0.1})
    with pytest.raises(Unsupported, match="declared bounds"):
        run(cls(), problem)
    assert run(cls(), problem, epsilon="inf").rows.w.any()


@pytest.mark.parametrize("cls", SOLVED)
def test_an_answer_that_is_not_verified_is_not_published(cls, monkeypatch):
    rough = Minimiser(np.zeros(unit_problem().p), 1.0)
    monkeypatch.setattr(one_solve, "minimise_perturbed", lambda *given: rough)
    with pytest.raises(NotSolved, match="nothing is published"):
        run(cls(), unit_problem())


@pytest.mark.parametrize("cls", SOLVED)
def test_noisy_answers_stay_in_the_set(cls):
    ball = {"name": "l2_ball", "radius": 0.5}
    w = run(cls(ridge=0.5), unit_problem(n=50, constraint=ball), epsilon=0.3).rows.w
    assert np.linalg.norm(w) <= 0.5 * (1 + 1e-12)


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
def test_the_published_minimiser_has_its_exact_law(noise):
    """In one dimension b = -(sum phi'(x w) x + n l2 w) is the noise."""
    X, y, l2, z = np.array([[0.8], [0.0]]), np.ones(2), 0.7, 1.3
    problem = unit_problem(X=X, y=y, l2=l2)
    solver = ObjectivePerturbation(noise=noise)
    releases = declared(solver, problem, Adjacency.ZERO_OUT)
    found = []
    for k in range(1500):
        mechanisms = make_mechanisms(releases, z, [f"trial {k}"])
        oracle = DenseOracle(problem, 1)
        found.append(solver.answer(oracle, mechanisms, None).item())
    w = np.array(found)
    b = -(-0.8 / (1 + np.exp(0.8 * w)) + 2 * l2 * w)
    law = stats.norm if noise == "gaussian" else stats.laplace
    assert stats.kstest(b / z, law.cdf).pvalue > 1e-4


def test_objective_noise_has_the_reference_numbers():
    """n = 1000, logistic: ridge of the sum 10, beta .25; under replace_one 2 terms."""
    problem = unit_problem()
    gaussian, _ = declared(ObjectivePerturbation(), problem)
    assert gaussian.sensitivity == pytest.approx(2.0)
    assert (gaussian.curvature, gaussian.terms) == (math.log1p(0.025), 2)
    pure, _ = declared(
        ObjectivePerturbation(noise="gamma"), problem, Adjacency.ZERO_OUT
    )
    assert pure.sensitivity == pytest.approx(1.0)
    assert pure.law().level(2.0) == pytest.approx(math.log1p(0.025) + 0.5)
    bent = ObjectivePerturbation(ridge=0.03)
    assert declared(bent, problem)[0].curvature == pytest.approx(math.log1p(0.25 / 40))


def test_too_small_a_ridge_is_refused_with_what_it_costs():
    with pytest.raises(Unsupported, match="costs an epsilon of 1.25 .* larger ridge"):
        run(ObjectivePerturbation(), unit_problem(l2=1e-4), epsilon=1.0)


@pytest.mark.parametrize("noise", ["gaussian", "gamma"])
@pytest.mark.parametrize("tolerance", [1e-8, 1e-3, 10.0])
def test_the_distance_to_the_minimiser_is_covered(tolerance, noise, monkeypatch):
    """A point within the tolerance may spell out a record in its low digits."""
    problem = unit_problem(n=200, l2=0.5)
    solver = ObjectivePerturbation(noise=noise, tolerance=tolerance)
    objective, output = declared(solver, problem)
    assert output.sensitivity == 2 * tolerance
    z = run(solver, problem).calibration.z
    pure = objective.law().level(z)
    assert (pure is None) == (noise == "gaussian")
    assert pure is None or pure + 1 / (z * output.weight) <= 1.0 + 1e-9

    def spelled(problem, linear, ridge, reach, start):
        return Minimiser(reach * problem.dataset.X[0] + 0.25, reach)

    monkeypatch.setattr(one_solve, "minimise_perturbed", spelled)
    ends = [run(solver, problem, seed=f"{k}").rows.w[0] for k in range(200)]
    far = np.array(ends) - 0.25 - tolerance * problem.dataset.X[0]
    unit = far / (z * output.weight * 2 * tolerance)
    law = stats.chi2(4) if noise == "gaussian" else stats.gamma(4)
    size = (unit**2).sum(axis=1)
    size = size if noise == "gaussian" else np.sqrt(size)
    assert stats.kstest(size, law.cdf).pvalue > 1e-4


def test_the_default_tolerance_costs_little():
    problem = unit_problem(n=20_000, l2=1e-3)
    for noise, most in (("gaussian", 1.0005), ("gamma", 1.004)):
        solver = ObjectivePerturbation(noise=noise)
        budget, releases = Budget(1.0, 1e-8), declared(solver, problem)
        events = tuple(release.law() for release in releases)
        alone, whole = (calibrate(e, budget).z for e in (events[:1], events))
        assert alone < whole < most * alone
        # What a record can move the minimiser by, at most, against the distance.
        moved = releases[0].sensitivity.item() / (problem.n * 1e-3)
        output = releases[1]
        assert output.weight * output.sensitivity < 1e-3 * moved


def test_zeros_stay_zeros():
    penalty = {"name": "elastic_net", "strength": 0.1, "l1_ratio": 0.2}
    problem = unit_problem(p=30, penalty=penalty)
    for noise in ("gaussian", "gamma"):
        w = run(ObjectivePerturbation(noise=noise), problem, epsilon=5.0).rows.w
        assert 0 < np.count_nonzero(w) < 30


def test_approximate_minima_charge_twice_the_distance():
    problem = unit_problem()
    objective, output = declared(ApproximateMinimaPerturbation(gradient=1e-4), problem)
    assert output.sensitivity == pytest.approx(2 * 1e-4 / 0.01)
    assert output.law().weight == 10.0
    assert objective.law().name == "objective"
    default = declared(ApproximateMinimaPerturbation(), problem)[1]
    assert default.sensitivity == pytest.approx(2e-6 / 0.01)


def test_the_corrected_output_noise_costs_little():
    problem = unit_problem()
    whole = run(ApproximateMinimaPerturbation(), problem).calibration
    alone = run(ObjectivePerturbation(), problem).calibration
    assert whole.epsilon_certified <= 1.0
    assert alone.z < whole.z < 1.01 * alone.z


@pytest.mark.parametrize("adjacency", BOTH)
@pytest.mark.parametrize("cls", SOLVED)
def test_less_noise_comes_nearer(cls, adjacency):
    problem = unit_problem(n=400, l2=0.05)
    gaps = []
    for epsilon in (0.5, 50.0):
        ends = [
            run(cls(), problem, epsilon, seed=f"{k}", adjacency=adjacency).rows
            for k in range(8)
        ]
        gaps.append(np.mean([rows.objective[-1][0] for rows in ends]))
    best = problem.optimum.value
    assert best < gaps[1] < gaps[0]
    assert gaps[1] - best < 0.2 * (gaps[0] - best)


def brute_growth(solver, problem):
    """The recursion of the docstring, place by place."""
    b = problem.n if solver.batch_size == "full" else solver.batch_size
    m, sizes = math.ceil(problem.n / b), solver.sizes(problem)
    worst = 0.0
    for place in range(m):
        far = 0.0
        for t, size in enumerate(sizes):
            far += size / b if t % m == place else 0.0
            far /= 1.0 + size * problem.penalty.l2
        worst = max(worst, far)
    return worst


@each("l2", [0.0, 0.3])
@each("batch", [1, 7, "full"])
@each("decay", [0.0, 0.4])
def test_growth_is_the_recursion(l2, batch, decay):
    problem = unit_problem(n=20, l2=l2)
    solver = PermutationSGD(passes=3, batch_size=batch, decay=decay, step=0.7)
    assert solver.growth(problem) == pytest.approx(brute_growth(solver, problem))


def test_growth_is_the_published_one():
    """Wu et al.: 2 k eta L / b; Zhang et al.: 2 eta L T / n."""
    problem = unit_problem(n=100, l2=0.0)
    eta = 0.5 / 0.25
    for batch, shown in ((1, 1), (4, 4), ("full", 100)):
        solver = PermutationSGD(passes=6, batch_size=batch, step=0.5)
        (release,) = declared(solver, problem)
        assert release.sensitivity == pytest.approx(2 * 6 * eta / shown)


@each("adjacency", BOTH)
@each("clip", [None, 0.3])
@each("batch", [1, 3, "full"])
@each("step", [0.3, 2.0])
def test_no_neighbour_moves_the_last_iterate_further(step, batch, clip, adjacency):
    rng = np.random.default_rng(1)
    solver = PermutationSGD(passes=4, batch_size=batch, step=step, clip=clip)
    problem = unit_problem(n=12, l2=0.1)
    X, y = problem.dataset.X.copy(), problem.dataset.y.copy()
    (release,) = declared(solver, problem, adjacency)

    def last(made):
        mechanisms = make_mechanisms([release], 0.0, ["a"])
        return solver.answer(DenseOracle(made, 1), mechanisms, solver.plan(made, ["a"]))

    here, ratios = last(problem), []
    for record in range(12):
        other, flipped = X.copy(), y.copy()
        if adjacency is Adjacency.ZERO_OUT:
            other[record] = 0.0
        else:
            flipped[record] *= -1.0
            other[record] *= rng.choice([0.5, 1.0])
        there = last(unit_problem(X=other, y=flipped, l2=0.1))
        ratios.append(np.linalg.norm(here - there) / release.sensitivity.item())
    assert 0.02 < max(ratios) <= 1.0


def test_its_bound_is_attained_where_the_loss_is_linear():
    X = np.zeros((6, 1))
    X[0] = 1.0
    pair = [
        unit_problem(X=s * X, y=np.ones(6), l2=0.0, loss="smoothed_hinge")
        for s in (1, -1)
    ]
    solver = PermutationSGD(passes=3, step=1e-3)
    (release,) = declared(solver, pair[0])
    ends = []
    for problem in pair:
        mechanisms = make_mechanisms([release], 0.0, ["a"])
        schedule = solver.plan(problem, ["a"])
        ends.append(solver.answer(DenseOracle(problem, 1), mechanisms, schedule).item())
    assert abs(ends[0] - ends[1]) == pytest.approx(release.sensitivity.item(), rel=1e-9)


@pytest.mark.parametrize("batch", [1, 7, "full"])
def test_without_passes_it_stays_at_the_start(batch):
    problem, solver = unit_problem(n=20), PermutationSGD(passes=0, batch_size=batch)
    releases = declared(solver, problem)
    schedule = solver.plan(problem, ["a"])
    mechanisms = make_mechanisms(releases, 0.0, ["a"])
    assert not solver.answer(DenseOracle(problem, 1), mechanisms, schedule).any()


def test_compiled_steps_are_those_of_plain_python():
    problem = unit_problem(n=11, l2=0.2)
    solver = PermutationSGD(passes=2, batch_size=3, step=1.5, decay=0.1, clip=0.4)
    (release,) = declared(solver, problem)
    schedule = solver.plan(problem, ["a"])
    mechanisms = make_mechanisms([release], 0.0, ["a"])
    fast = solver.answer(DenseOracle(problem, 1), mechanisms, schedule)
    w, sizes, t = np.zeros(4), solver.sizes(problem), 0
    X, y = problem.dataset.X, problem.dataset.y
    for _ in range(2):
        for first in range(0, 11, 3):
            rows = schedule[0][first : first + 3]
            g = X[rows] * problem.loss.derivative(y[rows], X[rows] @ w)[:, None]
            lengths = np.linalg.norm(g, axis=1, keepdims=True)
            g *= np.minimum(1.0, 0.4 / np.maximum(lengths, 1e-300))
            w = problem.penalty.prox(w - sizes[t] * g.sum(axis=0) / 3, sizes[t])
            t += 1
    np.testing.assert_allclose(fast[0], w, rtol=1e-10)


def test_permutations_are_of_the_trial_and_without_data():
    problem, other = unit_problem(n=50), unit_problem(n=50, l2=0.5)
    solver = PermutationSGD()
    first = solver.plan(problem, ["a", "b"])
    np.testing.assert_array_equal(first, solver.plan(other, ["a", "b"]))
    assert (np.sort(first, axis=1) == np.arange(50)).all()
    assert (first[0] != first[1]).any()


def test_a_step_that_expands_is_refused():
    with pytest.raises(ValueError, match="step=2.1: must be a number > 0 and <= 2"):
        PermutationSGD(step=2.1)
    rng = np.random.default_rng(0)
    data = dataset_from_arrays(rng.normal(size=(9, 2)), np.sign(rng.normal(size=9)))
    with pytest.raises(Unsupported, match="needs declared bounds"):
        run(PermutationSGD(clip=1.0), build_problem(data, "logistic", "none"))


def test_only_the_start_and_the_answer_are_recorded():
    rows = run(PermutationSGD(passes=5), unit_problem()).rows
    assert rows.iteration == [0, 1]
    assert rows.passes == [0.0, 5.0]
    assert rows.objective[0][0] == pytest.approx(math.log(2))


@pytest.mark.parametrize("cls", [*SOLVED, PermutationSGD])
def test_noisy_answers_stay_in_the_box(cls):
    """Else the objective would be infinite."""
    problem = unit_problem(n=50)
    box = {"name": "box", "lower": -0.1, "upper": 0.2}
    boxed = build_problem(problem.dataset, "logistic", box)
    given = {} if cls is PermutationSGD else {"ridge": 0.5}
    solved = run(cls(**given), boxed, epsilon=1.0)
    assert (solved.rows.w >= -0.1).all() and (solved.rows.w <= 0.2).all()
    assert np.isfinite(solved.rows.objective[-1]).all()
