"""Test that figures fit a paper's columns, and that captions are complete."""

import itertools
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from PIL import Image

from dp_erm_bench.report import draw, plot, style
from dp_erm_bench.report.draw import Chart, draw_rows, spread_lines
from dp_erm_bench.report.layout import (
    WIDTHS,
    Sheet,
    draw_sheet,
    latex_figure,
    plain_caption,
    save_sheet,
    wrap_text,
)
from dp_erm_bench.report.style import (
    forget_styles,
    house_style,
    reserve_styles,
    scale_x,
    style_of,
)
from dp_erm_bench.results.statistics import NOTHING
from tests.report.papers import mangold2022, mangold2023
from tests.report.test_draw import panel_lines

# What each sheet shows: panels, lines (w = 0 among them, once a panel of final values),
# bands.
BEFORE = {
    "mangold2022": {"mangold2022": (11, 60, 50), "electricity_raw": (2, 14, 11)},
    "mangold2023": {"mangold2023": (12, 68, 62), "mangold2023_rules": (3, 9, 9)},
}


def one(ax):
    ax.plot([1, 2], [1, 2], label="one")


def drawn(sheet):
    with house_style():
        figure = Figure()
        draw_sheet(figure, sheet)
    return figure


def chart(x=(1.0, 2.0, 4.0), lines=("a",), **more):
    """A chart of lines of ones."""
    rows = [(line, at, 0.5, 1.0, 2.0, 3) for line in lines for at in x]
    columns = ["line", "x", *draw.BAND, "count"]
    return Chart("title", "n", pd.DataFrame(rows, columns=columns), **more)


def counted(sheet):
    """Panels, lines with a name in the legend, and bands of a sheet."""
    axes = drawn(sheet).axes
    lines = [line for ax in axes for line in ax.lines if line.get_label()[0] != "_"]
    bands = [c for ax in axes for c in ax.collections if isinstance(c, PolyCollection)]
    bars = [bar for ax in axes for bar in ax.containers]
    return len(axes), len(lines), len(bands) + len(bars)


@pytest.mark.parametrize("name", BEFORE)
def test_no_line_band_or_panel_was_lost(name, tabulate, tmp_path, monkeypatch):
    found = {}

    def keep(sheet, path):
        found[path.name] = counted(sheet)
        return []

    for module in ("panels", "lines"):
        monkeypatch.setattr(f"dp_erm_bench.report.{module}.save_sheet", keep)
    module = {"mangold2022": mangold2022, "mangold2023": mangold2023}[name]
    panels = [panel for f in module.figures for panel in getattr(f, "panels", ())]
    lines = {
        (line["panel"], line["line"], line.get("epsilon")): line
        for panel in panels
        for line in panel_lines(panel)
    }
    module.draw(tabulate(*lines.values()), tmp_path, {"profile": "smoke"})
    for stem, least in BEFORE[name].items():
        assert found[stem] == least, stem
    for panel in module.PANELS:
        parts = len(spread_lines(panel.lines))
        shown = len(panel.lines), len(panel.lines) + len(panel.authors)
        assert found[panel.name] == (parts, shown[1], shown[0])


def test_no_two_lines_of_a_figure_look_alike():
    forget_styles()
    looks: dict = {}
    for name in ("mine", *style.STYLES, *map(str, range(40))):
        one = style_of(name)
        looks.setdefault(one.look, set()).add(one.label)
        assert style_of(name) == one
    forget_styles()
    assert {len(labels) for labels in looks.values()} == {1}


def test_an_algorithm_has_its_colour_in_every_folder_and_its_lines_differ():
    looks = []
    for before in ([], ["x", "y"], ["sgd", "random_cd"]):
        forget_styles()
        reserve_styles([[*before, "gd", "gd, clip=1", "gd, clip=2"]])
        names = ("gd", "gd, clip=1", "gd, clip=2")
        own = [style_of(name).look for name in names]
        assert len({*own}) == 3
        looks.append(own)
    assert looks[0] == looks[1] == looks[2]
    forget_styles()


def test_lines_of_a_panel_differ_in_colour_whatever_others_a_paper_has():
    forget_styles()
    panels = [[f"{k} {panel}" for k in range(5)] for panel in range(7)]
    reserve_styles(panels)
    for lines in panels:
        assert len({style_of(line).colour for line in lines}) == 5
    forget_styles()


