"""Test gd and sgd steps along noisy means, projected on the ball of means."""

import math

import numpy as np
import pytest

from dp_erm_bench import problem_from_arrays
from dp_erm_bench.constraints.sets import L1Ball
from dp_erm_bench.solvers.gd import GD
from dp_erm_bench.solvers.sgd import SGD
from tests.solvers.cases import run_at

S, C = 2, 0.4
MADE = {
    "gd": (GD, {"n_iter": 1}),
    "full": (SGD, {"n_iter": 1, "batch_size": "full"}),
    "sampled": (SGD, {"n_iter": 1, "batch_size": 12}),
}
every_one = pytest.mark.parametrize("made", MADE.values(), ids=MADE)


def problem(declared=S, n=40, p=30):
    rng = np.random.default_rng(1)
    X = np.zeros((n, p))
    for row in X:
        row[rng.permutation(p)[:S]] = rng.choice([-1.0, 1.0], S) / math.sqrt(S)
    bounds = {"norm": 1.0} | ({"nonzeros": declared} if declared else {})
    return problem_from_arrays(
        X, np.sign(X[:, 0] + 0.1), loss="logistic", bounds=bounds
    )


def ends(made, data, z=5.0, ahead=False, **params):
    """The iterates of two trials of other thresholds, (2, p)."""
    kind, given = made
    solvers = [kind(**given, step=2.0, clip=clip, **params) for clip in (C, C / 2)]
    run = run_at(data, solvers, z=z, identities=("a", "b"), ahead=ahead)
    return run.iterates()[-1]


@every_one
def test_a_step_goes_along_the_nearest_point_of_the_ball(made):
    """The first step from 0 is a multiple of the mean, which tells the noisy one."""
    data = problem()
    plain, found = ends(made, data), ends(made, data, mean="projection")
    unit = 2.0 / float(np.ravel(data.smoothness.norm)[0])
    for clip, w, moved in zip((C, C / 2), plain, found, strict=True):
        radius = math.sqrt(S) * clip
        assert np.abs(w / unit).sum() > radius
        expected = unit * L1Ball(radius).project(w / unit)
        np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-12)


def test_the_ball_holds_all_means():
    """What is projected without noise stays, to the bit."""
    for made in (MADE["gd"], MADE["full"]):
        found = ends(made, problem(), z=0.0, mean="projection")
        np.testing.assert_array_equal(found, ends(made, problem(), z=0.0))


@pytest.mark.parametrize("output", ["last", "average"])
def test_noise_that_is_taken_ahead_gives_the_same_steps(output):
    made, data = (SGD, {"n_iter": 6, "batch_size": 5}), problem()
    both = [
        ends(made, data, ahead=ahead, mean="projection", output=output)
        for ahead in (False, True)
    ]
    np.testing.assert_allclose(*both, rtol=1e-12)
    assert np.abs(both[0] - ends(made, data, output=output)).max() > 1e-3


@every_one
def test_without_a_declared_number_all_entries_may_be_non_zero(made):
    found = ends(made, problem(declared=None), mean="projection")
    np.testing.assert_array_equal(found, ends(made, problem(30), mean="projection"))
    assert not np.array_equal(found, ends(made, problem(), mean="projection"))
