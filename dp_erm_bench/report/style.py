"""The look of figures: colour, marker and size of every line, scales and ticks.

A line's look goes by its label in the table. Colours are those of Okabe and Ito ("Color
Universal Design", 2008), which stay apart for readers with colour-vision deficiency;
markers tell lines apart in grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.results.statistics import MODELS, ZERO

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


@dataclass(frozen=True)
class Style:
    """The style of one line.

    Attributes
    ----------
    label : str
        Its name in the legend.
    colour : str
        Hexadecimal colour.
    marker : str
        Matplotlib marker.
    size : float
        Marker size in points.
    width : float
        Line width in points.
    family : str
        Its name in the legend of the authors' figure; the label up to its first
        comma if not given.
    """

    label: str
    colour: str
    marker: str
    size: float = 4.5
    width: float = 1.6
    family: str = ""
    dashes: Any = "solid"

    def curve(self) -> dict[str, Any]:
        """Return the arguments of a line plot."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "markersize": self.size,
            "linewidth": self.width,
            "linestyle": self.dashes,
            "label": self.label,
        }

    def band(self) -> dict[str, Any]:
        """Return the arguments of a band around a line: pale, with an edge."""
        edge = {"edgecolor": (self.colour, 0.5), "linewidth": 0.5}
        return {"facecolor": (self.colour, 0.12), "zorder": 1.0, **edge}

    def authors(self) -> dict[str, Any]:
        """Return the arguments of the authors' curve: thin, dashed, behind."""
        return {
            "color": self.colour,
            "linewidth": 1.0,
            "linestyle": (0, (4, 2)),
            "label": f"{self.family or self.label.split(',')[0]} (authors' figure)",
            "zorder": 1.5,
        }


BLUE, SKY, GREEN = "#0072B2", "#56B4E9", "#009E73"
VERMILLION, ORANGE, PURPLE, BLACK = "#D55E00", "#E69F00", "#CC79A7", "#000000"
GREY, BROWN = "#7F7F7F", "#8C510A"

STYLES = {
    "DP-CD cyclic": Style("DP-CD, cyclic", BLUE, "o"),
    "DP-CD cyclic 50 passes": Style("DP-CD, cyclic", BLUE, "o"),
    "DP-CD cyclic reversed": Style("DP-CD, cyclic reversed", BLUE, "<"),
    "DP-CD cyclic reversed 50 passes": Style("DP-CD, cyclic reversed", BLUE, "<"),
    "DP-CD uniform": Style("DP-CD, uniform", SKY, "s"),
    "DP-CD averaged": Style("DP-CD, averaged", BROWN, ">"),
    "DP-GD": Style("DP-GD", VERMILLION, "^"),
    "DP-CD private M": Style(
        "DP-CD, private $M_j$", GREEN, "P", 5.0, family="DP-CD, private $M_j$"
    ),
    "DP-CD private M 50 passes": Style(
        "DP-CD, private $M_j$", GREEN, "P", 5.0, family="DP-CD, private $M_j$"
    ),
    "DP-CD public M": Style("DP-CD, public $M_j$", BLACK, "x", 5.0),
    "DP-SGD authors": Style("DP-SGD, authors' noise", VERMILLION, "^"),
    "DP-SGD authors 50 passes": Style("DP-SGD, authors' noise", VERMILLION, "^"),
    "DP-SGD tight batch 1": Style("DP-SGD, tight, batch 1", ORANGE, "v"),
    "DP-SGD tight batch 100": Style("DP-SGD, tight, batch 100", PURPLE, "D", 4.0),
    "DP-SGD tight full batch": Style("DP-SGD, tight, full batch", BROWN, "d"),
    "DP-SVRG": Style("DP-SVRG, tight, batch 100", GREY, "*", 6.0),
    "DP-GCD tight": Style("DP-GCD, tight noise", GREEN, "P", 5.5, 2.0),
    "DP-GCD poster": Style("DP-GCD, poster noise", BLACK, "X", 5.5),
    "DP-GCD tight GS-s": Style("DP-GCD, rule GS-s", ORANGE, "v"),
    "DP-GCD tight GS-q": Style("DP-GCD, rule GS-q", BLUE, "o"),
    "DP-GCD selection": Style("DP-GCD, selection", GREEN, "P", 5.5, 2.0),
    "DP-GCD measurement": Style("DP-GCD, chosen entry", BLACK, "X"),
    "DP-CD coordinate": Style("DP-CD, one entry of p a pass", BLUE, "o"),
    "DP-FW Gumbel": Style("Frank-Wolfe, Gumbel noise", GREEN, "P", 5.5, 2.0),
    "DP-FW Laplace": Style("Frank-Wolfe, Laplace noise", BLUE, "o"),
    "DP-FW Laplace printed": Style(
        "Frank-Wolfe, printed (not proved)", BLACK, "X", 5.5
    ),
    "DP-MD EG+-": Style("mirror descent, EG+-", BLUE, "o"),
    "DP-GD projected": Style("projected DP-GD", VERMILLION, "^"),
    "Output Gaussian": Style("output, Gaussian", VERMILLION, "^"),
    "Output gamma": Style("output, pure", ORANGE, "v"),
    "Objective Gaussian": Style("objective, Gaussian", BLUE, "o"),
    "Objective gamma": Style("objective, pure", SKY, "s"),
    "Objective Gaussian no ridge": Style("objective, Gaussian, no ridge", BLACK, "X"),
    "AMP": Style("AMP", GREEN, "P", 5.0),
    "Permutation SGD": Style("permutation SGD", GREY, "*", 6.0),
    ZERO: Style(ZERO, GREY, "", width=1.2, dashes=(0, (5, 2))),
    **{
        name: Style(name, GREY, "", width=1.2, dashes="dotted")
        for name in (MODELS["base_rate"], MODELS["mean"], MODELS["constant"])
    },
    MODELS["optimum"]: Style(MODELS["optimum"], BLACK, "", width=1.2, dashes="dashdot"),
    "whole gradient": Style("gradient descent, all p entries", VERMILLION, "^", 3.0),
}