def test_a_caption_of_text_says_formulas_in_letters():
    said = {
        r"$\varepsilon = 10/\sqrt{n}$": "ε = 10/√n",
        r"$10^{-8}$, \$5 and \$6": "10^-8, $5 and $6",
        r"$R_{M^{-1}} / (\Lambda R_I)$": "R_(M^-1) / (Λ R_I)",
        r"$p^{-1/2}$": "p^(-1/2)",
    }
    for words, told in said.items():
        assert plain_caption(words) == told + "\n"


def test_sheets_are_as_wide_as_a_column_a_page_or_a_slide():
    for cells, width in ((1, "column"), (2, "page"), (7, "page")):
        figure = drawn(Sheet([one] * cells, ""))
        assert figure.get_size_inches()[0] == WIDTHS[width]
        assert len(figure.axes) == cells
        wide = drawn(Sheet([one] * cells, "", width="page"))
        assert wide.get_size_inches()[0] == WIDTHS["page"]
    slide = drawn(Sheet([one] * 2, "", width="slide")).get_size_inches()
    # A projector shows 6 inches as more than 13.
    assert slide[0] == WIDTHS["slide"] and 0.5 < slide[1] / slide[0] < 0.75


def test_the_caption_and_the_points_stand_beside_the_picture(tmp_path):
    words = r"100 % of a_b & c: $M_j$ costs \$5, {x} ~ y^2 # \z"
    written = save_sheet(Sheet([chart()], words), tmp_path / "my_figure")
    suffixes = ("pdf", "png", "svg", "txt", "tex", "csv")
    assert [path.name for path in written] == [f"my_figure.{one}" for one in suffixes]
    plain = words.replace("$M_j$", "M_j").replace(r"\$", "$")
    assert written[3].read_text() == plain + "\n"
    text = written[4].read_text()
    assert r"\includegraphics[width=\columnwidth]{my_figure}" in text
    assert r"100 \% of a\_b \& c: $M_j$ costs \$5, \{x\}" in text
    assert r"y\textasciicircum{}2" in text or r"y\^{}2" in text
    assert r"\#" in text and r"\textbackslash{}z" in text
    assert text.count(r"\begin{figure}") == text.count(r"\end{figure}") == 1
    assert b"costs" not in written[2].read_bytes()
    points = pd.read_csv(written[5])
    assert points["x"].tolist() == [1.0, 2.0, 4.0] and {*points["middle"]} == {1.0}
    assert {*points["panel"]} == {"title"} and {*points["statistic"]} == {"median"}


def test_a_wide_figure_spans_both_columns():
    assert r"\begin{figure*}" in latex_figure("x", "y", wide=True)
    assert plain_caption("x") == "x\n"


@pytest.mark.parametrize(
    "text", [r"$\input{/etc/passwd}$", r"$x^^5cinput$", r"\write18{ls}", "$a$b$"]
)
def test_what_is_no_formula_of_ours_is_text_in_captions_and_pictures(text, tmp_path):
    latex = latex_figure(text.replace("$a$b$", r"\$a\$b\$"), "x")
    assert r"\input" not in latex.replace(r"\includegraphics", "")
    assert r"\write" not in latex and "^^" not in latex
    figure = drawn(Sheet([lambda ax: ax.set_title(text)], ""))
    (ax,) = figure.axes
    if "a$b" not in text:
        assert not ax.title.get_parse_math() and ax.get_title() == text
    figure.savefig(tmp_path / "x.png")


def test_formats_are_chosen_and_captions_left_out(tmp_path):
    written = save_sheet(Sheet([one], "x"), tmp_path / "a", ["svg"], False)
    assert [path.name for path in written] == ["a.svg"]
    assert sorted(tmp_path.iterdir()) == written


def test_every_band_has_an_edge_and_stands_below_the_lines():
    ax = Figure().add_subplot()
    draw.draw(ax, chart(lines="ab"))
    lines = [line.get_zorder() for line in ax.lines]
    for band in ax.collections:
        assert band.get_edgecolor()[0][3] > band.get_facecolor()[0][3]
        assert band.get_linewidth()[0] > 0 and band.get_zorder() < min(lines)


