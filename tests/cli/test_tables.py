"""Test the commands export, list results and compare --between.

The page of columns is tested, too.
"""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

import dp_erm_bench
from dp_erm_bench import load_results, plot
from dp_erm_bench.cli.main import main
from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import POPULATION
from dp_erm_bench.report.plot import caption_of_view, sheet_of_view
from dp_erm_bench.report.view import (
    VERDICT,
    View,
    rows_of_view,
    summary_of,
    summary_text,
)
from dp_erm_bench.results.columns import columns_page
from dp_erm_bench.results.files import as_it_was, csv_of
from dp_erm_bench.results.store import planned_lines
from dp_erm_bench.results.table import COLUMNS, lacking_in_words
from tests.cli.test_plot import SWEEP, made
from tests.loops import each

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("sweep")
    assert main([*SWEEP, f"results_dir={home}", "name=small"]) == 0
    return home / "small"


def said(capsys, *arguments, code=0):
    assert main([*map(str, arguments)]) == code
    out, err = capsys.readouterr()
    assert not code or (err.count("\n") == 1 and err.startswith("dp-erm-bench: "))
    return err if code else out


def test_the_page_of_columns_is_that_of_the_code():
    assert (ROOT / "docs" / "table.md").read_text() == columns_page()


def test_every_column_of_a_table_is_explained(folder):
    table = load_results(folder)
    assert list(table.columns) == list(COLUMNS)
    assert list(dp_erm_bench.COLUMNS) == [*COLUMNS, *POPULATION]
    for name, column in dp_erm_bench.COLUMNS.items():
        assert column.meaning and column.empty, name
        if name in POPULATION:  # only where a trial is judged by fresh records
            continue
        kind = {"string": "O", "bool": "b", "int64": "if", "float64": "f"}[column.dtype]
        assert table[name].dtype.kind in kind or column.dtype == "string", name
        if column.empty == "never":
            assert table[name].notna().all(), name


def test_what_would_be_pooled_is_told_apart_as_the_refusal_says(folder, capsys):
    given = ("export", folder, "--y", "objective", "--line", "algorithm")
    told = said(capsys, *given, code=2)
    assert "would pool 2 values of random_cd.clip (0.5, 1); keep one of them " in told
    assert "with --where random_cd.clip=VALUE, or add random_cd.clip to --line" in told
    kept = said(capsys, *given, "--where", "random_cd.clip=0.5")
    assert kept.splitlines()[0].split(" | ")[1:] == ["random_cd", "w = 0 |"]
    added = said(capsys, *given[:-1], "algorithm,random_cd.clip").splitlines()[0]
    assert "random_cd, clip=0.5 | random_cd, clip=1 | gd" in added


def test_medians_and_intervals_are_exported(folder, capsys, tmp_path):
    given = ("export", folder, "--y", "objective")
    text = said(capsys, *given)
    lines = text.splitlines()
    assert lines[0].split(" | ")[1:] == [
        "random_cd, clip=0.5",
        "random_cd, clip=1",
        "gd",
        "w = 0 |",
    ]
    problems = [f"{panel}, epsilon = {e}" for panel in ("log1", "log2") for e in (1, 4)]
    crowned = []
    for line, problem in zip(lines[2:], problems, strict=True):
        name = line.split(" | ")[0].removeprefix("| ")
        won = name == f"{problem} (no intercept)"
        assert won or name == f"{problem} (nothing beats w = 0)"
        assert line.count("**") == 2 * won
        crowned.append(won)
    latex = said(capsys, *given, "--format", "latex")
    assert latex.count(r"\bfseries") == sum(crowned)
    assert r"random\_cd, clip=0.5" in latex
    assert latex.startswith(r"\begin{tabular}{lrrrr}")
    said(capsys, *given, "--format", "csv", "--out", tmp_path / "a.csv")
    said(capsys, *given, "--format", "parquet", "--out", tmp_path / "a.parquet")
    read = (
        pd.read_csv(tmp_path / "a.csv", dtype=dict.fromkeys(VERDICT, "object")).fillna(
            dict.fromkeys(VERDICT, "")
        ),
        pd.read_parquet(tmp_path / "a.parquet"),
    )
    pd.testing.assert_frame_equal(*read, check_dtype=False)
    table = load_results(folder)
    ends = table.drop_duplicates("trial", keep="last")
    medians = ends.groupby(["panel", "epsilon", "line"])["objective"].median()
    assert set(read[0].loc[read[0]["runs"].eq(0), "line"]) == {"w = 0"}
    for row in read[0][read[0]["runs"].gt(0)].to_dict("records"):
        median = medians[row["panel"], row["epsilon"], row["line"]]
        assert row["median"] == pytest.approx(median) and row["runs"] == 6
        assert row["ci_low"] <= row["median"] <= row["ci_high"]
    best = read[0].groupby(["panel", "epsilon"])["best"].sum()
    assert [*best] == crowned and set(crowned) <= {True, False}


