"""Test that constants and the optimum are computed again only after a change."""

import dataclasses
import itertools
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import sparse

from dp_erm_bench import fit, load_problem, problem_from_arrays, registry
from dp_erm_bench.datasets.base import Bounds, Dataset, compute_once
from dp_erm_bench.experiment.lines import FitLine
from dp_erm_bench.penalties.base import Penalty, SeparablePenalty
from dp_erm_bench.problems.erm import objective
from dp_erm_bench.problems.erm import problem as problems
from dp_erm_bench.problems.erm.objective import ReleasedSmoothness
from dp_erm_bench.problems.erm.perturbed import minimise_perturbed
from dp_erm_bench.problems.erm.problem import ERMProblem
from dp_erm_bench.runner import execute
from dp_erm_bench.solvers.output_perturbation import OutputPerturbation

COUNTED = [
    *((objective, name) for name in ("_largest_eigenvalue", "mean_squares_of")),
    *((objective, name) for name in ("largest_of_columns", "_clipped_squares")),
    (problems, "certified_optimum"),
]
BUDGET = {"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace_one"}
SEEDS = itertools.count()
every_storage = pytest.mark.parametrize("form", [np.asfortranarray, sparse.csc_array])


@pytest.fixture
def calls(monkeypatch):
    """How often each function was called."""
    count = Counter()

    def counted(name, compute):
        def counting(*given):
            count[name] += 1
            return compute(*given)

        return counting

    for module, name in COUNTED:
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    return count


def arrays(n=40, p=5, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, p)) < 0.7, rng.uniform(-1.0, 1.0, (n, p)), 0.0)
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=n) > 0.0, 1.0, -1.0)


def own_problem(form=np.asfortranarray, **given):
    X, y = arrays()
    given = {"loss": "logistic", "penalty": "l2", "strength": 0.1, **given}
    return problem_from_arrays(form(X), y, **given)


def writable_problem(X, y):
    data = Dataset("toy", X, y, None, f"{X.sum()}")
    loss, penalty = registry.build("loss", "logistic"), registry.build("penalty", "l2")
    space = registry.build("constraint", "none")
    return ERMProblem(data, loss, dataclasses.replace(penalty, strength=0.1), space)


def batches(algorithm, count=4, size=3, **params):
    """Trials on a loaded dataset of this test alone, in batches."""
    problem = load_problem("log1", n=70, p=6, seed=next(SEEDS))
    line = FitLine(algorithm, problem, params, BUDGET, "certified")
    trials = [line.setting().trial(seed, 5) for seed in range(count * size)]
    return [trials[k : k + size] for k in range(0, len(trials), size)]


@pytest.mark.parametrize(
    ("algorithm", "constant"),
    [
        ("gd", "_largest_eigenvalue"),
        ("sgd", "_largest_eigenvalue"),
        ("random_cd", "mean_squares_of"),
        ("greedy_cd", "mean_squares_of"),
    ],
)
def test_batches_of_a_process_compute_them_once(algorithm, constant, calls):
    numbers = set()
    for batch in batches(algorithm, clip=1.0):
        for record in execute.run_batch(batch):
            assert record["status"] == "ok", record["message"]
            numbers.add(record["facts"]["optimum"])
    assert calls[constant] == calls["certified_optimum"] == len(numbers) == 1


def test_seeds_share_the_minimiser_that_output_perturbation_publishes(monkeypatch):
    solved = []
    minimiser = OutputPerturbation.minimiser

    def counting(self, problem, linear, *how):
        solved.append(self.ridge)
        return minimiser(self, problem, linear, *how)

    monkeypatch.setattr(OutputPerturbation, "minimiser", counting)
    problem = own_problem(bounds={"columns": 3.0, "norm": 5.0})
    how = {"epsilon": 1.0, "delta": 1e-6}
    ends = {
        fit(problem, "output_perturbation", seed=seed, ridge=ridge, **how).w.tobytes()
        for ridge in (0.1, 0.2)
        for seed in range(3)
    }
    assert solved == [0.1, 0.2] and len(ends) == 6


def test_private_constants_are_exact_once_and_noisy_anew(calls):
    ends = set()
    for batch in batches("random_cd", clip=1.0, passes=1.0, smoothness="private"):
        for record in execute.run_batch(batch):
            assert record["status"] == "ok", record["message"]
            ends.add(record["trajectory"]["objective"][-1])
    assert len(ends) == 12
    assert calls["_clipped_squares"] == calls["largest_of_columns"] == 1
    assert calls["certified_optimum"] == 1


@every_storage
def test_fits_share_them(form, calls):
    problem, how = own_problem(form), {"epsilon": 1.0, "clip": 1.0}
    for seed in range(3):
        found = fit(problem, "gd", seed=seed, n_iter=2, **how)
        fit(problem, "random_cd", seed=seed, passes=1.0, **how)
        # Nobody has read a trajectory of it yet.
        assert calls["certified_optimum"] == min(seed, 1)
        assert np.isfinite(found.trajectory["relative_error"]).all()
    assert set(calls.values()) == {1} and len(calls) == 3


