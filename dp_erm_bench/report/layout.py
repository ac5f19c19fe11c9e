"""Sheets of panels with a legend, in the widths of a paper, and their captions.

The caption is not part of the picture; it is a file next to it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.paths import write_atomic
from dp_erm_bench.report.draw import Chart, draw_rows, drawn_points
from dp_erm_bench.results.files import csv_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

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
"""Pattern of a formula that uses only `COMMANDS` and closes all its braces.

Names in a folder that is not trusted may contain dollar signs. The text between them
must not become LaTeX that reads files.
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


def write_text_file(path: Path, text: str) -> Path:
    """Write a text file atomically and return its path."""
    write_atomic(path, lambda file: file.write(text.encode()))
    return path


def plain_caption(caption: str) -> str:
    """Return a caption as plain text, with formulas written without LaTeX."""
    return MATH.sub(_speak_formula, caption).replace(r"\$", "$").rstrip() + "\n"


BRACES = re.compile(r"\{([^{}]*)\}")
SPOKEN = {
    **{"varepsilon": "ε", "delta": "δ", "kappa": "κ", "Lambda": "Λ"},
    **{"Vert": "‖", "cdot": "·", "sqrt": "√"},
}


def _speak_formula(formula: re.Match[str]) -> str:
    """Return a formula as plain text, with brackets instead of braces where needed."""
    text = formula[0].strip("$").replace(r"\;", " ")
    text = re.sub(r"\\([A-Za-z]+)", lambda word: SPOKEN.get(word[1], word[1]), text)
    while (plain := BRACES.sub(_with_brackets, text)) != text:
        text = plain
    return text


def _with_brackets(inner: re.Match[str]) -> str:
    return inner[1] if re.fullmatch(r"-?\w*", inner[1]) else f"({inner[1]})"


def latex_figure(caption: str, stem: str, wide: bool = False) -> str:
    r"""Return a LaTeX figure environment whose caption is escaped except for formulas.

    Parameters
    ----------
    caption : str
        Formulas are between dollar signs; other dollar signs are written ``\$``.
    stem : str
        The name of the picture without its suffix.
    wide : bool
        Whether the figure is as wide as the page.
    """
    parts = re.split(f"({MATH.pattern})", caption)
    parts[::2] = map(escape_latex, parts[::2])
    text = "".join(parts).strip()
    name = re.sub(r"[^\w.:-]", "-", stem)
    return FLOAT.format(
        kind="figure*" if wide else "figure",
        width="textwidth" if wide else "columnwidth",
        stem=name,
        label=name,
        caption=text.replace("\n", "\n    "),
    )


def escape_latex(text: str) -> str:
    """Return a string escaped for LaTeX."""
    return text.replace(r"\$", "$").translate(ESCAPED)


Cell = Callable[["Axes"], None]

FORMATS = ("pdf", "png", "svg")
MAX_PNG_BYTES = 200_000

WIDTHS = {"column": 3.4, "page": 7.0, "slide": 6.0}
"""Width in inches of a column and a page of a two-column paper, and of a slide.

A slide is shown at more than twice this size.
"""

# In inches.
NARROWEST, AROUND, ROW = 2.0, 0.6, 0.19
LETTER = 0.066
"""The mean width of a letter in inches."""


@dataclass(frozen=True)
class Sheet:
    """A figure: panels in a grid above their common legend.

    Attributes
    ----------
    cells : sequence of callable
        Functions that each draw one panel on the axes passed to them.
    caption : str
        The caption of the sheet, one paragraph per line.
    quantity : str
        Label of the y axis, shown on the first column.
    width : str
        One of `WIDTHS`; if empty, a column for one panel and a page for several.
    columns : int
        Number of panels in a row; fewer if they would be narrower than `NARROWEST`.
    tall : float
        Height in inches of a panel with its title and labels; 0 to fit its width.
    name : str
        Name of the files, unless the caller chooses another name.
    tabled : sequence of Chart
        Charts whose points are rows of a table below the panels.
    mark : str
        Text across the picture, used to mark test runs.
    """

    cells: Sequence[Cell]
    caption: str
    quantity: str = r"relative error $F(w)/F^* - 1$"
    width: str = ""
    columns: int = 3
    tall: float = 0.0
    name: str = ""
    tabled: Sequence[Chart] = ()
    mark: str = ""

    @property
    def inches(self) -> float:
        """Return the width of the sheet in inches."""
        alone = len(self.cells) == 1 and not self.tabled
        return WIDTHS[self.width or ("column" if alone else "page")]


def save_sheet(
    sheet: Sheet, path: Path, formats: Sequence[str] = FORMATS, captions: bool = True
) -> list[Path]:
    """Draw a sheet and write it, with its caption, to files named after `path`.

    Parameters
    ----------
    sheet : Sheet
        The sheet to draw.
    path : Path
        Folder and stem of the files.
    formats : sequence of str
        Some of `FORMATS`; a PNG has at most `MAX_PNG_BYTES`.
    captions : bool
        Whether to write the caption as .txt, the caption in a figure environment as
        .tex, and the points of the lines as .csv.

    Returns
    -------
    list of Path
        The files written.
    """
    from matplotlib.figure import Figure

    plain = plain_caption(sheet.caption)
    figure = Figure()
    draw_sheet(figure, sheet)
    written = [path.with_name(f"{path.name}.{suffix}") for suffix in formats]
    for file in written:
        _write_picture(figure, file)
    if captions:
        wide = sheet.inches > WIDTHS["column"]
        texts = {"txt": plain, "tex": latex_figure(sheet.caption, path.name, wide)}
        for suffix, text in texts.items():
            own = path.with_name(f"{path.name}.{suffix}")
            written.append(write_text_file(own, text))
    drawn = [one for one in (*sheet.cells, *sheet.tabled) if isinstance(one, Chart)]
    if captions and drawn:
        own = path.with_name(f"{path.name}.csv")
        written.append(write_text_file(own, csv_of(drawn_points(drawn))))
    return written


