"""The figure of a user's paper: final errors as bars."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from dp_erm_bench.report.curves import line_errors
from dp_erm_bench.report.figure import Figure
from dp_erm_bench.report.layout import Sheet, save_sheet
from dp_erm_bench.report.style import house_style, style_of


@dataclass(frozen=True)
class FinalErrors(Figure):
    panel: str
    lines: tuple[str, ...]

    def draw(self, drawing):
        ends = {
            line: np.median(line_errors(drawing.table, self.panel, line).errors[:, -1])
            for line in self.lines
        }
        sheet = Sheet([partial(bars, ends=ends)], "Final errors.")
        with house_style():
            return save_sheet(sheet, drawing.path("ends"))


def bars(ax, ends):
    for line, end in ends.items():
        ax.bar(
            style_of(line).label,
            end,
            color=style_of(line).colour,
            label=style_of(line).label,
        )
