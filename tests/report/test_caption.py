"""Test that captions say how a figure was made, and what its epsilon means."""

import math
import re

import pandas as pd
import pytest

from dp_erm_bench.report import captions
from dp_erm_bench.report.captions import caption_of, origin_in_words
from dp_erm_bench.report.draw import charts_of_figure
from dp_erm_bench.report.panels import Panel, look_up
from dp_erm_bench.results.runs import write_run

PANEL = Panel(
    "log1",
    "log1",
    ("DP-CD cyclic", "DP-SGD authors"),
    ("DP-CD cyclic",),
    {"DP-CD cyclic": "DP-CD"},
    "A note.",
)
PLAIN = Panel("log1", "log1", PANEL.lines)


def said(table, *panels, profile="smoke"):
    """The caption of the lines of panels against passes."""
    charts = [chart for one in panels for chart in look_up(table, one).along_passes]
    return caption_of(charts_of_figure(charts), PANEL.note, profile=profile)


@pytest.fixture
def text(tabulate):
    """Caption of two lines, given as keyword dictionaries."""

    def build(first=None, second=None):
        table = tabulate(first or {}, {"line": "DP-SGD authors", **(second or {})})
        return said(table, PANEL)

    return build


def test_caption_names_problem_budget_and_seeds(text):
    found = text()
    for words in (
        "Data: log1. n x p: 1000 x 100. loss: logistic. penalty: l2. strength: 0.001.",
        "epsilon: 1. delta: 1/n^2. adjacency: replace_one.\nCalibration: certified.",
        "Mean and min..max of 4 report runs, at settings tuned on other seeds (profile "
        "smoke).",
        "Dashed: the authors' own figure, means of ten runs.",
        "A note.",
    ):
        assert words in found


def test_standardised_data_are_called_so(text):
    given = {"standardise": True, "uncharged": "standardisation,smoothness,tuning"}
    found = text(given, given)
    assert "Data: log1, standardised." in found
    assert "Uncharged uses of the data: smoothness; standardisation; tuning." in found


def test_uncharged_is_always_printed(text):
    assert "Uncharged uses of the data: smoothness; tuning." in text()
    for one, other in (("", ""), (None, pd.NA)):
        found = text({"uncharged": one}, {"uncharged": other})
        assert "Uncharged uses of the data: none." in found


def test_uses_that_not_all_lines_make_are_told_with_whose_they_are(text):
    found = text({}, {"uncharged": "tuning"})
    assert 'Uncharged uses of the data: smoothness ("DP-CD, cyclic"); tuning.' in found


def test_calibration_and_unproved_epsilon_of_each_line(text):
    found = text({"certified": 0.997}, {"certified": 1.87, "calibration": "authors"})
    authors = """authors ("DP-SGD, authors' noise")."""
    assert f'Calibration: certified ("DP-CD, cyclic"); {authors}' in found
    own = (
        """for "DP-SGD, authors' noise"; at most the nominal one for all other lines."""
    )
    assert f"\nCertified epsilon: 1.87 times the nominal one {own}" in found
    for certified in (0.99, 1.0):
        text_of_all = text({}, {"certified": certified})
        assert "of every line is at most the nominal one." in text_of_all
    for certified in (None, math.nan):
        found = text({}, {"certified": certified})
        assert f"\nCertified epsilon: none proved {own}" in found
        assert "nan" not in found


def test_different_numbers_of_seeds(text):
    assert "of 2 to 4 report runs" in text({}, {"n_seeds": 2})


def test_delta_that_is_not_one_over_n_squared(tabulate):
    assert "delta: 0.001." in said(tabulate({}).assign(delta=1e-3), PLAIN)


def test_no_penalty(tabulate):
    found = said(tabulate({"penalty": "none"}), PLAIN)
    assert "penalty: none. epsilon" in found


