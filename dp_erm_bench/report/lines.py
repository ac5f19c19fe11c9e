"""Sheets of lines with bands: along runs, or against any axis of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.report import contest, scales
from dp_erm_bench.report.caption import paragraphs, told
from dp_erm_bench.report.layout import Sheet
from dp_erm_bench.report.style import Style, literal, of, reserve
from dp_erm_bench.report.view import ALONG, LINE, Shown, View, statistics
from dp_erm_bench.results.columns import is_better_higher, words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from dp_erm_bench.report.curves import Array

MOST_CELLS = 60
SIZE = (3.0, 2.1)


def curves_sheet(views: Sequence[Shown], width: str) -> Sheet:
    """Return the sheet of lines, at most eight in a cell.

    Parameters
    ----------
    views : sequence of Shown
        The rows to draw; of several, those of a panel stand side by side, each with its
        quantity above it.
    width : str
        `column`, `page`, or empty for what suits.

    Raises
    ------
    UsageError
        If it would have more than `MOST_CELLS` cells.
    """
    first, several = views[0], len(views) > 1
    found: dict[str, list[Any]] = {}
    for drawn in views:
        for title, cell in _cells(drawn, several):
            found.setdefault(title, []).append(cell)
    cells = [cell for row in found.values() for cell in row]
    if len(cells) > MOST_CELLS:
        raise UsageError(
            f"plot: {len(cells)} panels are more than {MOST_CELLS}: keep some with "
            "where, or tell fewer apart by panel, line and facet"
        )
    about = ", ".join(words(one.view.y) for one in views)
    about = f"{about} against {words(first.view.x)}"
    said = dict.fromkeys(line for one in views for line in told(one).split("\n"))
    more: dict[str, Any] = {"right": 0.75} if _looks(first)[1] else {}
    more["name"] = "_".join(["curves", *(one.view.y for one in views), first.view.x])
    columns = max(map(len, found.values())) if several else len(cells)
    text = paragraphs(f"{about[0].upper()}{about[1:]}.", *said)
    label = "" if several else _label(first.view.y, _mode(first))
    return Sheet(cells, columns, text, SIZE, label, width, **more)


def _cells(drawn: Shown, named: bool) -> Iterator[tuple[str, Any]]:
    """Yield the cells of a view with their titles, below which a quantity is named."""
    looks, numbers = _looks(drawn)
    mode = _mode(drawn)
    for (panel, facet), rows in drawn.cells.items():
        lines = list(dict.fromkeys(rows[LINE]))
        title = literal(", ".join(filter(None, (panel, _symbols(facet)))))
        title = title.replace("\\$", "$")
        for part in [lines] if numbers else contest.spread(lines):
            own = rows[rows[LINE].isin(part)]
            above = f"{title}: {_label(drawn.view.y, mode)}" if named else title
            given: dict[str, Any] = {"title": above, "rows": own}
            yield title, partial(_cell, drawn.view, looks, mode, numbers, **given)


def _label(y: str, mode: str) -> str:
    """Return what stands at the axis of a quantity."""
    return words(y) + " (linear around 0, then log)" * (mode == "symlog")


def _symbols(facet: str) -> str:
    return facet.replace("epsilon = ", "ε = ")


def _looks(drawn: Shown) -> tuple[dict[str, Style], list[float] | None]:
    """Return the style of each line, and the scale of colour where it is a number."""
    import pandas as pd
    from matplotlib import colormaps, colors

    lines = list(dict.fromkeys(drawn.rows[LINE]))
    values = pd.to_numeric(pd.Series(lines), errors="coerce").to_numpy(float)
    one = len(drawn.view.line) == 1 and len(lines) > 1 and np.isfinite(values).all()
    if not one:
        reserve(lines)
        return {line: of(line) for line in lines}, None
    at = np.log10(values) if _spans(values) else values
    shades = 0.9 * (at - at.min()) / (at.max() - at.min())
    mapped = [colors.to_hex(colour) for colour in colormaps["viridis"](shades)]
    pairs = zip(lines, mapped, strict=True)
    looks = {line: Style("_" + line, colour, "o", 3.0, 1.2) for line, colour in pairs}
    return looks, sorted(map(float, values))


def _spans(values: Any) -> bool:
    """Return whether numbers are positive and so far apart that a log scale suits."""
    return bool(min(values) > 0 and max(values) >= 8 * min(values))


def _mode(drawn: Shown) -> str:
    """Return the scale of the y axis: log, linear or symlog."""
    values, y = drawn.rows["_y"].to_numpy(float), drawn.view.y
    finite = values[np.isfinite(values)]
    size = np.abs(finite[finite != 0])
    if is_better_higher(y) or not size.size or size.max() < 3 * size.min():
        return "linear"
    if (finite > 0).all():
        return "log"
    return "symlog" if size.max() > 1e3 * size.min() else "linear"


def _cell(
    view: View,
    looks: Mapping[str, Style],
    mode: str,
    numbers: list[float] | None,
    ax: Axes,
    title: str,
    rows: pd.DataFrame,
) -> None:
    """Draw the lines of one cell with their bands."""
    along = view.x in ALONG
    places = sorted({*rows["_x"]}, key=lambda one: (isinstance(one, str), one))
    texts = bool(places) and isinstance(places[0], str)
    ends: list[float] = []
    extent: list[float] = []
    for line, own in rows.groupby(LINE, sort=False):
        curve = statistics(own, view.statistic, along)
        x = (
            curve["x"].map(places.index)
            if texts
            else scales.reached(curve["x"], places)
        )
        band = [_drawable(curve[name], mode) for name in ("low", "line", "high")]
        every = max(1, len(x) // 8)
        more: dict[str, Any] = {"markevery": every} if along else {}
        scales.draw_line(ax, np.asarray(x, dtype=float), band, looks[str(line)], **more)
        ends.append(float(x.max()))
        extent += [float(v) for part in band for v in part[np.isfinite(part)]]
    ax.set_title(title)
    ax.set_xlabel(literal(words(view.x)) if view.x != "epsilon" else words(view.x))
    if texts:
        turned = 30 if sum(len(str(place)) for place in places) > 24 else 0
        ax.set_xticks(range(len(places)), [literal(str(one)) for one in places])
        ax.tick_params(axis="x", rotation=turned)
    else:
        scales.scale_axis(ax, [float(one) for one in places], ends if along else [])
    if extent and mode == "log":
        scales.scale_errors(ax, (min(extent), max(extent)))
    elif mode == "symlog":
        size = min((abs(v) for v in extent if v), default=1.0)
        ax.set_yscale("symlog", linthresh=size)
    if numbers:
        _bar(ax, numbers, ", ".join(view.line))


def _bar(ax: Axes, values: list[float], name: str) -> None:
    """Draw the colour bar of lines that are numbers."""
    from matplotlib import cm, colormaps, colors

    norm = (colors.LogNorm if _spans(values) else colors.Normalize)(
        values[0], values[-1]
    )
    shades = colors.ListedColormap(colormaps["viridis"](np.linspace(0, 0.9, 256)))
    beside = ax.inset_axes((1.03, 0.0, 0.04, 1.0))
    bar = ax.figure.colorbar(cm.ScalarMappable(norm, shades), cax=beside)
    if len(values) <= 6:
        bar.set_ticks(values, labels=[f"{value:g}" for value in values])
        bar.ax.minorticks_off()
    bar.set_label(words(name), fontsize=7)
    bar.ax.tick_params(labelsize=6.5)


def _drawable(values: Any, mode: str) -> Array:
    """Return values without those that the axis cannot show."""
    column = np.asarray(values, dtype=float)
    good = np.isfinite(column) & ((column > 0) | (mode != "log"))
    return np.where(good, column, np.nan)
