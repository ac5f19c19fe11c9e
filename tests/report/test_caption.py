"""Captions say what stands behind a figure, and what its epsilon is worth."""

import math
import re

import pandas as pd
import pytest

from dp_erm_bench.report import panels
from dp_erm_bench.report.curves import line_errors
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


@pytest.fixture
def text(tabulate):
    """Caption of two lines, given as keyword dictionaries."""

    def build(first=None, second=None):
        table = tabulate(first or {}, {"line": "DP-SGD authors", **(second or {})})
        return panels.caption_of(PANEL, look_up(table, PANEL).lines, "smoke")

    return build


def test_caption_names_problem_budget_and_seeds(text):
    found = text()
    assert "log1: n x p = 1000 x 100, logistic loss, l2 penalty 0.001." in found
    assert "epsilon = 1, delta = 1/n^2 = 1e-06, adjacency replace_one." in found
    assert "Median and min..max of 4 report seeds" in found
    assert "(profile smoke)" in found
    assert "A note." in found
    assert "Dashed: the authors' own figure." in found


def test_standardised_data_are_called_so(text):
    given = {"standardise": True, "uncharged": "standardisation,smoothness,tuning"}
    found = text(given, given)
    assert found.startswith("log1, standardised: n x p")
    assert "Uncharged: standardisation, smoothness, tuning." in found


def test_uncharged_is_always_printed(text):
    assert "Uncharged: smoothness, tuning." in text()
    assert "Uncharged: none." in text({"uncharged": ""}, {"uncharged": ""})
    assert "Uncharged: none." in text({"uncharged": None}, {"uncharged": pd.NA})


def test_lines_with_other_uncharged_uses_are_told_apart(text):
    found = text({}, {"uncharged": "tuning"})
    assert (
        "Uncharged: smoothness, tuning (DP-CD, cyclic); "
        "tuning (DP-SGD, authors' noise)." in found
    )


def test_certified_epsilon_and_calibration_of_each_line(text):
    found = text({"certified": 0.997}, {"certified": 1.87, "calibration": "authors"})
    assert "DP-CD, cyclic: 0.997 (certified)" in found
    assert "DP-SGD, authors' noise: 1.87 (authors)" in found


@pytest.mark.parametrize("missing", [None, math.nan])
def test_no_certificate_is_none_not_nan(text, missing):
    found = text({}, {"certified": missing, "calibration": "paper (not proved)"})
    assert "DP-SGD, authors' noise: none (paper (not proved))" in found
    assert "nan" not in found


def test_different_numbers_of_seeds(text):
    assert "of 2 or 4 report seeds" in text({}, {"n_seeds": 2})


def test_delta_that_is_not_one_over_n_squared(tabulate):
    table = tabulate({})
    table["delta"] = 1e-3
    run = line_errors(table, "log1", "DP-CD cyclic")
    assert panels.budget_in_words(run.facts).startswith("delta = 0.001, ")


def test_no_penalty(tabulate):
    run = line_errors(tabulate({"penalty": "none"}), "log1", "DP-CD cyclic")
    assert panels.problem_in_words(run.facts).endswith("logistic loss, no penalty.")


def test_epsilon_caption(tabulate):
    table = tabulate(
        {"certified": 0.99},
        {"line": "DP-CD cyclic over epsilon", "epsilon": 0.1, "certified": 0.097},
        {"line": "DP-CD cyclic over epsilon", "epsilon": 10.0, "certified": 9.9},
    )
    found = panels.epsilon_caption(look_up(table, PANEL).over_epsilon, "default")
    assert "DP-CD, cyclic: 0.097 at 0.1, 0.99 at 1, 9.9 at 10." in found
    assert "Passes as chosen at epsilon = 1." in found
    assert "Uncharged: smoothness, tuning." in found
    assert "delta = 1/n^2" in found


