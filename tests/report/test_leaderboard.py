"""Test the leaderboard: ranks, profiles, figures, the page and the yaml."""

import functools
import itertools
import json
import math
import re
import shutil
import tempfile
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image

from dp_erm_bench import registry
from dp_erm_bench.api import fit, load_problem
from dp_erm_bench.cli.line import expand_values
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.experiment.schema import write_out_blocks
from dp_erm_bench.report import leaderboard
from dp_erm_bench.report.figure import Drawing
from dp_erm_bench.report.html.page import chapter_of
from dp_erm_bench.report.layout import MAX_PNG_BYTES
from dp_erm_bench.report.leaderboard import (
    BOARDS,
    COLUMNS,
    HELD_OUT,
    ORDER,
    ZERO,
    Leaderboard,
    about_board,
    errors_of_runs,
    factors_of_board,
    files_of_board,
    page_of_board,
    pairs_by_board,
    problems_of,
    read_standings,
    reference_rows,
    standings_by_board,
    standings_of,
    winners_of,
)
from dp_erm_bench.report.make import check_report
from dp_erm_bench.report.plot import FACTORS, shares_within
from dp_erm_bench.report.style import STYLES
from tests.serving import RISKS

UNRANKED = {"one_pass_sgd", "bias_reduced_sgd", "dual_frank_wolfe", "boosting"}
RANKED = [name for name in RISKS if name not in UNRANKED]
START, SHARE = 1.0, 0.3
SEEDS = 9
OPTIONS = {"test_fraction": 0.2}
SETS = {"a9a": "libsvm:a9a", "a5a": "libsvm:a5a"}
BASE, BEST = (
    {"test_risk": risk, "test_accuracy": 0.7, "balanced_accuracy": 0.5, "auc": area}
    for risk, area in ((0.6, 0.5), (0.3, 0.95))
)
MODELS = {"base_rate": BASE, "optimum": {**BEST, "test_objective": 0.31}}


def runs(
    panel,
    line,
    errors,
    *,
    epsilon=1.0,
    accuracy=0.8,
    risk=0.4,
    models=MODELS,
    seconds=0.02,
    status="ok",
    message="",
    phase="report",
    batch=1,
):
    """Two checkpoints per error: w = 0, and the answer."""
    found = []
    for seed, error in enumerate(errors):
        for place, value in enumerate((START, error)):
            found.append(
                {
                    "trial": f"{panel}/{line}/{epsilon}/{phase}/{seed}",
                    "experiment": "leaderboard",
                    "panel": panel,
                    "line": line,
                    "algorithm": line,
                    "phase": phase,
                    "epsilon": epsilon,
                    "dataset": SETS.get(panel[:3], panel.rpartition("_")[0]),
                    "dataset_options": json.dumps(OPTIONS),
                    "standardise": False,
                    "by_default": "",
                    "objective_options": "{}",
                    "n": 800.0,
                    "p": 20.0,
                    "loss": "logistic",
                    "penalty": "l2" if panel.endswith("l2") else "none",
                    "strength": 0.01,
                    "constraint": "none" if panel.endswith("l2") else "l1_ball",
                    "seed": seed,
                    "iteration": float(place),
                    "relative_error": value,
                    "objective": 0.25 * (1.0 + value),
                    "optimum": 0.25,
                    "test_risk": risk if place else math.log(2.0),
                    "test_accuracy": accuracy if place else SHARE,
                    "balanced_accuracy": 0.75 if place else 0.5,
                    "auc": 0.9 if place else math.nan,
                    **{"rmse": math.nan, "r2": math.nan, "dataset_seed": 0},
                    "references": json.dumps(models),
                    "seconds": seconds * place,
                    "batch_size": float(batch),
                    "uncharged": "tuning",
                    "status": status,
                    "message": message,
                }
            )
    return found


MEASURED = ("test_risk", "test_accuracy", "balanced_accuracy", "auc")


def skipped(panel, line, reason, epsilon=1.0):
    row = runs(panel, line, [math.nan], epsilon=epsilon, status="skipped")[:1]
    names = ("iteration", "relative_error", "objective", "optimum", *MEASURED)
    empty = dict.fromkeys(names) | {"references": "{}"}
    empty |= {"n": None, "p": None, "seconds": None, "batch_size": None}
    return [{**row[0], **empty, "message": reason, "phase": "sweep"}]


def around(middle, spread=0.02):
    return middle * (1 + spread * np.linspace(-1, 1, SEEDS))


MEAN, LEAST = (
    {"test_risk": risk, "rmse": rmse, "r2": r2}
    for risk, rmse, r2 in ((8.0, 4.0, -0.01), (2.0, 2.0, 0.75))
)


