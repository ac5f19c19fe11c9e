"""Test the audit's figure: all audits and violations are visible."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.image import imread

from dp_erm_bench.audit.profile import Verdict, audit_row
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.report import layout
from dp_erm_bench.report.figure import Drawing
from dp_erm_bench.report.layout import draw_sheet
from dp_erm_bench.report.studies import Audit

FOUND = Verdict(8.0, 1e-6, 1.5, 5.0, -0.2, 0.9999, 20_000, "ok")
BROKEN = Verdict(8.0, 1e-6, 4.5, 12.0, 0.3, 0.9999, 20_000, "VIOLATION")
PARAMS = [{"n_iter": 10}, {"n_iter": 10, "step": 1e6}]


def table(*verdicts):
    cases = [(params, kind) for params in PARAMS for kind in Adjacency]
    pairs = zip(cases, verdicts, strict=True)
    rows = [audit_row("sgd", p, kind, found) for (p, kind), found in pairs]
    return pd.DataFrame(rows).assign(budget=8.0)


def draw(rows, folder):
    return Audit().draw(Drawing(rows, folder, "audit", {}))


@pytest.fixture
def sheet(monkeypatch):
    """What is drawn."""
    kept = []

    def keep(figure, sheet):
        kept.append(figure)
        draw_sheet(figure, sheet)

    monkeypatch.setattr(layout, "draw_sheet", keep)
    return kept


def names(figure):
    return [text.get_text() for text in figure.axes[0].get_yticklabels()]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_every_audit_has_its_place(tmp_path, sheet):
    written = draw(table(FOUND, FOUND, FOUND, FOUND), tmp_path)
    assert [path.name for path in written] == [
        f"audit.{suffix}" for suffix in ("pdf", "png", "svg", "txt", "tex")
    ]
    (figure,) = sheet
    # Variants share the row of their algorithm.
    assert names(figure) == ["sgd"]
    caption = (tmp_path / "audit.txt").read_text()
    assert "4 audits" in caption and "20000 runs a side" in caption
    assert "0 of 4 refuted" in caption and "at most 0.0004" in caption
    points = {line.get_label(): line for line in figure.axes[0].lines}
    solid = points["replace one: if Gaussian"]
    np.testing.assert_allclose(solid.get_xdata(), 5.0)
    np.testing.assert_allclose(points["zero out: at delta"].get_xdata(), 1.5)
    # Two relations of one variant do not hide each other.
    other = points["zero out: if Gaussian"]
    assert (np.abs(solid.get_ydata() - other.get_ydata()) > 0.2).all()
    assert "VIOLATION" not in legend(figure)


def test_violations_are_marked(tmp_path, sheet):
    draw(table(FOUND, BROKEN, FOUND, FOUND), tmp_path)
    (figure,) = sheet
    assert "VIOLATION" in legend(figure)
    (cross,) = (a for a in figure.axes[0].lines if a.get_label() == "VIOLATION")
    assert cross.get_xdata().tolist() == [12.0] and len(cross.get_ydata()) == 1


def test_nothing_leaves_the_sheet(tmp_path, sheet):
    draw(table(FOUND, BROKEN, FOUND, FOUND), tmp_path)
    (figure,) = sheet
    renderer = FigureCanvasAgg(figure).get_renderer()
    width, height = figure.get_size_inches() * figure.dpi
    shown = [*figure.legends, *figure.axes[0].get_yticklabels()]
    for part in shown:
        box = part.get_window_extent(renderer)
        assert box.x0 >= 0 and box.x1 <= width + 1 and box.y0 >= 0
        assert box.y1 <= height


def test_the_picture_is_not_blank_and_an_empty_table_has_none(tmp_path):
    _, png, *_ = draw(table(FOUND, FOUND, FOUND, FOUND), tmp_path)
    assert imread(png).std() > 0.05
    assert draw(pd.DataFrame(), tmp_path) == []


def test_each_epsilon_has_a_panel(tmp_path, sheet):
    # Of one budget some claim less, or nothing.
    quiet = dataclasses.replace(FOUND, epsilon=0.99999999, gaussian=0.4, lower_bound=0)
    idle = dataclasses.replace(quiet, epsilon=0.0)
    asked = table(quiet, quiet, idle, quiet).assign(budget=1.0)
    draw(pd.concat([table(*[FOUND] * 4), asked], ignore_index=True), tmp_path)
    (figure,) = sheet
    one, eight = figure.axes
    for ax, bound in ((one, 0.4), (eight, 5.0)):
        points = {line.get_label(): line for line in ax.lines}
        np.testing.assert_allclose(points["zero out: if Gaussian"].get_xdata(), bound)
    caption = (tmp_path / "audit.txt").read_text()
    assert "8 audits" in caption and "1 of them claim 0" in caption
