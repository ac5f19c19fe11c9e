"""Test the bound on one-pass SGD's excess risk, and the step that minimises it."""

import math

import pytest

from dp_erm_bench.api import load_problem
from dp_erm_bench.papers.claims import excess_bound
from dp_erm_bench.registry import build


@pytest.mark.parametrize("n", [16, 1000, 8001])
@pytest.mark.parametrize("scale", [0.0, 0.3, 40.0])
def test_the_bound_is_that_of_the_solvers_step(n, scale):
    ball = {"name": "l2_ball", "radius": 0.7}
    problem = load_problem("median_regression", "absolute", "none", ball, n=n)
    eta = build("algorithm", "one_pass_sgd").step_size(problem, scale)
    # R^2 / (2 eta m) + eta (m + E tau p s^2) / (2 m), both parts equal.
    expected = 0.7**2 / (eta * math.ceil(n / 2))
    assert excess_bound(n, 5, 0.7, scale) == pytest.approx(expected, rel=1e-12)