def test_the_best_is_the_highest_where_higher_is_better():
    table = made(lines=2, epsilons=(1.0, 2.0))
    table["auc"] = 0.6 + 0.1 * table["line"].str.contains("1.5")
    found = summary_of(rows_of_view(table, View("epsilon", "auc")))
    assert set(found.loc[found["best"], "line"]) == {"gd, step=1.5"}


def with_start(table, zero, y="objective"):
    """A table whose runs begin with a value of w = 0."""
    return table.assign(**{y: table[y].mask(table["iteration"].eq(0), zero)})


@pytest.mark.parametrize(
    ("zero", "beats", "place"),
    [
        # Medians over seeds are about 1.1, 2.1 and 3.1.
        (0.9, ["no", "no", "no"], ["", "", ""]),
        (1.1, ["tie", "no", "no"], ["", "", ""]),
        (2.5, ["yes", "yes", "no"], ["wins", "", ""]),
    ],
)
def test_nothing_is_crowned_that_w_0_beats(zero, beats, place):
    table = made(lines=3, places=2)
    table["objective"] = table["relative_error"] * (1 + table["iteration"])
    drawn = rows_of_view(with_start(table, zero), View("epsilon", "objective"))
    found = summary_of(drawn)
    assert [*found["line"]] == ["gd, step=0.5", "gd, step=1.5", "gd, step=2.5", "w = 0"]
    assert [*found["beats_zero"]] == [*beats, ""]
    assert [*found["place"]] == [*place, ""]
    assert found["median"].iloc[-1] == zero and found["runs"].iloc[-1] == 0
    text = summary_text(found, "markdown")
    assert ("nothing beats w = 0" in text) == ("wins" not in place)
    assert text.count("**") == 2 * ("wins" in place)


@each(
    "model, unbeaten, place",
    [
        # Medians of the three lines are about 1.1, 2.1 and 3.1; w = 0 has 9.
        ({"objective": 5.0}, ["", "", ""], ["wins", "", ""]),
        ({"objective": 1.6}, ["", *["the mean"] * 2], ["wins", "", ""]),
        ({"objective": 1.1}, ["the mean"] * 3, ["", "", ""]),
        ({"objective": 0.1, "test_risk": 9.0}, ["the mean"] * 3, ["", "", ""]),
        # Without an intercept its loss is no bound: a line must only not be worse.
        ({"test_risk": 1.1}, ["", "risk", "risk"], ["wins", "", ""]),
        ({"test_risk": 0.5}, ["risk"] * 3, ["", "", ""]),
        ({"test_risk": None}, ["", "", ""], ["wins", "", ""]),
        ({}, ["", "", ""], ["wins", "", ""]),
    ],
)
def test_nothing_is_crowned_that_the_constant_model_beats(model, unbeaten, place):
    """Whatever is shown: objectives decide, or held-out losses where it has none."""
    y = "auc" if unbeaten[0] else "objective"
    table = made(lines=3, places=2)
    ends = table["relative_error"] * (1 + table["iteration"])
    known = {"mean": {"train_risk": 1.0, **model}}
    table = table.assign(objective=ends, test_risk=ends, auc=1.0 - ends / 9.0)
    table["references"] = json.dumps(known)
    table = with_start(with_start(table, 9.0), 0.0, "auc")
    found = summary_of(rows_of_view(table, View("epsilon", y)))
    found = found[found["runs"].gt(0)]
    name = "the mean by test risk, no intercept"
    expected = [name if one == "risk" else one for one in unbeaten]
    assert [*found["unbeaten"]] == expected
    assert [*found["place"]] == place
    text = summary_text(found, "markdown")
    assert text.count("**") == 2 * ("wins" in place)
    nothing = f"(nothing beats {expected[0]})" if all(expected) else ""
    assert nothing in text
    assert (name in text) == (nothing != "" and "risk" in unbeaten)
    said = "objective" not in model and "wins" in place
    assert ("(no intercept)" in text) == said


