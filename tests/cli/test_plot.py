"""Test the command plot and its function, on any folder, column and name."""

import json
import math
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import dp_erm_bench
from dp_erm_bench import load_results, plot
from dp_erm_bench.cli.main import main
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.plot import sheet_of_view
from dp_erm_bench.report.view import View, rows_of_view, summary_of
from dp_erm_bench.results.columns import COLUMNS
from dp_erm_bench.results.settings import INTERNAL, label_table
from dp_erm_bench.results.statistics import BASELINES
from dp_erm_bench.results.store import Plan

SWEEP = """
    dataset=log1,log2 dataset.n=80 dataset.p=4 algorithm=random_cd,gd
    algorithm.random_cd.clip=0.5,1 algorithm.random_cd.passes=2
    algorithm.gd.clip=1 algorithm.gd.n_iter=2
    budget.epsilon=1,4 seed=range(0,6) runner.n_jobs=1
""".split()
FORMATS = ("pdf", "png", "svg", "txt", "tex")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("sweep")
    assert main([*SWEEP, f"results_dir={home}", "name=small"]) == 0
    return home / "small"


@pytest.fixture(scope="module")
def table(folder):
    return load_results(folder)


def made(lines=2, epsilons=(1.0,), seeds=6, places=4, panels=("data",), **columns):
    """A table of a sweep, with any names."""
    rows = [
        {
            "trial": f"{panel} {line} {epsilon} {seed}",
            "seed": seed,
            "params": json.dumps({"step": line + 0.5}),
            "epsilon": epsilon,
            "dataset": panel,
            "iteration": k,
            "passes": float(k),
            "relative_error": (1.0 + line + 0.1 * seed) / (1 + k) / epsilon,
        }
        for panel in panels
        for line in range(lines)
        for epsilon in epsilons
        for seed in range(seeds)
        for k in range(places)
    ]
    usual = {"panel": "", "line": "", "phase": "sweep", "algorithm": "gd"}
    usual |= {"experiment": "made", "status": "ok", "message": "", "uncharged": ""}
    usual |= {"dataset_seed": 0, "adjacency": "zero_out", "calibration": "certified"}
    found = pd.DataFrame(rows).assign(seconds=0.5, objective=0.3, **usual)
    found = found.assign(epsilon_certified=found["epsilon"], run="", **columns)
    missing = {n: math.nan for n, c in COLUMNS.items() if n not in found}
    text = {n: "" for n in missing if COLUMNS[n].dtype == "string"}
    return label_table(found.assign(**{**missing, **text}))


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def axes(figure):
    return [ax for ax in figure.axes if ax.get_label() != "<colorbar>"]


def test_a_sweep_is_drawn_without_a_line_of_python(folder, capsys):
    assert main(["plot", str(folder)]) == 0
    stems = {"curves_relative_error_passes", "curves_relative_error_epsilon"}
    stems |= {"profile_relative_error", "winners_relative_error"}
    files = {path.name for path in (folder / "plots").iterdir()}
    points = {f"{stem}.csv" for stem in stems if "curves" in stem}
    assert files == points | {f"{one}.{suffix}" for one in stems for suffix in FORMATS}
    said = capsys.readouterr().out
    for stem in stems:
        assert f"{folder / 'plots' / stem}: .pdf, .png, .svg, .txt, .tex" in said
    caption = (folder / "plots" / "curves_relative_error_passes.txt").read_text()
    assert "Median and min..max over 6 seeds and 1 draw of the data." in caption
    assert "epsilon: 1 (log1, epsilon = 1; log2, epsilon = 1); 4 (log1" in caption
    assert "adjacency: replace_one." in caption


def test_options_choose_what_is_drawn_and_written(folder, tmp_path):
    options = (
        "--x epsilon --y objective --statistic quantiles --format svg --no-caption"
    )
    options += f" --width slide --where panel=log1 --out {tmp_path}/figures"
    assert main(["plot", str(folder), *options.split()]) == 0
    (path,) = (tmp_path / "figures").iterdir()
    assert path.name == "curves_objective_epsilon.svg"


