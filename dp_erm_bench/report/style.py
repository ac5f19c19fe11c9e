"""The look of figures: colour, marker and size of every line, scales and ticks.

A *line* consists of the runs with one label, usually those of one algorithm.

The look of a line depends on its label in the table. Colours are those of Okabe and Ito
("Color Universal Design", 2008), which readers with colour-vision deficiency can
distinguish. Markers distinguish lines in grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

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
        Name of the line in the legend.
    colour : str
        Hexadecimal colour.
    marker : str
        Matplotlib marker.
    size : float
        Marker size in points.
    width : float
        Line width in points.
    family : str
        Name of the line for authors' curves in the legend, and in narrow margins. The
        default is the label up to its first comma.
    dashes : str or tuple
        Matplotlib line style.
    """

    label: str
    colour: str = "#0072B2"
    marker: str = "o"
    size: float = 4.5
    width: float = 1.6
    family: str = ""
    dashes: Any = "solid"

    @property
    def look(self) -> tuple[Any, ...]:
        """Return colour, marker and dashes, which distinguish the line in a figure."""
        return self.colour, self.marker, self.dashes

    def curve(self) -> dict[str, Any]:
        """Return the plot arguments for the line."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "markersize": self.size,
            "linewidth": self.width,
            "linestyle": self.dashes,
            "label": self.label,
        }

    def band(self) -> dict[str, Any]:
        """Return the plot arguments for the band around the line."""
        edge = {"edgecolor": (self.colour, 0.5), "linewidth": 0.5}
        return {"facecolor": (self.colour, 0.12), "zorder": 1.0, **edge}

    def authors(self) -> dict[str, Any]:
        """Return the plot arguments for the authors' curve: thin, dashed, behind."""
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
    "DP-CD": Style("DP-CD", BLUE, "o"),
    "DP-CD 5 passes": Style("DP-CD", BLUE, "o"),
    "DP-CD cyclic": Style("DP-CD, cyclic", "#44AA99", "h"),
    "DP-CD cyclic 50 passes": Style("DP-CD, cyclic", "#44AA99", "h"),
    "DP-CD cyclic reversed": Style("DP-CD, cyclic reversed", "#44AA99", "<"),
    "DP-CD cyclic reversed 50 passes": Style("DP-CD, cyclic reversed", "#44AA99", "<"),
    "DP-CD their setting": Style("DP-CD, fitted to theirs", "#332288", "p"),
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
    "DP-SGD authors 3 passes": Style("DP-SGD, authors' noise", VERMILLION, "^"),
    "DP-SGD tight batch 1": Style("DP-SGD, tight, batch 1", ORANGE, "v"),
    "DP-SGD tight batch 100": Style("DP-SGD, tight, batch 100", PURPLE, "D", 4.0),
    "DP-SGD tight full batch": Style("DP-SGD, tight, full batch", BROWN, "d"),
    "DP-SVRG": Style("DP-SVRG, tight, batch 100", GREY, "*", 6.0),
    "DP-GCD tight": Style("DP-GCD, tight noise", GREEN, "P", 5.5, 2.0),
    "DP-GCD poster": Style("DP-GCD, poster noise", BLACK, "X", 5.5),
    "DP-GCD poster 7 passes": Style("DP-GCD, poster noise", BLACK, "X", 5.5),
    "DP-GCD tight GS-s": Style("DP-GCD, rule GS-s", "#882255", "v"),
    "DP-GCD tight GS-q": Style("DP-GCD, rule GS-q", "#332288", "o"),
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
    "greedy_cd": Style("greedy_cd", GREEN, "P", 5.5),
    "random_cd": Style("random_cd", BLUE, "o"),
    "sgd": Style("sgd", VERMILLION, "^"),
    "svrg": Style("svrg", GREY, "*", 6.0),
    "gd": Style("gd", ORANGE, "v"),
    "frank_wolfe": Style("frank_wolfe", "#332288", "h"),
    "mirror_descent": Style("mirror_descent", SKY, "s", family="mirror"),
    "output_perturbation": Style(
        "output_perturbation", PURPLE, "D", 4.0, family="output"
    ),
    "objective_perturbation": Style(
        "objective_perturbation", "#882255", "d", family="objective"
    ),
    "approximate_minima_perturbation": Style(
        "approximate_minima_perturbation", "#DDAA88", "p", family="AMP"
    ),
    "permutation_sgd": Style("permutation_sgd", BROWN, "X", family="permutation"),
    "newton": Style("newton", "#999933", ">"),
    "feature_covariance": Style(
        "feature_covariance", "#AA4499", "<", family="covariance"
    ),
    "ssp": Style("ssp", "#44AA99", "H", 5.0),
}
"""Styles of lines of reproduced papers, of baselines, and of the algorithms."""

