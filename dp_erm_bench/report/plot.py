"""Plots of any results: curves, performance profiles, who wins where."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.report.caption import paragraphs
from dp_erm_bench.report.figure import Drawing, Figure, check_stem
from dp_erm_bench.report.layout import WIDTHS, Sheet, fill, save
from dp_erm_bench.report.lines import curves_sheet
from dp_erm_bench.report.style import forget, house_style
from dp_erm_bench.report.view import LINE, PANEL, STATISTICS, View, shown
from dp_erm_bench.report.winners import profiles_sheet, winners_sheet
from dp_erm_bench.results.table import load_results

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Picture

KINDS = ("curves", "profile", "winners")


def plot(
    results: pd.DataFrame | str | Path | Sequence[str | Path],
    x: str = "",
    y: str = "",
    *,
    kind: str = "curves",
    panel: str | Sequence[str] = PANEL,
    line: str | Sequence[str] = LINE,
    facet: str | Sequence[str] | None = None,
    statistic: str = "median",
    where: Mapping[str, Any] | None = None,
    width: str = "",
) -> Picture:
    """Return a matplotlib figure of any results, which a notebook shows once.

    Parameters
    ----------
    results : DataFrame, str, Path or sequence of paths
        What `load_results` returns, or takes.
    x, y, panel, line, facet : str, or sequence of str but for x and y
        Columns of the table, parameters of algorithms or keys of datasets: axes, and
        what tells apart. See `View` for what they are by default. Against passes,
        iterations and seconds runs are drawn as they go, against all else their ends.
        Several y, by commas, stand side by side as curves.
    kind : {'curves', 'profile', 'winners'}
        Lines; performance profiles over panels and epsilon; a map of who wins.
    statistic : {'median', 'quantiles', 'interval', 'mean'}
        Line and band over the seeds, see `STATISTICS`.
    where : mapping of str to value or list
        The values of columns to keep, as in ``{"epsilon": 1}``.
    width : {'column', 'page'}
        Of a paper; by default a column for one panel.

    A name that is none of the table, or nothing to draw, is a `UsageError`.
    """
    import matplotlib.pyplot as plt

    paths = isinstance(results, str | Path | Sequence)
    table: Any = load_results(results) if paths else results  # type: ignore[arg-type]
    kept = {name: _words(value) for name, value in (where or {}).items()}
    split = None if facet is None else names_of(facet)
    view = View(x, y, names_of(panel), names_of(line), split, statistic, kept)
    with house_style():
        figure = plt.figure()
        plt.close(figure)
        fill(figure, sheet(table, view, kind, width))
    return figure


def _words(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [f"{one:.6g}" if isinstance(one, float) else str(one) for one in values]


def all_of(table: pd.DataFrame, view: View) -> Iterator[tuple[str, View]]:
    """Yield the kinds of plots, and their views, that suit what a table has.

    Parameters
    ----------
    table : DataFrame
        What `load_results` returns.
    view : View
        Without `x`.
    """
    yield "curves", view
    rows = table[table["phase"] != "tune"]
    if rows["epsilon"].nunique() > 1:
        yield "curves", replace(view, x="epsilon")
    if len(rows.drop_duplicates([PANEL, "epsilon"])) > 1 and rows[LINE].nunique() > 1:
        yield from ((kind, view) for kind in KINDS[1:])


def names_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return names as a tuple; a text may hold several, by commas."""
    parts = names.split(",") if isinstance(names, str) else names
    return tuple(part for part in parts if part)


def sheet(
    table: pd.DataFrame, view: View, kind: str = "curves", width: str = ""
) -> Sheet:
    """Return the sheet of a plot, with its caption.

    Parameters
    ----------
    table : DataFrame
        What `load_results` returns.
    view : View
        What to show of it.
    kind, width : str
        As `plot` has them.
    """
    check_choice("kind", kind, [*KINDS])
    if width:
        check_choice("width", width, [*WIDTHS])
    forget()
    if kind == "curves":
        views = [replace(view, y=y) for y in names_of(view.y) or ("",)]
        return curves_sheet([shown(table, one) for one in views], width)
    drawn = shown(table, view)
    return profiles_sheet(drawn, width) if kind == "profile" else winners_sheet(drawn)


@dataclass(frozen=True)
class Curves(Figure):
    """A figure of an experiment that is drawn as `dp-erm-bench plot` does.

    Attributes
    ----------
    name : str
        Of its files, behind that of the experiment; by default what is on its axes.
    x, y, statistic, width : str
        As `plot` has them, and so `panel`, `line` and `facet`, lists of columns.
    where : mapping
        The values of columns to keep.
    about : str
        The beginning of the caption.
    """

    kind: ClassVar[str] = "curves"
    name: str = ""
    x: str = ""
    y: str = ""
    panel: tuple[str, ...] = (PANEL,)
    line: tuple[str, ...] = (LINE,)
    facet: tuple[str, ...] = ()
    statistic: str = "median"
    width: str = ""
    where: dict[str, Any] = field(default_factory=dict)
    about: str = ""

    def __post_init__(self) -> None:
        """Refuse words that there are not, and a name that is none of a file."""
        check_choice("statistic", self.statistic, [*STATISTICS])
        if self.width:
            check_choice("width", self.width, [*WIDTHS])
        check_stem(self.name)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw, and return the files written; say why there is nothing to draw."""
        kept = {name: _words(value) for name, value in self.where.items()}
        split = self.panel, self.line, self.facet or None, self.statistic, kept
        view = View(self.x, self.y, *split, drawing.folder.parent)
        try:
            with house_style():
                one = sheet(drawing.table, view, self.kind, self.width)
                one = replace(one, caption=paragraphs(self.about, one.caption))
                return save(one, drawing.path(self.name or one.name))
        except UsageError as error:
            print(f"{drawing.paper}: no {self.kind}: {error}", file=sys.stderr)
            return []


@dataclass(frozen=True)
class Profile(Curves):
    """Performance profiles over panels and epsilon."""

    kind: ClassVar[str] = "profile"


@dataclass(frozen=True)
class Winners(Curves):
    """A map of who wins where."""

    kind: ClassVar[str] = "winners"
