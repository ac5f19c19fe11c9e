"""Colour, marker and size of every line, after its label in the table.

Colours are those of Okabe and Ito ("Color Universal Design", 2008), which stay
apart for readers with colour-vision deficiency; markers tell lines apart in grey.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any


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

    def curve(self) -> dict[str, Any]:
        """Return the arguments of a line plot."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "markersize": self.size,
            "linewidth": self.width,
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
    "DP-CD cyclic reversed": Style("DP-CD, cyclic reversed", BLUE, "o"),
    "DP-CD uniform": Style("DP-CD, uniform", SKY, "s"),
    "DP-CD private M": Style(
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
    "whole gradient": Style("gradient descent, all p entries", VERMILLION, "^", 3.0),
}


OTHERS = tuple(
    zip(
        (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY, BROWN),
        "o^PvDsX*d",
        strict=True,
    )
)
_others: dict[str, Style] = {}
_taken: set[tuple[str, str]] = set()


def of(line: str) -> Style:
    """Return the style of a line by its label in the table.

    A line that has none gets the next colour and marker, until `forget` is called.
    """
    if line in STYLES:
        return STYLES[line]
    if line not in _others:
        first = len(_others)
        looks = [_look(first + k) for k in range(len(OTHERS) ** 2)]
        look = next((one for one in looks if one not in _taken), looks[0])
        _others[line] = Style(literal(line), *look)
        _taken.add(look)
    return _others[line]


def _look(place: int) -> tuple[str, str]:
    """Return colour and marker: 81 pairs before one comes again."""
    turn, at = divmod(place, len(OTHERS))
    return OTHERS[at][0], OTHERS[(at + turn) % len(OTHERS)][1]


def reserve(lines: Iterable[str]) -> None:
    """Keep the looks of those of some lines that have one from the others."""
    _taken.update((one.colour, one.marker) for one in map(STYLES.get, lines) if one)


def literal(text: str) -> str:
    r"""Return a text as a picture shows it to the letter.

    A dollar sign begins no formula, and a letter that the font lacks is written as
    its code, as in ``\u4e2d``.
    """
    known = _letters()
    letters = (
        one if ord(one) in known else one.encode("ascii", "backslashreplace").decode()
        for one in text
    )
    return "".join(letters).replace("$", r"\$")


@cache
def _letters() -> frozenset[int]:
    """Return the code points of the font's letters."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return frozenset(get_font(findfont(FontProperties())).get_charmap())


def forget() -> None:
    """Give colours and markers anew: the same experiment is drawn the same again."""
    _others.clear()
    _taken.clear()


@contextmanager
def house_style() -> Iterator[None]:
    """Set fonts and sizes of the figures drawn inside."""
    import matplotlib

    settings: Any = {
        "font.size": 8,
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