def test_lines_that_no_interval_tells_apart_tie_everywhere():
    table = made(lines=2, places=2, seeds=9)
    table["objective"] = (
        1.0 + 0.1 * table["seed"] + 1e-3 * table["line"].eq("gd, step=1.5")
    )
    drawn = rows_of_view(with_start(table, 5.0), View("epsilon", "objective"))
    assert [*summary_of(drawn)["place"]] == ["wins", "ties", ""]


@pytest.mark.parametrize("seeds", [1, 5])
def test_few_runs_have_no_interval_and_do_not_win(seeds):
    # All 5 lie on one side of their median with probability 2 / 2^5 > 5 %.
    table = with_start(made(lines=2, places=2, seeds=seeds), 99.0, "relative_error")
    found = summary_of(rows_of_view(table, View("epsilon", "relative_error")))
    assert found["ci_low"].isna().all() and not found["best"].any()
    assert [*found["beats_zero"]] == ["tie", "tie", ""]
    text = summary_text(found, "markdown")
    assert "nan" not in text and "**" not in text and "nothing beats" not in text
    assert "fewer than 6 runs have no 95 % interval" in text


@pytest.mark.parametrize("kind", [None, "winners", "profile"])
def test_lines_that_minimise_other_functions_are_not_compared(kind, tmp_path):
    table = with_start(made(lines=2, places=2, epsilons=(1.0, 4.0)), 9.0)
    first = table["line"].eq("gd, step=0.5")
    table = table.assign(
        strength=np.where(first, 0.1, 0.2),
        relative_error=table["relative_error"].mask(
            table["iteration"].eq(0), np.where(first, 8.0, 9.0)
        ),
    )
    drawn = rows_of_view(table, View("epsilon", "relative_error", line=("strength",)))
    assert (
        "differ in strength minimise different functions, so none wins" in drawn.unlike
    )
    # w = 0 has another relative error under each: none is that of both.
    assert drawn.baselines == []
    if kind is None:
        assert not summary_of(drawn)["best"].any()
        view = {"x": "epsilon", "y": "relative_error", "line": "strength"}
        ax = plot(table.assign(panel="a"), **view).axes[0]
        own = [line for line in ax.lines if line.get_label() == "_w = 0"]
        # Each line's own is drawn all the same.
        assert [{*line.get_ydata()} for line in own] == [{8.0}, {9.0}]
    else:
        # The ratio of relative errors of two functions says nothing.
        with pytest.raises(UsageError, match="differ in strength minimise different"):
            plot(table.assign(panel="a"), y="relative_error", kind=kind)
    # The same function at w = 0, whatever the strength: log 2 of a logistic loss.
    assert rows_of_view(table, View("epsilon", "objective")).baselines == ["w = 0"]