@every_storage
def test_each_released_noise_is_another(form, monkeypatch, calls):
    seen = []
    init = ReleasedSmoothness.__init__

    def listening(self, columns, source):
        seen.append(columns)
        init(self, columns, source)

    monkeypatch.setattr(ReleasedSmoothness, "__init__", listening)
    problem = own_problem(form)
    for seed in (0, 1, 0):
        how = {"clip": 1.0, "passes": 1.0, "smoothness": "private"}
        fit(problem, "random_cd", epsilon=100.0, seed=seed, **how)
    assert (seen[0] != seen[1]).any()
    np.testing.assert_array_equal(seen[0], seen[2])
    assert calls["_clipped_squares"] == 1


def test_values_are_those_of_nothing_kept():
    for form in (np.asfortranarray, sparse.csc_array):
        problem = own_problem(form)
        for _ in range(2):
            constants, X = problem.with_smoothness("data").smoothness, problem.dataset.X
            exact = 0.25 * objective.mean_squares_of(X)
            np.testing.assert_array_equal(constants.columns, exact)
            assert constants.norm == 0.25 * objective._largest_eigenvalue(X)


def test_nobody_can_change_what_is_kept():
    problem = own_problem()
    first = problem.with_smoothness("data").smoothness.columns
    first *= 7.0
    again = problem.with_smoothness("data").smoothness.columns
    np.testing.assert_array_equal(7.0 * again, first)
    with pytest.raises(ValueError, match="read-only"):
        problem.largest_records()[0][0] = 1.0
    bounds, _ = problem.square_bounds("data")
    with pytest.raises(ValueError, match="read-only"):
        problem.clipped_squares(bounds)[0] = 1.0