def test_over_epsilon_the_caption_has_all_of_them(tabulate):
    table = tabulate(
        {"certified": 0.99},
        {"line": "DP-CD cyclic over epsilon", "epsilon": 0.1, "certified": 0.097},
        {"line": "DP-CD cyclic over epsilon", "epsilon": 10.0, "certified": 10.9},
    )
    found = caption_of(look_up(table, PANEL).along_epsilon, profile="default")
    assert "epsilon: 0.1, 1, 10. delta: 1/n^2." in found
    assert '1.09 times the nominal one for "DP-CD, cyclic".' in found
    assert "Median and min..max of 4 report runs" in found


def test_a_group_of_all_but_few_lines_is_described_by_the_few():
    labels = [*"abcde"]
    rows = pd.DataFrame({captions.TITLE: "one", captions.LABEL: labels})
    texts = pd.Series(["yes"] * 4 + ["no"])
    assert captions.tell_apart(rows, texts) == 'yes (all lines except "e"); no ("e")'
    assert captions.tell_apart(rows[1:], texts[1:]) == 'yes ("b", "c", "d"); no ("e")'


def test_what_holds_of_all_panels_stands_once_and_what_differs_with_its_panel(tabulate):
    table = tabulate(
        {"uncharged": "smoothness,tuning"},
        {"panel": "log2", "dataset": "log2", "uncharged": "standardisation,tuning"}
        | {"n": 50, "n_seeds": 3, "epsilon": 10.0},
    )
    found = said(table, PANEL, Panel("log2", "log2", PANEL.lines, epsilon=10.0))
    assert found.count("logistic") == found.count("replace_one") == 1
    for words in (
        "Data: log1 (a); log2 (b).",
        "n x p: 1000 x 100 (a); 50 x 100 (b).",
        "epsilon: 1 (a); 10 (b).",
        "Mean and min..max of 4 report runs (a); median and min..max of 3 report runs "
        "(b), at",
        "Uncharged uses of the data: smoothness (a); standardisation (b); tuning.",
    ):
        assert words in found, found


def test_lines_that_lie_on_each_other_are_told(tabulate):
    same = {"line": "DP-SGD authors"}
    found = said(tabulate({}, same), PLAIN)
    names = """"DP-CD, cyclic" and "DP-SGD, authors' noise\""""
    assert f"coincide: {names} (log1)." in found
    assert "coincide" not in said(tabulate({}, same | {"end": 0.2}), PLAIN)


RUN = "01700000000000000000-here-"


def rows_of(*runs):
    return pd.DataFrame({"run": [*runs], "algorithm": "gd"})


def manifest(folder, run, git):
    write_run(folder, {"run": run, "environment": {"git": git}})


def test_the_caption_leads_to_the_runs_and_their_commits(tmp_path):
    manifest(tmp_path, f"{RUN}1", {"commit": "0123456789", "dirty": False})
    manifest(tmp_path, f"{RUN}2", {"commit": "abcdefabcd", "dirty": True})
    found = origin_in_words(rows_of(f"{RUN}1", f"{RUN}2", f"{RUN}1"), tmp_path)
    assert found == (
        f"Computed by runs/{RUN}2 (commit abcdefa, with changes), "
        f"{RUN}1 (commit 0123456)."
    )
    for run in re.findall(r"\d{20}-\w+-\d+", found):
        assert (tmp_path / "runs" / f"{run}.json").is_file()


def test_of_many_runs_the_latest_are_named_and_the_rest_is_in_the_log(tmp_path):
    found = origin_in_words(rows_of(*(f"{RUN}{n}" for n in range(5))), tmp_path)
    assert re.findall(r"here-(\d)", found) == ["4", "3", "2"]
    assert found.count("commit unknown") == 3
    assert found.endswith("; 2 more in log.txt.")


@pytest.mark.parametrize("names", [[], [""], [None], [pd.NA, ""]])
def test_records_of_unknown_runs_name_none(tmp_path, names):
    assert origin_in_words(rows_of(*names), tmp_path) == ""


@pytest.mark.parametrize("environment", [None, {}, {"git": None}])
def test_a_run_outside_a_checkout_has_no_commit(tmp_path, environment):
    write_run(tmp_path, {"run": f"{RUN}1", "environment": environment})
    assert captions.commit_in_words(tmp_path, f"{RUN}1") == "commit unknown"
