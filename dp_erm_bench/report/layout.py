"""Sheets of panels and a legend, of a paper's width, and their captions.

The caption is no part of the picture, it is a file beside it.
"""

from __future__ import annotations

import functools
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dp_erm_bench.paths import write_atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMMANDS = (
    *("alpha", "beta", "gamma", "Gamma", "delta", "Delta", "epsilon", "varepsilon"),
    *("eta", "theta", "kappa", "lambda", "Lambda", "mu", "nu", "pi", "rho", "sigma"),
    *("Sigma", "tau", "phi", "varphi", "psi", "omega", "Omega", "ell", "Vert", "cdot"),
    *("sqrt", "frac", "times", "le", "leq", "ge", "geq", "infty", "log", "min", "max"),
    *("sum", "hat", "bar", "tilde", "mathrm"),
)
# TeX reads ^^5c as a backslash.
_TOKEN = rf"[^\\{{}}$%#&~^\n]|\^(?!\^)|\\(?:{'|'.join(COMMANDS)})(?![A-Za-z])|\\[;, ]"
_GROUP = rf"\{{(?:{_TOKEN}|\{{(?:{_TOKEN}|\{{(?:{_TOKEN})*\}})*\}})*\}}"
MATH = re.compile(rf"(?<!\\)\$(?:{_TOKEN}|{_GROUP})+\$")
"""A formula: of these commands alone, its braces closed.

A name in a folder of anyone's may hold dollar signs; what they enclose is a text, and
no LaTeX that reads files.
"""
ESCAPED = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%#_{}$"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\^{}"}
)
FLOAT = """\\begin{{{kind}}}[tb]
  \\centering
  \\includegraphics[width=\\{width}]{{{stem}}}
  \\caption{{{caption}}}
  \\label{{fig:{label}}}
\\end{{{kind}}}
"""


@dataclass
class Making:
    """What is being made of a table.

    Attributes
    ----------
    table : str
        The digest of the table, empty if nobody tells it; pictures note it.
    captions : dict of str to str, or None
        If there is one, captions are put into it by the name of their picture, pages
        of Markdown by that of their file, and nothing is drawn or written.
    """

    table: str = ""
    captions: dict[str, str] | None = None


_making = ContextVar("making", default=Making())  # noqa: B039 (never changed in place)


def current_pictures() -> Making:
    """Return what is being made."""
    return _making.get()


@contextmanager
def making_pictures(
    table: str = "", captions: dict[str, str] | None = None
) -> Iterator[None]:
    """Have pictures note the digest of their table, or have their captions only."""
    token = _making.set(Making(table, captions))
    try:
        yield
    finally:
        _making.reset(token)


def picture_mark(table: str, stem: str) -> str:
    """Return what a picture of a name, drawn from a table of a digest, notes.

    It tells damage and mistakes: anyone can compute it.
    """
    return sha256(f"{table} {stem}".encode()).hexdigest()


def write_caption(path: Path, text: str) -> Path:
    """Write a text file at once, and return its path."""
    if (told := current_pictures().captions) is None:
        write_atomic(path, lambda file: file.write(text.encode()))
    elif path.suffix == ".md":
        told[path.name] = text
    return path


def plain_caption(caption: str) -> str:
    """Return a caption as a file of text, its formulas in letters of their own."""
    return MATH.sub(_speak_formula, caption).replace(r"\$", "$").rstrip() + "\n"


BRACES = re.compile(r"\{([^{}]*)\}")
SPOKEN = {
    **{"varepsilon": "ε", "delta": "δ", "kappa": "κ", "Lambda": "Λ"},
    **{"Vert": "‖", "cdot": "·", "sqrt": "√"},
}


def _speak_formula(formula: re.Match[str]) -> str:
    """Return a formula without its commands and braces; brackets keep what belongs."""
    text = formula[0].strip("$").replace(r"\;", " ")
    text = re.sub(r"\\([A-Za-z]+)", lambda word: SPOKEN.get(word[1], word[1]), text)
    while (plain := BRACES.sub(_with_brackets, text)) != text:
        text = plain
    return text


def _with_brackets(inner: re.Match[str]) -> str:
    return inner[1] if re.fullmatch(r"-?\w*", inner[1]) else f"({inner[1]})"


