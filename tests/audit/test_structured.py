"""Test formulas for structured norms, on which errata and an experiment rest.

The experiment is kumar2019.
"""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit

from dp_erm_bench.accounting.bounds import mu_for
from dp_erm_bench.errors import UsageError
from dp_erm_bench.norms.cardinality import CardinalityNorm
from dp_erm_bench.papers import claims as papers
from dp_erm_bench.report.claims.measures import MEASURES, OF_PAPERS, PAPERS
from dp_erm_bench.report.scaling import log_slope


def jump(n):
    """How far the optimum moves: all of it is on the axis that the last record has."""
    strength = math.sqrt(n) / CardinalityNorm().width(2)
    root = math.sqrt(0.5)

    def along(a):
        return strength - (n - 1) * root * expit(-root * a) - expit(-a)

    a = brentq(along, 0.0, 100.0, xtol=1e-14)
    # The other coordinate stays at 0: its slope is inside of [-lambda, lambda].
    assert a > 0.0 and strength - (n - 1) * root * expit(-root * a) > 0.0
    return math.sqrt(2.0) * a


@pytest.mark.parametrize(
    ("n", "moved", "epsilon"), [(100, 4.6517, 10.4), (1000, 7.0911, 90.8)]
)
def test_the_optimum_jumps_as_a_root_on_one_axis_says(n, moved, epsilon):
    found, strength = papers.two_records(n)
    assert found == pytest.approx(moved, abs=1e-4)
    assert found == pytest.approx(jump(n), abs=1e-6)
    assert found > 10 * 2.0 / strength
    assert papers.printed_output_epsilon(None, n, 4.0) == pytest.approx(
        epsilon, rel=0.01
    )


@pytest.mark.parametrize("n", [100, 10_000])
@pytest.mark.parametrize("ridge", [0.001, 0.1])
def test_with_a_ridge_no_optimum_moves_further_than_proved(n, ridge):
    moved, _ = papers.two_records(n, ridge)
    assert 0.0 < moved <= 2.0 / (n * ridge)
    assert 0.0 < papers.epsilon_of_ridge_output(n, ridge) <= 1.0


@pytest.mark.parametrize(
    ("weight", "epsilon"), [(1, 0.069), (10, 0.625), (100, 3.131), (1000, 5.585)]
)
def test_the_printed_noise_of_a_choice_forgets_the_curvature(weight, epsilon):
    exact = papers.noisy_choice_epsilon
    assert exact(None, weight, "printed") == pytest.approx(epsilon, abs=2e-3)
    assert exact(None, weight, "corrected") <= 1.0
    with pytest.raises(UsageError, match="noise=none"):
        exact(None, weight, "none")


@pytest.mark.parametrize("name", papers.NAMES)
def test_gaps_are_certificates_and_the_printed_step_is_behind(name):
    gaps = {rule: papers.dual_gaps(name, rule, 400) for rule in papers.STEPS}
    assert min(row.min() for row in gaps.values()) >= -1e-12
    usual = np.minimum.accumulate(gaps["2/(t+2)"])
    assert gaps["1/(t+2)"].min() >= 5.0 * usual[-1]
    if usual[-1] > 0.0:
        along = np.array([10, 40, 100, 400])
        assert log_slope(along.astype(float), usual[along - 1]) <= -0.9


def test_a_perturbed_objective_shifts_the_dual_set_not_its_solution():
    assert papers.shifted_dual(None, "set") <= 1e-9
    assert papers.shifted_dual(None, "point") >= 0.1
    with pytest.raises(UsageError, match="shifted=both: must be one of set, point"):
        papers.shifted_dual(None, "both")


@pytest.mark.parametrize("name", papers.NAMES)
def test_widths_are_those_of_draws(name):
    quotient, error = papers.width_quotient(name, 12)
    assert abs(quotient - 1.0) <= 4.0 * error <= 0.1


def test_no_measure_of_claims_has_the_name_of_another():
    modules = {one.function.__module__ for one in MEASURES.values()} - {PAPERS}
    names = [name for module in modules for name in defined(module)]
    names += OF_PAPERS
    assert len(names) == len(set(names)) == len(MEASURES)


def defined(module):
    """The names that a module enters into the measures."""
    import ast
    import importlib
    from pathlib import Path

    tree = ast.parse(Path(importlib.import_module(module).__file__).read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(
            isinstance(one, ast.Call) and getattr(one.func, "id", "") == "says"
            for one in node.decorator_list
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if k else [])
        for k, name in enumerate(papers.NAMES)
    ],
)
def test_the_bound_is_the_least_over_ridges(name):
    n, p, kappa, radius, budget = 4000, 20, 0.01, 3.0, (1.0, 1e-8)
    least = papers.output_bound({"line": name, "n": n}, p, kappa, radius, *budget)
    noise = 2.0 / (n * mu_for(*budget))
    at = [
        noise
        / ridge
        * (math.sqrt(2.0 / math.pi) + kappa * papers.gaussian_width(name, p))
        + ridge * radius**2 / 2.0
        for ridge in np.geomspace(1e-4, 10.0, 2000)
    ]
    assert least == pytest.approx(min(at), rel=1e-4)
