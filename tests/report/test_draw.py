"""Test figures drawn from synthetic tables: files, legends, logs, missing data."""

import dataclasses
import math

import numpy as np
import pytest

from dp_erm_bench.paths import sealed_json
from dp_erm_bench.report import panels
from dp_erm_bench.report.draw import charts_of_figure
from dp_erm_bench.report.layout import MAX_PNG_BYTES, Sheet, draw_sheet, save_sheet
from dp_erm_bench.report.panels import look_up
from dp_erm_bench.report.style import house_style, style_of
from dp_erm_bench.results.runs import write_run
from tests.report.papers import mangold2022, mangold2023

PAPERS = {"mangold2022": mangold2022, "mangold2023": mangold2023}


def panel_lines(panel, **more):
    """Every line of a panel, at epsilon 1 and beyond."""
    found = [
        {"panel": panel.name, "line": line, "epsilon": panel.epsilon}
        | {"end": 0.1 * (k + 1), **more}
        for k, line in enumerate(dict.fromkeys((*panel.lines, *panel.over_epsilon)))
    ]
    for line in panel.over_epsilon:
        for epsilon, end in ((0.1, 0.5), (10.0, 0.02)):
            label = f"{line} over epsilon"
            line_at = {"line": label, "epsilon": epsilon, "end": end}
            found.append({"panel": panel.name, **line_at, **more})
    return found


@pytest.fixture
def sheet():
    """Draw one cell on a sheet and return its figure."""
    import matplotlib.pyplot as plt

    def build(cell, caption="A caption."):
        with house_style():
            figure = plt.figure()
            draw_sheet(figure, Sheet([cell], caption))
            return figure

    yield build
    plt.close("all")


@pytest.fixture
def quick(monkeypatch):
    """Leave the files out where only the log matters."""
    monkeypatch.setattr(
        panels,
        "save_sheet",
        lambda _, path: [path.with_suffix(".pdf"), path.with_suffix(".png")],
    )


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mangold2022", pytest.param("mangold2023", marks=pytest.mark.slow)]
)
def test_all_figures_of_a_paper(tabulate, tmp_path, name):
    module = PAPERS[name]
    every = [panel for f in module.figures for panel in getattr(f, "panels", ())]
    unique = {
        (line["panel"], line["line"], line.get("epsilon")): line
        for panel in every
        for line in panel_lines(panel)
    }
    folder = tmp_path / "figures"
    written = module.draw(tabulate(*unique.values()), folder, {"profile": "smoke"})
    expected = {name, *(panel.name for panel in module.PANELS)}
    expected |= {f"{one.name}_epsilon" for one in module.PANELS if one.over_epsilon}
    if name == "mangold2023":
        expected |= {f"{name}_rules", f"{name}_noise"}
    for suffix in (".png", ".pdf", ".svg", ".tex", ".csv"):
        assert {path.stem for path in written if path.suffix == suffix} == expected
    texts = {path.stem for path in written if path.suffix == ".txt"}
    assert texts == {*expected, "log"}
    assert sorted(written) == sorted(folder.iterdir())
    for path in written:
        assert 0 < path.stat().st_size
        assert path.suffix != ".png" or path.stat().st_size <= MAX_PNG_BYTES
    assert "not run" not in (folder / "log.txt").read_text()


