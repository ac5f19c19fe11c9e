"""Test the ticks and styles of axes."""

import itertools
import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from dp_erm_bench.report import style
from dp_erm_bench.report.style import STYLES, style_of
from tests.loops import each
from tests.report.papers import mangold2022, mangold2023

PANELS = [*mangold2022.PANELS, *mangold2023.PANELS, *mangold2023.figure("rules").panels]


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1e-3, 1.0),
        (2.2e-3, 0.27),
        (0.45, 0.66),
        (0.6, 0.64),
        (0.05, 0.0513),
        (1e-9, 1e3),
        (0.09, 3.5),
        (0.999, 1.001),
        (0.032, 0.17),
        (0.00055, 0.0035),
        (1e-15, 1.2e-15),
    ],
)
def test_ticks_of_a_log_axis_are_few_and_plain(low, high):
    ax = Figure().add_subplot()
    style.scale_y(ax, "log", (low, high))
    bottom, top = ax.get_ylim()
    assert bottom < low and high < top
    ticks = [one for one in ax.get_yticks() if bottom <= one <= top]
    assert 2 <= len(ticks) <= 7
    labels = [style.plain_number(tick) for tick in ticks]
    assert len(set(labels)) == len(labels)
    assert all(len(label) <= 12 for label in labels)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0.0, "0"),
        (0.0006, "0.0006"),
        (-25000, "-25000"),
        (1e6, "10⁶"),
        (2e6, "2·10⁶"),
        (-1e-5, "-10⁻⁵"),
        (1234567.0, "1.23457·10⁶"),
    ],
)
def test_numbers_are_plain_until_they_are_long(number, words):
    assert style.plain_number(number) == words


def test_linear_axes_have_few_plain_ticks_and_no_offset():
    figure = Figure()
    ax = figure.add_subplot()
    ax.plot([1, 2], [3e6, 3.0002e6])
    style.scale_linear(ax.yaxis)
    figure.canvas.draw()
    labels = [tick.get_text() for tick in ax.get_yticklabels()]
    assert 2 <= len(labels) <= 7
    assert ax.yaxis.get_offset_text().get_text() == ""
    assert "·10⁶" in labels[1]


@pytest.mark.parametrize("end", [0.5, 1.0, 3.0, 7.0, 20.0, 50.0, 105.0, 12000.0])
def test_ticks_of_passes_end_at_the_last_pass(end):
    ax = Figure().add_subplot()
    style.scale_x(ax, "passes", [0.0, end])
    ticks = [*ax.get_xticks()]
    assert ticks[0] == 0 and ticks[-1] == end and (np.diff(ticks) > 0).all()
    # Room for the label of the last one.
    assert len(ticks) < 3 or ticks[-2] < 0.8 * end


def test_every_line_of_every_panel_has_a_style():
    for panel in PANELS:
        style.forget_styles()
        for line in (*panel.lines, *panel.over_epsilon, *panel.authors):
            assert style_of(line) == STYLES[line]


@each("panel", PANELS, ids=lambda panel: panel.title)
def test_lines_of_a_panel_differ_in_colour_marker_and_label(panel):
    style.forget_styles()
    styles = [style_of(line) for line in panel.lines]
    for one, other in itertools.combinations(styles, 2):
        assert one.colour != other.colour
        assert one.marker != other.marker
        assert one.label != other.label


@each("paper", ["mangold2022", "mangold2023", "talwar2015", "kumar2019", "ghazi2024"])
def test_no_two_lines_of_a_sheet_look_alike(paper):
    from dp_erm_bench import registry
    from dp_erm_bench.report.figure import figures_of

    for one in figures_of(registry.read_choice("experiment", paper)):
        style.forget_styles()
        lines = [line for cell in getattr(one, "cells", ()) for line in cell.lines]
        for panel in getattr(one, "panels", ()):
            lines += [*panel.lines, *panel.over_epsilon]
        style.reserve_styles([lines])
        looks = {
            (style_of(k).colour, style_of(k).marker): style_of(k).label for k in lines
        }
        assert len(looks) == len({style_of(k).label for k in lines}), one
    style.forget_styles()


def test_authors_curves_have_the_colour_of_ours_but_thin_and_dashed():
    for one in STYLES.values():
        ours, theirs = one.curve(), one.authors()
        assert theirs["color"] == ours["color"]
        assert theirs["linewidth"] < ours["linewidth"]
        assert theirs["linestyle"] != "-"
        assert "authors" in theirs["label"]


def test_panels_against_epsilon_are_drawn_against_passes_too():
    for panel in PANELS:
        shown = {re.sub(r" \d+ passes$", "", line) for line in panel.lines}
        assert set(panel.over_epsilon) <= shown
        assert set(panel.authors) <= set(panel.lines)


@pytest.mark.parametrize(
    "values", [[1, 10], [50, 100, 200, 500, 1000, 2000, 5000], range(10, 60)]
)
def test_ticks_of_numbers_do_not_crowd(values):
    ax = Figure().add_subplot()
    style.scale_x(ax, "log", [float(value) for value in values])
    ticks = ax.get_xticks()
    assert set(ticks) <= set(values)
    assert ticks[0] == values[0]
    assert 2 <= len(ticks) <= 9
    low, high = ax.get_xlim()
    assert low < values[0] and values[-1] < high


def test_long_numbers_are_rounded_on_the_axis():
    ax = Figure().add_subplot()
    style.scale_x(ax, "log", [0.0315944, 2.15381])
    assert ax.get_xticks().tolist() == [0.0316, 2.15]


@pytest.mark.parametrize("values", [[0.1, 0.3, 1, 3, 10], [1, 10], [0.1, 1, 7]])
def test_no_privacy_is_an_infinity_beyond_the_largest_epsilon(values):
    ax = Figure().add_subplot()
    style.scale_x(ax, "log", [*values, float("inf")])
    ax.figure.draw_without_rendering()
    labels = [one.get_text() for one in ax.get_xticklabels()]
    assert labels[-1] == "∞" and "∞" not in labels[:-1]
    assert ax.get_xticks()[-1] >= 2 * values[-1] * 0.999