def latex_figure(caption: str, stem: str, wide: bool = False) -> str:
    r"""Return a figure environment with a caption in which only formulas are LaTeX.

    Parameters
    ----------
    caption : str
        Formulas stand between dollar signs; others are written ``\$``.
    stem : str
        The name of the picture without its suffix.
    wide : bool
        Whether it is as wide as the page.
    """
    end, parts = 0, []
    for formula in MATH.finditer(caption):
        parts += [escape_latex(caption[end : formula.start()]), formula[0]]
        end = formula.end()
    text = "".join([*parts, escape_latex(caption[end:])]).strip()
    name = re.sub(r"[^\w.:-]", "-", stem)
    return FLOAT.format(
        kind="figure*" if wide else "figure",
        width="textwidth" if wide else "columnwidth",
        stem=name,
        label=name,
        caption=text.replace("\n", "\n    "),
    )


def escape_latex(text: str) -> str:
    """Return a text as LaTeX has to read it."""
    return text.replace(r"\$", "$").translate(ESCAPED)


Cell = Callable[["Axes"], None]

FORMATS = ("pdf", "png", "svg")
MAX_PNG_BYTES = 200_000

NOTED = "dp_erm_bench table"
"""The name under which a picture notes what it was drawn from."""

WIDTHS = {"column": 3.4, "page": 7.0}
"""Inches of a column, and of a page, of a paper with two columns."""

# Inches.
LEFT, GAP, TOP, AXIS, NARROWEST = 0.74, 0.55, 0.12, 0.28, 1.45
LINE, BESIDE = 0.135, 0.1
LETTER, TICK_LETTER = 0.066, 0.056
"""Mean widths of a letter of a title and of a tick."""

# In the size of the letters; the first is their mean width.
SMALL_LETTER, HANDLE, SPACING, LEGEND_LINE, LEGEND_GAP = 0.56, 2.6, 1.2, 1.2, 0.55
LEGEND_SIZES = (7.5, 7.0, 6.5)
"""Points of a legend: smaller where it would outgrow the plot."""


@dataclass(frozen=True)
class Sheet:
    """Geometry of a sheet: cells in a grid above their common legend.

    Attributes
    ----------
    cells : sequence of callable or None
        Each draws into the axes given; None leaves a place empty.
    columns : int
        Cells in a row, fewer where they would be narrower than `NARROWEST`.
    caption : str
        What is to be said of the sheet, one paragraph per line.
    size : (float, float)
        Width and height of one cell's axes: their proportion, in inches if `exact`.
    quantity : str
        The label of the y axis, on the first column.
    width : str
        `column` or `page`; if empty, a column for one cell and a page for several.
    exact : bool
        Whether the height of a cell is in inches: it has rows of text. With an empty
        `width` its width is, too.
    name : str
        Of its files, where nobody else names them.
    left, right : float
        Inches beside the columns, as for names of rows and a colour bar.
    """

    cells: Sequence[Cell | None]
    columns: int
    caption: str
    size: tuple[float, float]
    quantity: str = r"relative error $F(w)/F^* - 1$"
    width: str = ""
    exact: bool = False
    name: str = ""
    left: float = LEFT
    right: float = 0.12

    @property
    def inches(self) -> float:
        """Return the width of the sheet."""
        if self.exact and not self.width:
            axes = self.columns * self.size[0] + (self.columns - 1) * GAP
            return self.left + axes + self.right
        alone = "column" if len(self.cells) == 1 else "page"
        return WIDTHS[self.width or alone]

    @property
    def cells_across(self) -> int:
        """Return the number of cells in a row."""
        room = self.inches - self.left - self.right + GAP
        most = self.columns if self.exact else int(room / (NARROWEST + GAP))
        return max(1, min(self.columns, most))

    @property
    def cell(self) -> tuple[float, float]:
        """Return width and height of a cell's axes in inches."""
        room = self.inches - self.left - self.right - (self.cells_across - 1) * GAP
        width = room / self.cells_across
        return width, self.size[1] * (1.0 if self.exact else width / self.size[0])


def save_sheet(
    sheet: Sheet, path: Path, formats: Sequence[str] = FORMATS, captions: bool = True
) -> list[Path]:
    """Draw a sheet and write it beside `path`, with its caption.

    Parameters
    ----------
    sheet : Sheet
        The sheet to draw.
    path : Path
        Folder and stem.
    formats : sequence of str
        Of `FORMATS`; a PNG has at most `MAX_PNG_BYTES`.
    captions : bool
        Whether to write the caption as .txt, and as .tex with a figure environment.

    Returns
    -------
    list of Path
        The files written.
    """
    from matplotlib.figure import Figure

    if (told := current_pictures().captions) is not None:
        told[path.name] = plain_caption(sheet.caption)
        return []
    figure = Figure()
    draw_sheet(figure, sheet)
    written = [path.with_name(f"{path.name}.{suffix}") for suffix in formats]
    for file in written:
        _write_picture(figure, file)
    if captions:
        wide = sheet.inches > WIDTHS["column"]
        texts = (
            plain_caption(sheet.caption),
            latex_figure(sheet.caption, path.name, wide),
        )
        for suffix, text in zip(("txt", "tex"), texts, strict=True):
            written.append(path.with_name(f"{path.name}.{suffix}"))
            write_caption(written[-1], text)
    return written


