"""Figures of rates: excess risk, norms and noise, each with its measured slope."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.report import axes
from dp_erm_bench.report.caption import origin
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.style import of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rates = Mapping[str, Scaling]
DASHES: tuple[Any, ...] = ("dotted", "dashed", (0, (6, 2, 1, 2)), "solid")


@dataclass(frozen=True)
class Shape:
    """How a bound depends on the axis, up to its constant.

    Attributes
    ----------
    label : str
        What it is a bound of.
    form : callable
        Its dependence on the axis.
    """

    label: str
    form: Callable[[Array], Array]


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
        What stands above it and along it.
    rates : mapping of str to Scaling
        The lines by their labels in the table, at least one.
    shapes : sequence of Shape
        Drawn through the first point of the line `anchor`.
    anchor : str
        A line; the first one if not given.
    """

    title: str
    axis: str
    rates: Rates
    shapes: Sequence[Shape] = ()
    anchor: str = ""


def draw_cross(ax: Axes, cross: Cross) -> None:
    """Draw median and range of each line, its slope, and the anchored shapes.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    cross : Cross
        What to draw.
    """
    low = min(float(np.min(rate.low)) for rate in cross.rates.values())
    high = max(_top(rate) for rate in cross.rates.values())
    first = next(iter(cross.rates))
    anchor = cross.rates.get(cross.anchor, cross.rates[first])
    for line, rate in cross.rates.items():
        _draw_rate(ax, line, rate)
    if anchor.start.size:
        high = max(high, min(float(np.max(anchor.start)), 2.0 * high))
        ax.plot(anchor.x, anchor.start, color="#BBBBBB", linewidth=3, label="w = 0")
    for place, shape in enumerate(cross.shapes):
        _draw_shape(ax, shape, anchor, DASHES[place])
    ax.set_title(cross.title)
    ax.set_xlabel(cross.axis)
    every = sorted({float(at) for rate in cross.rates.values() for at in rate.x})
    axes.scale_numbers(ax, every, (low, high))


def _draw_rate(ax: Axes, line: str, rate: Scaling) -> None:
    style = of(line)
    ax.fill_between(
        rate.x, rate.low, rate.high, color=style.colour, alpha=0.15, linewidth=0
    )
    ax.plot(rate.x, rate.median, **style.curve())


def _draw_shape(ax: Axes, shape: Shape, anchor: Scaling, dashes: Any) -> None:
    along = np.geomspace(anchor.x[0], anchor.x[-1], 60)
    values = shape.form(along) / shape.form(anchor.x[:1])[0] * anchor.median[0]
    ax.plot(
        along,
        values,
        color="#555555",
        linewidth=0.9,
        linestyle=dashes,
        zorder=1.2,
        label=shape.label,
    )


def _top(rate: Scaling) -> float:
    """Return the upper end to show: the band, but no far outlier."""
    finite = rate.median[np.isfinite(rate.median)]
    most = 10.0 * float(finite.max()) if finite.size else 1.0
    return min(float(np.max(rate.high)), most)


def slopes(cross: Cross) -> str:
    """Return the measured slopes of the lines in words."""
    values = [
        f"{of(line).label} {rate.slope:.2f}"
        for line, rate in cross.rates.items()
        if math.isfinite(rate.slope)
    ]
    return f"Slopes against {cross.axis}: {'; '.join(values) or 'none'}."


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
        What stands before the slopes.
    quantity : str
        What stands along the y axis.
    size : (float, float)
        Of one cell in inches.
    """
    if not crosses:
        return []
    cells: list[Cell] = [partial(draw_cross, cross=cross) for cross in crosses]
    drawn = [rate for cross in crosses for rate in cross.rates.values()]
    computed = origin(drawn, path.parent.parent)
    axes_of = [cross.axis for cross in crosses]
    measured = [
        f"{cross.title}. {slopes(cross)}"
        if axes_of.count(cross.axis) > 1
        else slopes(cross)
        for cross in crosses
    ]
    text = "\n".join([caption, *measured, *[computed] * bool(computed)])
    return save(Sheet(cells, len(cells), text, size, quantity), path)