def test_held_out_records_show_what_is_not_private():
    table = made(lines=2, places=2).assign(
        test_accuracy=0.7,
        auc=0.6,
        references=json.dumps(
            {
                "base_rate": {"test_accuracy": 0.8, "auc": 0.5},
                "optimum": {"test_accuracy": 0.9, "auc": 0.95},
            }
        ),
    )
    table = with_start(table, 0.2, "test_accuracy")
    for y, levels in (("test_accuracy", [0.8, 0.8, 0.9]), ("auc", [0.5, 0.5, 0.95])):
        found = summary_of(rows_of_view(table, View("epsilon", y)))
        beside = found[found["runs"].eq(0)]
        assert [*beside["line"]] == [
            *("w = 0", "base rate (not private)", "optimum (not private)")
        ]
        assert [*beside["median"]] == levels
        assert found["best"].any() == (y == "auc")
    odd = table.assign(references='{"optimum": 1}')
    assert (
        summary_of(rows_of_view(odd, View("epsilon", "auc")))["runs"].eq(0).sum() == 1
    )


@each("kind", ["latex", "markdown", "csv"])
@each("name", ["$x_", "a|b", "a & b", "数据", r"\x"])
def test_any_name_is_a_cell(kind, name):
    found = summary_of(
        rows_of_view(made(lines=1, line=name, panel=name), View("epsilon"))
    )
    text = summary_text(found, kind)
    if kind == "latex":
        assert text.count("\n") == 8 and text.count("&") >= 2
        assert "$x" not in text.replace(r"\$x", "")


def test_a_table_is_told_what_a_caption_says(folder, capsys):
    assert main(["export", str(folder), "--y", "objective"]) == 0
    err = capsys.readouterr().err
    said = "Median and its 95 % interval over 6 seeds and 1 draw of the data.\n"
    assert err.startswith("Objective F(w).\nData: log1 (log1); log2 (log2). n x p: 80 ")
    assert f"\n{said}" in err
    assert (
        "Uncharged uses of the data: smoothness" in err
        and "epsilon of every line is at most" in err
    )


def test_whose_uses_were_not_charged_is_told():
    frame = made(uncharged="smoothness")
    tuned = frame["line"].str.contains("1.5")
    frame["uncharged"] = frame["uncharged"].mask(tuned, "smoothness,tuning")
    one, other = dict.fromkeys(frame["line"])
    said = caption_of_view(rows_of_view(frame, View("epsilon")), "About.")
    assert (
        f'Uncharged uses of the data: smoothness; tuning ("{other}").' in said
        and one not in said
    )


@each(
    ("changed", "named"),
    [
        ({"delta": 1e-2}, "delta"),
        ({"adjacency": "zero_out", "delta": 1e-3}, "delta and adjacency"),
        ({"epsilon_certified": 9.0}, "whether epsilon is proved"),
    ],
)
def test_lines_with_other_guarantees_are_not_ranked(changed, named):
    frame = made().assign(delta=1e-6, adjacency="replace_one", epsilon_certified=1.0)
    frame["references"] = json.dumps({"w = 0": {"relative_error": 99.0}})
    drawn = rows_of_view(frame, View("epsilon"))
    assert summary_of(drawn)["best"].sum() == 1 and "guarantees" not in drawn.unlike
    other = frame["line"].str.contains("1.5")
    for key, value in changed.items():
        frame[key] = frame[key].mask(other, value)
    drawn = rows_of_view(frame, View("epsilon"))
    said = f"Lines that differ in {named} have different guarantees, so none wins."
    assert not summary_of(drawn)["best"].any() and drawn.unlike == said
    # On other panels they are no rivals.
    frame = frame.assign(panel=frame["line"], phase="report")
    assert summary_of(rows_of_view(frame, View("epsilon")))["best"].sum() == 2