# The last three are Tol's, for sheets with more lines than there are of the others.
OTHERS = tuple(
    zip(
        (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY, BROWN)
        + ("#332288", "#999933", "#882255"),
        "o^PvDsX*dph<",
        strict=True,
    )
)
_given: dict[str, Style] = {}


def style_of(line: str) -> Style:
    """Return the style of a line by its label in the table.

    A line that has none, or that of another line, gets the next colour and marker,
    until `forget_styles` is called.
    """
    if line not in _given:
        own = STYLES.get(line)
        taken = {_look_of_style(one): one.label for one in _given.values()}
        if own and taken.get(_look_of_style(own), own.label) == own.label:
            _given[line] = own
        else:
            own = own or Style(literal_text(line), BLUE, "o")
            looks = [_look_of_place(k) for k in range(len(OTHERS) ** 2)]
            free = (one for one in looks if (*one, "solid") not in taken)
            colour, marker = next(free, looks[0])
            _given[line] = replace(own, colour=colour, marker=marker, dashes="solid")
    return _given[line]


def _look_of_style(look: Style) -> tuple[Any, ...]:
    return look.colour, look.marker, look.dashes


def _look_of_place(place: int) -> tuple[str, str]:
    """Return colour and marker: 144 pairs before one comes again."""
    turn, at = divmod(place, len(OTHERS))
    return OTHERS[at][0], OTHERS[(at + turn) % len(OTHERS)][1]


def reserve_styles(lines: Iterable[str]) -> None:
    """Give those of some lines that have a style this one, before all others."""
    for line in lines:
        if line in STYLES:
            style_of(line)


def literal_text(text: str) -> str:
    r"""Return a text as a picture shows it to the letter.

    A dollar sign begins no formula, and a letter that the font lacks is written as
    its code, as in ``\u4e2d``.
    """
    known = _letters_of_font()
    letters = (
        one if ord(one) in known else one.encode("ascii", "backslashreplace").decode()
        for one in text
    )
    return "".join(letters).replace("$", r"\$")


