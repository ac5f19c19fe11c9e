"""Sheets as wide as a paper's columns, their captions beside them, nothing lost."""

import re

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from dp_erm_bench.report import plot, style
from dp_erm_bench.report.layout import (
    WIDTHS,
    Sheet,
    draw_sheet,
    latex_figure,
    plain_caption,
    save_sheet,
)
from dp_erm_bench.report.style import (
    Style,
    draw_line,
    forget_styles,
    house_style,
    literal_text,
    reserve_styles,
    scale_axis,
    scale_passes,
    style_of,
)
from tests.report.papers import mangold2022, mangold2023
from tests.report.test_draw import panel_lines

# What each sheet shows: panels, lines (w = 0 among them, once a panel of final values),
# bands.
BEFORE = {
    "mangold2022": {"mangold2022": (9, 56, 46), "electricity_raw": (1, 12, 9)},
    "mangold2023": {"mangold2023": (12, 68, 62), "mangold2023_rules": (3, 9, 9)},
}


def one(ax):
    ax.plot([1, 2], [1, 2], label="one")


def drawn(sheet):
    with house_style():
        figure = Figure()
        draw_sheet(figure, sheet)
    return figure


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

    for module in ("paper", "lines"):
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
        shown = len(panel.lines), len(panel.lines) + len(panel.authors)
        assert found[panel.name] == (1, shown[1], shown[0])


def test_no_two_lines_of_a_figure_look_alike():
    style.forget_styles()
    looks: dict = {}
    for name in ("mine", *style.STYLES, *map(str, range(40))):
        one = style.style_of(name)
        looks.setdefault((one.colour, one.marker, one.dashes), set()).add(one.label)
        assert style.style_of(name) == one
    style.forget_styles()
    assert {len(labels) for labels in looks.values()} == {1}


def test_a_caption_of_text_says_formulas_in_letters():
    said = {
        r"$\varepsilon = 10/\sqrt{n}$": "ε = 10/√n",
        r"$10^{-8}$, \$5 and \$6": "10^-8, $5 and $6",
        r"$R_{M^{-1}} / (\Lambda R_I)$": "R_(M^-1) / (Λ R_I)",
        r"$p^{-1/2}$": "p^(-1/2)",
    }
    for words, told in said.items():
        assert plain_caption(words) == told + "\n"


@pytest.mark.parametrize(("cells", "width"), [(1, "column"), (2, "page"), (7, "page")])
def test_sheets_are_as_wide_as_a_column_or_a_page(cells, width):
    figure = drawn(Sheet([one] * cells, 4, "", (3.0, 2.0)))
    assert figure.get_size_inches()[0] == WIDTHS[width]
    assert len(figure.axes) == cells
    wide = drawn(Sheet([one] * cells, 4, "", (3.0, 2.0), width="page"))
    assert wide.get_size_inches()[0] == WIDTHS["page"]


def test_the_caption_stands_beside_the_picture_as_text_and_as_latex(tmp_path):
    words = r"100 % of a_b & c: $M_j$ costs \$5, {x} ~ y^2 # \z"
    written = save_sheet(Sheet([one], 1, words, (3, 2)), tmp_path / "my_figure")
    assert [path.name for path in written] == [
        f"my_figure.{suffix}" for suffix in ("pdf", "png", "svg", "txt", "tex")
    ]
    assert (
        written[3].read_text()
        == words.replace("$M_j$", "M_j").replace(r"\$", "$") + "\n"
    )
    text = written[4].read_text()
    assert r"\includegraphics[width=\columnwidth]{my_figure}" in text
    assert r"100 \% of a\_b \& c: $M_j$ costs \$5, \{x\}" in text
    assert r"y\textasciicircum{}2" in text or r"y\^{}2" in text
    assert r"\#" in text and r"\textbackslash{}z" in text
    assert text.count(r"\begin{figure}") == text.count(r"\end{figure}") == 1
    assert b"costs" not in written[2].read_bytes()


def test_a_wide_figure_spans_both_columns():
    assert r"\begin{figure*}" in latex_figure("x", "y", wide=True)
    assert plain_caption("x") == "x\n"


def test_formats_are_chosen_and_captions_left_out(tmp_path):
    written = save_sheet(Sheet([one], 1, "x", (3, 2)), tmp_path / "a", ["svg"], False)
    assert [path.name for path in written] == ["a.svg"]
    assert sorted(tmp_path.iterdir()) == written


def test_every_band_has_an_edge_and_stands_below_the_lines():
    ax = Figure().add_subplot()
    for name in ("a", "b"):
        look = Style(name, "#0072B2", "o")
        draw_line(ax, [1, 2, 3], ([1, 1, 1], [2, 2, 2], [3, 3, 3]), look)
    lines = [line.get_zorder() for line in ax.lines]
    for band in ax.collections:
        assert band.get_edgecolor()[0][3] > band.get_facecolor()[0][3]
        assert band.get_linewidth()[0] > 0 and band.get_zorder() < min(lines)


def test_a_single_point_has_a_bar():
    ax = Figure().add_subplot()
    draw_line(ax, [1.0], ([1.0], [2.0], [float("inf")]), style_of("x"))
    assert len(ax.containers) == 1


def test_an_axis_that_is_symlog_says_so():
    ax = Figure().add_subplot()
    ax.set_xlabel("passes")
    scale_passes(ax, [0.0, 1.0, 10.0], log=True)
    assert ax.get_xscale() == "symlog"
    assert ax.get_xlabel() == "passes (linear up to 1, then log)"
    # A negative pass has no place, and no line ends at the frame.
    ax.plot([0.0, 100.0], [1.0, 1.0], "o")
    scale_axis(ax, [0.0, 1.0, 100.0], [1.0, 100.0])
    low, high = ax.get_xlim()
    assert -0.5 < low < 0 and high > 100.0


