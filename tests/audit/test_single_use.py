"""Test the printed noise of one-pass SGD against single use and shuffling."""

import math

import numpy as np
import pytest

from dp_erm_bench.accounting.bounds import gdp_epsilon
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.papers.claims import (
    OUTSIDE,
    PROVED,
    THEOREM,
    OnePass,
    certified_scale,
    shuffled_epsilon,
    shuffled_scale,
    steps_over_n,
)
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.report.claims.measures import MEASURES
from dp_erm_bench.report.figure import Drawing
from dp_erm_bench.report.lines import Lines, LinesCell

SINGLE, SHUFFLED = PROVED
PRINTED_NOISE = 16 * math.sqrt(-math.log(1e-7))
"""Of e = 1 / (2 sqrt(n)) and d = 1e-7, whatever n is."""


@pytest.mark.parametrize(
    ("n", "epsilon"),
    [(1000, 0.09684), (10_000, 0.03369), (100_000, 0.01144), (1_000_000, 0.00384)],
)
def test_reference_numbers_of_shuffling(n, epsilon):
    found = shuffled_epsilon(n, PRINTED_NOISE, 3e-7)
    assert found == pytest.approx(epsilon, abs=6e-6)
    assert shuffled_scale(n, found, 3e-7) == pytest.approx(PRINTED_NOISE, rel=1e-6)


def test_shuffling_proves_nothing_where_randomisers_are_loud():
    assert shuffled_epsilon(1000, 0.5, 1e-6) == math.inf
    assert shuffled_epsilon(20, PRINTED_NOISE, 1e-6) == math.inf


def test_scales_are_those_of_the_accountants():
    budget = 10.0 / math.sqrt(10_000), 1e-8
    replaced, removed = (certified_scale(10_000, *budget, a) for a in Adjacency)
    assert replaced == pytest.approx(2 * removed, rel=1e-9)
    assert gdp_epsilon(2 / replaced, 2e-8) == pytest.approx(budget[0], rel=1e-9)
    printed = certified_scale(10_000, *budget, calibration="paper")
    assert printed == pytest.approx(6.4 * math.log(3e8))
    figure = OnePass("noise", (10_000,), epsilon=10.0, falling=True)
    scales = figure.scales(10_000)
    assert scales[THEOREM] == printed and scales[SINGLE] == replaced
    assert scales[SHUFFLED] < scales[SINGLE] < scales[THEOREM]
    with pytest.raises(Unsupported, match="epsilon=1: the printed constant needs"):
        certified_scale(10_000, 1.0, 1e-8, calibration="paper")
    fixed = OnePass("noise", (10_000,)).scales(10_000)
    assert THEOREM not in fixed and fixed[SINGLE] > 0.0
    assert fixed[OUTSIDE] == pytest.approx(0.64 * math.log(3e8))


def test_passes_end_near_n_log_2():
    drawn = steps_over_n(10_000, 60)
    assert abs(drawn.mean() - math.log(2.0)) < 0.003
    assert 0.002 < drawn.std() < 0.02
    assert (steps_over_n(2, 5) == 0.5).all()
    near = MEASURES["length_of_a_pass"].function(None, n=10_000, seeds=60)
    assert near.point == pytest.approx(drawn.mean()) and near.low < near.high
    long = MEASURES["long_passes"].function(None, n=64, seeds=300)
    assert (long.point, long.low) == (0.0, 0.0) and long.high < math.exp(-64 / 16)


@pytest.mark.parametrize("quantity", ["noise", "steps"])
def test_its_figures_are_drawn(quantity, tmp_path):
    source = {"kind": "one_pass", "quantity": quantity, "values": [100, 1000]}
    figure = Lines(quantity, (LinesCell("One pass", source={**source, "seeds": 5}),))
    drawing = Drawing(None, tmp_path, "arora2020", {})
    files = figure.draw(drawing)
    assert {path.stem for path in files} == {f"arora2020_{quantity}"}
    for line in figure.cells[0].source_of_lines.lines().values():
        assert np.isfinite(line.mean).all()


def test_a_wrong_quantity_is_refused():
    with pytest.raises(UsageError, match="quantity"):
        OnePass("scales", (100,))