@cache
def _letters_of_font() -> frozenset[int]:
    """Return the code points of the font's letters."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def forget_styles() -> None:
    """Give colours and markers anew: the same experiment is drawn the same again."""
    _given.clear()


@contextmanager
def house_style() -> Iterator[None]:
    """Set fonts and sizes of the figures drawn inside."""
    import matplotlib

    settings: Any = {
        "font.size": 8,
        # An axis says its numbers, not what is to be added to them.
        "axes.formatter.useoffset": False,
        "axes.titlesize": 8.5,
        "axes.labelsize": 8,
        "legend.fontsize": 7.5,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#e4e4e4",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "pdf.fonttype": 42,
        "svg.hashsalt": "dp_erm_bench",
    }
    with matplotlib.rc_context(settings):
        yield


OWN = "{}, each line's own"
"""What a legend says of baselines that differ from line to line."""


def draw_baseline(
    ax: Axes,
    name: str,
    levels: Mapping[str, tuple[Any, Any]],
    looks: Mapping[str, Style] | None = None,
    log: bool = True,
) -> list[float]:
    """Draw a baseline beside lines, and return what was drawn, for the extent.

    Lines on the same problems share one, across the axes if it is one number. Lines on
    problems of their own have one each, dotted in their colours.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    name : str
        One of `BASELINES`.
    levels : mapping of str to (array of shape (k,), array of shape (k,))
        Where, and how large it is there, by line; not a number where it is unknown.
    looks : mapping of str to Style
        The lines' styles, by default those of their labels.
    log : bool
        Whether values that are not positive cannot be shown.
    """
    known: dict[str, dict[float, float]] = {}
    for line, (x, values) in levels.items():
        pairs = zip(np.asarray(x, float), np.asarray(values, float), strict=True)
        own = {at: y for at, y in pairs if math.isfinite(y) and (y > 0 or not log)}
        known |= {line: own} if own else {}
    if not known:
        return []
    # Above the lines: one may lie on it.
    look = STYLES[name].curve() | {"marker": None, "zorder": 3.2}
    drawn = [y for own in known.values() for y in own.values()]
    shared = {at: y for own in known.values() for at, y in own.items()}
    if all(
        math.isclose(y, shared[at], rel_tol=1e-6)
        for own in known.values()
        for at, y in own.items()
    ):
        if math.isclose(min(drawn), max(drawn), rel_tol=1e-6):
            ax.axhline(float(np.median(drawn)), **look)
        else:
            ax.plot(*zip(*sorted(shared.items()), strict=True), **look)
        return drawn
    ax.plot(
        [], [], **{**look, "linestyle": _dots_for_place(), "label": OWN.format(name)}
    )
    alike: dict[tuple[str, ...], list[str]] = {}
    for line, own in known.items():
        alike.setdefault(tuple(f"{y:.5g}" for y in own.values()), []).append(line)
    for lines in alike.values():
        for place, line in enumerate(lines):
            x, y = zip(*sorted(known[line].items()), strict=True)
            colour = ((looks or {}).get(line) or style_of(line)).colour
            mine = {"color": colour, "linestyle": _dots_for_place(place, len(lines))}
            # A single place has no line between two.
            mark = {"marker": "_", "markersize": 9.0} if len(x) == 1 else {}
            ax.plot(x, y, **{**look, **mine, **mark, "label": f"_{name}"})
    return drawn


def _dots_for_place(
    place: int = 0, lines: int = 1
) -> tuple[float, tuple[float, float]]:
    """Return dots that leave room for those of other lines at the same place."""
    step = 2.8
    return step * (lines - place), (1.0, step * lines - 1.0)


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


MOST_TICKS = 5


def error_ticks(low: float, high: float) -> list[float]:
    """Return three to five round ticks of a log axis.

    Parameters
    ----------
    low, high : float
        The range of the axis, both positive.
    """
    decades = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in ([1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]):
        candidates = np.outer(decades, digits).ravel()
        inside = candidates[(candidates >= low) & (candidates <= high)]
        if len(inside) >= 3:
            return [float(tick) for tick in inside[:: -(-len(inside) // MOST_TICKS)]]
    return _linear_ticks(low, high)


def _linear_ticks(low: float, high: float) -> list[float]:
    """Return round ticks, six at most, where less than one digit changes."""
    unit = 10.0 ** np.floor(np.log10((high - low) / 6))
    for step in (unit, 2 * unit, 5 * unit, 10 * unit):
        first, last = int(np.ceil(low / step)), int(np.floor(high / step))
        if last - first <= MOST_TICKS:
            break
    return [float(f"{k * step:.10g}") for k in range(first, last + 1)]


def scale_passes(ax: Axes, ticks: Sequence[float], log: bool) -> None:
    """Set the x axis: linear, or linear up to 1 pass and log beyond."""
    if log:
        ax.set_xscale("symlog", linthresh=1.0, linscale=0.5)
        ax.set_xlabel(f"{ax.get_xlabel()} (linear up to 1, then log)")
        _label_axis(ax.xaxis, ticks)
    else:
        _label_axis(ax.xaxis, _linear_ticks(0.0, ticks[-1]))
    ax.set_xlim(0, ticks[-1] * 1.02)


def scale_epsilon(ax: Axes, epsilons: Sequence[float]) -> None:
    """Set the x axis to a log scale with the epsilons that ran as ticks."""
    ax.set_xscale("log")
    _label_axis(ax.xaxis, epsilons)
    ax.set_xlim(epsilons[0] / 1.4, epsilons[-1] * 1.4)


def scale_axis(ax: Axes, values: Sequence[float], ends: Sequence[float]) -> None:
    """Set the x axis of any column.

    Parameters
    ----------
    ax : Axes
        The axes.
    values : sequence of float
        The values that ran, increasing: ticks of a log scale if they are positive and
        far apart. An infinite one is at `place_of_infinity`.
    ends : sequence of float
        Where lines end, if x is along runs: of runs of very different lengths the axis
        is linear up to the shortest, and log beyond.
    """
    last = place_of_infinity(values) if math.isinf(values[-1]) else math.nan
    values = [*values[:-1], last] if math.isinf(values[-1]) else values
    low, high = values[0], values[-1]
    if ends:
        short = min((end for end in ends if end > 0), default=high)
        if high > 20 * short:
            ax.set_xscale("symlog", linthresh=short)
            ax.set_xlim(-0.2 * short, 1.2 * high)
            ax.set_xlabel(f"{ax.get_xlabel()} (linear up to {short:.3g}, then log)")
    elif low > 0 and high >= 8 * low:
        ax.set_xscale("log")
        _label_axis(ax.xaxis, _labels_apart(values), last)
    elif len(values) <= MOST_TICKS or high == last:
        _label_axis(ax.xaxis, values, last)
    else:
        scale_plain(ax.xaxis)


def place_of_infinity(values: Sequence[float]) -> float:
    """Return where infinity is drawn: a step of a log axis beyond the largest value."""
    known = [one for one in values if 0.0 < one < math.inf]
    step = known[-1] / known[-2] if len(known) > 1 else 10.0
    return known[-1] * max(step, 2.0) if known else 1.0


def places_on_axis(x: Any, values: Sequence[float]) -> Any:
    """Return places on an axis of some values, infinity being `beyond` them."""
    return np.where(np.isposinf(x), place_of_infinity(values), x)


def scale_errors(ax: Axes, extent: tuple[float, float]) -> None:
    """Set the y axis to a log scale around the range of errors."""
    ax.set_yscale("log")
    margin = (extent[1] / extent[0]) ** 0.05 * 1.01
    low, high = extent[0] / margin, extent[1] * margin
    _label_axis(ax.yaxis, error_ticks(low, high))
    ax.set_ylim(low, high)


def scale_numbers(
    ax: Axes, values: Sequence[float], extent: tuple[float, float]
) -> None:
    """Set both axes to log scales with the values that ran as ticks."""
    ax.set_xscale("log")
    whole = all(float(value).is_integer() for value in values)
    ticks = [
        value if whole else float(f"{value:.3g}") for value in _labels_apart(values)
    ]
    _label_axis(ax.xaxis, ticks)
    ax.set_xlim(values[0] / 1.15, values[-1] * 1.3)
    scale_errors(ax, extent)


def _labels_apart(values: Sequence[float]) -> list[float]:
    """Return the values whose labels do not overlap on a log scale."""
    least = (values[-1] / values[0]) ** 0.12
    ticks = [values[0]]
    for value in values[1:]:
        if value >= ticks[-1] * least:
            ticks.append(value)
    return ticks


def scale_plain(axis: Axis) -> None:
    """Give a linear axis few ticks, in plain numbers without an offset or a factor."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(MOST_TICKS, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda tick, _: plain_number(tick)))


def plain_number(tick: float) -> str:
    """Return a number as it is read: with a power of ten only if it is long."""
    if tick == 0.0 or 1e-4 <= abs(tick) < 1e6:
        return f"{tick:.6g}"
    digits, _, exponent = f"{tick:.5e}".partition("e")
    power, factor = f"10^{{{int(exponent)}}}", float(digits)
    sign = {1.0: "", -1.0: "-"}.get(factor, rf"{factor:g}\cdot ")
    return f"${sign}{power}$"


def _label_axis(axis: Axis, ticks: Sequence[float], endless: float = np.nan) -> None:
    """Show exactly these ticks, in plain numbers; one of them may be infinity."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    def tick_text(tick: float, _: Any) -> str:
        return "∞" if tick == endless else plain_number(tick)

    axis.set_major_locator(FixedLocator(list(ticks)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(tick_text))
