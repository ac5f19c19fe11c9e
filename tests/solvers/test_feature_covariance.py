"""Test gradient descent in a published metric: its limit, noise and faults."""

import math
from itertools import chain

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.sparse import csc_array

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.contract.candidate import candidate_of, run_at
from dp_erm_bench.contract.cases import Case, params_of
from dp_erm_bench.contract.problems import small_problem, well_conditioned_problem
from dp_erm_bench.contract.replay import replay_cases
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.build import erm_from_arrays
from dp_erm_bench.problems.erm.second_order import Geometry, unpack_symmetric
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.gaussian import Gaussian, gdp_delta
from dp_erm_bench.run import Run
from dp_erm_bench.solvers import feature_covariance as fc
from dp_erm_bench.solvers.feature_covariance import FeatureCovariance
from tests.loops import each
from tests.privacy.replaying import replay_audit

REPLACE, ZERO = Adjacency
RNG = np.random.default_rng(6)
X = RNG.normal(size=(80, 5)) * (RNG.random((80, 5)) < 0.7) @ np.diag([1, 2, 3, 1, 0.2])
SIGNS = np.where(X @ RNG.normal(size=5) + RNG.normal(size=80) > 0.0, 1.0, -1.0)
L2 = {"penalty": "l2", "strength": 0.03, "bounds": {"columns": 12.0}}
MODES = ("euclidean", "covariance")


@each("form", [np.asarray, csc_array])
@each("clip_in", MODES)
@each("clip", [None, 0.3])
def test_steps_without_noise_are_those_of_numpy(form, clip_in, clip):
    problem = erm_from_arrays(form(X), SIGNS, loss="logistic", **L2)
    solver = FeatureCovariance(n_iter=3, clip_in=clip_in, clip=clip, step=0.9)
    found = run_at(problem, [solver] * 2, z=0.0, identities="ab").iterates()
    P = np.linalg.inv(X.T @ X / 320 + 0.03 * np.eye(5))
    w = np.zeros(5)
    for t in range(4):
        np.testing.assert_allclose(found[t], [w, w], rtol=1e-10, atol=1e-13)
        each_one = X * (-SIGNS / (1.0 + np.exp(SIGNS * (X @ w))))[:, None]
        metric = np.eye(5) if clip_in == "euclidean" else P
        length = np.sqrt(np.einsum("ij,jk,ik->i", each_one, metric, each_one))
        short = np.minimum(1.0, (clip or math.inf) / np.maximum(length, 1e-300))
        g = (each_one * short[:, None]).sum(axis=0) / 80 + 0.03 * w
        w = w - 0.9 * P @ g


def mu_of(epsilon, delta):
    return brentq(lambda mu: gdp_delta(epsilon, mu) - delta, 1e-6, 50, xtol=1e-15)


@each("adjacency, pairs, signs", [(REPLACE, math.sqrt(2.0), 2.0), (ZERO, 1.0, 1.0)])
@each("clip_in", MODES)
def test_noise_follows_from_the_budget_in_closed_form(adjacency, pairs, signs, clip_in):
    problem, budget = (
        well_conditioned_problem("logistic", "l2"),
        Budget(1.0, 1e-6, adjacency),
    )
    solver = FeatureCovariance(n_iter=9, clip_in=clip_in, share=0.2, clip=0.8)
    made, mu = Run(problem, [solver], budget).declare().mechanisms, mu_of(1.0, 1e-6)
    R = problem.dataset.bounds.norm
    expected = math.sqrt(1 / 0.2) * pairs * R * R / mu
    assert made["covariance"].scale.item() == pytest.approx(expected, rel=1e-9)
    # In units of the threshold.
    expected = math.sqrt(9 / 0.8) * signs / mu
    assert made["gradient"].scale.item() == pytest.approx(expected, rel=1e-9)


