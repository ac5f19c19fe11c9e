"""Test that audits detect mistakes in the accounting of perturbed objectives.

The data have a single column. So the normal and the norm-Laplace noise are
one-dimensional, and no noise is in a direction that no record has.
"""

import dataclasses
import itertools

import numpy as np
import pytest

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.audit.pairs import Pair
from dp_erm_bench.audit.profile import OK, VIOLATION, guarantee_of, verdict
from dp_erm_bench.audit.statistic import Attack
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.solvers.approximate_minima_perturbation import (
    ApproximateMinimaPerturbation as AMP,
)
from dp_erm_bench.solvers.objective_perturbation import ObjectivePerturbation

pytestmark = pytest.mark.slow

N = 40
OPPOSITE = {"zero_out": 0.0, "replace_one": -1.0}
LOUD = {"gaussian": 8.0, "gamma": 1.0}
RUNS = {"gaussian": 3000, "gamma": 600}
# Of the sum: log(1 + beta / ridge) = log(2001) = 7.6.
WEAK = 0.25 / 2000

every_noise = pytest.mark.parametrize(
    "noise, adjacency", list(itertools.product(RUNS, OPPOSITE))
)


def changed(kind, **factors):
    """The class with some facts of its releases multiplied."""

    class Changed(kind):
        def releases(self, problem, adjacency, schedule):
            for r in super().releases(problem, adjacency, schedule):
                had = {k: f for k, f in factors.items() if hasattr(r, k)}
                facts = {k: getattr(r, k) * f for k, f in had.items()}
                yield dataclasses.replace(r, **facts)

    return Changed


def column(loss, ridge, other):
    """Neighbours with one record that carries anything: 1, or something else."""
    made = []
    for x in (1.0, other):
        X = np.zeros((N, 1))
        X[0] = x
        data = dataset_from_arrays(X, np.ones(N), bounds=Bounds(np.ones(1), 1.0, 1.0))
        made.append(build_problem(data, loss, {"name": "l2", "strength": ridge / N}))
    return Pair(*made)


def judged(solver, pair, epsilon, adjacency, runs):
    guarantee = guarantee_of(solver, pair.first, Budget(epsilon, 1e-6, adjacency))
    attack = Attack(solver, pair, guarantee)
    assert guarantee.secret
    return verdict(*(attack.run(side, runs, "one") for side in (0, 1)), guarantee, 1e-3)


@every_noise
def test_a_missing_factor_of_two_is_seen(noise, adjacency):
    """As where Lambda stands for 2 Lambda under replace_one."""
    pair = column("smoothed_hinge", 10.0 * N, OPPOSITE[adjacency])
    half = changed(ObjectivePerturbation, sensitivity=0.5)
    for kind, expected in ((ObjectivePerturbation, OK), (half, VIOLATION)):
        solver = kind(noise=noise)
        found = judged(solver, pair, LOUD[noise], adjacency, RUNS[noise])
        assert found.verdict == expected, found


@every_noise
def test_a_ridge_that_is_not_charged_is_seen(noise, adjacency):
    """A record of zeros has no curvature; it is a replacement, too."""
    pair = column("logistic", WEAK, 0.0)
    free = changed(ObjectivePerturbation, curvature=0.0)(noise=noise)
    assert judged(free, pair, 1.5, adjacency, 2500).verdict == VIOLATION
    honest = ObjectivePerturbation(noise=noise)
    with pytest.raises(Unsupported, match="the curvature alone"):
        judged(honest, pair, 1.5, adjacency, 1)
    assert judged(honest, pair, 9.6, adjacency, 500).verdict == OK


@pytest.mark.parametrize(
    "adjacency", ["replace_one", pytest.param("zero_out", marks=pytest.mark.slow)]
)
def test_approximate_minima_are_seen_through_their_output_noise(adjacency):
    pair = column("smoothed_hinge", 10.0 * N, OPPOSITE[adjacency])
    for kind, expected in ((AMP, OK), (changed(AMP, sensitivity=0.3), VIOLATION)):
        found = judged(kind(), pair, 8.0, adjacency, 1000)
        assert found.verdict == expected, found
