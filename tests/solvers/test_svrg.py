"""Test DP-SVRG: its limit, schedule, sensitivities and accounting."""

import functools
import math

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.accounting.certify import certify
from dp_erm_bench.contract.problems import (
    relative_excess,
    small_problem,
    well_conditioned_problem,
)
from dp_erm_bench.problems.erm.oracle import Oracle
from dp_erm_bench.problems.erm.oracles import DenseOracle
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.solvers.svrg import SVRG, correction_bound
from tests.loops import each
from tests.privacy.made import law_of
from tests.solvers.cases import LOSSES, end, run_at

every_loss = pytest.mark.parametrize("loss", LOSSES)


def test_plain_stochastic_steps_of_the_same_size_do_not():
    """The limit that it states is about variance reduction: sgd stops short of it."""
    problem = well_conditioned_problem("logistic", "l2")
    sgd = registry.build("algorithm", "sgd", batch_size=10, n_iter=3200, step=0.2)
    assert relative_excess(problem, end(problem, sgd, 3200)) > 1e-5


@pytest.mark.parametrize("ahead", [False, True])
def test_first_steps_of_an_epoch_follow_the_snapshot(ahead):
    """Without noise, w = u makes the correction zero: a full gradient step."""
    problem = well_conditioned_problem("squared", "l2").with_smoothness("data")
    solver = SVRG(n_inner=4, n_iter=12, batch_size=5, step=0.3)
    run = run_at(problem, [solver], z=0.0, checkpoints=range(13), ahead=ahead)
    w, size = [v[0] for v in run.iterates()], 0.3 / problem.smoothness.norm
    for k in range(12):
        moved = w[k] - size * problem.gradient(w[k])
        full = problem.penalty.prox(moved, size)
        assert np.allclose(w[k + 1], full, rtol=1e-10) == (k % 4 == 0)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("k", [1, 3, 4, 5, 12])
def test_snapshots_are_published_when_an_epoch_begins(ahead, k):
    problem = small_problem("logistic", "l2")
    solver = SVRG(n_inner=4, n_iter=12, batch_size=5, clip=1.0)
    run = run_at(problem, [solver], checkpoints=(0, k), ahead=ahead)
    run.iterates()
    used = {name: made.used for name, made in run.mechanisms.items()}
    assert used == {"snapshot": math.ceil(k / 4), "correction": k}
    declared = {release.name: release.times for release in run.releases}
    assert declared == {"snapshot": 3, "correction": 12}


def counted(monkeypatch, run):
    """Run, and count the record gradients that were asked for."""
    asked = {"sums": 0, "records": 0}
    sums, records = Oracle.clipped_sum, Oracle.record_sum

    def all_records(oracle, clip):
        asked["sums"] += 1
        return sums(oracle, clip)

    def some_records(oracle, trial, chosen, clip):
        asked["records"] += len(chosen)
        return records(oracle, trial, chosen, clip)

    monkeypatch.setattr(DenseOracle, "clipped_sum", all_records)
    monkeypatch.setattr(DenseOracle, "record_sum", some_records)
    run.iterates()
    return asked


def test_passes_count_the_gradients_that_are_computed(monkeypatch):
    problem = small_problem("logistic", "l2")
    solver = SVRG(n_inner=50, n_iter=120, batch_size=10, clip=1.0)
    asked = counted(monkeypatch, run_at(problem, [solver], checkpoints=(0, 120)))
    passes = solver.passes_at(problem, 120)
    assert passes == 3 + 2 * 120 * 10 / 40
    assert asked["sums"] == 3
    read = asked["sums"] + asked["records"] / problem.n
    assert read == pytest.approx(passes, rel=0.1)


@each("batch_size", [1, 7, "full"])
@each("n_inner", [None, 3, 60])
@each("passes", [0.0, 1.0, 1.3, 5.0, 17.0, 40.0])
def test_lengths_use_the_passes_and_no_more(batch_size, n_inner, passes):
    problem = small_problem("logistic", "l2")
    solver = SVRG(passes=passes, batch_size=batch_size, n_inner=n_inner)
    T = solver.iterations(problem)
    assert T >= 0 and solver.passes_at(problem, T) <= passes + 1e-6
    assert T == 0 or solver.passes_at(problem, T + 1) > passes


def test_lengths_by_epochs_and_steps():
    problem = small_problem("logistic", "l2")
    assert SVRG().epoch_length(problem) == 80  # 2 n steps of one record
    assert SVRG(batch_size=10).epoch_length(problem) == 8
    assert SVRG(batch_size="full").epoch_length(problem) == 2
    assert SVRG(n_epochs=3, n_inner=7).iterations(problem) == 21
    assert SVRG(n_epochs=3, n_inner=7, n_iter=4).iterations(problem) == 4
    assert SVRG(passes=10.0).iterations(problem) == 160


# Privacy


