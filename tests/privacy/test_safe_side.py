"""Test that accountants get rates, counts and tolerances exact or rounded up."""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest

from dp_erm_bench.accounting import calibration
from dp_erm_bench.accounting.bounds import rdp_epsilon
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import certify
from dp_erm_bench.accounting.repeated import largest_count
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import SLACK, dataset_from_arrays
from dp_erm_bench.errors import NotSampled, NotSolved
from dp_erm_bench.problems.erm import perturbed
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.problems.erm.optimum.steps import PerturbedSteps
from dp_erm_bench.problems.erm.perturbed import Minimiser, minimise_perturbed
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussian
from dp_erm_bench.releases.gaussian import GaussianLaw, gdp_delta
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian
from dp_erm_bench.releases.single_use_gaussian import SingleUseGaussian, SingleUseLaw
from dp_erm_bench.solvers import one_solve
from dp_erm_bench.solvers.greedy_cd import _spread_of_scores
from dp_erm_bench.solvers.output_perturbation import OutputPerturbation
from dp_erm_bench.solvers.sgd import SGD
from dp_erm_bench.solvers.svrg import SVRG
from dp_erm_bench.trust.epsilons import proved_epsilon
from dp_erm_bench.trust.recount import uses_of
from tests.loops import each
from tests.penalties.stationary import subdifferential_distance
from tests.privacy.made import LAWS, law_of

REPLACE, ZERO = Adjacency
ORDERS = np.array([1.5, 2.0, 3.5, 6.0])
DEARER = {
    **dict.fromkeys(("rate", "spread", "curvature"), 1 + 1e-9),
    **dict.fromkeys(("weight", "gamma"), 1 - 1e-9),
}
"""How numbers of laws are made a little dearer."""
COUNTS = {"times": 1, "fresh": 1, "records": -1, "rows": -1, "steps": -1}
FACTS = {
    "poisson_gaussian": {"rate": 1 / 300},
    "fixed_size_gaussian": {"rate": 1 / 300},
    "allocation_gaussian": {"steps": 300},
    "single_use": {"fresh": 333_333, "records": 1_000_003},
    "pure": {"spread": 4 / 3},
    "objective": {"curvature": 1 / 3},
    "objective_pure": {"curvature": 1 / 3},
    "sketched_gaussian": {"rows": 997},
    "repeat_and_select": {"gamma": 1 / 7},
}


def costs(law):
    """Return all that a law says of its uses at z = 3, as numbers that grow with it."""
    found = {"curve": law.times * law.rdp(3.0, ORDERS).sum()}
    if (level := law.level(3.0)) is not None:
        found["level"] = law.times * level
    if law.profiled:
        found["delta"] = law.times * law.delta(0.5, 3.0, 0.0)
    if law.sampled:
        pair = law.dominating(3.0, REPLACE, 1e-12)
        losses, masses, _ = pair.losses(2.0**-12, 1e-12, False)
        found = {"losses": law.times * float(masses @ np.maximum(losses, 0.0))}
    return found


@each("kind", sorted(LAWS))
def test_laws_resolve_every_number_that_they_are_told(kind):
    """A number that is a little dearer costs more; what is rounded down does not."""
    law, told = law_of(kind, 1, **FACTS.get(kind, {})), set()
    for name in {field.name for field in dataclasses.fields(law)} & {*DEARER, *COUNTS}:
        value = getattr(law, name)
        other = value * DEARER[name] if name in DEARER else value + COUNTS[name]
        before, after = costs(law), costs(dataclasses.replace(law, **{name: other}))
        assert all(after[what] > before[what] for what in before), name
        told.add(name)
    assert {"times", "weight", *FACTS.get(kind, ())} <= told


@each("mechanism", [PoissonGaussian, FixedSizeGaussian, SingleUseGaussian])
@each(("m", "n"), [(1, 300), (7, 1003), (2, 3), (199, 200)])
def test_the_share_that_is_read_is_the_share_that_is_charged(mechanism, m, n):
    """Read off the mechanism after its use, and counted again by the twin."""
    facts = {"rate": m / n}
    if mechanism is SingleUseGaussian:
        facts = {"fresh": m, "records": n}
    release = mechanism("sum", 1.0, 1, **facts)
    (made,) = make_mechanisms([release], 1.5, ["a"]).values()
    if mechanism is SingleUseGaussian:
        made.next_records(0, m)
    else:
        _, offsets = made.sample(0, n, 1)
        if mechanism is FixedSizeGaussian:
            assert offsets[-1] == m
    made(np.zeros((1, 1)))
    made.finish()
    (use,) = uses_of({"sum": made})
    law: Any = release.law()
    assert law.sampling_rate() == m / n
    assert getattr(use, "share", None) or use.rate == m / n
    if mechanism is SingleUseGaussian:
        proof = certify((law,), 1.5, 1e-6, ZERO)
        again = proved_epsilon([use], 1e-6, ZERO, proof.accountant)
        assert again == pytest.approx(proof.epsilon, rel=1e-4)
        exact = m / n * gdp_delta(proof.epsilon, 1 / 1.5)
        assert exact == pytest.approx(1e-6, rel=1e-9)


def test_no_more_records_are_drawn_than_a_fixed_size_is_charged_for():
    n = 1_000_000
    for rate, taken in (
        (1 / n, 1),
        (3 / n, 3),
        ((1 - 1e-4) / n, 0),
        ((3 - 1e-9) / n, 0),
    ):
        release = FixedSizeGaussian("sum", 1.0, 1, rate=rate)
        (made,) = make_mechanisms([release], 1.0, ["a"]).values()
        if taken:
            assert made.size(n) == taken
        else:
            with pytest.raises(
                NotSampled, match="no whole number of the 1000000 records"
            ):
                made.size(n)


