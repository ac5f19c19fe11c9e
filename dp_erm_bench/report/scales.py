"""Scales, ticks and bands of the axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from dp_erm_bench.report.style import Style

PASSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


def draw_line(ax: Axes, x: Any, band: Sequence[Any], look: Style, **more: Any) -> None:
    """Draw a line within its band, which has an edge: no band hides another.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    x : array of shape (k,)
        Where; a single place has a bar.
    band : sequence of three arrays of shape (k,)
        Lower end, line, upper end.
    look : Style
        The style of the line.
    **more
        Further arguments of the line plot.
    """
    low, line, high = (np.asarray(one, dtype=float) for one in band)
    if len(x) > 1:
        ax.fill_between(x, low, high, **look.band())
    else:
        ends = np.nan_to_num([line - low, high - line], nan=0.0, posinf=0.0)
        ax.errorbar(x, line, yerr=ends, capsize=2.5, color=look.colour, linewidth=0.9)
    ax.plot(x, line, **{**look.curve(), **more})


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
        ax.set_xlabel(f"{ax.get_xlabel()} (linear up to 1, then log)")
        _label(ax.xaxis, ticks)
    else:
        _label(ax.xaxis, _linear_ticks(0.0, ticks[-1]))
    ax.set_xlim(0, ticks[-1] * 1.02)


def scale_epsilon(ax: Axes, epsilons: Sequence[float]) -> None:
    """Set the x axis to a log scale with the epsilons that ran as ticks."""
    ax.set_xscale("log")
    _label(ax.xaxis, epsilons)
    ax.set_xlim(epsilons[0] / 1.4, epsilons[-1] * 1.4)


def scale_axis(ax: Axes, values: Sequence[float], ends: Sequence[float]) -> None:
    """Set the x axis of any column.

    Parameters
    ----------
    ax : Axes
        The axes.
    values : sequence of float
        The values that ran, increasing: ticks of a log scale if they are positive and
        far apart. An infinite one is at `beyond`.
    ends : sequence of float
        Where lines end, if x is along runs: of runs of very different lengths the axis
        is linear up to the shortest, and log beyond.
    """
    last = beyond(values) if math.isinf(values[-1]) else math.nan
    values = [*values[:-1], last] if math.isinf(values[-1]) else values
    low, high = values[0], values[-1]
    if ends:
        short = min((end for end in ends if end > 0), default=high)
        if high > 20 * short:
            ax.set_xscale("symlog", linthresh=short)
            ax.set_xlabel(f"{ax.get_xlabel()} (linear up to {short:.3g}, then log)")
    elif low > 0 and high >= 8 * low:
        ax.set_xscale("log")
        _label(ax.xaxis, _apart(values), last)
    elif len(values) <= 6 or high == last:
        _label(ax.xaxis, values, last)


def beyond(values: Sequence[float]) -> float:
    """Return where infinity is drawn: a step of a log axis beyond the largest value."""
    known = [one for one in values if 0.0 < one < math.inf]
    step = known[-1] / known[-2] if len(known) > 1 else 10.0
    return known[-1] * max(step, 2.0) if known else 1.0


def reached(x: Any, values: Sequence[float]) -> Any:
    """Return places on an axis of some values, infinity being `beyond` them."""
    return np.where(np.isposinf(x), beyond(values), x)


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
    whole = all(float(value).is_integer() for value in values)
    ticks = [value if whole else float(f"{value:.3g}") for value in _apart(values)]
    _label(ax.xaxis, ticks)
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


def _label(axis: Axis, ticks: Sequence[float], endless: float = np.nan) -> None:
    """Show exactly these ticks, in plain numbers; one of them may be infinity."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    def shown(tick: float, _: Any) -> str:
        return "∞" if tick == endless else f"{tick:.6g}"

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(shown))
