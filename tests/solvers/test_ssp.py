"""Test least squares from noisy moments: exact limit, ridges, faults."""

import math
from itertools import chain

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.sparse import csc_array

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.candidate import candidate_of, run_at
from dp_erm_bench.contract.cases import Case, params_of
from dp_erm_bench.contract.problems import well_conditioned_problem
from dp_erm_bench.contract.replay import replay_cases
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.problems.erm.build import erm_from_arrays
from dp_erm_bench.problems.erm.second_order import unpack_symmetric
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.gaussian import Gaussian, gdp_delta
from dp_erm_bench.run import Run
from dp_erm_bench.solvers import ssp
from dp_erm_bench.solvers.ssp import SufficientStatistics
from tests.loops import each
from tests.privacy.replaying import replay_audit

REPLACE, ZERO = Adjacency
RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 5)) * (RNG.random((60, 5)) < 0.7)
Y = X @ RNG.normal(size=5) + 0.2 * RNG.normal(size=60)
BOUNDS = {"columns": 5.0, "norm": 8.0, "label": 9.0}
L2 = {"penalty": "l2", "strength": 0.03, "bounds": BOUNDS}


def mu_of(epsilon, delta):
    return brentq(lambda mu: gdp_delta(epsilon, mu) - delta, 1e-6, 50, xtol=1e-15)


@each("form", [np.asarray, csc_array])
@each("ridge", [0.5, "adaptive"])
def test_without_noise_it_is_the_solution_of_the_normal_equations(form, ridge):
    solver = SufficientStatistics(ridge=ridge, parabola=0.07)
    eye = np.eye(5)
    for loss, y, bend, slope in (
        ("squared", Y, 1.0, 1.0),
        ("logistic", np.sign(Y), 0.14, 0.5),
    ):
        problem = erm_from_arrays(form(X), y, loss=loss, **L2)
        found = run_at(problem, [solver] * 2, z=0.0, identities="ab").iterates()[-1]
        # Rows of a ridge are records more.
        A = np.vstack([math.sqrt(bend) * X, math.sqrt(60 * 0.03) * eye])
        b = np.concatenate([slope / math.sqrt(bend) * y, np.zeros(5)])
        expected = np.linalg.lstsq(A, b, rcond=None)[0]
        np.testing.assert_allclose(found, [expected] * 2, rtol=1e-10)


@each(
    "adjacency, share, square",
    [
        (REPLACE, 0.5, 2.25),
        (REPLACE, 0.8, 2.0 + 0.04 / 1.6),
        (REPLACE, 0.2, 3.2),  # b^2 > 2 a^2: opposite labels of one record
        (ZERO, 0.5, 1.0),
    ],
)
def test_noise_follows_from_the_budget_in_closed_form(adjacency, share, square):
    problem, budget = (
        well_conditioned_problem("squared", "l2"),
        Budget(1.0, 1e-6, adjacency),
    )
    run = Run(problem, [SufficientStatistics(share=share)], budget).declare()
    mu = mu_of(1.0, 1e-6)
    scale = run.mechanisms["moments"].scale.item()
    assert scale == pytest.approx(math.sqrt(square) / mu, rel=1e-9)
    run = Run(problem, [SufficientStatistics(share=share, ridge="adaptive")], budget)
    made, R = run.declare().mechanisms, problem.dataset.bounds.norm
    expected = math.sqrt(1.5 * square) / mu
    assert made["moments"].scale.item() == pytest.approx(expected, rel=1e-9)
    expected = math.sqrt(3.0) * R**2 / mu
    assert made["smallest"].scale.item() == pytest.approx(expected, rel=1e-9)


def answered(solver, problem, z):
    """A run with what its mechanisms answered."""
    told = {}

    def listen(mechanisms):
        for mechanism in mechanisms.values():
            mechanism.intercept = lambda query, publish: told.setdefault(
                query.name, publish()
            )

    run = run_at(problem, [solver], z=z, listen=listen)
    return run.iterates()[-1][0], told, run.mechanisms