def test_reference_numbers_of_the_composition():
    """S = 4, m = 50, q = .05, (z0, z1) = (20, 3), delta = 1e-6; z is scale /
    sensitivity: dp_accounting, which doubles the sensitivity itself, agrees."""
    events = (
        law_of("gaussian", 4, 20.0 / 3.0),
        law_of("poisson_gaussian", 200, rate=0.05),
    )
    for adjacency, epsilon in ((Adjacency.ZERO_OUT, 1.1620), ("replace_one", 1.0881)):
        found = certify(events, 3.0, 1e-6, Adjacency(adjacency))
        assert found.epsilon == pytest.approx(epsilon, rel=1e-4)


def test_the_declared_events_are_those_of_the_composition():
    problem = small_problem("logistic", "l2")
    solver = SVRG(n_epochs=4, n_inner=50, batch_size=2, snapshot_weight=4.0, clip=1.0)
    run = run_at(problem, [solver], checkpoints=(0,))
    snapshot, correction = (release.law() for release in run.releases)
    assert snapshot == law_of("gaussian", 4, 4.0)
    assert correction == law_of("poisson_gaussian", 200, rate=0.05)


@pytest.mark.parametrize(
    "loss, bound",
    [("logistic", 1.0), ("smoothed_hinge", 1.0), ("squared", 2.0), ("huber", 2.0)],
)
@pytest.mark.parametrize("adjacency, factor", [("zero_out", 1.0), ("replace_one", 2.0)])
def test_sensitivities(loss, bound, adjacency, factor):
    problem = small_problem(loss, "l2")
    run = run_at(problem, [SVRG(clip=0.5)], adjacency=Adjacency(adjacency))
    snapshot, correction = run.releases
    assert snapshot.sensitivity == factor * 0.5
    assert correction.sensitivity == factor * bound * 0.5
    assert correction_bound(problem) == bound


@every_loss
@pytest.mark.parametrize("clip", [0.01, 0.3, 5.0])
def test_differences_of_clipped_gradients_keep_their_bound_and_reach_it(loss, clip):
    """Over many records and pairs of points, from near to far."""
    problem, largest = small_problem(loss, "none", dead=None), 0.0
    rng = np.random.default_rng(4)
    oracles = DenseOracle(problem, 1), DenseOracle(problem, 1)
    for scale in np.repeat([0.1, 1.0, 10.0, 100.0], 25):
        for oracle in oracles:
            oracle.move_to(scale * rng.normal(size=(1, problem.p)))
        for i in range(0, problem.n, 7):
            here, there = (o.record_sum(0, np.array([i]), clip) for o in oracles)
            largest = max(largest, float(np.linalg.norm(here - there)))
    bound = correction_bound(problem) * clip
    assert largest <= bound * (1 + 1e-12)
    if clip < problem.loss.lipschitz:
        assert largest > 0.95 * bound


@every_loss
def test_monotone_losses_have_derivatives_of_one_sign(loss):
    made = registry.build("loss", loss)
    z = np.linspace(-30.0, 30.0, 2001)
    signs = {
        y: np.unique(np.sign(made.derivative(np.full(z.size, y), z))).tolist()
        for y in (-1.0, 1.0)
    }
    one_sided = all({-1.0, 1.0} - set(found) for found in signs.values())
    assert one_sided == made.monotone


@functools.cache
def calibrated(weight, m=50, q=0.05, S=4):
    events = (
        law_of("gaussian", S, weight),
        law_of("poisson_gaussian", S * m, rate=q),
    )
    return calibrate(events, Budget(1.0, 1e-6, Adjacency.ZERO_OUT)).z


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_default_split_is_near_the_least_noise_of_an_epoch(loss):
    problem, m, q = small_problem(loss, "l2"), 50, 0.05
    a = correction_bound(problem)
    best = SVRG(n_inner=m, batch_size=2).weight(problem)
    assert best == pytest.approx(math.sqrt(a / m) / q)

    def variance(weight):
        z = calibrated(weight)
        return (m * weight * z) ** 2 + m * (z * a / q) ** 2

    least = min(variance(best * f) for f in (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0))
    assert variance(best) <= 1.1 * least
    assert variance(4 * best) > 1.5 * least and variance(best / 4) > 1.5 * least


def test_any_split_keeps_the_budget():
    problem = small_problem("logistic", "l2")
    budget = Budget(1.0, 1e-6)
    noise = []
    for weight in (0.5, 2.0, 8.0, None):
        solver = SVRG(clip=1.0, snapshot_weight=weight, n_epochs=2, batch_size=4)
        run = run_at(problem, [solver], checkpoints=(0,))
        events = tuple(release.law() for release in run.releases)
        made = calibrate(events, budget)
        assert made.epsilon_certified <= 1.0
        scales = make_mechanisms(run.releases, made.z, ("a",))
        noise.append([scales[k].scale[0, 0] for k in ("snapshot", "correction")])
    snapshots, corrections = np.array(noise[:3]).T
    assert (np.diff(snapshots) > 0.0).all() and (np.diff(corrections) < 0.0).all()


def test_batches_larger_than_the_data_are_refused():
    problem = small_problem("logistic", "l2")
    reason = SVRG(batch_size=41).unsupported_reason(problem)
    assert reason == "batch_size=41: must be at most n=40, or full"
    assert SVRG(batch_size=40).unsupported_reason(problem) is None