@pytest.mark.parametrize(
    ("certified", "exceeds"),
    [(0.99, False), (1.0, False), (1.01, True), (math.nan, True), (None, True)],
)
def test_unproved_epsilon_is_named_in_the_overview(tabulate, certified, exceeds):
    table = tabulate({}, {"line": "DP-SGD authors", "certified": certified})
    found = panels.overview_caption([look_up(table, PANEL).lines], "default")
    last = found.splitlines()[-1]
    assert last.startswith("Certified epsilon above the nominal one or unknown:")
    assert last.endswith("DP-SGD, authors' noise." if exceeds else "no line.")


def test_overview_lists_every_problem_and_all_uncharged_uses(tabulate):
    table = tabulate(
        {"uncharged": "smoothness,tuning"},
        {"panel": "log2", "dataset": "log2", "uncharged": "standardisation,tuning"},
    )
    both = [PANEL, Panel("log2", "log2", PANEL.lines)]
    lines = [look_up(table, panel).lines for panel in both]
    found = panels.overview_caption(lines, "default")
    assert re.search(r"log1: n x p.*log2: n x p", found)
    assert "Uncharged: smoothness, standardisation, tuning." in found


def test_overview_names_other_epsilons(tabulate):
    other = Panel("log2", "log2", PANEL.lines, epsilon=10.0)
    table = tabulate({}, {"panel": "log2", "epsilon": 10.0})
    lines = [look_up(table, panel).lines for panel in (PANEL, other)]
    found = panels.overview_caption(lines, "default")
    assert "epsilon = 1 (where a title says so, 10), delta" in found
    assert "epsilon = 1, delta" in panels.overview_caption(lines[:1], "default")


def test_overview_without_uncharged_uses(tabulate):
    lines = look_up(tabulate({"uncharged": pd.NA}), PANEL).lines
    assert "Uncharged: none." in panels.overview_caption([lines], "default")


def test_setting_is_readable(tabulate):
    run = line_errors(tabulate({"passes": 20.0}), "log1", "DP-CD cyclic")
    assert panels.setting_in_words(run) == "clip=1.25, passes=20, step=0.5"


RUN = "01700000000000000000-here-"


@pytest.fixture
def drawn(tabulate):
    """Curves of lines whose runs are given, one list for each line."""

    def build(*runs):
        found = []
        for number, names in enumerate(runs):
            table = tabulate({"line": str(number), "n_seeds": max(len(names), 1)})
            if names:
                table["run"] = [names[seed] for seed in table["seed"]]
            found.append(line_errors(table, "log1", str(number)))
        return found

    return build


def manifest(folder, run, git):
    write_run(folder, {"run": run, "environment": {"git": git}})


def test_the_caption_leads_to_the_runs_and_their_commits(drawn, tmp_path):
    manifest(tmp_path, f"{RUN}1", {"commit": "0123456789", "dirty": False})
    manifest(tmp_path, f"{RUN}2", {"commit": "abcdefabcd", "dirty": True})
    found = panels.origin_in_words(drawn([f"{RUN}1"], [f"{RUN}2", f"{RUN}1"]), tmp_path)
    assert found == (
        f"Computed by runs/{RUN}2 (commit abcdefa, with changes), "
        f"{RUN}1 (commit 0123456)."
    )
    for run in re.findall(r"\d{20}-\w+-\d+", found):
        assert (tmp_path / "runs" / f"{run}.json").is_file()


def test_of_many_runs_the_latest_are_named_and_the_rest_is_in_the_log(drawn, tmp_path):
    found = panels.origin_in_words(drawn([f"{RUN}{n}" for n in range(5)]), tmp_path)
    assert re.findall(r"here-(\d)", found) == ["4", "3", "2"]
    assert found.count("commit unknown") == 3
    assert found.endswith("; 2 more in log.txt.")


@pytest.mark.parametrize("names", [[], [""], [None], [pd.NA, ""]])
def test_records_of_unknown_runs_name_none(drawn, tmp_path, names):
    assert panels.origin_in_words(drawn(names), tmp_path) == ""


@pytest.mark.parametrize("environment", [None, {}, {"git": None}])
def test_a_run_outside_a_checkout_has_no_commit(tmp_path, environment):
    write_run(tmp_path, {"run": f"{RUN}1", "environment": environment})
    assert panels.commit_in_words(tmp_path, f"{RUN}1") == "commit unknown"