def numbers(panel, line, errors, rmse=2.5, **given):
    """Those of a regression: no classes, and answers in the unit of the labels."""
    models = {"mean": MEAN, "optimum": {**LEAST, "test_objective": 2.1}}
    found = runs(panel, line, errors, models=models, risk=3.0, **given)
    for row in found:
        row |= dict.fromkeys(("test_accuracy", "balanced_accuracy", "auc"), math.nan)
        start = row["iteration"] == 0
        row |= {"loss": "squared", "rmse": 9.0 if start else rmse}
        row |= {"test_risk": 40.0 if start else 3.0, "r2": -4.0 if start else 0.6}
    return found


def table_of(*parts):
    return pd.DataFrame(list(itertools.chain(*parts)))


@pytest.fixture
def table():
    return example()


def example():
    """gd wins on a9a, sgd ties; nothing beats w = 0 on madelon; svrg refuses."""
    parts = []
    for epsilon, scale in ((1.0, 1.0), (10.0, 0.5)):
        parts += [
            runs("a9a_l2", "gd", scale * around(0.1), epsilon=epsilon),
            runs("a9a_l2", "sgd", scale * around(0.1005), epsilon=epsilon),
            runs("a9a_l2", "random_cd", scale * around(0.4), epsilon=epsilon),
            runs("madelon_l2", "gd", around(1.2), epsilon=epsilon, accuracy=0.6),
            runs("madelon_l2", "sgd", around(1.0, 0.2), epsilon=epsilon, accuracy=0.6),
            skipped("madelon_l2", "random_cd", "it does not serve madelon", epsilon),
            runs("a9a_l1", "frank_wolfe", scale * around(0.2), epsilon=epsilon),
            skipped("a9a_l1", "svrg", "no constraint", epsilon),
        ]
    return table_of(*parts)


def row_of(found, panel, line, epsilon=1.0):
    here = (found["panel"] == panel) & (found["line"] == line)
    (row,) = found[here & (found["epsilon"] == epsilon)].to_dict("records")
    return row


def winners_by_problem(found):
    return [(panel, at, winners_of(rows)) for panel, at, rows in problems_of(found)]


# Standings


def test_a_row_holds_medians_quantiles_and_what_w_0_is_worth(table):
    found = standings_of(table)
    assert tuple(found.columns) == COLUMNS
    row = row_of(found, "a9a_l2", "gd")
    assert row["median"] == pytest.approx(0.1)
    assert row["low"] == pytest.approx(np.quantile(around(0.1), 0.1))
    assert row["high"] == pytest.approx(np.quantile(around(0.1), 0.9))
    assert (row["zero"], row["runs"], row["batch"]) == (START, SEEDS, 1)
    assert row["majority"] == pytest.approx(1 - SHARE)
    assert (row["accuracy"], row["seconds"]) == (0.8, 0.02)
    assert (row["test_risk"], row["balanced_accuracy"], row["auc"]) == (0.4, 0.75, 0.9)
    assert row["objective"] == pytest.approx(0.25 * 1.1)


def test_references_are_the_optimum_the_base_rate_and_w_0(table):
    found = reference_rows(table)
    assert (
        tuple(found.columns) == COLUMNS
        and not found.duplicated(["panel", "line"]).any()
    )
    own = found[found["panel"] == "a9a_l2"].set_index("line")
    assert own["status"].to_dict() == {
        ZERO: "no data",
        "base rate": "not private",
        "optimum": "not private",
    }
    assert own["epsilon"].tolist() == [0.0, math.inf, math.inf]
    assert own["test_risk"].tolist() == [math.log(2.0), 0.6, 0.3]
    assert own["accuracy"].tolist() == pytest.approx([1 - SHARE, 0.7, 0.7])
    assert own["auc"].tolist() == [0.5, 0.5, 0.95]
    assert own["objective"].to_dict() == pytest.approx(
        {ZERO: 0.5, "base rate": math.nan, "optimum": 0.25}, nan_ok=True
    )
    assert own["median"].to_dict() == pytest.approx(
        {ZERO: START, "base rate": math.nan, "optimum": 0.0}, nan_ok=True
    )


WILD = [
    *("", "nonsense", "[]", '{"optimum": 3}', '{"optimum": {"auc": "x"}}'),
    *("[" * 100_000, '{"base_rate": {"test_risk": [1]}}'),
]


@pytest.mark.parametrize("text", WILD)
def test_what_others_wrote_of_references_is_read_with_care(text, table):
    found = reference_rows(table.assign(references=text))
    models = found[found["line"] != ZERO]
    names = [*itertools.chain(*HELD_OUT.values())]
    assert models[names].isna().all(axis=None)
    wild = table.assign(references=text)
    assert "| *optimum, not private* | - | - |" in text_of(wild)


def test_tables_without_held_out_measures_have_none(table):
    names = ["test_risk", "balanced_accuracy", "auc"]
    old = table.assign(references="{}", **dict.fromkeys(names, math.nan))
    assert standings_of(old)[names].isna().all(axis=None)
    assert "- / 0.800 / - / -" in text_of(old)


