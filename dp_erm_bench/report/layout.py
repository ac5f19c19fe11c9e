"""Put panels, a legend and a caption on a sheet, as PDF and PNG; scales, ticks."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Cell = Callable[["Axes"], None]

# Inches.
LEFT, RIGHT, TOP, AXIS, GAP = 0.75, 0.2, 0.4, 0.5, 0.85
CAPTION_LINE, LEGEND_LINE, LEGEND_WIDTH = 0.133, 0.19, 2.8
CHARACTERS_PER_INCH = 17.0
MAX_PNG_BYTES = 200_000
PASSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


@dataclass(frozen=True)
class Sheet:
    """Geometry of a sheet: cells in a grid, a legend, a caption below.

    Attributes
    ----------
    cells : sequence of callable or None
        Each draws into the axes given; None leaves a place empty.
    columns : int
        Cells in a row; with one cell the legend stands at its right, else below.
    caption : str
        Paragraphs under everything, wrapped to the width.
    size : (float, float)
        Width and height of one cell's axes in inches.
    quantity : str
        The label of the y axis, on the first column.
    """

    cells: Sequence[Cell | None]
    columns: int
    caption: str
    size: tuple[float, float]
    quantity: str = r"relative error $F(w)/F^* - 1$"

    @property
    def width(self) -> float:
        """Return the width of the sheet in inches."""
        axes = self.columns * self.size[0] + (self.columns - 1) * GAP
        return LEFT + axes + (LEGEND_WIDTH if len(self.cells) == 1 else RIGHT)

    @property
    def text(self) -> list[str]:
        """Return the caption's lines."""
        wrap = textwrap.TextWrapper(
            width=int((self.width - 0.3) * CHARACTERS_PER_INCH),
            break_long_words=False,
            break_on_hyphens=False,
            subsequent_indent="    ",
        )
        # "epsilon = 1" and "1 (certified)" stay on one line.
        text = self.caption.replace(" = ", "\u00a0=\u00a0").replace(" (", "\u00a0(")
        return [line for part in text.splitlines() for line in wrap.wrap(part)]


def save(sheet: Sheet, path: Path) -> list[Path]:
    """Draw a sheet and write it beside `path` as .pdf and .png.

    Parameters
    ----------
    sheet : Sheet
        The sheet to draw.
    path : Path
        Folder and stem.

    Returns
    -------
    list of Path
        The two files written; the PNG has at most `MAX_PNG_BYTES`.
    """
    import matplotlib.pyplot as plt
    from PIL import Image

    figure = plt.figure()
    _fill(figure, sheet)
    pdf, png = path.with_suffix(".pdf"), path.with_suffix(".png")
    figure.savefig(pdf, metadata={"CreationDate": None})
    for dpi in (150, 125, 100, 80, 60):
        pixels = io.BytesIO()
        figure.savefig(pixels, format="png", dpi=dpi)
        # A palette of 256 colours has a third of the bytes of true colour.
        with Image.open(pixels) as image:
            image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(png)
        if png.stat().st_size <= MAX_PNG_BYTES:
            break
    plt.close(figure)
    return [pdf, png]


