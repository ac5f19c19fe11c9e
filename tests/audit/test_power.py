"""Test that the audit detects broken copies of solvers, and passes the originals.

The number of runs on each side is as large as a detection needs. solvers-core.md has
the table for epsilon = 1.
"""

import dataclasses

import numpy as np
import pytest

from dp_erm_bench import run
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit import statistic
from dp_erm_bench.audit.profile import OK, VIOLATION, verdict
from dp_erm_bench.audit.statistic import attack_on
from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.random_cd import RandomCD
from dp_erm_bench.solvers.sgd import SGD
from dp_erm_bench.solvers.svrg import SVRG
from tests.audit import twins
from tests.audit.twins import MeasureOnly, SelectOnly, quieter

FALSE_ALARM = 1e-3
STEPS = {"n_iter": 10, "step": 1e-9}
BATCH = {**STEPS, "batch_size": 10}
CORRECTIONS = {"n_iter": 10, "batch_size": "full", **SVRG.worst_cases[0]}
ONE = {"n_iter": 1}


def audit(solver, runs, epsilon=8.0, adjacency="replace_one"):
    attack = attack_on(solver, Budget(epsilon, 1e-6, adjacency))
    sides = [attack.run(side, runs, "power") for side in (0, 1)]
    return verdict(*sides, attack.guarantee, FALSE_ALARM)


# Class, parameters, releases with less noise, runs at epsilon = 8.
COMPOSED = {
    "cd": (RandomCD, STEPS, (), 800),
    "sgd poisson": (SGD, BATCH, (), 1500),
    "sgd full": (SGD, {**STEPS, "batch_size": "full"}, (), 800),
    "greedy gumbel": (GreedyCD, STEPS, (), 1000),
    "greedy gumbel, selection": (GreedyCD, STEPS, ("select",), 2000),
    "greedy gumbel, measurement": (GreedyCD, STEPS, ("measure",), 6000),
    "greedy laplace": (GreedyCD, {**STEPS, "noise": "laplace"}, (), 6000),
    "greedy poster": (GreedyCD, {**STEPS, "noise": "poster"}, (), 6000),
    "svrg": (SVRG, BATCH, (), 2000),
    "svrg, snapshots": (SVRG, BATCH, ("snapshot",), 2000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSED)
def test_half_the_noise_is_seen_in_composed_solvers(name):
    kind, params, releases, runs = COMPOSED[name]
    found = audit(quieter(kind, 0.5, *releases)(**params), runs)
    assert found.verdict == VIOLATION, found


@pytest.mark.parametrize("name", COMPOSED)
def test_a_tenth_of_the_noise_is_seen_in_300_runs(name):
    kind, params, releases, _ = COMPOSED[name]
    found = audit(quieter(kind, 0.1, *releases)(**params), 300)
    assert found.verdict == VIOLATION, found


def test_half_the_noise_is_seen_in_corrections_under_zero_out():
    twin = quieter(SVRG, 0.5, "correction")(**CORRECTIONS)
    assert audit(twin, 4000, adjacency="zero_out").verdict == VIOLATION


PRIMITIVES = {
    "gaussian": (RandomCD, {**ONE, "step": 1e-9}, 800),
    "laplace": (MeasureOnly, ONE, 1000),
    "gumbel": (SelectOnly, ONE, 2000),
    "laplace noisy max": (SelectOnly, {**ONE, "noise": "laplace"}, 8000),
    "noise inside": (SelectOnly, {**ONE, "noise": "poster"}, 12000),
}


@pytest.mark.parametrize("name", PRIMITIVES)
def test_half_the_noise_is_seen_in_isolated_releases_at_epsilon_one(name):
    kind, params, runs = PRIMITIVES[name]
    runs = 6000 if name == "gaussian" else runs
    assert audit(quieter(kind, 0.5)(**params), runs, 1.0).verdict == VIOLATION
    assert audit(kind(**params), min(runs, 4000), 1.0).verdict == OK


TWINS = {
    "the other adjacency": (twins.OtherAdjacency(**STEPS), 800),
    "amplification without sampling": (twins.NeverSamples(**BATCH), 400),
    "the same noise in every step": (
        twins.SameNoise(n_iter=8, step=1e-9, order="cyclic"),
        400,
    ),
    "a raw gradient in the iterates": (twins.Leak(**STEPS), 100),
    "a step from the data": (twins.PrivateStep(**STEPS), 100),
    "ten selections for the price of one": (twins.ChargedForOne(**STEPS), 1000),
}


@pytest.mark.parametrize("name", TWINS)
def test_other_breaks_are_seen(name):
    solver, runs = TWINS[name]
    found = audit(solver, runs)
    assert found.verdict == VIOLATION, found


@pytest.mark.slow
def test_one_sample_for_all_steps_is_seen_in_long_runs():
    """Per step the law is right; over 60 steps one record is in all or in none."""
    solver = twins.SameSample(n_iter=60, step=1e-9, batch_size=4)
    assert audit(solver, 2000, 2.0, "zero_out").verdict == VIOLATION


def test_the_other_adjacency_is_right_under_that_adjacency():
    found = audit(twins.OtherAdjacency(**STEPS), 2000, adjacency="zero_out")
    assert found.verdict == OK


def test_one_release_too_many_is_stopped_before_it_is_published():
    class OneTooMany(RandomCD):
        def iterates(self, oracle, mechanisms, checkpoints, schedule):
            yield from super().iterates(oracle, mechanisms, checkpoints, schedule)
            first = np.zeros(oracle.batch, dtype=np.int64)
            mechanisms["measure"](np.zeros(oracle.batch), coordinate=first)

    with pytest.raises(BudgetExhausted, match="declared with times=10"):
        audit(OneTooMany(**STEPS), 10)


class DataDriven(RandomCD):
    """Publishes as often as the first record's first feature says."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        length = 5 if oracle.problem.dataset.X[0, 0] > 0.0 else self.length
        short = schedule[:, :length]
        yield oracle.w
        for j in short.T:
            coordinate = np.full(oracle.batch, np.inf)
            mechanisms["measure"](
                oracle.coordinate_gradient(j, coordinate), coordinate=j
            )
            yield oracle.w


@pytest.mark.parametrize("length", [4, 6])
def test_releases_that_depend_on_the_data_stop_the_audit(length):
    twin = type("Twin", (DataDriven,), {"length": length})(**STEPS)
    with pytest.raises(statistic.AuditError, match="depend"):
        audit(twin, 10)


def test_half_the_noise_on_private_constants_is_seen(monkeypatch):
    """Alone: T = 0. They take a tenth of epsilon, here 10, at delta = 0."""
    solver = RandomCD(n_iter=0, smoothness="private")

    def judged():
        attack = attack_on(solver, Budget(20.0, 1e-6, Adjacency.REPLACE_ONE))
        sides = [attack.run(side, 4000, "constants") for side in (0, 1)]
        return verdict(*sides, attack.guarantee, FALSE_ALARM)

    assert judged().verdict == OK
    honest = run.smoothness_releases

    def halved(*args):
        found = honest(*args)
        return tuple(
            dataclasses.replace(r, sensitivity=r.sensitivity / 2) for r in found
        )

    monkeypatch.setattr(run, "smoothness_releases", halved)
    assert judged().verdict == VIOLATION