@pytest.mark.parametrize(
    "changed",
    [
        {"penalty": registry.build("penalty", "l2", strength=0.3)},
        {"loss": registry.build("loss", "huber", kappa=0.5)},
        {"constraint": registry.build("constraint", "l2_ball", radius=0.1)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_problem_with_another_part_has_another_optimum(changed, calls):
    problem = own_problem().with_smoothness("data")
    before = problem.optimum.value
    other = dataclasses.replace(problem, **changed)
    assert other.origin is None
    for kind in ("data", "auto"):
        found = other.with_smoothness(kind).optimum
        assert found.value != before and found.gap <= 1e-9
        assert other.value(found.w) == pytest.approx(found.value, rel=1e-14)
    assert calls["certified_optimum"] == 2


def test_a_loss_with_other_constants_scales_the_same_eigenvalue(calls):
    problem = own_problem(loss={"name": "smoothed_hinge", "h": 0.5})
    other = dataclasses.replace(problem, loss=registry.build("loss", "logistic"))
    constants = [p.with_smoothness("data").smoothness for p in (problem, other)]
    H = [p.loss.smoothness for p in (problem, other)]
    assert H[0] != H[1]
    assert constants[0].norm / H[0] == pytest.approx(constants[1].norm / H[1])
    assert calls["_largest_eigenvalue"] == 1


@dataclasses.dataclass(frozen=True)
class Weighted(Penalty):
    """sum_j weight_j w_j^2 / 2, its weights an array that can be written to."""

    name: ClassVar[str] = "weighted"
    weights: Any = None

    @property
    def strong_convexity(self):
        return float(self.weights.min())

    def value(self, w):
        return 0.5 * (self.weights * np.square(w)).sum(axis=-1)

    def prox(self, v, step):
        return v / (1.0 + step * self.weights)

    def dual_distance(self, w, u):
        h = self.weights
        return 1.0, float((np.square(h * w - u) / (2.0 * h)).sum())


@pytest.mark.parametrize("penalty", [SeparablePenalty(l2=0.1), Weighted(np.ones(5))])
def test_a_part_that_was_changed_in_place_has_another_optimum(penalty):
    problem = own_problem(penalty=penalty, strength=None)
    before = problem.with_smoothness("data").optimum
    if isinstance(penalty, Weighted):
        assert problem.with_smoothness("data").optimum is before
        penalty.weights[:] = 0.5
    else:
        penalty.l2 = 0.5
    after = problem.with_smoothness("data").optimum
    assert after.gap <= 1e-9 and after.value != before.value
    assert problem.value(after.w) == pytest.approx(after.value, rel=1e-12)


def test_another_datasets_constants_are_its_own(calls):
    problem = own_problem()
    norm = problem.with_smoothness("data").smoothness.norm
    X = np.asfortranarray(2.0 * problem.dataset.X)
    X.flags.writeable = False
    doubled = dataclasses.replace(problem.dataset, X=X)
    other = dataclasses.replace(problem, dataset=doubled)
    found = other.with_smoothness("data").smoothness
    assert found.norm == pytest.approx(4.0 * norm)
    assert calls["_largest_eigenvalue"] == 2


def test_other_declared_bounds_give_other_public_constants_and_clips(calls):
    problem = own_problem(bounds={"columns": 1.0})
    wide = Bounds(np.full(5, 3.0), 9.0, None)
    narrow = Bounds(np.full(5, 0.1), 1.0, None)
    for bounds in (wide, narrow, wide):
        data = dataclasses.replace(problem.dataset, bounds=bounds)
        other = dataclasses.replace(problem, dataset=data)
        public = other.with_smoothness("public").smoothness
        assert public.norm == 0.25 * bounds.norm**2
        np.testing.assert_array_equal(public.columns, 0.25 * bounds.columns**2)
        terms = np.minimum(0.25 * problem.dataset.X**2, 0.25 * bounds.columns**2)
        # The same features: what is kept was clipped to others' bounds.
        found = problem.clipped_squares(other.square_bounds("declared")[0])
        np.testing.assert_allclose(found, terms.mean(axis=0), rtol=1e-14)
    assert calls["_clipped_squares"] == 3


def test_a_clip_that_is_changed_in_place_is_another():
    problem, bounds = own_problem(), np.full(5, 1.0)
    before = problem.clipped_squares(bounds)
    bounds *= 0.01
    assert (problem.clipped_squares(bounds) < before).all()


@every_storage
@pytest.mark.parametrize("viewed", [False, True])
def test_nothing_is_kept_of_features_that_can_be_written_to(form, viewed, calls):
    X, y = arrays()
    features = form(X)
    part = features if isinstance(features, np.ndarray) else features.data
    if viewed and part is features:
        features = part[:]
        features.flags.writeable = False
    elif viewed:
        features.data = part[:]
        features.data.flags.writeable = False
    problem = writable_problem(features, y)
    before = problem.with_smoothness("data")
    norm, M, optimum = before.smoothness.norm, before.smoothness.columns, before.optimum
    part *= 3.0
    after = problem.with_smoothness("data")
    assert after.smoothness.norm == pytest.approx(9.0 * norm)
    np.testing.assert_allclose(after.smoothness.columns, 9.0 * M)
    assert not problem.dataset.derived
    assert calls["_largest_eigenvalue"] == 2
    # Its certificate holds for the features as they are, whatever the file says.
    assert after.optimum.value != optimum.value
    best = after.optimum
    assert problem.value(best.w) == pytest.approx(best.value, rel=1e-12)


def test_labels_that_can_be_written_to_give_no_stale_optimum():
    X, y = arrays()
    X = np.asfortranarray(X)
    X.flags.writeable = False
    problem = writable_problem(X, y)
    before = problem.with_smoothness("data").optimum
    y *= np.where(np.arange(y.size) < 10, -1.0, 1.0)
    assert problem.with_smoothness("data").optimum.value != before.value


def test_memory_does_not_grow_with_fits_or_clips():
    problem, held = own_problem(), []
    for k in range(5):
        how = {"epsilon": 1.0 + k, "clip": 1.0, "seed": k}
        fit(problem, "gd", n_iter=1, **how)
        fit(problem, "random_cd", passes=1.0, smoothness="private", **how)
        problem.clipped_squares(np.full(5, 0.1 + k))
        held.append((len(problem.dataset.derived), sorted(vars(problem))))
    assert held == held[:1] * 5
    assert held[0][0] == 3  # one value of each function


def test_a_value_that_is_no_array_is_kept_too():
    data, asked = own_problem().dataset, []

    def shape(X, factor):
        asked.append(factor)
        return X.shape[0] * factor

    assert [compute_once(data, shape, k) for k in (1.0, 1.0, 2.0, 1.0)] == [
        40,
        40,
        80,
        40,
    ]
    assert asked == [1.0, 2.0, 1.0]


@pytest.mark.parametrize("penalty", [SeparablePenalty(l2=0.1), Weighted(np.ones(5))])
def test_no_minimiser_is_stale(penalty):
    problem = own_problem(penalty=penalty, strength=None)
    solver = OutputPerturbation(ridge=0.1)
    before = solver.exact(problem)
    if isinstance(penalty, Weighted):
        penalty.weights[:] = 0.5
    else:
        penalty.l2 = 0.5
    expected = minimise_perturbed(problem, np.zeros(5), 0.1, 1e-9).w
    assert not np.allclose(before[0], expected, rtol=0.1)
    np.testing.assert_allclose(solver.exact(problem)[0], expected, atol=1e-8)


def test_penalties_that_numpy_prints_alike_have_keys_of_their_own():
    weights = np.full(2000, 0.5)
    nearly = weights.copy()
    nearly[1000] += 1e-12
    problem = writable_problem(np.eye(2, 2000), np.array([1.0, -1.0]))
    keys = {
        dataclasses.replace(problem, penalty=Weighted(one)).key
        for one in (weights, nearly, weights.copy())
    }
    assert len(keys) == 2
