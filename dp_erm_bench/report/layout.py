"""Put panels, one legend and a caption on a sheet and save it as PDF and PNG."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cell = Callable[["Axes"], None]

# Inches.
LEFT, RIGHT, TOP, AXIS, GAP = 0.75, 0.2, 0.4, 0.5, 0.85
CAPTION_LINE, LEGEND_LINE, LEGEND_WIDTH = 0.133, 0.19, 2.8
CHARACTERS_PER_INCH = 17.0
MAX_PNG_BYTES = 200_000


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
        What stands along the y axis of the first column.
    """

    cells: Sequence[Cell | None]
    columns: int
    caption: str
    size: tuple[float, float]
    quantity: str = r"relative error $F(w)/F^* - 1$"

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return -(-len(self.cells) // self.columns)

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
        What to draw.
    path : Path
        Folder and stem.

    Returns
    -------
    list of Path
        The two files written; the PNG has at most `MAX_PNG_BYTES`.
    """
    import matplotlib.pyplot as plt

    figure = plt.figure()
    _fill(figure, sheet)
    pdf, png = path.with_suffix(".pdf"), path.with_suffix(".png")
    figure.savefig(pdf, metadata={"CreationDate": None})
    for dpi in (150, 125, 100, 80, 60):
        _save_png(figure, png, dpi)
        if png.stat().st_size <= MAX_PNG_BYTES:
            break
    plt.close(figure)
    return [pdf, png]


def _save_png(figure: Figure, path: Path, dpi: int) -> None:
    """Save with a palette of 256 colours, a third of the bytes of true colour."""
    from PIL import Image

    pixels = io.BytesIO()
    figure.savefig(pixels, format="png", dpi=dpi)
    with Image.open(pixels) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path)


def _fill(figure: Figure, sheet: Sheet) -> None:
    """Draw cells, legend and caption at places given in inches."""
    drawn = {
        place: (cell, figure.add_axes((0, 0, 1, 1)))
        for place, cell in enumerate(sheet.cells)
        if cell is not None
    }
    for cell, ax in drawn.values():
        cell(ax)
    entries = _entries([ax for _, ax in drawn.values()])
    per_row = max(1, int(sheet.width / 2.5))
    alone = len(drawn) == 1
    legend = 0.0 if alone else LEGEND_LINE * -(-len(entries) // per_row) + 0.1
    below = CAPTION_LINE * len(sheet.text) + 0.1 + legend + AXIS
    (width, height), gap = sheet.size, AXIS + TOP
    total = below + sheet.rows * height + (sheet.rows - 1) * gap + TOP
    figure.set_size_inches(sheet.width, total)
    for place, (_, ax) in drawn.items():
        row, column = divmod(place, sheet.columns)
        x = LEFT + column * (width + GAP)
        y = total - TOP - height - row * (height + gap)
        ax.set_position(_relative((x, y, width, height), sheet.width, total))
        if column == 0:
            ax.set_ylabel(sheet.quantity)
    anchor = (LEFT + width + 0.15, total - TOP) if alone else (0.15, below - AXIS)
    figure.legend(
        entries.values(),
        entries.keys(),
        loc="upper left",
        bbox_to_anchor=(anchor[0] / sheet.width, anchor[1] / total),
        ncols=1 if alone else per_row,
        frameon=False,
        borderaxespad=0,
        columnspacing=1.2,
    )
    figure.text(
        0.15 / sheet.width,
        0.1 / total,
        "\n".join(sheet.text),
        fontsize=7.5,
        va="bottom",
        linespacing=1.25,
    )


def _relative(
    box: tuple[float, float, float, float], width: float, height: float
) -> tuple[float, float, float, float]:
    """Return a box in inches as fractions of the sheet."""
    return box[0] / width, box[1] / height, box[2] / width, box[3] / height


def _entries(drawn: Sequence[Axes]) -> dict[str, Any]:
    """Return legend handles by label, each label once, in order of appearance."""
    handles: dict[str, Any] = {}
    for ax in drawn:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    authors = {name: handles[name] for name in handles if name.endswith("figure)")}
    return {**{k: v for k, v in handles.items() if k not in authors}, **authors}