def test_runs_that_share_data_are_told_where_intervals_pool_them():
    words = "runs with one dataset_seed share records and split", "too narrow for other"
    one, other = made(seeds=3), made(seeds=3).assign(dataset_seed=1)
    other["trial"] += " on other data"
    both = pd.concat([one, other], ignore_index=True)
    view = View("epsilon", statistic="mean")
    how = rows_of_view(both, view).statistic_in_words
    assert how.startswith("mean and min..max over 3 seeds and 2 splits; ")
    assert all(word in how for word in words)
    # What is judged are splits: the mean of their medians, by Student's law.
    judged = rows_of_view(both, replace(view, statistic="interval"))
    said = "where a dataset_seed has several runs, the mean of its values' medians"
    assert (
        said in judged.statistic_in_words
        and "fewer than" not in judged.statistic_in_words
    )
    ends = [one.drop_duplicates("trial", keep="last") for one in (one, other)]
    medians = [own.groupby("line")["relative_error"].median() for own in ends]
    found = summary_of(judged).query("runs > 0")
    assert found["beats_constant"].eq("").all()  # there is none
    found = found["median"]
    assert np.allclose(found, np.mean(medians, axis=0))
    # One run on each, or all on one: there is nothing to tell.
    alone = both[both["seed"].eq(0)]
    apart = replace(view, panel=("dataset_seed",))
    for table, asked in ((alone, view), (one, view), (both, apart)):
        assert words[0] not in rows_of_view(table, asked).statistic_in_words


def test_every_folder_that_is_not_whole_is_named(folder, tmp_path):
    parts = [tmp_path / name for name in "abc"]
    for part in parts:
        shutil.copytree(folder, part)
    for part in parts[:2]:
        records = part / "records.jsonl"
        lines = records.read_bytes().splitlines(keepends=True)
        records.write_bytes(b"".join(lines[:-1]))
    view = View("epsilon", folder=parts[0], others=tuple(parts[1:]))
    said = "Incomplete: 1 of 72 planned trials have no record"
    told = rows_of_view(load_results(parts), view).left_out
    assert [one.partition(";")[0] for one in told] == [f"a: {said}", f"b: {said}"]


def test_a_folder_that_a_run_left_unfinished_says_so(folder, tmp_path, capsys):
    half = tmp_path / "half"
    shutil.copytree(folder, half)
    (half / "results.parquet").unlink()
    for path in [half / "records.jsonl"]:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: len(lines) // 2]))
    kept = load_results(half)["trial"].nunique()
    said = f"Incomplete: {72 - kept} of 72 planned trials have no record"
    assert 0 < kept < 72 and lacking_in_words(folder) == ""
    capsys.readouterr()
    assert main(["export", str(half), "--y", "objective"]) == 0
    beside = capsys.readouterr().err
    assert said in beside and "\nObjective F(w).\n" in f"\n{beside}"
    assert main(["compare", str(folder), str(half)]) == 0
    assert capsys.readouterr().err.count(f"lacks {72 - kept} planned trials") == 1
    view = View("epsilon", folder=half)
    for kind in ("curves", "profile", "winners"):
        assert said in sheet_of_view(load_results(half), view, kind).caption
    # They read what the manifest notes of the table, not the plan.
    reader = "dp_erm_bench.results.table.planned_lines"
    with patch(reader, wraps=planned_lines) as read:
        plan = half / "plan.jsonl"
        plan.write_bytes(b"".join(plan.read_bytes().splitlines(keepends=True)[:-1]))
        whole = load_results(half)
        assert all(rows_of_view(whole, view).left_out for _ in range(3))
        assert not read.called


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("--format word", "--format=word"),
        ("--format parquet", "add --out FILE"),
        ("--x passes", "ends of runs"),
        ("--y auc", "no trial has a value of auc"),
        ("--out /dev/null/a.csv --format csv", "/dev/null"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(folder, given, why, capsys, monkeypatch):
    if "nowhere" in given:
        monkeypatch.setattr(
            "dp_erm_bench.report.layout.write_atomic",
            lambda *_: (_ for _ in ()).throw(OSError(2, "no")),
        )
    assert why in said(capsys, "export", folder, *given.split(), code=2)


def test_what_folders_hold_is_listed(folder, capsys, tmp_path):
    text = said(capsys, "list", "results", folder.parent)
    assert f"{folder}: 72 ok" in text and "complete" in text
    assert "dp-erm-bench dataset=log1,log2" in text and "version" in text
    assert said(capsys, "list", "results", folder) == text
    assert said(capsys, "list", folder) == text
    assert said(capsys, "list", folder.parent) == text
    (tmp_path / "odd").mkdir()
    assert "or no results" in said(capsys, "list", "results", tmp_path, code=2)
    assert "no such" in said(capsys, "list", "results", tmp_path / "x", code=2)
    (tmp_path / "odd" / "plan.jsonl").write_text("")
    (tmp_path / "odd" / "manifest.json").write_text(
        json.dumps({"counts": 3, "command": 1})
    )
    assert "did not end" in said(capsys, "list", "results", tmp_path)


def test_the_values_of_a_key_are_compared_within_one_folder(folder, capsys):
    given = ("compare", folder, "--between")
    text = said(capsys, *given, "algorithm", "--where", "clip=1")
    assert "A: algorithm=gd" in text and "B: algorithm=random_cd" in text
    assert "1 worse, 3 undecided" in text
    assert "B: clip=1\n" in said(
        capsys, *given, "clip", "--where", "algorithm=random_cd"
    )
    # Their steps are others, but both are what `auto` is.
    told = said(capsys, *given, "budget.epsilon")
    assert "B: budget.epsilon=4\n" in told and "step" not in told


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            "--between algorithm",
            "random_cd.clip; keep one of them with --where",
        ),
        ("--between loss", "it has one value here, logistic"),
        ("--between colour", "--between=colour"),
        ("--between clip --where colour=red", "--where=colour"),
        ("--between clip --where colour", "must be KEY=VALUE"),
        ("", "name two folders, or one"),
        ("--where clip=1", "name two folders, or one"),
    ],
)
def test_what_cannot_be_told_apart_is_a_sentence(folder, given, why, capsys):
    assert why in said(capsys, "compare", folder, *given.split(), code=2)