def test_one_row_per_problem_epsilon_and_algorithm(table):
    found = standings_of(table)
    assert not found.duplicated(["panel", "epsilon", "line"]).any()
    assert len(found) == 2 * 8
    assert [(p, e, len(rows)) for p, e, rows in problems_of(found)][:2] == [
        ("a9a_l2", 1.0, 3),
        ("madelon_l2", 1.0, 3),
    ]


def test_who_wins_and_who_is_within_noise(table):
    found = standings_of(table)
    places = {line: row_of(found, "a9a_l2", line)["place"] for line in LINES}
    assert places == {"gd": "wins", "sgd": "ties", "random_cd": ""}
    assert row_of(found, "a9a_l2", "random_cd")["factor"] == pytest.approx(4.0)
    assert ("a9a_l2", 1.0, ["gd", "sgd"]) in list(winners_by_problem(found))


LINES = ("gd", "sgd", "random_cd")


def test_no_algorithm_wins_that_the_base_rate_beats():
    base = {"base_rate": {**BASE, "train_risk": 0.5, "objective": 0.25 * 1.15}}
    errors = {"sgd": around(0.2), "random_cd": around(0.3)}
    rows = [runs("a9a_l2", line, own, models=base) for line, own in errors.items()]
    found = standings_of(table_of(*rows))
    assert [*found["beats_zero"]] == ["yes"] * 2 and [*found["place"]] == ["", ""]
    assert [*found["unbeaten"]] == ["the base rate"] * 2
    assert list(winners_by_problem(found)) == [("a9a_l2", 1.0, [])]
    text = text_of(table_of(*rows))
    assert "| a9a_l2 | *the base rate* |" in text
    said = "constant model in the objective on these problems: a9a_l2 at epsilon 1.\n"
    assert said in text
    near = [runs("a9a_l2", "gd", around(0.1), models=base), *rows]
    assert [one for *_, one in winners_by_problem(standings_of(table_of(*near)))] == [
        ["gd"]
    ]


def test_a_clear_second_does_not_tie():
    one = runs("a9a_l2", "gd", around(0.1))
    other = runs("a9a_l2", "sgd", around(0.2))
    found = standings_of(table_of(one, other))
    assert row_of(found, "a9a_l2", "sgd")["place"] == ""
    assert row_of(found, "a9a_l2", "sgd")["factor"] == pytest.approx(2.0)


def test_the_best_of_those_that_beat_w_0_wins():
    wild = [0.1] * 5 + [5.0] * 4
    found = standings_of(
        table_of(
            runs("a9a_l2", "gd", wild),
            runs("a9a_l2", "sgd", around(0.3)),
            runs("a9a_l2", "svrg", around(0.5)),
        )
    )
    assert row_of(found, "a9a_l2", "gd")["beats_zero"] == "tie"
    assert row_of(found, "a9a_l2", "sgd")["factor"] == pytest.approx(3.0)
    assert list(winners_by_problem(found)) == [("a9a_l2", 1.0, ["sgd"])]


def test_where_nothing_beats_w_0_nobody_wins(table):
    found = standings_of(table)
    assert row_of(found, "madelon_l2", "gd")["beats_zero"] == "no"
    assert row_of(found, "madelon_l2", "sgd")["beats_zero"] == "tie"
    assert row_of(found, "madelon_l2", "gd")["factor"] == pytest.approx(1.2)
    assert ("madelon_l2", 1.0, []) in list(winners_by_problem(found))


def test_the_order_of_the_rows_does_not_choose_the_winner(table):
    again = standings_of(table.iloc[::-1].sort_values("iteration", kind="stable"))
    assert row_of(again, "a9a_l2", "gd")["place"] == "wins"
    assert row_of(again, "a9a_l2", "sgd")["place"] == "ties"


def test_tuning_runs_are_left_out(table):
    lucky = runs("a9a_l2", "random_cd", [1e-9] * 3, phase="tune")
    found = standings_of(pd.concat([table_of(lucky), table]))
    pd.testing.assert_frame_equal(
        found.sort_values(["panel", "epsilon", "line"], ignore_index=True),
        standings_of(table).sort_values(
            ["panel", "epsilon", "line"], ignore_index=True
        ),
    )


def test_what_is_skipped_is_a_row_with_its_reason(table):
    row = row_of(standings_of(table), "madelon_l2", "random_cd")
    assert (row["status"], row["reason"]) == ("skipped", "it does not serve madelon")
    assert math.isnan(row["median"]) and math.isnan(row["factor"])
    assert (row["zero"], row["place"]) == (START, "")


@pytest.mark.parametrize("lost", [1, SEEDS])
def test_lost_runs_are_infinitely_bad(lost):
    good = runs("a9a_l2", "gd", around(0.5))
    bad = runs("a9a_l2", "sgd", around(0.1))
    for row in bad[1 : 2 * lost : 2]:
        row.update(status="diverged", relative_error=math.nan)
    found = row_of(standings_of(table_of(good, bad)), "a9a_l2", "sgd")
    assert found["high"] == math.inf
    assert math.isinf(found["median"]) == (lost == SEEDS)
    assert (found["place"] == "wins") == (lost == 1)
    assert found["beats_zero"] == ("yes" if lost == 1 else "no")


