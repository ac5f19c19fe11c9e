"""What claims must state, against the measures that read it."""

from string import Formatter

import pytest

from dp_erm_bench.report.claims.measures import MEASURES
from dp_erm_bench.report.claims.schema import (
    COMMON,
    NOISE_LINES,
    SELECTION_LINES,
    check_claims,
)
from dp_erm_bench.report.noise import RELEASED
from dp_erm_bench.report.selection import SELECTIONS

BLOCKS = [{"panel": f"size_{p}", "line": line} for p in (1, 9) for line in "ab"]


@pytest.mark.parametrize("name", MEASURES)
def test_the_words_of_a_measure_name_keys_that_it_needs(name):
    measure = MEASURES[name]
    fields = {field for _, field, _, _ in Formatter().parse(measure.words) if field}
    assert fields <= set(measure.needs)
    assert not set(measure.needs) & set(COMMON)
    assert measure.value.__name__ == name


@pytest.mark.parametrize("name", MEASURES)
def test_a_claim_must_give_what_its_measure_needs(name):
    claim = {"id": "x", "figure": "f", "measure": name, "statement": "S"}
    for key in MEASURES[name].needs:
        with pytest.raises(ValueError, match=f"claim x: {key}: must be given"):
            check_claims([claim], [])
        claim[key] = 1


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