LONG = [
    *("DP-CD, cyclic", "DP-CD, uniform", "DP-CD, private $M_j$", "DP-CD, public $M_j$"),
    *("DP-SGD, authors' noise", "DP-SGD, tight, batch 1", "DP-SGD, tight, batch 100"),
    *("DP-SVRG, tight, batch 100", "DP-SGD, tight, full batch", "w = 0"),
    *("output perturbation, strongly convex", "DP-CD, private $M_j$ (authors' figure)"),
]


@pytest.mark.parametrize(("width", "cells"), [("column", 1), ("page", 1), ("page", 3)])
@pytest.mark.parametrize("size", [(4.4, 3.0), (10.4, 4.8)])
def test_a_legend_of_many_lines_is_no_taller_than_the_plots(width, cells, size):
    def cell(ax):
        for label in LONG:
            ax.plot([1, 2], [1, 2], label=label)

    figure = drawn(Sheet([cell] * cells, 3, "", size, width=width))
    key = figure.legends[0].get_window_extent()
    assert key.height <= 1.02 * figure.axes[0].get_window_extent().height
    assert key.x0 >= 0 and key.x1 <= figure.bbox.x1
    assert key.y0 >= 0 and not key.overlaps(figure.axes[0].get_tightbbox())
    words = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [" ".join(one.split()) for one in words] == LONG


def test_few_short_labels_are_neither_broken_nor_small():
    def cell(ax):
        for label in ("one", "two", "three"):
            ax.plot([1, 2], [1, 2], label=label)

    texts = drawn(Sheet([cell], 1, "", (4.4, 3.0))).legends[0].get_texts()
    assert [one.get_text() for one in texts] == ["one", "two", "three"]
    assert {one.get_fontsize() for one in texts} == {7.5}


@pytest.mark.parametrize("values", [[100000, 160000, 250000, 400000, 640000], [1, 9]])
def test_labels_of_ticks_do_not_overlap_in_narrow_cells(values):
    def cell(ax):
        ax.plot([*values], [*values], label="one")
        style.scale_numbers(ax, [float(one) for one in values], (0.011, 0.49))

    figure = drawn(Sheet([cell] * 3, 3, "", (2.9, 1.6)))
    figure.canvas.draw()
    for axis in (figure.axes[0].xaxis, figure.axes[0].yaxis):
        boxes = [one.get_window_extent() for one in axis.get_ticklabels()]
        assert 2 <= len(boxes) <= 9
        for place, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[place + 1 :])


def test_many_unknown_lines_are_told_apart():
    forget_styles()
    looks = [
        (style_of(f"line {k}").colour, style_of(f"line {k}").marker) for k in range(81)
    ]
    assert len(set(looks)) == 81
    forget_styles()


@pytest.mark.parametrize("name", ["$x_", "a/b", "数据", r"\frac{1}{2}", "a & b %", ""])
def test_names_are_drawn_to_the_letter(name, recwarn):
    shown = literal_text(name)
    assert shown.replace(r"\$", "").count("$") == 0
    figure = drawn(Sheet([lambda ax: ax.set_title(shown)], 1, shown, (3, 2), shown))
    figure.canvas.draw()
    assert not recwarn.list


def test_titles_are_broken_but_not_their_formulas():
    title = r"a very long title of a panel, $\varepsilon = 10$, with " + "words " * 9
    figure = drawn(Sheet([lambda ax: ax.set_title(title)], 1, "", (3, 2)))
    lines = figure.axes[0].get_title().split("\n")
    assert len(lines) > 1 and any(r"$\varepsilon = 10$" in line for line in lines)
    assert re.sub(r"\s+", " ", " ".join(lines)) == title.strip()
    title = "file, test_fraction=0.2, path=siteA/data.csv, ε = 10"
    (ax,) = drawn(Sheet([lambda ax: ax.set_title(title)], 1, "", (1.6, 2))).axes
    assert "\n" in ax.get_title() and "ε\xa0=\xa010" in ax.get_title()


def test_a_map_of_winners_has_epsilon_and_a_colour_bar():
    import numpy as np

    ax = Figure().add_subplot()
    problems = [("a", 0.1), ("a", 1.0), ("b", 1.0)]
    grid = np.array([[1.0, 2.0, np.nan], [3.0, 1.0, 100.0]])
    plot.draw_winners(ax, ["x", "y"], problems, grid, {"wins": [(0, 0)]})
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0.1", "1", "1"]
    assert ax.get_xlabel() == r"$\varepsilon$"
    (bar,) = ax.child_axes
    assert bar.get_ylabel() == "factor over the best"


@pytest.mark.parametrize("lines", [0, 1, 8, 9, 12, 60])
def test_no_cell_has_more_than_eight_lines(lines):
    names = [str(k) for k in range(lines)]
    parts = plot.spread_lines(names)
    assert [name for part in parts for name in part] == names
    assert all(len(part) <= plot.MOST_LINES for part in parts)


def test_a_line_that_nobody_planned_looks_like_none_that_somebody_did():
    forget_styles()
    reserve_styles(["DP-CD cyclic", "mine"])
    planned, mine = style_of("DP-CD cyclic"), style_of("mine")
    assert (planned.colour, planned.marker) != (mine.colour, mine.marker)
    forget_styles()