@each("clip_in", MODES)
@each("clip", [None, 0.5])
@each("z", [0.01, 5.0])
def test_steps_follow_from_what_was_published(clip_in, clip, z):
    problem, p, told = well_conditioned_problem("logistic", "l2"), 8, {}
    n, own, R = problem.n, problem.penalty.strong_convexity, problem.dataset.bounds.norm

    def listen(mechanisms):
        for mechanism in mechanisms.values():
            mechanism.intercept = lambda query, publish: told.setdefault(
                query.name, publish()
            )

    solver = FeatureCovariance(n_iter=1, clip_in=clip_in, clip=clip, floor=0.7)
    run = run_at(problem, [solver], z=z, listen=listen)
    w, s = run.iterates()[-1][0], run.mechanisms["covariance"].scale.item()
    values, V = np.linalg.eigh(unpack_symmetric(told["covariance"][0], p))
    d = np.maximum(values, 0.7 * s * math.sqrt(p)) / 4 / n + own
    answer = told["gradient"][0] / n
    if clip_in == "euclidean":
        expected = -V @ (V.T @ answer / d) * (clip or R)
    else:
        # Q is known but for signs of its columns: they are those of the answer.
        C = clip or R / math.sqrt(d.min())
        made = fc.FeatureCovariance.geometry
        Q = made(solver, run.oracle(), {"covariance": Replayed(told, s)})[0][0]
        np.testing.assert_allclose(Q @ Q.T, V @ np.diag(1 / d) @ V.T, rtol=1e-8)
        expected = -Q @ answer * C
    np.testing.assert_allclose(w, expected, rtol=1e-8)


class Replayed:
    """A mechanism that answers what was told."""

    def __init__(self, told, s):
        self.told, self.scale = told, np.array([[s]])

    def __call__(self, query):
        return self.told["covariance"]


@each(
    "given, words",
    [
        ({"loss": "absolute"}, "loss=absolute is not smooth: FeatureCovariance needs"),
        ({"penalty": "l1"}, "penalty=l1: FeatureCovariance needs penalty none or l2"),
        ({"bounds": None}, "FeatureCovariance needs declared bounds (dataset.bounds"),
    ],
)
def test_what_it_cannot_serve_is_refused_in_a_sentence(given, words):
    problem = erm_from_arrays(X, SIGNS, **{"loss": "logistic", **L2, **given})
    reason = FeatureCovariance().refusal(problem)
    assert words in reason and "\n" not in reason


def test_a_singular_geometry_is_refused_without_noise_alone():
    problem = erm_from_arrays(
        np.column_stack([X, X[:, 0]]),
        SIGNS,
        loss="logistic",
        penalty="none",
        bounds={"columns": 12.0},
    )
    for clip_in in MODES:
        solver = FeatureCovariance(n_iter=2, clip_in=clip_in)
        with pytest.raises(Unsupported, match="X'X is singular"):
            run_at(problem, [solver], z=0.0).iterates()
        assert np.isfinite(run_at(problem, [solver], z=5.0).iterates()).all()


def test_a_threshold_that_overflows_is_one_all_the_same():
    """G R |Q|, which is known after Q, is no float: the sum is charged for in it."""
    runs = []
    for label in (1e150, -1e150):
        problem = erm_from_arrays(
            1e-3 * X,
            np.append(label, SIGNS[1:]),
            loss={"name": "huber", "kappa": 1e307},
            penalty="none",
            bounds={"columns": 0.012, "label": 1e150},
        )
        solver = FeatureCovariance(n_iter=1, clip_in="covariance", floor=1e-4)
        runs.append(run_at(problem, [solver], z=1.0))
    one, two = runs
    report = replay_audit(
        *(one.mechanisms, lambda _: one.iterates()),
        *(two.mechanisms, lambda _: two.iterates()),
    )
    assert report.violations() == []


def test_records_that_are_declared_to_be_zero_move_nothing():
    problem = small_problem("logistic", "none", p=1, dead=0)
    for clip_in in MODES:
        for clip in (None, 1.0):
            solver = FeatureCovariance(n_iter=3, clip_in=clip_in, clip=clip)
            assert not np.any(run_at(problem, [solver], z=5.0).iterates())


FAMILIES = {
    REPLACE: ("outlier", "interior", "corners 3", "corners 4"),
    ZERO: ("outlier", "interior", "corners 0"),
}