def test_lost_runs_predict_nothing_right():
    good = runs("a9a_l2", "gd", around(0.5))
    bad = runs("a9a_l2", "sgd", around(0.1), accuracy=0.9)
    for row in bad[1 : 2 * 5 : 2]:
        lost = dict.fromkeys(("relative_error", *MEASURED), math.nan)
        row.update(status="error", **lost)
    found = standings_of(table_of(good, bad))
    assert row_of(found, "a9a_l2", "sgd")["accuracy"] == 0.0
    assert row_of(found, "a9a_l2", "sgd")["auc"] == 0.0
    assert row_of(found, "a9a_l2", "sgd")["test_risk"] == math.inf
    assert row_of(found, "a9a_l2", "gd")["accuracy"] == 0.8


def test_two_algorithms_that_lost_all_runs_do_not_win():
    parts = [runs("a9a_l2", line, [math.inf] * 6) for line in ("gd", "sgd")]
    found = standings_of(table_of(*parts))
    assert set(found["place"]) == {""} and set(found["beats_zero"]) == {"no"}


def test_a_problem_on_which_all_is_skipped_has_no_winner():
    found = standings_of(table_of(skipped("a9a_l2", "gd", "why")))
    assert list(winners_by_problem(found)) == [("a9a_l2", 1.0, [])]
    assert standings_by_board(found) == {}


# Performance profiles


def test_profiles_count_the_problems_within_a_factor(table):
    found = standings_of(table)
    l2 = factors_of_board(found[found["panel"].str.endswith("_l2")])
    shares = shares_within(l2)
    at = [int(np.searchsorted(FACTORS, factor)) for factor in (1.0, 1.3, 5)]
    # a9a at two epsilons: factors 1, 1.005, 4; madelon: 1.2, 1, refused.
    assert shares["gd"][at].tolist() == [0.5, 1.0, 1.0]
    assert shares["random_cd"][at].tolist() == [0.0, 0.0, 0.5]
    assert shares[ZERO][at].tolist() == [0.5, 0.5, 0.5]
    assert (factors_of_board(found).loc[ZERO] <= 20.0).all()


def test_profiles_rise_and_leave_out_who_never_ran(table):
    shares = shares_within(factors_of_board(standings_of(table)))
    assert "svrg" not in shares
    for values in shares.values():
        assert (np.diff(values) >= 0).all() and values.max() <= 1
    assert max(values[0] for values in shares.values()) > 0


def test_a_perfect_answer_does_not_divide_by_zero():
    found = standings_of(table_of(runs("a9a_l2", "gd", [0.0] * 3)))
    assert row_of(found, "a9a_l2", "gd")["factor"] == 1.0
    assert factors_of_board(found).loc["gd"].tolist() == [1.0]


# Figures