# The last three are Tol's. They are used if a sheet needs more colours.
COLOURS = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY, BROWN) + (
    *("#332288", "#999933", "#882255"),
)
MARKERS = "o^PvDsX*dph<"
OTHERS = tuple(
    (colour, MARKERS[(at + turn) % len(MARKERS)], "solid")
    for turn in range(len(MARKERS))
    for at, colour in enumerate(COLOURS)
)
"""The 144 looks for lines without a style in `STYLES`."""

SHADES = (0.45, -0.4, 0.65, -0.6)
"""Shifts of an algorithm's colour for its further lines: > 0 to white, < 0 to black."""

SHAPES: tuple[dict[str, Any], ...] = tuple(
    {"color": colour, "linestyle": dashes, "linewidth": 0.9, "zorder": 3.5}
    for colour in ("#444444", BROWN)
    for dashes in ((0, (6, 1.5, 1, 1.5)), (0, (4, 1, 1, 1, 1, 1)), "solid", (0, (1, 1)))
)
"""Looks of bounds, different from the look of w = 0.

Bounds are drawn above the lines, because they may coincide with a line.
"""

_given: dict[str, Style] = {}
_bounds: dict[str, dict[str, Any]] = {}


def style_of(line: str, beside: Iterable[str] = ()) -> Style:
    """Return the style of a line by its label in the table.

    Each algorithm has its own colour. A line without a style, or with the style of
    another line, gets the next free colour and marker, until `forget_styles` is called.

    Parameters
    ----------
    line : str
        Label of the line.
    beside : iterable of str
        Lines of the same panel, whose colours are avoided.
    """
    if line not in _given:
        own = STYLES.get(line) or Style(literal_text(line))
        planned = STYLES.get(line) or STYLES.get(line.partition(",")[0])
        looks = [planned.look, *_shaded_looks(planned.colour)] if planned else []
        taken = {one.look: one.label for one in _given.values()}
        others = [_given[one] for one in beside if one in _given]
        near = {one.colour for one in others if one.label != own.label}
        free = [
            one for one in (*looks, *OTHERS) if taken.get(one, own.label) == own.label
        ]
        apart = [one for one in free if one[0] not in near or one in looks[:1]]
        colour, marker, dashes = (apart or free or OTHERS)[0]
        _given[line] = replace(own, colour=colour, marker=marker, dashes=dashes)
    return _given[line]


def _shaded_looks(colour: str) -> list[tuple[str, str, str]]:
    """Return the looks of an algorithm's further lines, in shades of a colour."""
    from matplotlib.colors import to_hex, to_rgb

    def shade(far: float) -> str:
        red, green, blue = (
            abs(far) * (far > 0) + (1 - abs(far)) * part for part in to_rgb(colour)
        )
        return to_hex((red, green, blue))

    pairs = zip(map(shade, SHADES), MARKERS[1:], strict=False)
    return [(own, mark, "solid") for own, mark in pairs]


def reserve_styles(panels: Iterable[Sequence[str]]) -> None:
    """Assign styles to all lines of panels, first to those with a style in `STYLES`."""
    panels = [[*lines] for lines in panels]
    for planned in (True, False):
        for lines in panels:
            for line in lines:
                if (line in STYLES) == planned:
                    style_of(line, lines)


def bound_style(label: str) -> dict[str, Any]:
    """Return the plot arguments of a bound; a label always gets the same look."""
    return _bounds.setdefault(label, SHAPES[len(_bounds) % len(SHAPES)])


def forget_styles() -> None:
    """Forget all assigned styles; called before the figures of an experiment."""
    _given.clear()
    _bounds.clear()


