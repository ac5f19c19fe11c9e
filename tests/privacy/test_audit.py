"""Test the replay audit: no complaint about sound solvers, one for broken ones."""

import copy
import dataclasses

import numpy as np
import pytest

from dp_erm_bench.contract.candidate import run_at
from dp_erm_bench.contract.problems import neighbours
from dp_erm_bench.contract.replay import CLIP, LOUD
from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.base import make_mechanisms
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.solvers.bounds import coordinate_bounds, take_entries
from dp_erm_bench.solvers.greedy_cd import GreedyCD
from dp_erm_bench.solvers.random_cd import RandomCD
from dp_erm_bench.solvers.sgd import SGD
from dp_erm_bench.solvers.svrg import SVRG
from tests.privacy.replaying import replay_audit

PARTS = ("logistic", "l2", "none")


# Broken twins: each must be found.


class NoFactorTwo(RandomCD):
    """Declares a sensitivity without the factor 2 of a replaced record."""

    def releases(self, problem, adjacency, schedule):
        for release in super().releases(problem, adjacency, schedule):
            yield dataclasses.replace(release, sensitivity=release.sensitivity / 2.0)


class NoFactorTwoGreedy(GreedyCD):
    def releases(self, problem, adjacency, schedule):
        for release in super().releases(problem, adjacency, schedule):
            yield dataclasses.replace(release, sensitivity=release.sensitivity / 2.0)


class NoFactorTwoSGD(SGD):
    def releases(self, problem, adjacency, schedule):
        yield from super().releases(problem, Adjacency.ZERO_OUT, schedule)


class WrongRule(GreedyCD):
    """Scores GS-s, declares the smaller constant of GS-r under L2."""

    def releases(self, problem, adjacency, schedule):
        twin = copy.copy(self)
        object.__setattr__(twin, "rule", "GS-r")
        yield from GreedyCD.releases(twin, problem, adjacency, schedule)


class Leak(RandomCD):
    """Moves along the raw derivative, after asking for the noisy one."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        bound = np.broadcast_to(coordinate_bounds(oracle.problem, self.clip), (1, 4))
        yield oracle.w
        for j in schedule.T:
            gradient = oracle.coordinate_gradient(j, clip=take_entries(bound, j))
            mechanisms["measure"](gradient, coordinate=j)
            oracle.prox_step(j, gradient, step=np.ones(1))
            yield oracle.w


class PrivateStep(RandomCD):
    """Takes its step size from the data."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        largest = np.abs(oracle.problem.dataset.X.sum(axis=0)).max()
        object.__setattr__(self, "step", self.step / largest)
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)


class ClipAfterMean(RandomCD):
    """Clips the mean of the derivatives in place of each of them."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        bound = np.broadcast_to(coordinate_bounds(oracle.problem, self.clip), (1, 4))
        yield oracle.w
        for j in schedule.T:
            mean = oracle.coordinate_gradient(j, clip=np.full(1, np.inf))
            clipped = np.clip(mean, -take_entries(bound, j), take_entries(bound, j))
            noisy = mechanisms["measure"](clipped, coordinate=j)
            oracle.prox_step(j, noisy, step=np.ones(1))
            yield oracle.w


class PrivateScale(RandomCD):
    """Declares the largest derivative of the data as sensitivity."""

    def releases(self, problem, adjacency, schedule):
        for release in super().releases(problem, adjacency, schedule):
            seen = np.abs(problem.gradient(np.zeros(4))) + 1.0
            yield dataclasses.replace(release, sensitivity=4.0 * seen[None, :])


class PrivateSelection(RandomCD):
    """Picks a coordinate by the data: one more release, undeclared."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        gradient = oracle.gradient(clip=np.full((1, 4), np.inf))
        best = (np.abs(gradient).sum(axis=1) * 777_777.7).astype(np.int64) % 4
        moved = np.broadcast_to(best[:, None], schedule.shape).copy()
        yield from super().iterates(oracle, mechanisms, checkpoints, moved)


class KnowsTheData(RandomCD):
    """Publishes constants, and takes its step sizes from the exact ones."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        exact = oracle.problem.with_smoothness("data").smoothness.columns
        object.__setattr__(self, "step", self.step * exact.mean())
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)


class RawSnapshot(SVRG):
    """Keeps the exact gradient at the snapshot, after publishing it."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        publish = mechanisms["snapshot"].publish
        mechanisms["snapshot"].intercept = lambda query, _: (
            publish(query.value),
            query.value,
        )[1]
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)


TWINS = {
    "no factor 2": (NoFactorTwo(clip=CLIP, n_iter=10), "declared sensitivity"),
    "no factor 2, greedy": (NoFactorTwoGreedy(clip=CLIP), "declared sensitivity"),
    "no factor 2, sgd": (
        NoFactorTwoSGD(clip=CLIP, n_iter=10, batch_size="full"),
        "declared sensitivity",
    ),
    "constant of another rule": (WrongRule(rule="GS-s", clip=CLIP), "sensitivity"),
    "leak": (Leak(clip=CLIP, n_iter=10), "iterates depend on the data"),
    "private step": (PrivateStep(clip=CLIP, n_iter=10), "iterates depend"),
    "clip after mean": (ClipAfterMean(clip=CLIP, n_iter=10), "declared sensitivity"),
    "private scale": (PrivateScale(clip=CLIP, n_iter=10), "sensitivities depend"),
    "exact constants": (
        KnowsTheData(clip=CLIP, n_iter=10, smoothness="private"),
        "iterates depend",
    ),
    "raw snapshot": (RawSnapshot(clip=CLIP, n_iter=10, n_inner=2), "iterates depend"),
    "private selection": (PrivateSelection(clip=CLIP, n_iter=10), "iterates depend"),
}