def test_files_are_the_same_twice(tmp_path):
    sheet = Sheet([lambda ax: ax.plot([1, 2], [3, 4], label="one")], "x")
    with house_style():
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
        one, two = (save_sheet(sheet, tmp_path / name / "x") for name in ("one", "two"))
    for first, second in zip(one, two, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_heavy_png_is_made_smaller(tmp_path, monkeypatch):
    monkeypatch.setattr("dp_erm_bench.report.layout.MAX_PNG_BYTES", 60_000)
    noise = np.random.default_rng(0).uniform(size=(60, 60))
    sheet = Sheet([lambda ax: ax.imshow(noise)], "x")
    with house_style():
        _, png, *_ = save_sheet(sheet, tmp_path / "noise")
    assert png.stat().st_size <= 60_000


def test_missing_panel_is_listed_with_the_way_to_get_it(tabulate, tmp_path, quick):
    message = "dataset log2 is not here"
    table = tabulate(
        *panel_lines(mangold2023.PANELS[0]),
        {"panel": "log2", "line": "DP-GCD tight", "phase": "tune", "status": "error"}
        | {"message": message},
    )
    written = mangold2023.draw(table, tmp_path, {"profile": "smoke"})
    assert not any(path.stem.startswith(("log2", "madelon")) for path in written)
    log = (tmp_path / "log.txt").read_text()
    assert f"log2: not run (error: {message}" in log
    assert "madelon: not run (panel madelon has no report runs)" in log
    assert "dp-erm-bench experiment=mangold2023 profile=smoke" in log


def test_the_way_to_get_data_is_told_once(tabulate, tmp_path, quick):
    missing = {"phase": "tune", "status": "error", "message": "dataset log2: get it"}
    lines = [
        {"panel": one.name, "line": line} | missing
        for one in mangold2023.PANELS[1:]
        for line in one.lines
    ]
    table = tabulate(*panel_lines(mangold2023.PANELS[0]), *lines)
    mangold2023.draw(table, tmp_path, {"profile": "smoke"})
    log = (tmp_path / "log.txt").read_text()
    assert log.count("dataset log2: get it") == 1
    assert log.count("not run (") == len(mangold2023.PANELS) - 1


@pytest.mark.parametrize("text", ["", "[broken", "{}", "LINES"])
def test_reason_of_the_manifest_is_listed(tabulate, tmp_path, quick, text):
    reason = "dataset madelon cannot be had: set DP_ERM_BENCH_DATA"
    entry = {"panel": "madelon", "line": "DP-CD cyclic", "reason": reason}
    lines = sealed_json({"not_run": [entry]})
    manifest = lines if text == "LINES" else text.encode()
    (tmp_path / "manifest.json").write_bytes(manifest)
    mangold2023.draw(tabulate({}), tmp_path / "figures", {"profile": "smoke"})
    log = (tmp_path / "figures" / "log.txt").read_text()
    assert "madelon: not run (" in log
    assert (f"madelon: not run (skipped: {reason}" in log) == (text == "LINES")


def test_nothing_to_draw_is_no_error(tabulate, tmp_path):
    written = mangold2022.draw(tabulate({}).iloc[:0], tmp_path, {"profile": "smoke"})
    assert written == [tmp_path / "log.txt"]
    assert written[0].read_text().count("not run") == len(mangold2022.PANELS)


def test_missing_line_is_named_in_the_log_only(tabulate, tmp_path, quick):
    panel = mangold2023.PANELS[0]
    lines = [one for one in panel_lines(panel) if one["line"] != "DP-CD uniform"]
    written = mangold2023.draw(tabulate(*lines), tmp_path, {"profile": "smoke"})
    assert tmp_path / "log1.png" in written
    log = (tmp_path / "log.txt").read_text()
    assert "not drawn: DP-CD uniform (DP-CD uniform has no report runs" in log


def test_log_names_every_run_behind_the_figures(tabulate, tmp_path, quick):
    table = tabulate(*panel_lines(mangold2023.PANELS[0]))
    table["run"] = [f"0-here-{seed}" for seed in table["seed"]]
    write_run(tmp_path, {"run": "0-here-1"})
    mangold2023.draw(table, tmp_path / "figures", {"profile": "smoke"})
    log = (tmp_path / "figures" / "log.txt").read_text()
    for seed in range(4):
        assert f"  runs/0-here-{seed}.json: commit unknown" in log


@pytest.mark.parametrize("data", [b"", b"\xff\x00", b"a,b\n1,2\n", b'"'])
def test_log_says_that_the_choices_are_damaged(tmp_path, data):
    (tmp_path / "choices.csv").write_bytes(data)
    assert panels.open_choices(tmp_path) == ["  unknown: choices.csv is damaged"]


def test_log_lists_open_choices(tabulate, tmp_path, quick):
    folder = tmp_path / "figures"
    (tmp_path / "choices.csv").write_text(
        "panel,line,epsilon,chosen,open\n"
        'log1,DP-GCD tight,1.0,"{""clip"": 0.25}",clip top\n'
        'log1,DP-CD cyclic,1.0,"{""clip"": 0.05}",\n'
    )
    table = tabulate(*panel_lines(mangold2023.PANELS[0]))
    mangold2023.draw(table, folder, {"profile": "smoke"})
    log = (folder / "log.txt").read_text()
    found = log.partition("better setting may lie\n")[2].splitlines()
    assert (
        found[0] == '  log1 / DP-GCD tight, epsilon = 1.0: clip top in {"clip": 0.25}'
    )
    assert found[1] == ""


def test_log_of_a_run_without_choices(tabulate, tmp_path, quick):
    folder = tmp_path / "figures"
    table = tabulate({})
    mangold2023.draw(table, folder, {"profile": "smoke"})
    assert "there is no choices.csv" in (folder / "log.txt").read_text()
    (tmp_path / "choices.csv").write_text("panel,line,epsilon,chosen,open\na,b,1,c,\n")
    mangold2023.draw(table, folder, {"profile": "smoke"})
    assert "better setting may lie\n  none\n" in (folder / "log.txt").read_text()


def test_legend_names_our_lines_then_the_authors(tabulate, sheet):
    panel = mangold2022.PANELS[0]
    found = look_up(tabulate(*panel_lines(panel)), panel)
    names = [
        " ".join(name.split()) for c in found.along_passes for name in legend(sheet(c))
    ]
    ours = [style_of(line).label for line in panel.lines]
    theirs = [
        f"{one} (authors' figure)"
        for one in ("DP-CD", "DP-CD, private $M_j$", "DP-SGD")
    ]
    assert names == [*ours[:6], *theirs[:2], *ours[6:], theirs[2]]


def test_beside_the_authors_curves_lines_are_means(tabulate, sheet):
    for panel in mangold2022.PANELS:
        table = tabulate(*panel_lines(panel, n_seeds=3))
        lost = (table["seed"] == 0) & (table["iteration"] > 0)
        table.loc[lost, "relative_error"] *= 1.5
        found = look_up(table, panel)
        (chart, *_) = found.along_passes
        assert chart.statistic == ("mean" if panel.authors else "median")
        run = found.lines[chart.lines[0]]
        middle = run.errors.mean(0) if panel.authors else np.median(run.errors, 0)
        own = chart.bands[chart.bands["line"] == chart.lines[0]]
        np.testing.assert_allclose(own["middle"], middle)


def test_authors_curve_is_not_cut_off(tabulate, sheet):
    panel = mangold2022.PANELS[0]
    short = {"passes": 5.0, "start": 0.24, "end": 0.2, "spread": 0.0}
    table = tabulate({"panel": panel.name, "line": "DP-CD cyclic 50 passes", **short})
    figure = sheet(look_up(table, panel).along_passes[0])
    ax = figure.axes[0]
    assert ax.get_xlim()[1] > 50
    assert ax.get_ylim()[0] < 0.0024182
    assert legend(figure) == ["DP-CD, cyclic", "DP-CD (authors' figure)"]


def test_each_line_is_drawn_along_its_own_passes(tabulate, sheet):
    panel = mangold2023.PANELS[1]
    table = tabulate(
        {"panel": "log2", "line": "DP-GCD tight", "passes": 3.0},
        {"panel": "log2", "line": "DP-CD", "passes": 50.0},
    )
    figure = sheet(look_up(table, panel).along_passes[0])
    drawn = {line.get_label(): line.get_xdata() for line in figure.axes[0].lines}
    assert drawn[style_of("DP-GCD tight").label][[0, -1]].tolist() == [0.0, 3.0]
    assert drawn[style_of("DP-CD").label][[0, -1]].tolist() == [0.0, 50.0]


def test_median_and_band_are_what_is_drawn(tabulate, sheet):
    panel = mangold2023.PANELS[1]
    table = tabulate({"panel": "log2", "line": "DP-GCD tight", "n_seeds": 5})
    found = look_up(table, panel)
    ax = sheet(found.along_passes[0]).axes[0]
    run = found.lines["DP-GCD tight"]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.median(run.errors, axis=0))
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(run.errors.min())
    assert ax.get_yscale() == "log"