def test_a_single_point_has_a_bar():
    ax = Figure().add_subplot()
    draw.draw(ax, chart(x=[1.0]))
    assert len(ax.containers) == 1


def test_few_points_are_rows_of_a_table():
    few, many = chart(x=[1.0, 2.0], lines=["a", "b"]), chart()
    assert few.has_few_points and not many.has_few_points
    figure = drawn(Sheet([many], "", tabled=[few]))
    assert len(drawn(Sheet([], "", tabled=[few])).axes) == 1
    plotted, tabled = figure.axes
    assert len(plotted.lines) == 1 and not tabled.lines
    cells = [
        cell.get_text().get_text() for cell in tabled.tables[0].get_celld().values()
    ]
    assert cells.count("1 [0.5, 2]") == 4 and "n = 2" in cells and "title" in cells
    sizes = {c.get_text().get_fontsize() for c in tabled.tables[0].get_celld().values()}
    assert min(sizes) >= 7


def test_texts_of_a_printed_page_have_seven_points_at_least():
    wide = chart(lines=[f"line {k}" for k in range(7)])
    figure = drawn(Sheet([wide] * 4, "", width="page"))
    figure.canvas.draw()
    for ax in figure.axes:
        texts = [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.get_xticklabels()]
        assert min(text.get_fontsize() for text in texts) >= 7
    assert {t.get_fontsize() for t in figure.legends[0].get_texts()} == {7.5}


def test_a_mark_stands_across_the_picture():
    figure = drawn(Sheet([one], "", mark="profile smoke"))
    assert [text.get_text() for text in figure.texts] == ["profile smoke"]
    assert not drawn(Sheet([one], "")).texts


def test_an_axis_that_is_symlog_says_so():
    ax = Figure().add_subplot()
    ax.set_xlabel("passes")
    scale_x(ax, "passes", [0.0, 1.0, 10.0])
    assert ax.get_xscale() == "symlog"
    assert ax.get_xlabel() == "passes (linear to 1, then log)"


LONG = [
    *("DP-CD, cyclic", "DP-CD, uniform", "DP-CD, private $M_j$", "DP-CD, public $M_j$"),
    *("DP-SGD, authors' noise", "DP-SGD, tight, batch 1", "DP-SGD, tight, batch 100"),
    *("DP-SVRG, tight, batch 100", "DP-SGD, tight, full batch", "w = 0"),
    *("output perturbation, strongly convex", "DP-CD, private $M_j$ (authors' figure)"),
]


@pytest.mark.parametrize(("width", "cells"), [("column", 1), ("page", 1), ("page", 3)])
def test_a_legend_of_many_lines_covers_nothing_and_fits(width, cells):
    def cell(ax):
        for label in LONG:
            ax.plot([1, 2], [1, 2], label=label)

    figure = drawn(Sheet([cell] * cells, "", width=width))
    key = figure.legends[0].get_window_extent()
    assert key.x0 >= 0 and key.x1 <= figure.bbox.x1
    assert key.y0 >= 0 and not key.overlaps(figure.axes[0].get_tightbbox())
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [" ".join(one.split()) for one in words] == LONG
    tall = figure.axes[0].get_window_extent().height
    assert tall > 0.35 * figure.axes[0].get_window_extent().width


@pytest.mark.parametrize("values", [[100000, 160000, 250000, 400000, 640000], [1, 9]])
def test_labels_of_ticks_do_not_overlap_in_narrow_cells(values):
    figure = drawn(Sheet([chart(x=[*map(float, values), 1e6])] * 3, ""))
    figure.canvas.draw()
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
        low, high = axis.get_view_interval()  # a locator has ticks beyond it, too
        ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
        boxes = [one.get_window_extent() for at, one in ticks if low <= at <= high]
        assert 2 <= len(boxes) <= 9
        for place, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[place + 1 :])


@pytest.mark.parametrize("name", ["$x_", "a/b", "数据", r"\frac{1}{2}", "a & b %", ""])
def test_names_are_drawn_to_the_letter(name, recwarn):
    shown = style.literal_text(name)
    figure = drawn(Sheet([lambda ax: ax.set_title(shown)], shown, shown))
    figure.canvas.draw()
    assert figure.axes[0].get_title() == (name if name.isascii() else r"\u6570\u636e")
    assert not recwarn.list