def test_names_are_those_of_the_command_line_or_of_the_table(folder, capsys):
    """In plot, export and compare, alike."""
    for name in ("epsilon", "budget.epsilon"):
        where = {name: ["1"]}
        drawn = rows_of_view(load_results(folder), View(name, "objective", where=where))
        assert drawn.view.x == "epsilon" and {*drawn.rows["_x"]} == {1.0}
        assert (
            "Only runs with epsilon = 1 are shown, not those with 4." in drawn.left_out
        )
        one = sheet_of_view(load_results(folder), View("passes", facet=(name,)))
        assert [chart.title for chart in one.cells][0] == "log1, ε = 1"
        keep = f"{name}=1"
        assert main(["export", str(folder), "--where", keep, "--y", "objective"]) == 0
        assert "epsilon = 4" not in capsys.readouterr().out
        between = ["--between", "algorithm", "--where", keep, "--where", "clip=1"]
        assert main(["compare", str(folder), *between, "--where", "panel=log1"]) == 0
        assert "log1" in (told := capsys.readouterr().out) and "log2" not in told


def test_what_is_left_out_and_what_values_are_of_stands_in_caption_and_legend(table):
    view = View("epsilon", "objective", line=("algorithm", "clip"))
    one = sheet_of_view(table, replace(view, where={"panel": ["log1"]}))
    assert one.cells[0].lines == [
        "random_cd, clip=0.5",
        "random_cd, clip=1",
        "gd, clip=1",
    ]
    assert "Only runs with panel = log1 are shown, not those with log2." in one.caption


def test_panels_stand_in_the_order_of_epsilon(table):
    frame = table.sort_values("epsilon", ascending=False, kind="stable")
    titles = [ax.get_title() for ax in axes(plot(frame))]
    assert titles == ["log1, ε = 1", "log1, ε = 4", "log2, ε = 1", "log2, ε = 4"]
    rows = summary_of(rows_of_view(frame, View("epsilon")))
    assert [*rows["epsilon"].drop_duplicates()] == [1.0, 4.0]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--x nothing", "x=nothing"),
        ("--y objectiv", "did you mean objective"),
        ("--y algorithm", "y=algorithm"),
        ("--y auc", "no trial has a value of auc: 72 ok"),
        ("--panel nothing", "panel=nothing"),
        ("--line nothing", "line=nothing"),
        ("--facet nothing", "facet=nothing"),
        ("--kind pie", "kind=pie"),
        ("--statistic mode", "statistic=mode"),
        ("--width wall", "width=wall"),
        ("--format gif", "--format=gif"),
        ("--where panel", "KEY=VALUE"),
        ("--where panel=log3", "did you mean log"),
        ("--colour red", "unrecognized arguments"),
        ("--line algorithm", "random_cd.clip (0.5, 1); keep one"),
        ("--kind winners --where panel=log1 --where epsilon=1", "over problems"),
    ],
)
def test_wrong_options_are_a_sentence(folder, given, said, capsys):
    assert main(["plot", str(folder), *given.split()]) == 2
    told = capsys.readouterr().err
    assert told.startswith("dp-erm-bench: ") and told.count("\n") == 1
    assert said in told


@pytest.mark.parametrize("command", ["plot", "plot --kind winners", "export"])
def test_refusals_name_what_is_worth_plotting(folder, command, capsys):
    name, *options = command.split()
    for key in ("x", "y"):
        assert main([name, str(folder), *options, f"--{key}", "nothing"]) == 2
        listed = capsys.readouterr().err.strip().partition("must be one of ")[2]
        told = set(listed.split(", "))
        # A sweep of one penalty and one delta has nothing to say along either.
        assert not told & {*INTERNAL, *BASELINES, "penalty", "delta"}
        assert told >= {"objective", "relative_error", "seconds"}
        assert ({"epsilon", "clip", "seed", "panel"} <= told) == (key == "x")


