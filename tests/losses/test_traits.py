"""Test how a loss's declared properties decide on solvers and certificates."""

import math

import numpy as np
import pytest

from dp_erm_bench import fit, problem_from_arrays, registry
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.losses.smooth import Logistic
from dp_erm_bench.problems.erm.optimum.certified import compute_optimum
from tests.loops import each
from tests.serving import RISKS, known

NEED_CONVEXITY = {
    "approximate_minima_perturbation",
    "dual_frank_wolfe",
    "newton",
    "objective_perturbation",
    "output_perturbation",
    "permutation_sgd",
}


def saying(**traits):
    """Return a logistic loss that says so of itself, with the kernels of its class."""
    loss = Logistic()
    for name, value in traits.items():
        object.__setattr__(loss, name, value)
    return loss


ROUGH, BENT = saying(smooth=False), saying(convex=False)
STEEP = saying(smoothness=math.inf)
"""Says it is smooth, and has no constant."""


def problem(loss, **parts):
    X = np.array([[1.0, 0.5], [-0.5, 1.0], [0.2, -1.0], [-1.0, -0.3]])
    y = np.array([1.0, -1.0, 1.0, -1.0])
    given = {"penalty": "l2", "strength": 0.1, "bounds": [1.0, 1.0], **parts}
    return problem_from_arrays(X, y, loss=loss, **given)


NEEDS_SMOOTH = [
    name for name in RISKS if registry.target("algorithm", name).smooth_losses
]


@each("loss", [ROUGH, STEEP], ids=["trait", "constant"])
@each("name", NEEDS_SMOOTH)
def test_a_loss_without_smoothness_is_refused_not_stood_still_on(name, loss):
    with pytest.raises(Unsupported, match="loss=logistic is not smooth: .* length 0"):
        fit(problem(loss), name, epsilon=1.0, seed=0)


@each("name", RISKS)
def test_whose_privacy_rests_on_convexity_needs_a_convex_loss(name):
    space = "l1_ball" if name == "frank_wolfe" else "none"
    given = problem(BENT, constraint=space, strength=0.2)
    if name not in NEED_CONVEXITY:
        extra = known(name, clip=1.0)
        assert np.isfinite(fit(given, name, epsilon=1.0, seed=0, **extra).w).all()
        return
    with pytest.raises(Unsupported, match="loss=logistic is not convex: the privacy"):
        fit(given, name, epsilon=1.0, seed=0)


@pytest.mark.parametrize(("loss", "word"), [(ROUGH, "smooth"), (BENT, "convex")])
def test_no_minimum_is_certified_without_the_traits(loss, word):
    reason = f"no certificate: loss logistic is not {word}"
    assert compute_optimum(problem(loss)).reason == reason
    assert compute_optimum(problem(Logistic())).value is not None
