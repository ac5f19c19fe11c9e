"""Test what claims must state, against the measures that read them."""

import subprocess
import sys
from string import Formatter

import pytest

from dp_erm_bench.report.claims.judge import COMMON, check_claims
from dp_erm_bench.report.claims.lookup import NOISE
from dp_erm_bench.report.claims.measures import MEASURES
from dp_erm_bench.report.lines import Lines, LinesCell
from tests.loops import each

LIGHT = """
import sys
import dp_erm_bench.report.make, dp_erm_bench.report.panels, dp_erm_bench.report.lines
print(*(name for name in ("pandas", "matplotlib", "numba") if name in sys.modules))
"""
OURS = {"whose": "ours", "good": "none", "reason": "a constant"}
LINES = {"size_1": ["a", "b"], "size_9": ["a", "b"]}
RELEASES = {"chosen": {"algorithm": "greedy_cd", "release": "select"}}
SOURCE = {"kind": "noise", "axis": "p", "values": [1, 2], "releases": RELEASES}
OF_NOISE = Lines("noise", (LinesCell("t", source=SOURCE),))


def test_what_is_checked_before_a_run_imports_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []


@each("name", MEASURES)
def test_the_words_of_a_measure_name_keys_that_it_needs(name):
    measure = MEASURES[name]
    fields = {field for _, field, _, _ in Formatter().parse(measure.words) if field}
    more = ["n"] if measure.lines == NOISE else ["statistic"]
    assert fields <= {*measure.needs, *more}
    assert not set(measure.needs) & set(COMMON)
    assert measure.function.__name__ == name


@each("name", MEASURES)
def test_a_claim_must_give_what_its_measure_needs(name):
    claim = {"id": "x", "figure": "f", "measure": name, "statement": "S", **OURS}
    claim = {k: v for k, v in claim.items() if k not in MEASURES[name].needs}
    for key in MEASURES[name].needs:
        with pytest.raises(ValueError, match=f"claim x: {key}: must be given"):
            check_claims([claim], {})
        claim[key] = 1


@pytest.mark.parametrize("axis", ["quotient", "n"])
def test_a_family_of_panels_has_the_lines_of_all(axis):
    claim = {"id": "x", "figure": "size", "statement": "S", "at_most": 1, **OURS}
    slope = {**claim, "measure": "slope", "axis": axis, "line": ["a", "b"]}
    check_claims([slope], LINES)
    for wrong in ({"line": "c"}, {"figure": "weight"}, {"axis": "seed"}):
        with pytest.raises(ValueError, match="claim x: "):
            check_claims([{**slope, **wrong}], LINES)


def test_without_an_axis_a_family_of_panels_is_none():
    claim = {"id": "x", "figure": "size", "statement": "S", "at_most": 1, **OURS}
    final = {**claim, "measure": "certified_epsilon", "line": "a"}
    check_claims([{**final, "figure": "size_1"}], LINES)
    with pytest.raises(ValueError, match="claim x: figure=size .*must be one of"):
        check_claims([final], LINES)


@pytest.mark.parametrize("axis", ["quotient", "n"])
def test_a_name_of_a_panel_and_of_a_family_is_refused_along_an_axis(axis):
    claim = {"id": "x", "figure": "size", "statement": "S", "at_most": 1, **OURS}
    slope = {**claim, "measure": "slope", "axis": axis, "line": "a"}
    with pytest.raises(ValueError, match="size=?.* is a panel and the beginning of s"):
        check_claims([slope], {**LINES, "size": ["a"]})
    check_claims([slope], {**LINES, "sizes": ["a"]})


def test_a_line_of_a_family_is_in_each_of_its_panels():
    claim = {"id": "x", "figure": "size", "statement": "S", "at_most": 1, **OURS}
    slope = {**claim, "measure": "slope", "axis": "n", "line": "b"}
    with pytest.raises(ValueError, match="figure size: line=b"):
        check_claims([slope], {**LINES, "size_9": ["a"]})


def test_noise_needs_no_panel_but_a_figure():
    claim = {"id": "x", "figure": "noise", "statement": "{line}", "at_least": 1, **OURS}
    slope = {**claim, "measure": "noise_slope", "line": "chosen"}
    check_claims([slope], {}, [OF_NOISE])
    with pytest.raises(ValueError, match="figure=noise: there is none"):
        check_claims([slope], {})
    with pytest.raises(ValueError, match="figure noise: line=c.*must be one of chosen"):
        check_claims([{**slope, "line": "c"}], LINES, [OF_NOISE])


@pytest.mark.parametrize("where", [3, ["a"], "a"])
def test_a_cell_is_found_by_a_mapping(where):
    claim = {"id": "x", "figure": "f", "measure": "cell", "column": "c", **OURS}
    claim |= {"at_most": 1, "statement": "S"}
    check_claims([{**claim, "where": {"n": 1}}], {})
    with pytest.raises(ValueError, match="where=.*: must map columns to values"):
        check_claims([{**claim, "where": where}], {})


SLOPE = {"id": "x", "figure": "size", "statement": "S", "at_most": 1, "axis": "n"}
SLOPE |= {"measure": "slope", "line": ["a", "b"], "whose": "paper", "good": "{line}"}
SLOPE |= {"source": "Theorem 2, {axis}", "kind": "claim"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"good": "c"}, "good=c: must be one of none, a, b"),
        ({"good": "{over}"}, "good={over}: braces must name keys of the claim"),
        ({"good": None}, "good: must be given for measure=slope"),
        ({"good": "none"}, "reason: must be given for good=none"),
        ({"whose": None}, "whose: must be given"),
        (
            {"whose": "theirs"},
            "whose=theirs: must be one of paper, authors' figure, ou",
        ),
        ({"expected": "loses: a tie"}, "expected=loses: must be one of vacuous, undec"),
        ({"source": None}, "source=None: must be a word"),
        ({"source": ""}, "source: must be given for whose=paper"),
        ({"whose": "as reported", "source": ""}, "source: must be given for whose=as "),
        ({"source": "Theorem {n}"}, "source=Theorem {n}: braces must name keys"),
        ({"kind": "guess"}, "kind=guess: must be one of claim, fact, arithmetic"),
        ({"statistic": "mode"}, "statistic=mode.*must be one of mean, median"),
        ({"per": "data_seed"}, "key=per: must be one of"),
    ],
)
def test_a_claim_says_whose_it_is_and_what_is_good(change, said):
    without = {k: v for k, v in SLOPE.items() if k not in ("source", "kind")}
    check_claims([SLOPE, {**SLOPE, "expected": "fails: a tie"}], LINES)
    check_claims([{**without, "whose": "ours"}], LINES)
    with pytest.raises(ValueError, match="x: source: must be given for whose=paper$"):
        check_claims([without], LINES)
    with pytest.raises(ValueError, match=f"claim x: {said}"):
        check_claims([{**SLOPE, **change}], LINES)


def test_a_line_of_noise_is_none_that_can_be_good():
    claim = {"id": "x", "figure": "noise", "statement": "S", "at_least": 1}
    claim |= {"measure": "noise_slope", "line": "chosen", "whose": "ours"}
    with pytest.raises(ValueError, match="good=chosen: must be one of none"):
        check_claims([{**claim, "good": "{line}"}], {}, [OF_NOISE])