def literal_text(text: str) -> str:
    r"""Return a string escaped so that pictures show it literally.

    Dollar signs are written ``\$``, so that none begins a formula. A letter that the
    font lacks is written as its code, as in ``\u4e2d``.
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


@contextmanager
def house_style() -> Iterator[None]:
    """Use the package's fonts and sizes for figures drawn in this context.

    No text is smaller than 7 points.
    """
    import matplotlib

    settings: Any = {
        "font.size": 8,
        # Ticks show full values, not differences to an offset.
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


MOST_TICKS = 5
PASSES = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)


def scale_x(ax: Axes, kind: str, values: Sequence[float]) -> None:
    """Set the scale, ticks and limits of the x axis.

    Parameters
    ----------
    ax : Axes
        The axes, with the label of the x axis.
    kind : {'log', 'linear', 'passes'}
        `passes` is linear up to 1 and log beyond. A log axis shows infinity at
        `place_of_infinity`.
    values : sequence of float
        The values of x that ran, increasing.
    """
    end = values[-1]
    if kind == "passes":
        ax.set_xscale("symlog", linthresh=1.0, linscale=0.5)
        ax.set_xlabel(f"{ax.get_xlabel()} (linear to 1, then log)")
        tens = [0.0, *(10.0**k for k in range(max(0, math.ceil(math.log10(end)))))]
        # The last tick needs room next to the tick before it.
        ticks, room = (PASSES, 0.8) if end <= PASSES[-1] else (tens, 0.45)
        label_ticks(ax.xaxis, [*(tick for tick in ticks if tick < room * end), end])
        ax.set_xlim(0, end * 1.02)
    elif kind == "log":
        finite = [one for one in values if math.isfinite(one)]
        kept = [*finite, place_of_infinity(values)] if math.isinf(end) else finite
        ax.set_xscale("log")
        ticks = [one if one % 1.0 == 0 else float(f"{one:.3g}") for one in kept]
        endless = ticks[-1] if math.isinf(end) else math.nan
        label_ticks(ax.xaxis, _ticks_apart(ticks), endless)
        ax.set_xlim(kept[0] / 1.15, kept[-1] * 1.3)
    elif len(values) <= MOST_TICKS:
        label_ticks(ax.xaxis, values)
    else:
        scale_linear(ax.xaxis)


def suits_log_scale(values: Sequence[float]) -> bool:
    """Return whether numbers are positive and so far apart that a log scale suits."""
    return bool(min(values) > 0 and max(values) >= 8 * min(values))


def place_of_infinity(values: Sequence[float]) -> float:
    """Return the position that stands for infinity on a log axis.

    The position is one step beyond the largest value.
    """
    known = [one for one in values if 0.0 < one < math.inf]
    step = known[-1] / known[-2] if len(known) > 1 else 10.0
    return known[-1] * max(step, 2.0) if known else 1.0


def _ticks_apart(values: Sequence[float]) -> list[float]:
    """Return the values that may be labelled on a log scale without overlap."""
    longest = max(len(plain_number(value)) for value in values)
    least = (values[-1] / values[0]) ** max(0.12, 0.045 * longest)
    ticks = [values[0]]
    for value in values[1:]:
        if value >= ticks[-1] * least:
            ticks.append(value)
    return ticks


def scale_y(ax: Axes, kind: str, extent: tuple[float, float]) -> None:
    """Set the scale, ticks and limits of the y axis.

    Parameters
    ----------
    ax : Axes
        The axes.
    kind : {'log', 'symlog', 'linear'}
        A `symlog` axis is linear up to the smaller end of the extent.
    extent : (float, float)
        The range of values to show.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = extent
    if kind == "log":
        ax.set_yscale("log")
        margin = (high / low) ** 0.05 * 1.01
        ax.set_ylim(low / margin, high * margin)
        far = high > 10.0 * low
        few = LogLocator(subs=(1, 3) if far else (1, 2, 5), numticks=MOST_TICKS)
        few = LogLocator(numticks=MOST_TICKS) if high > 1e3 * low else few
        near = MaxNLocator(MOST_TICKS, steps=[1, 2, 5, 10])
        label_ticks(ax.yaxis, few if high > 3.0 * low else near)
    elif kind == "symlog":
        ax.set_yscale("symlog", linthresh=low)
        locator: Any = ax.yaxis.get_major_locator()
        locator.set_params(numticks=MOST_TICKS)
    else:
        scale_linear(ax.yaxis)


def scale_linear(axis: Axis) -> None:
    """Set few ticks on a linear axis, as plain numbers without offset or factor."""
    from matplotlib.ticker import MaxNLocator

    label_ticks(axis, MaxNLocator(MOST_TICKS, steps=[1, 2, 2.5, 5, 10]))


def label_ticks(axis: Axis, ticks: Any, endless: float = math.nan) -> None:
    """Set the ticks of an axis, and label them with plain numbers.

    Parameters
    ----------
    axis : Axis
        The axis of a plot.
    ticks : sequence of float or Locator
        The ticks, or a Locator that places them.
    endless : float
        The tick that is labelled ∞; nan if there is no such tick.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, NullLocator

    def tick_text(tick: float, _: Any) -> str:
        return "∞" if tick == endless else plain_number(tick)

    axis.set_major_locator(
        ticks if isinstance(ticks, Locator) else FixedLocator([*ticks])
    )
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(tick_text))


RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def plain_number(tick: float) -> str:
    """Return a number as a string, with a power of ten only if it would be long."""
    if tick == 0.0 or 1e-4 <= abs(tick) < 1e5:
        return f"{tick:.6g}"
    digits, _, exponent = f"{tick:.5e}".partition("e")
    factor = {1.0: "", -1.0: "-"}.get(float(digits), f"{float(digits):g}·")
    return f"{factor}10{str(int(exponent)).translate(RAISED)}"