def wide(p, penalty="l2"):
    """A strongly convex problem of many features, whose records have norm 1."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(30, p))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(rng.random(30) < 0.5, 1.0, -1.0)
    data = dataset_from_arrays(X, y, bounds=Bounds(np.ones(p), 1.0, 1.0))
    psi = {"name": penalty, "strength": 0.05}
    return build_problem(data, "logistic", psi), rng.normal(size=p)


@each("kind", [SGD, SVRG])
def test_solvers_declare_the_rate_of_their_batches(kind):
    problem, _ = wide(3)
    solver = kind(batch_size=7, clip=1.0)
    releases = solver.releases(problem, REPLACE, solver.plan(problem, ["a"]))
    assert {one.rate for one in releases if hasattr(one, "rate")} == {7 / 30}


@each("p", [1, 1000])
@each("penalty", ["l2", "elastic_net"])
@each("tolerance", [1e-3, 1e-9])
def test_no_point_beyond_the_tolerance_is_a_minimiser(
    p, penalty, tolerance, monkeypatch
):
    """Of any number of features: the tolerance is a distance, not one of an entry."""
    problem, linear = wide(p, penalty)
    solver = OutputPerturbation()
    for far, raises in ((1.0, False), (1 + 1e-9, True), (2.0, True), (math.nan, True)):
        near = Minimiser(np.zeros(p), far * tolerance)
        monkeypatch.setattr(one_solve, "minimise_perturbed", lambda *_, near=near: near)
        if not raises:
            assert solver.minimiser(problem, linear, tolerance).shape == (1, p)
            continue
        with pytest.raises(NotSolved, match="nothing is published"):
            solver.minimiser(problem, linear, tolerance)


@each("p", [1, 30, 1000])
@each("penalty", ["l2", "elastic_net"])
@each("tolerance", [1.0, 1e-2, 1e-6])
@each("rough", [False, True])
def test_the_distance_of_a_point_is_that_of_its_subgradient(
    p, penalty, tolerance, rough, monkeypatch
):
    """norm2 of a subgradient over the modulus, whoever finds the point."""
    problem, linear = wide(p, penalty)
    ridge = 0.1
    with monkeypatch.context() as patched:
        if rough:  # Newton's method ends at rounding; this one ends early.
            start = 0.1 * np.random.default_rng(0).normal(size=p)
            patched.setattr(perturbed, "newton_minimiser", lambda *_: (start, 0))
        found = [minimise_perturbed(problem, linear, ridge, tolerance)]
    steps = PerturbedSteps(problem, linear, ridge)
    found += [
        steps.point_after(w) for w in np.random.default_rng(1).normal(size=(5, p))
    ]
    for near in found:
        g = problem.gradient(near.w) + ridge * near.w + linear
        least = np.linalg.norm(subdifferential_distance(problem.penalty, g, near.w))
        assert near.distance * steps.modulus >= least * (1 - 1e-6) - 1e-13
    exact = minimise_perturbed(problem, linear, ridge, 1e-11)
    for near in found:
        away = np.linalg.norm(near.w - exact.w)
        assert away <= near.distance + exact.distance + 1e-12


def test_declared_bounds_are_exceeded_by_rounding_alone():
    x = np.array([[0.6, 0.8], [0.0, 1.0]])
    assert SLACK <= 1 + 1e-12
    for far, refused in ((1.0, False), (1 + 3e-12, True)):
        bounds = Bounds(np.full(2, 2.0), 1.0, 1.0)
        if refused:
            with pytest.raises(ValueError, match="a record exceeds the"):
                dataset_from_arrays(far * x, np.ones(2), bounds=bounds)
        else:
            dataset_from_arrays(far * x, np.ones(2), bounds=bounds)


@each("spread", [1.0, 1 + 5e-13, 4 / 3, 1e3 / 3])
def test_a_spread_is_rounded_up(spread):
    found = _spread_of_scores(np.array([[spread, 1.0, 0.0]]))
    assert spread <= found <= spread + 2e-9


@each("steps", [0, 1, 2, 3, 7, 64, 100])
def test_a_prefix_is_the_longest_that_the_budget_pays_for(steps):
    for paid in range(steps + 1):
        assert largest_count(lambda count, paid=paid: count <= paid, steps) == paid


def test_calibrations_that_differ_in_a_last_bit_are_kept_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("DP_ERM_BENCH_CACHE", str(tmp_path))
    calibration._load_calibration.cache_clear()
    up = math.nextafter(1.0, 2.0)
    asked = [
        (weight, Budget(epsilon, delta))
        for weight, epsilon, delta in (
            (1.0, 1.0, 1e-6),
            (up, 1.0, 1e-6),
            (1.0, up, 1e-6),
            (1.0, 1.0, math.nextafter(1e-6, 1.0)),
        )
    ]
    found = [calibrate((GaussianLaw(3, weight),), budget) for weight, budget in asked]
    files = list((tmp_path / "calibration").iterdir())
    assert len(files) == len(asked)
    kept = {json.loads(file.read_text())["z"] for file in files}
    assert kept == {one.z for one in found}
    calibration._load_calibration.cache_clear()


def test_what_the_accountants_prove_is_not_rounded_down():
    """Against the exact profile, at the epsilon that is certified."""
    for m, n, delta in ((1, 3, 1e-6), (333, 1000, 1e-9), (1, 10**6, 1e-8)):
        law = SingleUseLaw(1, 1.0, m, n)
        proof = certify((law,), 0.7, delta, ZERO)
        assert m / n * gdp_delta(proof.epsilon, 1 / 0.7) <= delta * (1 + 1e-12)
        assert proof.epsilon <= rdp_epsilon((law,), 0.7, delta)