def accusations(solver):
    """What replays on a few neighbours find."""
    candidate, own = candidate_of(type(solver)), params_of(solver)
    cases = [
        Case(own, ("logistic", "l2", "none"), family, adjacency, z=z, strength=0.02)
        for adjacency, families in FAMILIES.items()
        for family in families
        for z in (30.0, 0.1)
    ]
    # One by one: the first that is found is enough.
    for result in chain.from_iterable(replay_cases(candidate, [one]) for one in cases):
        assert not result.refusal
        yield from result.all


def solver_of(kind=FeatureCovariance, clip_in="covariance", clip=1.0):
    return kind(n_iter=2, clip_in=clip_in, clip=clip)


def test_sound_ones_are_not_accused():
    for clip_in in MODES:
        for clip in (None, 1.0):
            assert list(accusations(solver_of(clip_in=clip_in, clip=clip))) == []


class OfTheData(FeatureCovariance):
    """Pays for the covariance, and uses the exact one."""

    def geometry(self, oracle, mechanisms):
        mechanisms["covariance"](fc.outer_products(oracle))
        exact = Replayed({"covariance": fc.outer_products(oracle)}, 1.0)
        return super().geometry(oracle, {"covariance": exact})


class EuclideanLengths(FeatureCovariance):
    """Clips |g| to C, and publishes Q'g as if it were as short."""

    def geometry(self, oracle, mechanisms):
        Q, _, bound = super().geometry(oracle, mechanisms)
        plain = Geometry(oracle, np.stack([np.eye(Q.shape[1])] * len(Q)))
        return Q, lambda C: (plain.clipped_sum(C)[:, None] @ Q)[:, 0], bound


class LongestOfTheData(FeatureCovariance):
    """Without a threshold: the longest record's, not what follows from bounds."""

    def geometry(self, oracle, mechanisms):
        Q, sums, bound = super().geometry(oracle, mechanisms)
        return Q, sums, sums.__self__.lengths.max(axis=1, keepdims=True)


class FloorOfTheData(FeatureCovariance):
    """A floor by the exact matrix' size."""

    def geometry(self, oracle, mechanisms):
        covariance = mechanisms["covariance"]
        told = {"covariance": covariance(fc.outer_products(oracle))}
        s = np.abs(fc.outer_products(oracle)).max()
        return super().geometry(oracle, {"covariance": Replayed(told, s)})


class LengthsOfTheData(FeatureCovariance):
    """Clips in the geometry of the exact covariance."""

    def geometry(self, oracle, mechanisms):
        Q, sums, bound = super().geometry(oracle, mechanisms)
        X, n = oracle.problem.dataset.rows, oracle.problem.n
        values, V = np.linalg.eigh(X.T @ X / n)
        own = oracle.problem.penalty.strong_convexity
        images = X @ (V / np.sqrt(np.maximum(values, 0.0) / 4 + own))
        sums.__self__.lengths[:] = np.linalg.norm(images, axis=1)
        return Q, sums, bound


class InItsOwnUnits(FeatureCovariance):
    """A sum that is charged for in units of C, and is not in them."""

    def stepper(self, oracle, mechanisms):
        paid, C = mechanisms["gradient"], float(np.max(self.clip))
        given = {**mechanisms, "gradient": lambda total: paid(C * total) / C}
        return super().stepper(oracle, given)


class OverN(FeatureCovariance):
    """The sensitivities of means, for sums."""

    def releases(self, problem, adjacency, schedule):
        for one in super().releases(problem, adjacency, schedule):
            part = problem.n if one.name == "covariance" else 1.0
            yield Gaussian(one.name, one.sensitivity / part, one.times, one.weight)


@each(
    "fault",
    [
        solver_of(FloorOfTheData),
        solver_of(LengthsOfTheData),
        solver_of(InItsOwnUnits, clip=3.0),
        solver_of(OverN),
        solver_of(OfTheData),
        solver_of(OfTheData, "euclidean"),
        solver_of(EuclideanLengths),
        solver_of(LongestOfTheData, clip=None),
    ],
)
def test_planted_faults_are_found(fault):
    assert next(accusations(fault), None), fault


def test_sqrt_2_that_is_forgotten_is_found(monkeypatch):
    def half(problem, adjacency):
        return problem.dataset.bounds.norm**2

    monkeypatch.setattr(fc, "outer_change", half)
    assert next(accusations(solver_of()), None)