def _write_picture(figure: Figure, path: Path) -> None:
    from PIL import Image

    if path.suffix != ".png":
        # Without a date, the same figure is the same file whenever it is drawn.
        date = {".pdf": "CreationDate", ".svg": "Date"}[path.suffix]
        figure.savefig(path, metadata={date: None})
        return
    for dpi in (200, 150, 120, 100, 80, 60):
        figure.savefig(path, dpi=dpi)
        # A palette of 256 colours has a third of the bytes of true colour.
        with Image.open(path) as image:
            small = image.convert("RGB").quantize(dither=Image.Dither.NONE)
        small.save(path)
        if path.stat().st_size <= MAX_PNG_BYTES:
            return


def draw_sheet(figure: Figure, sheet: Sheet) -> None:
    """Draw the panels of a sheet, the rows of its table and its legend."""
    panels, tabled, wide = sheet.cells, sheet.tabled, sheet.inches
    across = max(1, min(sheet.columns, len(panels), int(wide / NARROWEST)))
    down = -(-len(panels) // across)
    tall = sheet.tall or min(0.72 * (wide / across - AROUND) + AROUND, 3.2)
    tall = wide / down * 9 / 16 if sheet.width == "slide" and down else tall
    rows = (sum(len(one.bands) + 1 for one in tabled) + 1) * ROW * bool(tabled)
    figure.set_layout_engine("constrained")
    heights = [tall] * down + [rows] * bool(tabled)
    grid = figure.add_gridspec(len(heights), across, height_ratios=heights)
    free = AROUND / 2 if across > 1 else AROUND
    for place, cell in enumerate(panels):
        row, column = divmod(place, across)
        ax = figure.add_subplot(grid[row, column])
        cell(ax)
        ax.set_ylabel("" if column else sheet.quantity)
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label):
            beside = tall - AROUND if text is ax.yaxis.label else wide / across - free
            text.set_text(wrap_text(text.get_text(), int(beside / LETTER)))
    if tabled:
        draw_rows(figure.add_subplot(grid[-1, :]), tabled)
    lines = _draw_legend(figure, wide)
    figure.set_size_inches(wide, sum(heights) + 0.17 * lines)
    if sheet.mark:
        look: dict[str, Any] = {"rotation": 30, "size": 6 * wide, "alpha": 0.12}
        figure.text(0.5, 0.5, sheet.mark, ha="center", va="center", **look)
    for ax in figure.axes:
        cells = [
            one.get_text() for table in ax.tables for one in table.get_celld().values()
        ]
        for text in (ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts, *cells):
            _write_literally(text)
    figure.draw_without_rendering()
    # One layout serves all formats.
    figure.set_layout_engine("none")


def _draw_legend(figure: Figure, wide: float) -> int:
    """Draw one legend below all panels, and return its number of lines of text."""
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    # The authors' curves are listed last.
    labels = sorted(handles, key=lambda label: label.endswith("figure)"))
    if not labels:
        return 0
    longest = min(max(len(MATH.sub("xx", label)) for label in labels), 30)
    columns = max(1, min(len(labels), int(wide / (longest * 0.057 + 0.6))))
    texts = [wrap_text(label, int((wide / columns - 0.5) / 0.057)) for label in labels]
    legend = figure.legend(
        [handles[label] for label in labels],
        texts,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )
    for text in legend.get_texts():
        _write_literally(text)
    each = -(-len(texts) // columns)
    parts = [texts[k : k + each] for k in range(0, len(texts), each)]
    return max(sum(one.count("\n") + 1 for one in part) for part in parts)


def _write_literally(text: Text) -> None:
    """Make matplotlib draw a text literally, unless `MATH` matches a formula in it."""
    from matplotlib.mathtext import MathTextParser

    words = text.get_text()
    try:
        if MATH.search(words):
            MathTextParser("path").parse(words.replace("\n", " "))
            return
    except ValueError:
        pass
    text.set_parse_math(False)
    text.set_text(words.replace(r"\$", "$"))


def wrap_text(text: str, letters: int) -> str:
    """Return a string wrapped to a number of letters per line; formulas stay whole."""
    formulas = iter(MATH.findall(text))
    words = MATH.sub(lambda one: "\0" * len(_speak_formula(one)), text)
    words = words.replace(" = ", "\xa0=\xa0")
    lines = textwrap.wrap(words, max(letters, 8), break_on_hyphens=False)
    whole = re.sub("\0+", lambda _: next(formulas, ""), "\n".join(lines))
    return whole.replace("\xa0", " ")