def test_folders_that_hold_no_results_are_a_sentence(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    with Plan(tmp_path / "planned", append=True) as plan:
        plan.add([])
    for name in ("empty", "nowhere", "planned"):
        assert main(["plot", str(tmp_path / name)]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and ("no results" in told or "nothing" in told)
    assert main(["plot"]) == 2


def test_the_same_from_python_is_a_figure(folder, table):
    for given in (folder, str(folder), [folder], table):
        figure = plot(given, y="objective", where={"epsilon": 1})
        assert isinstance(figure, Figure)
        assert [ax.get_title() for ax in axes(figure)] == ["log1", "log2"]
    lines = ["random_cd, clip=0.5", "random_cd, clip=1", "gd"]
    assert legend(figure) == lines
    assert dp_erm_bench.COLUMNS["objective"].dtype == "float64"


def test_medians_and_bands_are_those_of_the_table(table):
    figure = plot(table, "epsilon", "objective", where={"line": "gd"})
    rows = table[(table["line"] == "gd") & (table["panel"] == "log1")]
    ends = rows.drop_duplicates("trial", keep="last").groupby("epsilon")["objective"]
    line, zero = axes(figure)[0].lines
    start = rows.loc[rows["iteration"].eq(0), "objective"].iloc[0]
    assert zero.get_label() == "w = 0"
    np.testing.assert_allclose(zero.get_ydata(), start)
    np.testing.assert_allclose(line.get_ydata(), ends.median())
    np.testing.assert_array_equal(line.get_xdata(), [1.0, 4.0])
    band = axes(figure)[0].collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == ends.min().min() and band.max() == ends.max().max()


def test_without_noise_is_a_place_beyond_the_largest_epsilon():
    for epsilons, end in (([1.0, 4.0, math.inf], 16.0), ([5.0, math.inf], 50.0)):
        (ax,) = axes(plot(made(lines=1, epsilons=epsilons), "epsilon", "objective"))
        np.testing.assert_allclose(ax.lines[0].get_xdata(), [*epsilons[:-1], end])
        ticks = [tick.get_text() for tick in ax.get_xticklabels()]
        assert ticks == [*(f"{one:g}" for one in epsilons[:-1]), "∞"]
        assert ax.get_xscale() == "log"


def test_several_quantities_stand_side_by_side():
    frame = made(panels=("a", "b"), epsilons=(1.0, 2.0), support_f1=0.8)
    frame["active_groups"] = np.where(frame["panel"] == "a", 3.0, math.nan)
    one = sheet_of_view(frame, View("epsilon", "objective,active_groups,support_f1"))
    assert (len(one.cells), one.columns, one.quantity) == (5, 3, "")
    assert one.caption.count("Uncharged") == 1
    figure = plot(frame, "epsilon", "objective,active_groups,support_f1")
    score = "F1 score of the support"
    assert [ax.get_title().split(": ")[1] for ax in axes(figure)] == [
        *("objective $F(w)$", "active groups", score),
        *("objective $F(w)$", score),
    ]
    with pytest.raises(UsageError, match="y=nothing"):
        plot(frame, "epsilon", "objective,nothing")


@pytest.mark.parametrize("seeds", [5, 6])
def test_runs_too_few_for_an_interval_are_said_to_have_none(seeds):
    one = sheet_of_view(made(seeds=seeds), View("epsilon", statistic="interval"))
    few = "; fewer than 6 runs have no interval, none is drawn."
    assert (few in one.caption) == (seeds < 6)


def test_any_axis_of_the_sweep(table):
    figure = plot(table, "clip", "objective", where={"algorithm": "random_cd"})
    assert legend(figure) == ["random_cd", "w = 0"]
    assert [t.get_text() for t in axes(figure)[0].get_xticklabels()] == ["0.5", "1"]
    plot(table, "algorithm", "objective", where={"clip": 1})


def test_winners_and_profiles_hold_w_0():
    table = made(lines=2, epsilons=(1.0, 4.0), panels=("a", "b"))
    # On b w = 0 is better than both.
    zero = np.where(table["panel"].eq("a"), 9.0, 1e-3)
    start = table["iteration"].eq(0)
    table["relative_error"] = table["relative_error"].mask(start, zero)
    (ax,) = axes(plot(table, kind="winners"))[:1]
    assert [t.get_text() for t in ax.get_yticklabels()][-1] == "w = 0"
    wins, ties, crosses = (c.get_offsets().data for c in ax.collections)
    assert wins.tolist() == [[0, 0], [1, 0]] and not len(ties)
    assert crosses.tolist() == [[2, 2], [3, 2]]
    (ax,) = axes(plot(table, kind="profile"))
    shares = {line.get_label(): line.get_ydata()[0] for line in ax.lines}
    assert shares["w = 0"] == 0.5 and shares["gd, step=0.5"] == 0.5


def test_a_map_crosses_the_constant_model_where_it_is_not_beaten():
    table = made(lines=2, epsilons=(1.0, 4.0), panels=("a", "b"))
    start = table["iteration"].eq(0)
    table["relative_error"] = table["relative_error"].mask(start, 9.0)
    table["objective"] = 1.0 + table["relative_error"]
    # On b it is better than both.
    texts = [
        json.dumps({"base_rate": {"train_risk": 0.1, "objective": 1 + x, **own}})
        for x, own in ((5.0, {"relative_error": 5.0}), (1e-3, {"relative_error": 1e-3}))
    ]
    table["references"] = np.where(table["panel"].eq("a"), *texts)
    (ax,) = axes(plot(table, kind="winners"))[:1]
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names[-2:] == ["w = 0", "base rate (not private)"]
    wins, _, crosses = (c.get_offsets().data for c in ax.collections)
    assert wins.tolist() == [[0, 0], [1, 0]]
    assert crosses.tolist() == [[2, 3], [3, 3]]
    # Without an intercept it has no row of its own in a map of objectives.
    worse = json.dumps({"base_rate": {"train_risk": 0.1, "test_risk": 0.2}})
    (ax,) = axes(plot(table.assign(references=worse, test_risk=0.3), kind="winners"))[
        :1
    ]
    wins, _, crosses = (c.get_offsets().data for c in ax.collections)
    assert not len(wins) and crosses.tolist() == [[x, 2] for x in range(4)]
    assert "base rate (not private)" in legend(plot(table, "epsilon"))


@pytest.mark.parametrize("kind", ["profile", "winners"])
def test_what_no_picture_holds_is_refused_before_it_is_computed(kind, monkeypatch):
    table = made(lines=500, seeds=1, places=2, epsilons=(1.0, 4.0))
    monkeypatch.setattr("dp_erm_bench.report.plot.summary_of", None)
    with pytest.raises(UsageError, match="500 lines are more than"):
        plot(table, kind=kind)


def test_a_cell_without_a_baseline_stands_beside_one_that_has_it():
    table = made(epsilons=(1.0, 4.0)).assign(auc=0.7)
    known = json.dumps({"optimum": {"auc": 0.9}})
    table["references"] = np.where(table["epsilon"].eq(1.0), known, "{}")
    drawn = plot(table, y="auc")
    counts = [len(ax.lines) for ax in axes(drawn)]
    assert counts == [3, 2] and legend(drawn)[-1] == "optimum (not private)"


def test_lines_have_names_of_ones_own_and_stand_out(table, folder, capsys):
    given = {"names": {"gd": "Ours", "random_cd": "DP-CD"}, "highlight": "gd"}
    figure = plot(table, "epsilon", "objective", **given)
    assert legend(figure) == ["DP-CD, clip=0.5", "DP-CD, clip=1", "Ours", "w = 0"]
    widths = {line.get_label(): line.get_linewidth() for line in axes(figure)[0].lines}
    assert widths["Ours"] > 2 * widths["DP-CD, clip=1"]
    two = plot(table, "epsilon", highlight="gd,random_cd")
    one = plot(table, "epsilon", highlight=["random_cd, clip=1"])
    for drawn, wide in ((two, 3), (one, 1)):
        widths = {k.get_label(): k.get_linewidth() for k in axes(drawn)[0].lines}
        assert sum(width > 2 for width in widths.values()) == wide
    options = f"{folder} --names random_cd=A,gd=B --where panel=log1 --y objective"
    assert main(["export", *options.split(), "--format", "md"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    names = [row.split(" | ")[0].removeprefix("| ") for row in rows]
    assert names == ["A, clip=0.5", "A, clip=1", "B", "w = 0"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--names gd", "--names=gd: must be LINE=NAME"),
        ("--names gdd=Ours", "did you mean gd?"),
        ("--names gd=random_cd,random_cd=random_cd --where clip=1", "both be called"),
        ("--highlight gdd", "did you mean gd?"),
    ],
)
def test_wrong_names_of_lines_are_a_sentence(folder, given, said, capsys):
    assert main(["plot", str(folder), *given.split()]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and said in told, told


def test_epsilon_is_a_facet_where_it_varies(table):
    titles = [ax.get_title() for ax in axes(plot(table))]
    assert titles == ["log1, ε = 1", "log1, ε = 4", "log2, ε = 1", "log2, ε = 4"]


def test_lines_that_are_numbers_say_of_what():
    figure = plot(made(lines=1, epsilons=(0.1, 1.0, 10.0)), line="epsilon")
    assert legend(figure) == ["epsilon=0.1", "epsilon=1", "epsilon=10"]


def test_sixty_lines_are_spread_over_facets():
    figure = plot(made(lines=60))
    assert len(axes(figure)) == 9
    assert max(len(ax.lines) for ax in axes(figure)) == 7
    assert sum(len(ax.lines) for ax in axes(figure)) == len(legend(figure)) == 60


@pytest.mark.parametrize("kind", ["winners", "curves"])
def test_only_lines_that_are_drawn_are_counted(kind, monkeypatch):
    """Those over epsilon have the name of the others, and some have no value of y."""
    for name, most in (("MOST_ROWS", 2), ("MOST_CELLS", 1)):
        monkeypatch.setattr(f"dp_erm_bench.report.plot.{name}", most)
    table = made(lines=2, epsilons=(1.0, 4.0), phase="report")
    away = table["epsilon"].eq(4.0)
    table["line"] = table["params"].mask(away, table["params"] + " over epsilon")
    bare = table.assign(line="bare", relative_error=math.nan, params="{}")
    bare["trial"] += " bare"
    view = View("epsilon", y="relative_error")
    sheet_of_view(pd.concat([table, bare]), view, kind)
    many = [bare.assign(line=f"{k}", trial=bare["trial"] + f"{k}") for k in range(7)]
    more = pd.concat([table, *many]).fillna({"relative_error": 1.0})
    with pytest.raises(UsageError, match="are more than"):
        sheet_of_view(more, view, kind)


def test_more_panels_than_a_page_has_are_a_sentence():
    with pytest.raises(UsageError, match="61 panels are more than 60"):
        plot(made(lines=1, places=2, panels=[f"d{k}" for k in range(61)]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["a/b", "../x", "$x_", r"\frac{", "50 % & #1", "数据", "", "a, b=c", "x" * 150],
)
def test_any_name_of_a_line_or_a_panel(name, tmp_path):
    frame = made(panel=name, line=name or "a", panels=("one",), lines=1)
    figure = plot(frame)
    figure.savefig(tmp_path / "x.png")
    for kind in ("profile", "winners"):
        both = pd.concat([frame, frame.assign(line="b", trial=frame["trial"] + "b")])
        more = both.assign(epsilon=2.0, trial=both["trial"] + "2")
        plot(pd.concat([both, more]), kind=kind).savefig(tmp_path / "y.png")


@pytest.mark.slow
@pytest.mark.parametrize(
    "frame",
    [
        made(lines=1, seeds=1, places=1),
        made(lines=1, seeds=1, epsilons=(2.0,)),
        made(relative_error=0.0),
        made(relative_error=-1e-12),
        made(relative_error=1.0),
        made(relative_error=[math.inf, 1.0, 1e-100, 1e100] * 12),
        made(relative_error=[-1.0, 1.0, 2.0, 3.0] * 12),
        made(status="diverged", relative_error=[1.0, 2.0, math.nan, math.nan] * 12),
        made(passes=0.0),
        made(uncharged=None, message=None),
    ],
    ids=range(10),
)
def test_odd_numbers_are_a_picture(frame, tmp_path):
    for x in ("passes", "iteration", "seconds", "epsilon"):
        plot(frame, x).savefig(tmp_path / "x.png")
    assert sheet_of_view(frame, View(y="objective")).caption


@pytest.mark.parametrize("status", ["error", "skipped", "timeout", "killed"])
def test_nothing_but_failures_is_a_sentence(status):
    frame = made(status=status, message="why\nmore", relative_error=math.nan)
    frame = frame.assign(objective=math.nan)
    with pytest.raises(
        UsageError, match=rf"no trial has a value .*12 {status} \(why\)"
    ):
        plot(frame)


def test_failures_beside_others_are_told():
    good, bad = made(lines=1), made(lines=2).query("line.str.contains('1.5')")
    bad = bad.assign(status="error", message="it broke", relative_error=math.nan)
    drawn = rows_of_view(pd.concat([good, bad]), View())
    assert drawn.left_out == ("Left out: 6 error (it broke).",)


def test_trials_that_only_tune_are_no_result():
    with pytest.raises(UsageError, match="only trials that tune"):
        plot(made(phase="tune"))


def test_a_quantity_that_nobody_planned_is_drawn():
    figure = plot(made(gradient_norm=1.5), y="gradient_norm")
    assert axes(figure)[0].get_ylabel() == "gradient norm"
    frame = made(relative_error=math.nan).assign(excess_risk=0.2)
    assert axes(plot(frame))[0].get_ylabel() == "excess risk"


def test_accuracies_are_better_the_higher_they_are():
    frame = made(lines=2, epsilons=(1.0, 2.0))
    frame["test_accuracy"] = np.where(frame["line"].str.contains("1.5"), 0.9, 0.6)
    view = View(y="test_accuracy")
    assert "what it lacks to 1" in sheet_of_view(frame, view, "profile").caption
    (ax,) = axes(plot(frame, y="test_accuracy", kind="winners"))[:1]
    wins, *_ = (c.get_offsets().data for c in ax.collections)
    assert {row for _, row in wins.tolist()} == {1.0}


@pytest.mark.slow
@pytest.mark.alone
def test_a_hundred_thousand_rows_are_drawn_in_time():
    frame = made(lines=20, epsilons=(0.1, 1.0), seeds=10, places=250)
    assert len(frame) == 100_000
    start = time.process_time()
    plot(frame)
    assert time.process_time() - start <= 10


def test_panels_of_numbers_say_of_what_and_come_in_order():
    table = made(panels=("b", "a", "c"))
    table["n"] = table["dataset"].map({"b": 3000, "a": 16000, "c": 500})
    drawn = rows_of_view(table, View("passes", panel=("n",)))
    named = [panel for panel, _ in drawn.rows.groupby("panel", sort=False)]
    assert named == ["n = 500", "n = 3000", "n = 16000"]
    both = rows_of_view(table, View("passes", panel=("dataset", "n"))).rows["panel"]
    assert [*both.unique()] == ["a, n = 16000", "b, n = 3000", "c, n = 500"]