@each("z", [0.01, 1.0])
@each("ridge", [0.5, "identity", "adaptive"])
def test_the_solution_is_a_function_of_what_was_published(ridge, z):
    problem, p = well_conditioned_problem("squared", "l2"), 8
    R, n = problem.dataset.bounds.norm, problem.n
    solver = SufficientStatistics(ridge=ridge, share=0.4)
    w, told, made = answered(solver, problem, z)
    row, u, v = told["moments"][0], math.sqrt(0.4) / R**2, math.sqrt(0.6) / R
    values, V = np.linalg.eigh(unpack_symmetric(row[:-p] / u, p))
    s = made["moments"].scale.item() / u
    if ridge == "adaptive":
        least = told["smallest"][0]
        least -= math.sqrt(2 * math.log(20)) * made["smallest"].scale.item()
        bound = s * math.sqrt(p * math.log(2 * p * p / 0.05))
        added, values = max(bound - max(least, 0.0), 0.0), np.maximum(values, s)
        assert (added > 0.0) == (z == 1.0)
    else:
        added = R**2 if ridge == "identity" else 0.5 * math.sqrt(p) * s
        values = np.maximum(values, 0.0)
    d = values + added + n * problem.penalty.strong_convexity
    np.testing.assert_allclose(w, V @ ((V.T @ row[-p:]) / v / d), rtol=1e-9)


@each(
    "given, words",
    [
        (
            {"loss": "huber"},
            "loss=huber: SufficientStatistics needs loss squared or logistic",
        ),
        ({"penalty": "l1"}, "SufficientStatistics needs penalty none or l2"),
        (
            {"constraint": {"name": "l2_ball", "radius": 1.0}, "penalty": "none"},
            "constraint=l2_ball: SufficientStatistics does not keep its iterates",
        ),
        ({"bounds": None}, "needs declared bounds (dataset.bounds"),
        ({"bounds": {"columns": 5.0}}, "needs a bound of the label"),
    ],
)
def test_what_it_cannot_serve_is_refused_in_a_sentence(given, words):
    given = {"loss": "squared", **L2, **given}
    if given["penalty"] == "none":
        del given["strength"]
    reason = SufficientStatistics().refusal(erm_from_arrays(X, Y, **given))
    assert words in reason and "\n" not in reason


@each("name, value", [("share", 0.0), ("share", 1.0), ("ridge", 0.0), ("ridge", "no")])
def test_wrong_parameters_are_refused(name, value):
    with pytest.raises(UsageError, match=f"{name}={value}: must be a number > 0"):
        SufficientStatistics(**{name: value})


def test_a_singular_matrix_is_refused_without_noise_alone():
    copies = np.column_stack([X, X[:, 0]])
    problem = erm_from_arrays(copies, Y, loss="squared", penalty="none", bounds=BOUNDS)
    with pytest.raises(Unsupported, match="X'X is singular"):
        run_at(problem, [SufficientStatistics()], z=0.0).iterates()
    assert np.isfinite(run_at(problem, [SufficientStatistics()]).iterates()).all()


def moved(adjacency, R=2.0, label=3.0):
    """What the worst records move the moments by, over what is declared."""
    x, z = R * np.array([1.0, 0.0]), R * np.array([0.5, math.sqrt(0.75)])
    worst = [(x, label), (z, -label) if adjacency is REPLACE else (0.0 * x, 0.0)]
    runs = []
    for record, y in worst:
        problem = erm_from_arrays(
            np.array([record, 0.0 * x]),
            np.array([y, 0.0]),
            loss="squared",
            bounds={"columns": R, "norm": R, "label": label},
        )
        runs.append(run_at(problem, [SufficientStatistics()], adjacency=adjacency))
    one, two = runs
    report = replay_audit(
        *(one.mechanisms, lambda _: one.iterates()),
        *(two.mechanisms, lambda _: two.iterates()),
    )
    return report.ratios["moments"]


