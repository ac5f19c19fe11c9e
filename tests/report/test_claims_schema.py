"""What claims must state, against the measures that read it."""

import inspect
import re
from string import Formatter

import pytest

from dp_erm_bench.report.claims.measures import MEASURES
from dp_erm_bench.report.claims.schema import (
    COMMON,
    NEEDS,
    NOISE_LINES,
    SELECTION_LINES,
    check_claims,
)
from dp_erm_bench.report.noise import RELEASED
from dp_erm_bench.report.selection import SELECTIONS

BLOCKS = [{"panel": f"size_{p}", "line": line} for p in (1, 9) for line in "ab"]


def test_every_measure_states_its_needs():
    assert set(NEEDS) == set(MEASURES)


@pytest.mark.parametrize("measure", MEASURES)
def test_the_needs_are_what_the_measure_reads(measure):
    function, words = MEASURES[measure]
    read = set(re.findall(r'claim\["(\w+)"\]', inspect.getsource(function)))
    fields = {name for _, name, _, _ in Formatter().parse(words) if name}
    assert (read | fields) - set(COMMON) <= set(NEEDS[measure])


def test_the_lines_of_the_noise_are_those_of_its_figure():
    assert set(NOISE_LINES) == set(RELEASED)
    assert set(SELECTION_LINES) == set(SELECTIONS)


def test_a_family_of_panels_has_the_lines_of_all():
    claim = {"id": "x", "figure": "size", "statement": "S", "at_most": 1}
    slope = {**claim, "measure": "slope", "axis": "quotient", "line": ["a", "b"]}
    check_claims([slope], BLOCKS)
    for wrong in ({"line": "c"}, {"figure": "weight"}, {"axis": "n"}):
        with pytest.raises(ValueError, match="claim x: "):
            check_claims([{**slope, **wrong}], BLOCKS)


def test_noise_needs_no_panel():
    claim = {"id": "x", "figure": "noise", "statement": "{line}", "at_least": 1}
    check_claims([{**claim, "measure": "noise_slope", "line": NOISE_LINES[0]}], [])


@pytest.mark.parametrize("where", [3, ["a"], "a"])
def test_a_cell_is_found_by_a_mapping(where):
    claim = {"id": "x", "figure": "f", "measure": "cell", "column": "c", "at_most": 1}
    check_claims([{**claim, "where": {"n": 1}, "statement": "S"}], [])
    with pytest.raises(ValueError, match="where=.*: must map columns to values"):
        check_claims([{**claim, "where": where, "statement": "S"}], [])
