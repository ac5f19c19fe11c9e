"""Test that the worst neighbours stay within permutation SGD's sensitivity."""

import numpy as np
import pytest

from dp_erm_bench.contract.candidate import run_at
from dp_erm_bench.datasets.base import Bounds
from dp_erm_bench.datasets.prepare import dataset_from_arrays
from dp_erm_bench.problems.erm.build import build_problem
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.solvers.permutation_sgd import PermutationSGD

LOSSES = ("logistic", "huber", "smoothed_hinge")
PENALTIES = (
    {"name": "none"},
    {"name": "l2", "strength": 1.0},
    {"name": "l1", "strength": 0.05},
    {"name": "elastic_net", "strength": 0.1},
    {"name": "box", "lower": -0.3, "upper": 0.4},
)
PAIRS = 300


def hostile(rng, adjacency):
    """Two datasets of 2 to 6 records; the first differs, the rest take its side."""
    n, p, radius = rng.integers(2, 7), rng.integers(2, 4), rng.uniform(0.3, 3.0)
    X = rng.normal(size=(n, p))
    X *= radius / np.linalg.norm(X, axis=1, keepdims=True)
    y, how = np.sign(rng.normal(size=n)), rng.integers(3)
    if how == 0:
        X[1:] = 0.0
    if how == 1:
        X[1:] = X[0] * rng.choice([-1.0, 1.0], size=(n - 1, 1))
    other, labels = X.copy(), y.copy()
    if adjacency is Adjacency.ZERO_OUT:
        other[0] = 0.0
    else:
        other[0] *= rng.choice([-1.0, 1.0, 0.01])
        labels[0] *= rng.choice([-1.0, 1.0])
    bounds = Bounds(np.full(p, radius), radius, 1.0)
    return [dataset_from_arrays(*d, bounds=bounds) for d in ((X, y), (other, labels))]


def some_solver(rng, n):
    return PermutationSGD(
        passes=int(rng.integers(1, 6)),
        batch_size=(1, min(2, n), "full")[rng.integers(3)],
        step=float(rng.choice([2.0, 1.9, 1.0, 0.3])),
        decay=float(rng.choice([0.0, 0.3])),
        clip=(None, 0.1, 0.01)[rng.integers(3)],
    )


def last(problem, solver, adjacency):
    run = run_at(problem, [solver], z=0.0, adjacency=adjacency)
    (release,) = run.releases
    return run.iterates()[-1], float(np.max(release.sensitivity))


@pytest.mark.slow
@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda penalty: penalty["name"])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_no_hostile_neighbour_moves_it_further(adjacency, penalty):
    rng, ratios = np.random.default_rng(7), []
    for _ in range(PAIRS):
        pair, loss = hostile(rng, adjacency), LOSSES[rng.integers(3)]
        solver = some_solver(rng, len(pair[0].y))
        problems = [build_problem(data, loss, penalty, "none") for data in pair]
        (w, bound), (v, _) = (last(one, solver, adjacency) for one in problems)
        ratios.append(float(np.linalg.norm(w - v)) / bound)
    assert max(ratios) <= 1.0 + 1e-9
    # A bound that is never approached would prove little.
    assert max(ratios) > 0.9