def _fill(figure: Figure, sheet: Sheet) -> None:
    """Draw cells, legend and caption at places given in inches."""
    axes: dict[int, Axes] = {}
    for place, cell in enumerate(sheet.cells):
        if cell is not None:
            axes[place] = figure.add_axes((0, 0, 1, 1))
            cell(axes[place])
    entries = _entries(axes.values())
    per_row = max(1, int(sheet.width / 2.5))
    alone = len(axes) == 1
    legend = 0.0 if alone else LEGEND_LINE * -(-len(entries) // per_row) + 0.1
    below = CAPTION_LINE * len(sheet.text) + 0.1 + legend + AXIS
    (width, height), gap, wide = sheet.size, AXIS + TOP, sheet.width
    rows = -(-len(sheet.cells) // sheet.columns)
    total = below + rows * height + (rows - 1) * gap + TOP
    figure.set_size_inches(wide, total)
    for place, ax in axes.items():
        row, column = divmod(place, sheet.columns)
        x = LEFT + column * (width + GAP)
        y = total - TOP - height - row * (height + gap)
        ax.set_position((x / wide, y / total, width / wide, height / total))
        if column == 0:
            ax.set_ylabel(sheet.quantity)
    x, y = (LEFT + width + 0.15, total - TOP) if alone else (0.15, below - AXIS)
    at, columns = (x / wide, y / total), 1 if alone else per_row
    key: dict[str, Any] = {"frameon": False, "borderaxespad": 0, "columnspacing": 1.2}
    key |= {"loc": "upper left", "bbox_to_anchor": at, "ncols": columns}
    figure.legend(entries.values(), entries.keys(), **key)
    look: dict[str, Any] = {"fontsize": 7.5, "va": "bottom", "linespacing": 1.25}
    figure.text(0.15 / wide, 0.1 / total, "\n".join(sheet.text), **look)


def _entries(drawn: Iterable[Axes]) -> dict[str, Any]:
    """Return legend handles by label in order of appearance, the authors' ones last."""
    handles: dict[str, Any] = {}
    for ax in drawn:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    last = {label: label.endswith("figure)") for label in handles}
    return {label: handles[label] for label in sorted(handles, key=last.__getitem__)}


def pass_ticks(end: float) -> list[float]:
    """Return the ticks of an axis of passes from 0 to `end`, `end` included."""
    return [tick for tick in PASSES if tick < 0.8 * end] + [float(end)]


def error_ticks(low: float, high: float) -> list[float]:
    """Return three to about seven round ticks of a log axis.

    Parameters
    ----------
    low, high : float
        The range of the axis, both positive.
    """
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ([1], [1, 3], [1, 2, 5], range(1, 10)):
        candidates = np.outer(decades, list(digits)).ravel()
        inside = candidates[(candidates >= low) & (candidates <= high)]
        if len(inside) >= 3:
            return [float(tick) for tick in inside[:: 1 + len(inside) // 8]]
    return _linear_ticks(low, high)


def _linear_ticks(low: float, high: float) -> list[float]:
    """Return round ticks where less than one digit changes."""
    raw = (high - low) / 4
    unit = 10.0 ** np.floor(np.log10(raw))
    step = unit * min((1, 2, 5, 10), key=lambda digit: abs(digit * unit - raw))
    first, last = int(np.ceil(low / step)), int(np.floor(high / step))
    return [float(round(k * step, 12)) for k in range(first, last + 1)]


def scale_passes(ax: Axes, ticks: Sequence[float], log: bool) -> None:
    """Set the x axis: linear, or linear up to 1 pass and log beyond."""
    if log:
        ax.set_xscale("symlog", linthresh=1.0, linscale=0.5)
        _label(ax.xaxis, ticks)
    else:
        _label(ax.xaxis, _linear_ticks(0.0, ticks[-1]))
    ax.set_xlim(0, ticks[-1] * 1.02)


def scale_epsilon(ax: Axes, epsilons: Sequence[float]) -> None:
    """Set the x axis to a log scale with the epsilons that ran as ticks."""
    ax.set_xscale("log")
    _label(ax.xaxis, epsilons)
    ax.set_xlim(epsilons[0] / 1.4, epsilons[-1] * 1.4)


def scale_errors(ax: Axes, extent: tuple[float, float]) -> None:
    """Set the y axis to a log scale around the range of errors."""
    ax.set_yscale("log")
    margin = (extent[1] / extent[0]) ** 0.05 * 1.01
    low, high = extent[0] / margin, extent[1] * margin
    _label(ax.yaxis, error_ticks(low, high))
    ax.set_ylim(low, high)


def scale_numbers(
    ax: Axes, values: Sequence[float], extent: tuple[float, float]
) -> None:
    """Set both axes to log scales with the values that ran as ticks."""
    ax.set_xscale("log")
    _label(ax.xaxis, [float(f"{value:.3g}") for value in _apart(values)])
    ax.set_xlim(values[0] / 1.15, values[-1] * 1.3)
    scale_errors(ax, extent)


def _apart(values: Sequence[float]) -> list[float]:
    """Return the values whose labels do not overlap on a log scale."""
    least = (values[-1] / values[0]) ** 0.12
    ticks = [values[0]]
    for value in values[1:]:
        if value >= ticks[-1] * least:
            ticks.append(value)
    return ticks


def _label(axis: Axis, ticks: Sequence[float]) -> None:
    """Show exactly these ticks, in plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:.6g}"))
