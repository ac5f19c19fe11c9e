"""Figures of rates: excess risk, norms and noise, each with its measured slope."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.report import scales
from dp_erm_bench.report.caption import origin, paragraphs
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.style import of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES: tuple[Any, ...] = ("dotted", "dashed", (0, (6, 2, 1, 2)), "solid")


def form(power: float | str) -> Callable[[Array], Array]:
    """Return a function of the axis: `log`, or a power such as -1 or -2/3."""
    if power == "log":
        return np.log
    try:
        exponent = float(Fraction(str(power)))
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            f"shapes={power}: must be log, or a power such as -1 or -2/3"
        ) from None
    return lambda x: x**exponent


@dataclass(frozen=True)
class Cross:
    """A cell of a sheet: lines along one axis beside the shapes of bounds.

    Attributes
    ----------
    title, axis : str
        Its title, and the label of its x axis.
    rates : mapping of str to Scaling
        The lines by their labels in the table, at least one.
    shapes : mapping of str to (float, str)
        How bounds depend on the axis up to their constants, see `form`, by label; drawn
        through the first point of the line `anchor`.
    anchor : str
        A line; the first one if not given.
    """

    title: str
    axis: str
    rates: Mapping[str, Scaling]
    shapes: Mapping[str, Any] = field(default_factory=dict)
    anchor: str = ""


def draw_cross(ax: Axes, cross: Cross) -> None:
    """Draw median and range of each line, its slope, and the anchored shapes.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    cross : Cross
        The cell to draw.
    """
    rates = cross.rates.values()
    for line, rate in cross.rates.items():
        band = [rate.low, rate.median, rate.high]
        scales.draw_line(ax, rate.x, band, of(line))
    low = min(float(np.min(rate.low)) for rate in rates)
    high = max(_top(rate) for rate in rates)
    anchor = cross.rates.get(cross.anchor, next(iter(rates)))
    if anchor.start.size:
        high = max(high, min(float(np.max(anchor.start)), 2.0 * high))
        ax.plot(anchor.x, anchor.start, color="#BBBBBB", linewidth=3, label="w = 0")
    along = np.geomspace(anchor.x[0], anchor.x[-1], 60)
    for place, (label, power) in enumerate(cross.shapes.items()):
        shape = form(power)
        values = shape(along) / shape(anchor.x[:1])[0] * anchor.median[0]
        look: dict[str, Any] = {"linestyle": DASHES[place], "zorder": 1.2}
        ax.plot(along, values, color="#555555", linewidth=0.9, label=label, **look)
    ax.set_title(cross.title)
    ax.set_xlabel(cross.axis)
    every = sorted({float(at) for rate in rates for at in rate.x})
    scales.scale_numbers(ax, every, (low, high))


def _top(rate: Scaling) -> float:
    """Return the upper end to show: the band, but no far outlier."""
    finite = rate.median[np.isfinite(rate.median)]
    most = 10.0 * float(finite.max()) if finite.size else 1.0
    return min(float(np.max(rate.high)), most)


def slopes(cross: Cross) -> str:
    """Return the measured slopes of the lines in words."""
    values = [
        f"{of(line).label} {rate.slope:.2f}{_interval(rate)}"
        for line, rate in cross.rates.items()
        if math.isfinite(rate.slope)
    ]
    return f"Slopes against {cross.axis}: {'; '.join(values) or 'none'}."


def _interval(rate: Scaling) -> str:
    """Return the bootstrap interval of the slope of a quantity, in words."""
    return " [{:.2f}, {:.2f}]".format(*rate.interval) if rate.quantity else ""


def save_crosses(
    crosses: Sequence[Cross],
    path: Path,
    caption: str,
    quantity: str,
    size: tuple[float, float] = (2.9, 2.5),
) -> list[Path]:
    """Save cells side by side, with the measured slopes in the caption.

    Parameters
    ----------
    crosses : sequence of Cross
        The cells; none of them, no files.
    path : Path
        Folder and stem.
    caption : str
        The text before the slopes.
    quantity : str
        The label of the y axis.
    size : (float, float)
        Of one cell in inches.
    """
    if not crosses:
        return []
    cells: list[Cell] = [partial(draw_cross, cross=cross) for cross in crosses]
    drawn = [rate for cross in crosses for rate in cross.rates.values()]
    along = [cross.axis for cross in crosses]
    measured = [
        f"{cross.title}. " * (along.count(cross.axis) > 1) + slopes(cross)
        for cross in crosses
    ]
    text = paragraphs(caption, *measured, origin(drawn, path.parent.parent))
    return save(Sheet(cells, len(cells), text, size, quantity), path)