def test_titles_are_broken_but_not_their_formulas():
    title = r"a very long title of a panel, $\varepsilon = 10$, with " + "words " * 9
    lines = wrap_text(title, 30).split("\n")
    assert len(lines) > 1 and any(r"$\varepsilon = 10$" in line for line in lines)
    assert re.sub(r"\s+", " ", " ".join(lines)) == title.strip()
    title = wrap_text("file, test_fraction=0.2, path=siteA/data.csv, ε = 10", 20)
    assert "\n" in title and "ε = 10" in title


def test_a_map_of_winners_has_epsilon_and_a_colour_bar():
    figure = Figure()
    ax = figure.add_subplot()
    problems = pd.MultiIndex.from_tuples([("a", 0.1), ("a", 1.0), ("b", 1.0)])
    grid = pd.DataFrame(
        [[1.0, 2.0, np.nan], [3.0, 1.0, 100.0]], "x y".split(), problems
    )
    marks = pd.DataFrame(
        [["wins", "", ""], ["", "ties", NOTHING]], grid.index, problems
    )
    plot.draw_winners(ax, grid, marks)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.1", "1", "1"]
    assert ax.get_xlabel() == "ε"
    assert figure.axes[1].get_ylabel() == "factor over the best"
    wins, ties, crosses = (c.get_offsets().tolist() for c in ax.collections)
    assert (wins, ties, crosses) == ([[0, 0]], [[1, 1]], [[2, 1]])
    sizes = [text.get_fontsize() for text in (*ax.texts, *ax.get_xticklabels())]
    assert min(sizes) >= 7


def test_no_cell_has_more_than_seven_lines():
    for lines in (0, 1, 7, 8, 12, 60):
        names = [str(k) for k in range(lines)]
        parts = spread_lines(names)
        assert [name for part in parts for name in part] == names
        assert all(len(part) <= 7 for part in parts)
    parts = draw.split_chart(chart(lines=[str(k) for k in range(9)], shapes={"s": -1}))
    assert [len(one.lines) for one in parts] == [4, 5]
    assert [one.title for one in parts] == ["title (1/2)", "title (2/2)"]
    assert [bool(one.shapes) for one in parts] == [True, False]


def test_lines_on_each_other_are_found():
    one = chart(lines=["a", "b", "c"])
    bands = one.bands.assign(
        middle=one.bands["middle"].where(one.bands["line"] != "c", 2.0)
    )
    (group,) = draw.lines_alike(Chart("t", "n", bands))
    assert group == ["a", "b"]


def test_axes_of_one_name_have_one_kind_of_scale():
    linear = chart(along="linear", scales=("linear", "log"))
    passes = chart(along="passes", scales=("passes", "log"))
    found = draw.charts_of_figure([linear, passes])
    assert [one.scales[0] for one in found] == ["passes", "passes"]
    assert [one.letter for one in found] == ["a", "b"]
    assert draw.charts_of_figure([linear])[0].letter == ""


def test_a_line_that_nobody_planned_looks_like_none_that_somebody_did():
    forget_styles()
    reserve_styles([["DP-CD cyclic", "mine"]])
    planned, mine = style_of("DP-CD cyclic"), style_of("mine")
    assert (planned.colour, planned.marker) != (mine.colour, mine.marker)
    forget_styles()


def test_pictures_have_few_bytes_and_are_sharp(tmp_path):
    _, png, *_ = save_sheet(Sheet([chart()] * 3, "x"), tmp_path / "a")
    with Image.open(png) as image:
        assert image.size[0] == 200 * WIDTHS["page"]


def test_rows_of_a_table_show_what_w_0_has():
    ax = Figure().add_subplot()
    one = chart(x=[1.0])
    draw_rows(ax, [Chart("t", "n", one.bands.assign(**{"w = 0": 7.5}))])
    texts = [cell.get_text().get_text() for cell in ax.tables[0].get_celld().values()]
    assert "7.5" in texts and list(itertools.islice(texts, 4))[-1] == "w = 0"
