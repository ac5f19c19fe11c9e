"""Test that solvers refuse losses without a constant that their steps need."""

import numpy as np
import pytest

from dp_erm_bench import registry
from dp_erm_bench.api import fit
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.problems.erm.build import erm_from_arrays
from tests.loops import each
from tests.serving import RISKS

X = np.array([[1.0, 0.5], [-0.5, 1.0], [0.2, -1.0], [-1.0, -0.3]])
Y = np.array([1.0, -1.0, 1.0, -1.0])
CURVED = ("newton", "ssp")
"""They take second derivatives."""
STEPPED, OTHERS = (
    [
        name
        for name in RISKS
        if registry.target("algorithm", name).smooth_losses is smooth
        and name not in CURVED
    ]
    for smooth in (True, False)
)
BALL = {"name": "l2_ball", "radius": 1.0}


def problem(loss, **parts):
    bounds = {"columns": 1.0, "label": 1.0}
    return erm_from_arrays(X, Y, loss=loss, bounds=bounds, **parts)


@each("name", STEPPED)
@each("loss, lacks", [("hinge", "is not"), ("linear", "has no")])
def test_who_needs_a_smooth_loss_says_so(name, loss, lacks):
    if loss == "linear" and registry.target("algorithm", name).linear_losses:
        return
    ridge = problem(loss, penalty="l2", strength=0.2)
    with pytest.raises(Unsupported, match=f"^loss={loss} {lacks}.*length 0") as error:
        fit(ridge, name, epsilon=1.0, seed=0)
    assert str(error.value).count(". ") == 0


def test_the_minimiser_of_lines_and_a_ridge_is_published():
    parts = {"constraint": BALL, "penalty": "l2", "strength": 0.2}
    found = fit(problem("linear", **parts), "output_perturbation", epsilon=5.0, seed=0)
    assert np.linalg.norm(found.w) <= 1.0 + 1e-12


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("loss", ["hinge", "absolute", "linear"])
def test_others_serve_kinks_and_lines_in_a_set(name, loss):
    found = fit(problem(loss, constraint=BALL), name, epsilon=5.0, seed=0)
    assert np.isfinite(found.w).all() and np.linalg.norm(found.w) <= 1.0 + 1e-12


@pytest.mark.parametrize("name", CURVED)
@pytest.mark.parametrize("loss", ["hinge", "absolute", "linear"])
def test_kinks_and_lines_have_no_second_derivative(name, loss):
    with pytest.raises(
        Unsupported, match=f"loss={loss}: .* (second derivative|needs loss)"
    ):
        fit(problem(loss, penalty="l2", strength=0.2), name, epsilon=5.0, seed=0)


@pytest.mark.parametrize("name", OTHERS)
def test_a_line_without_a_minimum_is_refused(name):
    free = problem("linear", penalty="l1", strength=0.1)
    with pytest.raises(Unsupported, match="no minimum without a ridge or a bounded"):
        fit(free, name, epsilon=1.0, seed=0)
    for parts in ({"penalty": "l2", "strength": 0.1}, {"penalty": "box"}):
        fit(problem("linear", **parts), name, epsilon=1.0, seed=0)


def test_no_constant_is_published_of_a_kink():
    ridge = problem("hinge", penalty="l2", strength=0.2)
    with pytest.raises(Unsupported, match="smoothness=private: loss=hinge"):
        fit(ridge, "sgd", epsilon=1.0, seed=0, smoothness="private")


@pytest.mark.parametrize("loss", ["hinge", "absolute"])
def test_sgd_without_noise_comes_near_the_minimum_of_a_kink(loss):
    given = problem(loss, penalty="l2", strength=0.2)
    solver = {"batch_size": "full", "n_iter": 4000, "step": 1.0, "decay": 0.05}
    found = fit(given, "sgd", epsilon=np.inf, seed=0, **solver)
    assert given.value(found.w) <= given.optimum.value * 1.01