def test_diverged_and_exact_runs_are_drawn_without_warnings(tabulate, sheet):
    panel = mangold2023.PANELS[1]
    table = tabulate(
        {"panel": "log2", "line": "DP-GCD tight"},
        {"panel": "log2", "line": "DP-CD cyclic", "end": 0.2},
    )
    gone = (table["line"] == "DP-CD cyclic") & (table["iteration"] > 400)
    table.loc[gone, "relative_error"] = math.nan
    table.loc[(table["seed"] == 1) & (table["iteration"] > 800), "relative_error"] = 0.0
    figure = sheet(look_up(table, panel).along_passes[0])
    low, high = figure.axes[0].get_ylim()
    assert 0 < low < high < 10


def test_an_outlier_does_not_flatten_the_panel(tabulate, sheet):
    panel = mangold2023.PANELS[1]
    table = tabulate({"panel": "log2", "line": "DP-GCD tight"})
    table.loc[(table["seed"] == 0) & (table["iteration"] > 0), "relative_error"] = 1e9
    figure = sheet(look_up(table, panel).along_passes[0])
    assert figure.axes[0].get_ylim()[1] < 100


def test_error_against_epsilon_joins_the_main_line(tabulate, sheet):
    panel = mangold2023.PANELS[0]
    found = look_up(tabulate(*panel_lines(panel)), panel)
    assert [epsilon for epsilon, _ in found.over_epsilon["DP-GCD tight"]] == [
        0.1,
        1.0,
        10.0,
    ]
    ax = sheet(found.along_epsilon[0]).axes[0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.1", "1", "10"]
    assert len(ax.collections) == len(panel.over_epsilon)
    # At their true epsilon, all of them.
    for line in ax.lines[: len(panel.over_epsilon)]:
        assert list(line.get_xdata()) == [0.1, 1.0, 10.0]


def test_final_errors_stand_beside_that_of_w_0(tabulate, sheet):
    panel = mangold2023.PANELS[0]
    above = tabulate(*panel_lines(panel, start=7.0))
    found = look_up(above, panel)
    ax = sheet(found.along_epsilon[0]).axes[0]
    (zero,) = [line for line in ax.lines if line.get_label() == "w = 0"]
    assert list(zero.get_ydata()) == pytest.approx([7.0, 7.0])
    assert ax.get_ylim()[0] < 7.0 < ax.get_ylim()[1]
    assert not zero.get_marker() or zero.get_marker() == "None"
    assert zero.get_linewidth() < min(line.get_linewidth() for line in ax.lines[:-1])


def test_error_against_one_epsilon_only(tabulate, sheet):
    panel = mangold2023.PANELS[0]
    lines = [one for one in panel_lines(panel) if "over" not in one["line"]]
    found = look_up(tabulate(*lines), panel)
    assert {len(runs) for runs in found.over_epsilon.values()} == {1}
    sheet(found.along_epsilon[0])


@pytest.mark.parametrize("words", [1, 6, 14])
def test_texts_do_not_overlap(tabulate, sheet, words):
    panel = mangold2022.PANELS[0]
    found = look_up(tabulate(*panel_lines(panel)), panel)
    titled = dataclasses.replace(panel, title="some word " * words)
    found = dataclasses.replace(found, panel=titled)
    figure = sheet(found.along_passes[0])
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    ax = figure.axes[0]
    key = figure.legends[0].get_window_extent(renderer)
    axis = ax.get_tightbbox(renderer)
    assert not key.overlaps(axis)
    sheet_box = figure.bbox
    for box in (key, axis):
        assert sheet_box.x0 <= box.x0 and box.x1 <= sheet_box.x1
        assert sheet_box.y0 <= box.y0 and box.y1 <= sheet_box.y1


@pytest.mark.parametrize("name", PAPERS)
def test_cells_of_an_overview_do_not_overlap(tabulate, name):
    import matplotlib.pyplot as plt

    found = PAPERS[name].PANELS
    table = tabulate(*(line for panel in found for line in panel_lines(panel)))
    ran = [look_up(table, panel) for panel in found]
    charts = [chart for one in ran for chart in (*one.along_passes, *one.along_epsilon)]
    with house_style():
        figure = plt.figure()
        draw_sheet(figure, Sheet(charts_of_figure(charts), "A caption. " * 40))
        figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    boxes = [ax.get_tightbbox(renderer) for ax in figure.axes]
    boxes += [figure.legends[0].get_window_extent(renderer)]
    for place, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[place + 1 :])
    plt.close(figure)


def test_notes_of_an_overview_say_each_sentence_once(tabulate):
    some = [one for one in mangold2023.PANELS if "L1" in one.note][:2]
    lines = [line for panel in some for line in panel_lines(panel)]
    found = [look_up(tabulate(*lines), panel) for panel in some]
    note = panels._notes_of_panels(found)
    for sentence in {part for one in some for part in one.note.split(". ")}:
        assert note.count(sentence.rstrip(".")) == 1
    assert note.endswith(".")
    assert panels._notes_of_panels([]) == ""