def test_folders_without_a_common_trial_are_told_the_key(folder, tmp_path, capsys):
    other = [*SWEEP[:1], "dataset.n=80", "dataset.p=4", "algorithm=gd"]
    other += ["algorithm.gd.clip=1", "algorithm.gd.n_iter=2", "budget.epsilon=7"]
    assert main([*other, f"results_dir={tmp_path}", "name=b", "runner.n_jobs=1"]) == 0
    capsys.readouterr()
    text = said(capsys, "compare", folder, tmp_path / "b", code=2)
    assert "epsilon is 1, 4 in A and 7 in B" in text
    assert "dataset" not in text and "--ignore KEY" in text


RUN = ["=1+1", "+cmd|' /C calc'!A0", "-a", "@SUM(A1)", "\tx", "\rx", "'=x", "＝1"]


def test_no_cell_of_a_csv_is_run_by_a_spreadsheet(folder, capsys, tmp_path):
    plain = ["a", "-1.5", "+2", "-inf", "'x", "", "1=2", "a@b"]
    table = pd.DataFrame({"=head": [*RUN, *plain], "x": [-1.0] * 16})
    text = csv_of(table)
    back = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    assert list(back.columns) == ["'=head", "x"] and set(back["x"]) == {"-1.0"}
    cells = back["'=head"].tolist()
    assert all(cell[0] == "'" for cell in cells[: len(RUN)])
    assert cells[len(RUN) :] == plain
    assert [*map(as_it_was, cells)] == [*RUN, *plain]
    drawn = rows_of_view(load_results(folder), View(x="passes", y="objective"))
    evil = summary_of(drawn).assign(panel="=HYPERLINK(1)", line="@x")
    for line in summary_text(evil, "csv").splitlines()[1:]:
        assert line.startswith("'=HYPERLINK(1),") and ",'@x," in line


def test_a_key_has_the_names_that_one_types(folder):
    """Alone, behind its owner, as on the command line, for `--x` and `--where`."""
    table, said = load_results(folder), []
    for name in ("clip", "random_cd.clip", "algorithm.random_cd.clip"):
        only = {"algorithm": ["random_cd"], name: ["0.50", "1.0"], "dataset.p": ["4"]}
        view = View(name, "objective", where=only | {"budget.epsilon": ["1.0"]})
        found = summary_of(rows_of_view(table, view)).rename(columns={name: "clip"})
        said.append(found.to_csv())
        assert {*found["line"]} == {"random_cd", "w = 0"}
    assert len({*said}) == 1