@each("adjacency", Adjacency)
def test_the_worst_records_move_the_moments_by_all_that_is_declared(adjacency):
    assert moved(adjacency) == pytest.approx(1.0, rel=1e-9)
    for forgotten in ("label_bound", "record_bound"):
        with pytest.MonkeyPatch.context() as one:
            one.setattr(ssp, forgotten, lambda problem: 1.0)
            assert moved(adjacency) > 1.5


FAMILIES = {
    REPLACE: ("outlier", "interior", "corners 3", "corners 4", "one column"),
    ZERO: ("outlier", "interior", "corners 0"),
}


def accusations(solver):
    """What replays on a few neighbours find, of both losses and adjacencies."""
    candidate, own = candidate_of(type(solver)), params_of(solver)
    cases = [
        Case(own, (loss, "l2", "none"), family, adjacency, z=z)
        for loss in ("squared", "logistic")
        for adjacency, families in FAMILIES.items()
        for family in families
        for z in (30.0, 0.1)
    ]
    # One by one: the first that is found is enough.
    for result in chain.from_iterable(replay_cases(candidate, [one]) for one in cases):
        assert not result.refusal
        yield from result.all


def test_a_sound_one_is_not_accused():
    for ridge in (0.5, "identity", "adaptive"):
        assert list(accusations(SufficientStatistics(ridge=ridge))) == []


EXACT = ssp.outer_products


def doubled(oracle):
    """X'X with what is off the diagonal times 2, not sqrt 2."""
    i, j = np.triu_indices(oracle.problem.p)
    return EXACT(oracle) * np.where(i == j, 1.0, math.sqrt(2.0))


def labels_unpaid(self, oracle):
    """The scale of X'y as it is."""
    exact = np.abs(ssp.label_products(oracle)).sum()
    return np.full(oracle.batch, 1.0 + exact), 1.0


FAULTS = {
    "half of the worst angle's term is forgotten": (
        ssp,
        "moments_change",
        lambda _, adjacency, a, b: adjacency.of_sum(math.hypot(a, b), positive=True),
    ),
    "sqrt 2 is forgotten": (
        ssp,
        "moments_change",
        lambda _, adjacency, a, b: math.hypot(a, b),
    ),
    "the matrix is off the diagonal times 2": (ssp, "outer_products", doubled),
    "X'y is not paid": (SufficientStatistics, "parts", labels_unpaid),
    "the ridge is from the data": (
        SufficientStatistics,
        "ridges",
        lambda self, gram, s, *_: s + gram[:, 0],
    ),
    "the bound is from the data": (
        ssp,
        "record_bound",
        lambda problem: float(problem.dataset.row_norms.max()),
    ),
}


@each("fault", FAULTS)
def test_planted_faults_are_found(fault):
    with pytest.MonkeyPatch.context() as one:
        one.setattr(*FAULTS[fault])
        assert next(accusations(SufficientStatistics()), None), fault


def test_an_eigenvalue_of_a_mean_that_is_one_of_a_sum_is_found(monkeypatch):
    """Of one column it moves by R^2."""
    sound = SufficientStatistics.releases

    def releases(self, problem, *given):
        for one in sound(self, problem, *given):
            part = problem.n if one.name == "smallest" else 1.0
            yield Gaussian(one.name, one.sensitivity / part, one.times, one.weight)

    monkeypatch.setattr(SufficientStatistics, "releases", releases)
    assert next(accusations(SufficientStatistics(ridge="adaptive")), None)


def test_an_eigenvalue_that_is_not_paid_is_found(monkeypatch):
    def exact(self, gram, s, mechanisms, p, *_):
        mechanisms["smallest"](np.zeros(len(gram)))
        least = ssp.eigen_decomposition(unpack_symmetric(gram[0], p))[0][0]
        return np.maximum(2.0 * s - least, 0.0)

    monkeypatch.setattr(SufficientStatistics, "ridges", exact)
    assert next(accusations(SufficientStatistics(ridge="adaptive")), None)