def draw(table, folder):
    given = Drawing(table, folder / "figures", "leaderboard", {"profile": "smoke"})
    return Leaderboard().draw(given)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Two drawings of the same table, each in a folder of its own."""
    folders = [tmp_path_factory.mktemp(name) for name in ("one", "two")]
    for folder in folders:
        draw(example(), folder)
    return folders


@pytest.mark.slow
def test_draw_writes_figures_page_and_table(drawn, table):
    folder = drawn[0] / "figures"
    for stem in ("profiles", "heat"):
        assert (folder / f"leaderboard_{stem}.pdf").stat().st_size
        path = folder / f"leaderboard_{stem}.png"
        assert path.stat().st_size <= MAX_PNG_BYTES
        with Image.open(path) as image:
            assert len(np.unique(np.asarray(image.convert("L")))) > 20
    text = (drawn[0] / "leaderboard.md").read_text()
    assert text.startswith("# Leaderboard") and "profile smoke" in text
    kept = pd.read_csv(drawn[0] / "leaderboard.csv")
    ok = kept["status"] == "ok"
    assert ok.sum() == (standings_of(table)["status"] == "ok").sum()
    assert kept.loc[ok, ["median", "test_risk", "auc"]].notna().all(axis=None)
    assert (kept["status"] == "not private").sum() == 2 * kept["panel"].nunique()
    assert (folder / "log.txt").is_file()


def test_drawing_again_gives_the_same_files(drawn):
    one, two = (sorted(folder.rglob("*.*")) for folder in drawn)
    assert [path.name for path in one] == [path.name for path in two]
    for first, second in zip(one, two, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_the_board_is_a_part_of_the_page(drawn, tmp_path):
    folder = shutil.copytree(drawn[0], tmp_path / "leaderboard")
    ((title, html),) = chapter_of(folder).pages
    assert title == "Leaderboard" and "<h4>Problems: l2 penalty</h4>" in html
    assert "<td>a9a_l2</td>" in html


def test_a_table_without_any_run_draws_no_figure(tmp_path):
    empty = table_of(skipped("a9a_l2", "gd", "why"))
    written = draw(empty, tmp_path)
    assert {path.suffix for path in written} == {".md", ".csv", ".json", ".txt"}
    assert "## Problems" not in (tmp_path / "leaderboard.md").read_text()


def test_every_algorithm_has_a_style_of_its_own():
    assert {*RANKED, ZERO} == {*ORDER}
    looks = {(STYLES[line].colour, STYLES[line].marker) for line in ORDER}
    assert len(looks) == len(ORDER)


def test_the_page_names_what_it_does_not_rank():
    text = (files("dp_erm_bench.report") / "leaderboard.md").read_text()
    for name in UNRANKED:
        assert f"`{name}`" in text


# The page


def text_of(table, edges=(), manifest=None):
    about = about_board(table, "default", edges, manifest or {})
    parts = standings_of(table), reference_rows(table), errors_of_runs(table)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files_of_board(*parts, about).items():
            (Path(folder) / name).write_text(text)
        return page_of_board(Path(folder))


def pairs_of(table):
    panels = about_board(table, "default", [], {})["panels"]
    families = {panel: of["family"] for panel, of in panels.items()}
    return pairs_by_board(errors_of_runs(table), families)


def test_the_published_page_is_that_of_the_published_tables():
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "leaderboard.md").read_text()
    assert page == page_of_board(root / "results" / "published")


def test_the_page_says_who_wins_where(table):
    text = text_of(table)
    assert "| a9a_l2 | **gd** (sgd) | **gd** (sgd) |" in text
    assert "| madelon_l2 | *w = 0* | *w = 0* |" in text
    assert (
        "w = 0 in the objective on these problems: madelon_l2 at epsilon 1, 10." in text
    )
    assert "| gd | 4 | 2 | 0 | 2 |" in text


def test_the_page_and_captions_name_those_in_doubt(table, tmp_path, monkeypatch):
    assert "doubt" not in text_of(table)
    doubt = np.where(table["line"].eq("sgd"), "checked, uncharged: solved", "")
    table = table.assign(doubt=doubt, checked=doubt == "")
    said = (
        "These algorithms passed dp-erm-bench check with a doubt: sgd (checked, "
        "uncharged: solved)."
    )
    assert f"\n- {said}\n" in text_of(table)
    captions = []
    monkeypatch.setattr(
        leaderboard, "save_sheet", lambda sheet, _: captions.append(sheet.caption) or []
    )
    draw(table, tmp_path)
    assert captions and all(about.endswith(f"\n{said}") for about in captions)


def test_the_page_says_where_the_majority_is_as_good(table):
    said = "the larger class in test accuracy on these problems: madelon_l2 at epsilon"
    assert f"{said} 1, 10." in text_of(table)


def test_the_page_says_where_the_base_rate_is_as_good():
    good = runs("a9a_l2", "gd", around(0.1), risk=0.59)
    bad = runs("madelon_l2", "gd", around(0.1), risk=0.6)
    said = "the base rate in test risk on these problems: madelon_l2 at epsilon 1.\n"
    assert said in text_of(table_of(good, bad))


def test_held_out_records_are_told_at_every_epsilon():
    parts = [
        runs("a9a_l2", "gd", around(0.1), epsilon=e, risk=0.1 * e, accuracy=0.9)
        for e in (1.0, 3.0)
    ]
    text = text_of(table_of(*parts))
    cells = ("0.1 / 0.900 / 0.750 / 0.900", "0.3 / 0.900 / 0.750 / 0.900")
    assert f"| gd | {' | '.join(cells)} |" in text
    best = "0.3 / 0.700 / 0.500 / 0.950"
    assert f"| *optimum, not private* | {best} | {best} |" in text
    assert "| *base rate, not private* | 0.6 / 0.700 / 0.500 / 0.500 |" in text
    assert "| *w = 0* | 0.693 / 0.700 / 0.500 / 0.500 |" in text


def with_numbers(table):
    own = [numbers("wine_squared", "ssp", around(0.1), epsilon=e) for e in (1.0, 10.0)]
    bad = [
        numbers("wine_squared", "gd", around(0.6), rmse=9.0, epsilon=e)
        for e in (1.0, 10.0)
    ]
    return pd.concat([table, table_of(*own, *bad)], ignore_index=True)


def test_of_numbers_a_page_tells_rmse_and_r2_beside_the_mean(table):
    text = text_of(with_numbers(table))
    assert "## Problems: squared loss" in text
    _, _, _, own = re.split(r"## Problems: .*", text)
    assert "shows results on held-out records: test risk / RMSE / R²." in own
    assert "accuracy" not in own and "AUC" not in own
    assert "| ssp | 3 / 2.500 / 0.600 | 3 / 2.500 / 0.600 |" in own
    assert "| *mean of the labels, not private* | 8 / 4.000 / -0.010 |" in own
    assert "| *optimum, not private* | 2 / 2.000 / 0.750 |" in own
    assert "| *w = 0* | 40 / 9.000 / -4.000 |" in own
    assert "at least one algorithm beats the mean of the labels in test risk." in own
    # The other boards say what they said.
    assert text_of(table).split("## Problems")[1] == text.split("## Problems")[1]
    told = "On the squared loss, the error of `ssp` is 1 times the smallest error"
    assert told in text and "On the squared loss," not in text_of(table)


def test_the_page_has_every_number_and_every_refusal(table):
    text = text_of(table)
    assert "**0.1 [0.0984, 0.102]**" in text
    assert "| random_cd | 0.4 [" in text
    assert "| *w = 0* | 1 | 1 | 0 |" in text
    assert "- `random_cd` refuses this problem at epsilon 1, 10: `it does not" in text
    assert "l2 penalty 0.01" in text and "constraint l1_ball" in text


def test_the_page_keeps_the_boards_apart(table):
    _, l2, l1 = re.split(r"## Problems: .*", text_of(table))
    assert "frank_wolfe" not in l2 and "a9a_l1" not in l2
    assert "frank_wolfe" in l1 and "a9a_l2" not in l1


def test_the_page_says_what_it_rests_on(table):
    manifest = {
        "environment": {"cpu": "a processor", "git": {"commit": "0123456789"}},
        "not_run": [{"dataset": "dorothea", "reason": "no mirror"}] * 2,
    }
    edges = ["  a9a_l2 / gd, epsilon = 1: step top in {}", "  none of the above"]
    text = text_of(table, edges, manifest)
    assert "profile default, a processor, 0123456)" in text
    assert (
        "A better setting may exist for 1 of the 12 tuned settings. For 0 of these"
        in text
    )
    assert text.count("- dorothea: no mirror") == 1
    assert f"over {SEEDS} report seeds" in text
    assert "Tuning is not charged" in text and "batch size 1" in text


def test_a_published_page_says_what_tuning_gains(table, tmp_path):
    draw(table, tmp_path)
    assert "untuned" not in page_of_board(tmp_path)
    rows = [
        {"panel": "a9a_l2", "epsilon": 1.0, "algorithm": "gd", "error": 0.3},
        {"panel": "madelon_l2", "epsilon": 1.0, "algorithm": "gd", "error": math.inf},
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "untuned.csv", index=False)
    ranking, _ = read_standings(tmp_path)
    ranking = ranking.set_index(["panel", "epsilon", "line"])
    times = 0.3 / ranking["median"]["a9a_l2", 1.0, "gd"]
    page = page_of_board(tmp_path).split("| algorithm | ran |")[1]
    head, _, *rest = page.partition("\n\n")[0].split("\n")
    place = [one.strip() for one in head.split("|")].index("untuned")
    split = [[one.strip() for one in row.split("|")] for row in rest]
    cells = {row[1]: row[3 + place] for row in split if len(row) > place}
    assert float(cells["gd"]) == pytest.approx(times, rel=0.01)
    assert cells["sgd"] == "-"


def test_the_page_says_who_is_better_on_other_data(table):
    """Row against column, who is ahead first; of one family nothing is said."""
    more = [
        runs(f"{name}_l2", line, scale * around(middle))
        for name, scale in (("w8a", 1.0), ("electricity", 0.2), ("a5a", 3.0))
        for line, middle in (("gd", 0.1), ("sgd", 0.2), ("random_cd", 0.4))
    ]
    whole = pd.concat([table, table_of(*more)], ignore_index=True)
    text = text_of(whole)
    # The page begins with the answer, and ends with the rules.
    head, l2, l1 = re.split(r"## Problems: .*", text)
    answers = re.findall(r"- \*\*(.*)\*\*: (.*)\n", head)
    assert [board for board, _ in answers] == ["l2 penalty", "L1 ball"]
    found = pairs_of(whole)
    found = found[(found["board"] == "l2") & (found["line"] == "gd")]
    rival = found.set_index("other").loc["sgd"]
    assert rival["better"] == found["better"].min() > 0.9
    assert answers[0][1].startswith(
        "`gd` ranks first: it has the highest probability, on average, of a smaller "
        "error than another algorithm. The nearest rival is `sgd`. On other data, the "
        "error of `gd` is smaller than that of `sgd` with probability "
        f"{100 * rival['better']:.0f} %. The error of `gd` is {rival['ratio']:.2g} "
        "times that of `sgd` on average. "
    )
    words = "all data are one family, which says nothing about other data."
    assert answers[1][1] == words
    assert "**wins**" not in head and "## Rules" in l1
    # 4 sets, of which a5a and a9a are one; random_cd is refused on madelon.
    assert (
        "4 families of data (only 3 for some pairs): adult, electricity, madelon, w8a."
        in " ".join(l2.split())
    )
    heads = next(line for line in l2.splitlines() if line.startswith("|  |"))
    assert heads == "|  | gd | sgd | random_cd |"
    assert "| random_cd | 0 / 0 | 0 / 0 |  |" in l2
    assert "The data of one family, adult, say nothing about other data." in l1


def test_pairs_of_lines_are_a_table_of_their_own(table):
    found = pairs_of(table)
    assert [*found.columns] == [
        *("board", "line", "other", "families", "problems"),
        *("ratio", "better", "within"),
    ]
    (row,) = found[(found["line"] == "gd") & (found["other"] == "random_cd")].to_dict(
        "records"
    )
    # On a9a at two epsilons alone; on madelon random_cd is skipped.
    assert (row["board"], row["families"], row["problems"]) == ("l2", 1, 2)
    assert row["ratio"] == pytest.approx(0.25) and math.isnan(row["better"])
    both = found[(found["line"] == "gd") & (found["other"] == "sgd")]
    assert both["families"].tolist() == [2]


def test_times_of_batches_are_called_so(table):
    assert "in batches of up to 8" in text_of(table.assign(batch_size=8.0))


def test_tables_have_as_many_cells_as_heads(table):
    for block in re.findall(r"(?:^\|.*\n)+", text_of(table), re.MULTILINE):
        assert len({line.count("|") for line in block.splitlines()}) == 1


def test_the_published_table_is_small(table):
    found, models = standings_of(table), reference_rows(table)
    about = about_board(table, "default", [], {})
    parts = files_of_board(found, models, errors_of_runs(table), about)
    text = parts["leaderboard.csv"]
    # 25 problems, 5 epsilons, 14 algorithms, and three references to a problem.
    whole = len(found) + len(models)
    assert len(text) / whole * 25 * (5 * 14 + 3) < 300_000


# The experiment


@functools.cache
def load(name):
    path = registry.conf_dir() / "experiment" / "leaderboard.yaml"
    config = yaml.safe_load(path.read_text())
    found = filled(config, config["profiles"][name])
    return {**found, "blocks": write_out_blocks(found["blocks"]), "profile": name}


def filled(value, chosen):
    """Resolve `${profiles.${profile}.key}`, which OmegaConf takes seconds for."""
    if isinstance(value, dict):
        return {key: filled(one, chosen) for key, one in value.items()}
    if isinstance(value, list):
        return [filled(one, chosen) for one in value]
    found = re.fullmatch(r"\$\{profiles\.\$\{profile\}\.(\w+)\}", str(value))
    return chosen[found[1]] if found else value


PROFILES = ("paper", "published", "default", "smoke")
CLASSES = (
    *("breast_cancer", "a9a", "w8a", "electricity", "madelon", "dense", "quasi_sparse"),
    *("digits", "ijcnn1", "mushrooms", "phishing", "dorothea", "news20"),
)
SMALLER = ("a1a", "a5a", "electricity1k", "electricity9k")
DATASETS = {
    "l2": {*CLASSES, *SMALLER},
    "l1": {*CLASSES},
    "squared": {
        *("california", "abalone", "cpusmall", "wine", "communities", "diabetes"),
        *("melting_point", "california500", "california4k"),
    },
    "huber": {"california", "cpusmall", "communities"},
}
PANELS = {f"{name}_{board}" for board in BOARDS for name in DATASETS[board]}
CURVED = {"newton", "feature_covariance", "ssp"}
REFUSED = {
    "l2": {"frank_wolfe"},
    "l1": {"greedy_cd", "random_cd", "svrg"} | CURVED,
    "squared": {
        *("frank_wolfe", "output_perturbation", "objective_perturbation"),
        "approximate_minima_perturbation",
    },
    "huber": {"frank_wolfe", "ssp"},
}


def refused_in(panel):
    """The algorithms that are refused on a problem."""
    found = REFUSED[panel.rpartition("_")[2]]
    # A matrix of 62061 x 62061 is too large.
    return found | CURVED if panel.startswith(("dorothea", "news20")) else found


@pytest.fixture(params=PROFILES)
def config(request):
    return load(request.param)


def name_of(block):
    algorithm = block["algorithm"]
    return algorithm if isinstance(algorithm, str) else algorithm["name"]


def test_every_algorithm_is_on_every_problem(config):
    lines = {}
    for block in config["blocks"]:
        assert block["line"] == name_of(block)
        lines.setdefault(block["panel"], []).append(block["line"])
    assert set(lines) == PANELS
    for found in lines.values():
        assert sorted(found) == RANKED


def test_all_algorithms_of_a_problem_have_the_same_problem(config):
    for panel in {block["panel"] for block in config["blocks"]}:
        own = [block for block in config["blocks"] if block["panel"] == panel]
        for key in ("dataset", "loss", "penalty", "budget"):
            assert all(block[key] == own[0][key] for block in own)
        assert len({str(block.get("constraint")) for block in own}) == 1
        assert (own[0].get("constraint") is None) == (not panel.endswith("_l1"))
        assert (own[0]["penalty"] == "none") == panel.endswith("_l1")


def test_both_boards_have_the_same_records_clipped_to_declared_bounds(config):
    specs = {}
    for block in config["blocks"]:
        spec = block["dataset"]
        name = block["panel"].rpartition("_")[0]
        assert specs.setdefault(name, spec) == spec
        of_numbers = block["panel"].rpartition("_")[2] in ("squared", "huber")
        label = {"label"} if of_numbers else set()
        assert set(spec["bounds"]) == {"columns", "norm"} | label
        assert spec["clip_to_bounds"]
        assert spec["intercept"] == 1.0
        held_out = {"electricity1k": 0.975, "california500": 0.975}
        held_out |= {"electricity9k": 0.8, "california4k": 0.8}
        assert spec["test_fraction"] == held_out.get(name, 0.2)


def test_budgets_and_seeds(config):
    epsilons = [1] if config["profile"] == "smoke" else [0.1, 0.3, 1, 3, 10]
    for block in config["blocks"]:
        budget = {"epsilon": epsilons, "delta": "1/n^2", "adjacency": "replace_one"}
        assert (block["budget"], block["calibration"]) == (budget, "certified")
        if "tune" in block:
            tune = block["tune"]
            chosen, reported = (
                expand_values("seeds", tune[key]) for key in ("seeds", "report")
            )
            assert not set(chosen) & set(reported)
            assert len(reported) >= (2 if config["profile"] == "smoke" else 5)


def test_only_what_is_refused_is_not_tuned(config):
    for block in config["blocks"]:
        refused = name_of(block) in refused_in(block["panel"])
        assert ("tune" in block) == (not refused)


def test_every_line_has_as_many_tuning_trials(config):
    searches = [
        block["tune"]["search"] for block in config["blocks"] if "tune" in block
    ]
    assert all(search == searches[0] for search in searches)


@pytest.mark.parametrize("board", BOARDS)
def test_what_is_refused_is_what_the_algorithms_refuse(board):
    ball = {"name": "l1_ball", "radius": 2.0}
    objective = {
        "l2": ("logistic", {"name": "l2", "strength": 0.1}),
        "l1": ("logistic", "none", ball),
        "squared": ("squared", {"name": "l2", "strength": 0.1}),
        "huber": ("huber", {"name": "l2", "strength": 0.1}),
    }
    bounds = {"columns": 1.7320508075688774, "norm": 25, "label": 100}
    problem = load_problem(
        "quasi_sparse", *objective[board], n=50, p=4, tau=1, bounds=bounds
    )
    for name in RANKED:
        ridge = {"ridge": 0.1} if "perturbation" in name else {}
        refusal = registry.build("algorithm", name, **ridge).refusal(problem)
        unbounded = board == "squared" and "perturbation" in name
        # What has no bound is refused where its noise is told.
        expected = name in REFUSED[board] and not unbounded
        assert (refusal is not None) == expected, (name, refusal)
        if unbounded:
            with pytest.raises(Unsupported, match="loss with a bounded derivative"):
                fit(problem, name, epsilon=1.0, ridge=0.1)


def test_trials_run_one_at_a_time(config):
    assert config["runner"] == {"report_trials": 1, "n_checkpoints": 2}


# Tuning trials of the paper profile at most.
MOST = 520_000


def test_profiles_have_the_same_keys_and_bounded_trials():
    profiles = load("default")["profiles"]
    assert tuple(profiles) == PROFILES
    assert len({frozenset(values) for values in profiles.values()}) == 1
    paper, published, usual, smoke = (_trials(load(name)) for name in PROFILES)
    assert min(paper, published, usual) > 50 * smoke and smoke < 4_500
    assert usual < 330_000 < published < 780_000
    assert _trials(load("paper"), report=0) <= MOST


def _trials(config, report=None):
    count = 0
    for block in config["blocks"]:
        epsilons = len(block["budget"]["epsilon"])
        if "tune" not in block:
            count += epsilons * len(block["seed"])
            continue
        tune = block["tune"]
        own = len(expand_values("report", tune["report"])) if report is None else report
        count += epsilons * (tune["search"]["trials"] + own)
    return count


def test_claims_are_about_lines_that_run(config):
    run = {(block["panel"], block["line"]) for block in config["blocks"]}
    refused = {(panel, line) for panel in PANELS for line in refused_in(panel)}
    check_report(config)
    for claim in config["claims"]:
        for figure in as_list(claim["figure"]):
            for key in ("line", "under", "over"):
                for line in as_list(claim.get(key, [])):
                    assert (figure, line) in run - refused


def as_list(value):
    return value if isinstance(value, list) else [value]