def listened(run):
    return run.mechanisms, lambda _: run.iterates()


def violations(solver, strength=0.02):
    found = []
    for kind in Adjacency:
        for pair in neighbours(kind, PARTS, strength):
            first, second = (
                run_at(p, [solver], LOUD, checkpoints=range(11)) for p in pair
            )
            report = replay_audit(*listened(first), *listened(second))
            found += report.violations()
    return found


@pytest.mark.parametrize("twin", TWINS)
def test_broken_twins_are_found(twin):
    solver, complaint = TWINS[twin]
    found = violations(solver, strength=1.0)
    assert any(complaint in sentence for sentence in found)


@pytest.mark.parametrize("rule", ["GS-r", "GS-s", "GS-q"])
def test_the_sound_greedy_passes_where_its_twin_fails(rule):
    assert violations(GreedyCD(rule=rule, clip=CLIP), strength=1.0) == []


class OneTooMany(GreedyCD):
    """Measures twice per iteration what it declares once."""

    def iterates(self, oracle, mechanisms, checkpoints, schedule):
        yield from super().iterates(oracle, mechanisms, checkpoints, schedule)
        mechanisms["measure"](np.zeros(1), coordinate=np.zeros(1, dtype=np.int64))


def test_one_release_too_many_is_stopped():
    with pytest.raises(BudgetExhausted, match="measure was declared with times=10"):
        violations(OneTooMany(clip=CLIP))


# The audit itself, on runs made by hand.


def by_hand(release, values, calls=lambda m, v: m["r"](v)):
    """Audit two runs that publish the two given values."""
    pair = [make_mechanisms([release], 1.0, ["a"]) for _ in values]

    def run(value):
        return lambda mechanisms: [np.asarray(calls(mechanisms, value))]

    return replay_audit(pair[0], run(values[0]), pair[1], run(values[1]))


def vectors(first, second, sensitivity):
    values = [np.array([first]), np.array([second])]
    return by_hand(Gaussian("r", sensitivity, 1), values)


def test_ratios_of_vectors_are_of_euclidean_norms():
    report = vectors([3.0, 0.0], [0.0, 4.0], 5.0)
    assert report.ratios == {"r": pytest.approx(1.0)}
    assert report.violations() == []
    assert vectors([3.0, 0.0], [0.0, 4.0], 4.9).violations()


@pytest.mark.parametrize("pair", [(np.nan, np.nan), (np.nan, 0.0), (0.0, np.nan)])
def test_values_that_are_no_numbers_are_violations(pair):
    report = by_hand(Laplace("r", 1.0, 1), [np.array([v]) for v in pair])
    assert report.ratios == {"r": np.inf}
    assert "gets a value that is not finite" in report.violations()[0]


def test_a_release_of_sensitivity_zero_may_not_move():
    still = by_hand(Laplace("r", 0.0, 1), [np.array([1.0]), np.array([1.0])])
    moved = by_hand(Laplace("r", 0.0, 1), [np.array([1.0]), np.array([1.001])])
    assert still.violations() == [] and moved.violations()


def maximum(first, second):
    release = NoisyMax("r", 1.0, 1)
    values = [np.array([first]), np.array([second])]
    return by_hand(release, values, lambda m, v: m["r"](v, lambda g: g))


def test_entries_excluded_in_both_runs_are_no_difference():
    assert maximum([0.0, -np.inf], [0.5, -np.inf]).ratios == {"r": 0.5}
    assert maximum([0.0, -np.inf], [0.5, 0.0]).violations()


def queries(mechanisms, names):
    return [mechanisms[name](np.zeros(1)) for name in names]


@pytest.mark.parametrize("names", [("b", "a"), ("a",), ("a", "b", "b")])
def test_other_queries_than_in_the_first_run_are_violations(names):
    releases = [Laplace("a", 1.0, 2), Laplace("b", 1.0, 2)]
    first, second = (make_mechanisms(releases, 1.0, ["t"]) for _ in range(2))
    report = replay_audit(
        first,
        lambda m: queries(m, ("a", "b")),
        second,
        lambda m: queries(m, names),
    )
    assert "the releases depend on the data" in report.violations()
    assert {k: m.used for k, m in second.items()} == {
        name: names.count(name) for name in "ab"
    }


def test_the_answers_of_the_first_run_are_fed_to_the_second():
    releases = [Laplace("a", 1.0, 1)]
    first, second = (make_mechanisms(releases, 1.0, [t]) for t in ("t", "other"))
    seen = []
    replay_audit(
        first,
        lambda m: seen.append(m["a"](np.zeros(1))) or [],
        second,
        lambda m: seen.append(m["a"](np.ones(1))) or [],
    )
    np.testing.assert_array_equal(*seen)
    assert not first.ahead and not second.ahead