def _write_picture(figure: Figure, path: Path) -> None:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    table = current_pictures().table
    noted = picture_mark(table, path.stem) if table else ""
    if path.suffix != ".png":
        key = {".pdf": "CreationDate", ".svg": "Date"}[path.suffix]
        name = {".pdf": "Keywords", ".svg": "Source"}[path.suffix]
        words = f"{NOTED} {noted}" if noted else None
        figure.savefig(path, metadata={key: None} | ({name: words} if words else {}))
        return
    for dpi in (200, 150, 100, 80, 60):
        pixels = io.BytesIO()
        figure.savefig(pixels, format="png", dpi=dpi)
        # A palette of 256 colours has a third of the bytes of true colour.
        with Image.open(pixels) as image:
            small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        info = PngInfo()
        if noted:
            info.add_text(NOTED, noted)
        small.save(path, pnginfo=info)
        if path.stat().st_size <= MAX_PNG_BYTES:
            break


def draw_sheet(figure: Figure, sheet: Sheet) -> None:
    """Draw the cells and the legend of a sheet, at places given in inches."""
    axes: dict[int, Axes] = {}
    for place, cell in enumerate(sheet.cells):
        if cell is not None:
            axes[place] = figure.add_axes((0, 0, 1, 1))
            cell(axes[place])
            own = axes[place]
            for text in (own.title, own.xaxis.label, *own.texts):
                text.set_text(_drawable_text(text.get_text()))
    (width, height), wide = sheet.cell, sheet.inches
    titles = [_wrap_text(ax.title, width + GAP / 2, LETTER) for ax in axes.values()]
    below = [
        _wrap_text(ax.xaxis.label, width + GAP / 2, LETTER) for ax in axes.values()
    ]
    top = TOP + LINE * max(titles, default=0)
    axis = AXIS + LINE * max(below, default=0)
    rows = -(-len(sheet.cells) // sheet.cells_across)
    key = _lowest_legend(
        _legend_entries(axes.values()), wide - 2 * BESIDE, rows * height
    )
    legend = key.height + 0.12 if key else 0.05
    if key and not sheet.exact:
        height = max(height, key.height / rows)
    total = legend + rows * (top + height + axis)
    figure.set_size_inches(wide, total)
    for place, ax in axes.items():
        row, column = divmod(place, sheet.cells_across)
        x = sheet.left + column * (width + GAP)
        y = total - (row + 1) * (top + height) - row * axis
        ax.set_position((x / wide, y / total, width / wide, height / total))
        if column == 0:
            ax.set_ylabel(sheet.quantity)
            _wrap_text(ax.yaxis.label, height + 0.5, LETTER)
        _thin_ticks(ax, width, height)
    if key:
        look: dict[str, Any] = {"loc": "lower center", "ncols": key.columns}
        look |= {"frameon": False, "borderaxespad": 0, "borderpad": 0}
        look |= {"columnspacing": SPACING, "labelspacing": LEGEND_GAP}
        look |= {"handlelength": HANDLE - 0.6, "handletextpad": 0.6}
        look |= {"bbox_to_anchor": (0.5, 0.06 / total), "fontsize": key.size}
        figure.legend(key.handles, key.labels, **look)


class Key(NamedTuple):
    """A legend below the cells: its labels in lines, its columns and its height."""

    handles: Sequence[Any]
    labels: Sequence[str]
    columns: int
    size: float
    height: float


def _lowest_legend(entries: Mapping[str, Any], wide: float, tall: float) -> Key | None:
    """Return the legend that is lowest, with few labels broken and letters not small.

    Parameters
    ----------
    entries : mapping of str to handle
        By label.
    wide, tall : float
        Inches that there are, and that the plots above are tall.
    """
    found: list[tuple[float, Key]] = []
    for size in LEGEND_SIZES if entries else ():
        em = size / 72.0
        for columns in range(1, len(entries) + 1):
            room = (wide + SPACING * em) / columns / em - HANDLE - SPACING
            least = 10 if columns > 1 else 1
            if (most := int(room / SMALL_LETTER)) < least:
                break
            whole = _legend_columns([*entries], columns)
            fits = sum(max(map(_letters_wide, one)) * SMALL_LETTER for one in whole)
            broken = fits > columns * room
            labels = [_break_lines(one, most) if broken else one for one in entries]
            lines = [
                sum(one.count("\n") * LEGEND_LINE + 1.1 + LEGEND_GAP for one in column)
                for column in _legend_columns(labels, columns)
            ]
            cut = sum("\n" in one for one in labels)
            key = Key([*entries.values()], labels, columns, size, max(lines) * em)
            # Inches that it is worth.
            cost = key.height + 0.08 * cut + 0.15 * (LEGEND_SIZES[0] - size)
            found.append((cost + 0.01 * columns + 10.0 * (key.height > tall), key))
    return min(found, key=itemgetter(0))[1] if found else None


@functools.cache
def _drawable_text(text: str) -> str:
    """Return a text that matplotlib can draw: its dollars are letters if no formula."""
    from matplotlib.mathtext import MathTextParser

    try:
        if "$" in text:
            MathTextParser("path").parse(text)
        return text
    except ValueError:
        return re.sub(r"(?<!\\)\$", r"\$", text)


def _legend_columns(labels: Sequence[str], columns: int) -> list[Sequence[str]]:
    """Return the labels of a legend's columns, the first ones longer."""
    each, more = divmod(len(labels), columns)
    ends = [each * k + min(k, more) for k in range(columns + 1)]
    return [labels[a:b] for a, b in pairwise(ends)]


def _thin_ticks(ax: Axes, width: float, height: float) -> None:
    """Leave out ticks whose labels would overlap those before; names of places stay."""
    from matplotlib.ticker import FixedLocator, FuncFormatter

    def writes_names(write: FuncFormatter) -> bool:
        return isinstance(write.func, functools.partial)

    for axis, inches, along in ((ax.xaxis, width, 0), (ax.yaxis, height, 1)):
        write = axis.get_major_formatter()
        fixed = isinstance(axis.get_major_locator(), FixedLocator)
        # Of ticks with names matplotlib's formatter looks these up.
        if not fixed or not isinstance(write, FuncFormatter) or writes_names(write):
            continue
        kept: list[float] = []
        end = -math.inf
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_majorticklocs():
            if not low <= tick <= high:
                continue
            corner = ax.transLimits.transform(ax.transScale.transform((tick, tick)))
            half = LINE / 2 if along else TICK_LETTER * _letters_wide(write(tick)) / 2
            at = float(corner[along]) * inches
            if at - half >= end:
                kept.append(float(tick))
                end = at + half + 0.05 * (not along)
        axis.set_major_locator(FixedLocator(kept))


def _letters_wide(text: str) -> int:
    """Return about how many letters wide a text is, its formulas as they look."""
    return max(map(len, MATH.sub(_letters_of_formula, text).split("\n")))


def _letters_of_formula(formula: re.Match[str]) -> str:
    """Return as many letters as a formula is wide, which nothing breaks."""
    plain = re.sub(r"\\[A-Za-z]+", "x", formula[0])
    return "\0" * len(re.sub(r"[\\${}^_ ]", "", plain))


def _break_lines(text: str, letters: int) -> str:
    """Return a text with lines of some letters, formulas and `key = value` whole."""
    if _letters_wide(text) <= letters:
        return text
    formulas = iter(MATH.findall(text))
    words = MATH.sub(_letters_of_formula, text).replace(" = ", "\xa0=\xa0")
    lines = textwrap.wrap(words, letters, break_on_hyphens=False)
    return re.sub("\0+", lambda _: next(formulas, ""), "\n".join(lines))


def _wrap_text(text: Any, inches: float, letter: float) -> int:
    """Break a text of the picture into lines, and return how many it has."""
    words = _break_lines(text.get_text(), max(8, int(inches / letter)))
    text.set_text(words)
    return words.count("\n") + 1 if words else 0


def _legend_entries(drawn: Iterable[Axes]) -> dict[str, Any]:
    """Return legend handles by label in order of appearance, the authors' ones last."""
    handles: dict[str, Any] = {}
    for ax in drawn:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(_drawable_text(label), handle)
    last = {label: label.endswith("figure)") for label in handles}
    return {label: handles[label] for label in sorted(handles, key=last.__getitem__)}
