"""Plots of any results: curves, performance profiles, and maps of winners.

A *line* is a set of runs that are drawn as one curve, usually those of one algorithm. A
sheet has *cells*, and each cell is one plot.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.report import style
from dp_erm_bench.report.captions import LABEL, TITLE, caption_of, join_paragraphs
from dp_erm_bench.report.draw import (
    ALONG,
    MOST_LINES,
    STATISTICS,
    Chart,
    bands,
    spread_lines,
)
from dp_erm_bench.report.figure import Drawing, Figure, check_stem, smoke_mark
from dp_erm_bench.report.layout import WIDTHS, Sheet, draw_sheet, save_sheet
from dp_erm_bench.report.style import (
    Style,
    forget_styles,
    house_style,
    literal_text,
    reserve_styles,
    style_of,
)
from dp_erm_bench.report.view import (
    FACET,
    LINE,
    OVER,
    PANEL,
    Shown,
    View,
    join_words,
    nothing_beaten,
    rows_of_view,
    stands_out,
    summary_of,
)
from dp_erm_bench.results.columns import axis_words, is_better_higher
from dp_erm_bench.results.settings import column_of
from dp_erm_bench.results.statistics import (
    ALONE,
    BASELINES,
    CONSTANTS,
    FLOOR,
    MODELS,
    NOTHING,
    ZERO,
    nothing_beats,
)
from dp_erm_bench.results.table import load_results

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

    from dp_erm_bench.report.curves import Array

PLOTS = "plots"
"""The folder, within the results folder, for the files of `dp-erm-bench plot`."""

FACTORS = np.geomspace(1.0, 100.0, 201)
TICKS = (1, 2, 5, 10, 20, 50, 100)
WORST = 30.0
"""Largest factor with its own colour in the map of winners."""

SHADES = (1, 2, 5, 10, 30)
MOST_CELLS, MOST_ROWS = 60, 150
ROW = 0.19
"""Height in inches of a row of a map of winners."""


def shares_within(factors: pd.DataFrame) -> dict[str, Array]:
    """Return performance profiles: each line's share of problems within each factor.

    The factors are `FACTORS`.

    Parameters
    ----------
    factors : DataFrame
        Errors of lines (rows) divided by the best error of each problem (columns); nan
        where a line did not run.

    References
    ----------
    Dolan, More, "Benchmarking optimization software with performance profiles",
    Mathematical Programming 2002.
    """
    return {
        str(line): (own.to_numpy(float)[:, None] <= FACTORS).mean(axis=0)
        for line, own in factors.iterrows()
    }


def draw_profiles(
    ax: Axes, profiles: Mapping[str, Array], looks: Mapping[str, Style], title: str
) -> None:
    """Draw performance profiles over `FACTORS`.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    profiles : mapping of str to array
        The profile of each line, in the order of the legend.
    looks : mapping of str to Style
        The style of each line.
    title : str
        Title of the axes.
    """
    for line, share in profiles.items():
        look = looks[line].curve() | {"markevery": 40}
        ax.plot(FACTORS, share, drawstyle="steps-post", **look)
    ax.set_xscale("log")
    ax.set_xlim(1.0, FACTORS[-1])
    style.label_ticks(ax.xaxis, TICKS)
    ax.set_ylim(0.0, 1.02)
    ax.set_xlabel("factor over the best")
    ax.set_title(title)


def draw_winners(ax: Axes, factors: pd.DataFrame, marks: pd.DataFrame) -> None:
    """Draw a map of errors divided by the best error, with a colour bar.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    factors : DataFrame
        Errors divided by the best of their column, at least 1; nan where a line did not
        run. Rows are lines. Each column is a pair of a panel and an epsilon. Columns of
        the same panel are adjacent.
    marks : DataFrame
        A string for each entry of `factors`: `wins` for the best line, `ties` for lines
        that cannot be distinguished from the best line, and `NOTHING` for w = 0 or the
        constant model if no line beats this baseline. Other entries are empty.
    """
    shown = np.log10(np.clip(factors.to_numpy(float), 1.0, WORST))
    scale: dict[str, Any] = {"vmin": 0.0, "vmax": math.log10(WORST)}
    image = ax.imshow(shown, cmap="viridis", aspect="auto", **scale)
    looks: dict[str, dict[str, Any]] = {
        "wins": {"s": 14, "facecolors": "white", "edgecolors": "white"},
        "ties": {"s": 14, "facecolors": "none", "edgecolors": "white"},
        NOTHING: {"s": 16, "marker": "x", "color": "white"},
    }
    for word, look in looks.items():
        y, x = np.nonzero(marks.to_numpy(str) == word)
        ax.scatter(x, y, linewidths=1.0, **look)
    ax.grid(visible=False)
    ax.set_yticks(range(len(factors)), factors.index)
    columns: Any = factors.columns
    budgets = [f"{epsilon:g}" for _, epsilon in columns]
    turned = 90 if len(budgets) > 15 else 0
    ax.set_xticks(range(len(budgets)), budgets, rotation=turned)
    ax.tick_params(length=0)
    ax.set_xlabel("ε")
    names = [str(name) for name, _ in columns]
    starts = [k for k, name in enumerate(names) if not k or name != names[k - 1]]
    room = 95 // len(starts)
    for start in starts:
        words = style.literal_text(names[start]).split(", ")
        short = (w if len(w) <= room else f"{w[: room - 2]}…" for w in words)
        ax.text(start - 0.4, -0.6, "\n".join(short), fontsize=7)
        if start:
            ax.axvline(start - 0.5, color="white", linewidth=2.5)
    bar = ax.figure.colorbar(image, ax=ax, ticks=[math.log10(one) for one in SHADES])
    bar.ax.set_yticklabels([*map(str, SHADES[:-1]), f"≥ {WORST:g}"])
    bar.set_label("factor over the best")


def _check_room(what: str, count: int, most: int) -> None:
    if count > most:
        raise UsageError(
            f"plot: {count} {what} are more than {most}: keep some with --where, draw "
            "along a key that differs with --x, or distinguish fewer by --panel, "
            "--line and --facet"
        )


def curves_sheet(views: Sequence[Shown], width: str) -> Sheet:
    """Return the sheet of curves, with at most `MOST_LINES` lines in a cell.

    Parameters
    ----------
    views : sequence of Shown
        The rows to draw. With several views, the charts of a panel are side by side,
        each with its quantity in the title.
    width : str
        One of `WIDTHS`; if empty, it is chosen by the number of cells.

    Raises
    ------
    UsageError
        If the sheet would have more than `MOST_CELLS` cells.
    """
    first, several = views[0], len(views) > 1
    found: dict[str, list[Chart]] = {}
    for drawn in views:
        for title, chart in _titled_charts(drawn, several):
            found.setdefault(title, []).append(chart)
    charts = [chart for row in found.values() for chart in row]
    about = join_words([axis_words(one.view.y) for one in views], "and")
    about = f"The figure shows {about} against {axis_words(first.view.x)}."
    text = caption_of_view(first, about, charts)
    label = "" if several else _quantity_label(first)
    columns = max(map(len, found.values())) if several else 3
    name = "_".join(["curves", *(one.view.y for one in views), first.view.x])
    mark = smoke_mark(first.view.folder)
    return Sheet(charts, text, label, width, columns, name=name, mark=mark)


def _titled_charts(drawn: Shown, named: bool) -> Iterator[tuple[str, Chart]]:
    """Yield the panel's title and the chart, for all charts of a view.

    If `named`, the title of each chart names the quantity.
    """
    view, rows = drawn.view, drawn.rows
    lines = rows.groupby([PANEL, FACET], sort=False)[LINE].unique()
    reserve_styles(lines)
    looks = {line: _look_of_line(line, view) for line in rows[LINE].unique()}
    parts = [spread_lines(own) for own in lines]
    _check_room("panels", sum(map(len, parts)), MOST_CELLS)
    along = view.x in ALONG
    x = view.x if along else "_x"
    names = [PANEL, FACET, LINE]
    frame = bands(rows, x, "_y", names, view.statistic, drawn.columns_beside)
    y_scale, x_scale = _scale_of_axis(drawn), _scale_along(frame["x"], along)
    if along:
        ends = frame.groupby(names, sort=False)["x"].max()
        x_scale = "passes" if ends.max() > 20 * ends[ends > 0].min() else "linear"
    for (panel, facet), own in frame.groupby([PANEL, FACET], sort=False):
        shown = str(facet).replace("epsilon = ", "ε = ")
        title = literal_text(", ".join(filter(None, (str(panel), shown))))
        above = f"{title}: {_quantity_label(drawn)}" if named else title
        shared = parts.pop(0)
        for k, part in enumerate(shared, 1):
            chart = Chart(
                f"{above} ({k}/{len(shared)})" if len(shared) > 1 else above,
                axis_words(view.x)
                if view.x == "epsilon"
                else literal_text(axis_words(view.x)),
                own[own[LINE].isin(part)],
                along=x_scale if along else "",
                scales=(x_scale, y_scale),
                looks=looks,
                statistic=view.statistic,
            )
            yield title, chart


def _scale_along(values: pd.Series[Any], along: bool) -> str:
    """Return the scale of the x axis for a column of values; empty for strings."""
    if values.dtype.kind not in "iuf":
        return ""
    return "log" if style.suits_log_scale([*values]) else "linear"


def caption_of_view(
    drawn: Shown,
    about: str,
    charts: Sequence[Chart] = (),
    table: pd.DataFrame | None = None,
) -> str:
    """Return the caption of a view.

    Parameters
    ----------
    drawn : Shown
        The rows that are shown.
    about : str
        The beginning of the caption.
    charts : sequence of Chart
        The charts that are drawn from the view, if any.
    table : DataFrame or None
        The result of `summary_of` for the view; None if it is not known yet.
    """
    rows, view = drawn.rows, drawn.view
    titles = rows[PANEL].str.cat(rows[FACET], ", ").str.removesuffix(", ")
    labels = {line: literal_text(line) for line in rows[LINE].unique()}
    titled = rows.assign(
        **{TITLE: titles.map(literal_text), LABEL: rows[LINE].map(labels)}
    )
    said = [*drawn.left_out, drawn.unlike, nothing_beaten(drawn, table)]
    folders = (view.folder, *view.others)
    words = drawn.statistic_in_words
    more = map(literal_text, said)
    return caption_of(
        charts, *more, about=about, folders=folders, statistic=words, rows=titled
    )


def _quantity_label(drawn: Shown) -> str:
    """Return the label of the y axis."""
    split = _scale_of_axis(drawn) == "symlog"
    return axis_words(drawn.view.y) + " (linear around 0, then log)" * split


def _look_of_line(line: str, view: View) -> Style:
    """Return the style of a line, thick if highlighted and thin if other lines are."""
    look = style_of(line)
    if not view.highlight:
        return look
    if stands_out(line, view):
        return replace(look, width=2.6, size=1.3 * look.size)
    return replace(look, width=0.8, size=0.7 * look.size)


def _scale_of_axis(drawn: Shown) -> str:
    """Return the scale of the y axis: log, linear or symlog."""
    columns = ["_y", *drawn.columns_beside.values()]
    values, y = drawn.rows[columns].to_numpy(float), drawn.view.y
    finite = values[np.isfinite(values)]
    size = np.abs(finite[finite != 0])
    if is_better_higher(y) or not size.size or size.max() < 3 * size.min():
        return "linear"
    if (finite > 0).all():
        return "log"
    return "symlog" if size.max() > 1e3 * size.min() else "linear"


def _standings_of_view(drawn: Shown, most: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the summary of a view, and each line's value over the best of a problem.

    A problem is a panel at one epsilon on which all lines minimise the same function.
    Accuracies and areas under curves are replaced by 1 minus the value. The line w = 0
    takes part. So only models that are not private have factors below 1.
    """
    _check_room("lines", drawn.rows[LINE].nunique(), most)
    cells = drawn.rows.groupby([PANEL, FACET, "_x"])["_one_function"]
    rows = drawn.rows[cells.transform("all")]
    if rows.empty:
        raise UsageError(f"plot: profiles and winners have no problem: {drawn.unlike}")
    table = summary_of(replace(drawn, rows=rows))
    lines = table.loc[table["runs"] > 0, LINE].nunique()
    problems = len(table.drop_duplicates([PANEL, "epsilon"]))
    if min(lines, problems) < 2:
        raise UsageError(
            "plot: profiles and winners compare lines over problems, which are panels "
            f"at one epsilon; here are {lines} and {problems}"
        )
    values = table["median"]
    table["value"] = 1.0 - values if is_better_higher(drawn.view.y) else values
    if (table["value"] < 0).any():
        raise UsageError("plot: factors over the best need values that are positive")
    return table, _factors_of(table)


def _factors_of(table: pd.DataFrame) -> pd.DataFrame:
    """Return the values of lines divided by the best value of each problem.

    Models that are not private do not count as the best. Baselines are the last rows.
    """
    grid = _grid_of(table, "value").clip(lower=FLOOR)
    return grid / grid.drop(index=[*MODELS.values()], errors="ignore").min()


def _grid_of(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a column as a grid with one row per line and one column per problem.

    Baselines are the last rows.
    """
    lines = sorted(dict.fromkeys(table[LINE]), key=lambda line: line in BASELINES)
    problems = table[[PANEL, "epsilon"]].drop_duplicates()
    grid = table.pivot(index=LINE, columns=[PANEL, "epsilon"], values=column)
    return grid.reindex(lines)[[*problems.itertuples(index=False, name=None)]]


def profiles_sheet(drawn: Shown, width: str) -> Sheet:
    """Return a sheet of performance profiles with at most `MOST_LINES` lines in a cell.

    Parameters
    ----------
    drawn : Shown
        The rows of a view against epsilon, whose final values are compared.
    width : str
        One of `WIDTHS`; if empty, it is chosen by the number of cells.

    Raises
    ------
    UsageError
        If there are fewer than two lines or two problems, or if values are negative.
    """
    table, factors = _standings_of_view(drawn, MOST_CELLS * MOST_LINES)
    shares = shares_within(factors)
    reserve_styles([[*shares]])
    looks = {line: _look_of_line(line, drawn.view) for line in shares}
    beside = [line for line in shares if line in BASELINES]
    title = f"{len(factors.columns)} problems"

    def cell(ax: Axes, lines: Sequence[str]) -> None:
        own = {line: shares[line] for line in [*lines, *beside]}
        draw_profiles(ax, own, looks, title)

    lines = [line for line in shares if line not in BASELINES]
    about = (
        f"Performance profiles of the final {_measure_in_words(drawn)}: the share of "
        "problems (a panel at one epsilon) on which the median is within a factor of "
        "the best line's, w = 0 included. A line that did not run on a problem reaches "
        "no factor there."
    )
    cells = [partial(cell, lines=part) for part in spread_lines(lines)]
    text = caption_of_view(drawn, about, table=table)
    name, mark = f"profile_{drawn.view.y}", smoke_mark(drawn.view.folder)
    return Sheet(cells, text, "share of problems", width, name=name, mark=mark)


def _measure_in_words(drawn: Shown) -> str:
    name = axis_words(drawn.view.y)
    return f"{name}, as what it lacks to 1" if is_better_higher(drawn.view.y) else name


def winners_sheet(drawn: Shown, width: str) -> Sheet:
    """Return the sheet with the map of winners: the best line of each problem.

    The parameters and exceptions are those of `profiles_sheet`.
    """
    table, factors = _standings_of_view(drawn, MOST_ROWS)
    marks = _grid_of(table, "place").fillna("")
    for problem, own in table.groupby([PANEL, "epsilon"], sort=False):
        lines = own[own["runs"] > 0]
        why = nothing_beats(lines["unbeaten"])
        known = [] if why == NOTHING else [MODELS[name] for name in CONSTANTS]
        at = next((one for one in (*known, ZERO) if one in marks.index), None)
        if why and at and lines["ci_low"].notna().any():
            marks.loc[at, problem] = NOTHING
    bold = [literal_text(str(one))[:40] for one in factors.index]

    def cell(ax: Axes) -> None:
        draw_winners(ax, factors.set_axis(bold), marks)
        for label, line in zip(ax.get_yticklabels(), factors.index, strict=True):
            if stands_out(str(line), drawn.view):
                label.set_fontweight("bold")

    few = table.loc[table["runs"] > 0, "ci_low"].isna().any()
    about = (
        f"Colours show the median final {_measure_in_words(drawn)}, divided by that of "
        "the best line of the problem or of w = 0. A filled circle marks the best of "
        "the lines whose 95 % interval lies below w = 0 and the constant model. A ring "
        "marks such a line that cannot be distinguished from the best one. A cross "
        "means that no line beats both w = 0 and the constant model. White cells did "
        "not run."
    )
    said = f"{ALONE[0].upper()}{ALONE[1:]}." if few else ""
    text = caption_of_view(drawn, join_paragraphs(about, said), table=table)
    named: dict[str, Any] = {
        "name": f"winners_{drawn.view.y}",
        "mark": smoke_mark(drawn.view.folder),
    }
    return Sheet(
        [cell], text, "", width or "page", tall=ROW * len(factors) + 1.2, **named
    )


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
    names: Mapping[str, str] | None = None,
    highlight: str | Sequence[str] = (),
) -> Picture:
    """Return a matplotlib figure of results.

    Parameters
    ----------
    results : DataFrame, str, Path or sequence of paths
        The result of `load_results`, or paths of results folders.
    x, y, panel, line, facet : str; except for x and y also sequence of str
        Columns of the table, parameters of algorithms or keys of datasets. They are the
        axes, and the names by which panels, lines and facets differ. The defaults are
        explained in `View`. Against passes, iterations and seconds, whole runs are
        drawn; against other columns, final values. If y names several quantities,
        separated by commas, their curves are drawn side by side.
    kind : {'curves', 'profile', 'winners'}
        The kind of plot: lines, performance profiles over panels and epsilon, or a map
        of winners.
    statistic : {'median', 'quantiles', 'interval', 'mean'}
        The statistics over the seeds that a curve and its band show, see `STATISTICS`.
    where : mapping of str to value or list
        Values of columns to keep, as in ``{"epsilon": 1}``.
    width : {'column', 'page', 'slide'}
        Width of the figure: a paper's column or page, or a slide. The default is a
        column for one panel, and a page for several.
    names : mapping of str to str
        Names to show for lines, as in ``{"gd": "DP-GD (ours)"}``.
    highlight : str or sequence of str
        Lines to emphasise; a string may list several lines, separated by commas.

    Raises
    ------
    UsageError
        If a name does not exist in the table, or if there is nothing to draw.
    """
    import matplotlib.pyplot as plt

    paths = isinstance(results, str | Path | Sequence)
    table: Any = load_results(results) if paths else results  # type: ignore[arg-type]
    kept = {name: _words_of_value(value) for name, value in (where or {}).items()}
    split = None if facet is None else names_of(facet)
    view = View(x, y, names_of(panel), names_of(line), split, statistic, kept)
    chosen = (highlight,) if isinstance(highlight, str) else tuple(highlight)
    folder = Path(results if isinstance(results, str | Path) else "")
    chosen = tuple(filter(None, chosen))
    view = replace(view, names=names or {}, highlight=chosen, folder=folder)
    with house_style():
        figure = plt.figure()
        plt.close(figure)
        forget_styles()
        draw_sheet(figure, sheet_of_view(table, view, kind, width))
    return figure


def _words_of_value(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [f"{one:.6g}" if isinstance(one, float) else str(one) for one in values]


def all_of(table: pd.DataFrame, view: View) -> Iterator[tuple[str, View]]:
    """Yield the kinds of plots that a table has enough data for, each with its view.

    Parameters
    ----------
    table : DataFrame
        The result of `load_results`.
    view : View
        The view to start from, without `x`.
    """
    yield "curves", view
    rows = table[table["phase"] != "tune"]
    if rows["epsilon"].nunique() > 1:
        yield "curves", replace(view, x="epsilon")
    if len(rows.drop_duplicates([PANEL, "epsilon"])) > 1 and rows[LINE].nunique() > 1:
        yield from ((kind, view) for kind in KINDS[1:])


def names_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return names as a tuple, from a sequence or a string with commas."""
    parts = names.split(",") if isinstance(names, str) else names
    return tuple(part for part in parts if part)


def sheet_of_view(
    table: pd.DataFrame, view: View, kind: str = "curves", width: str = ""
) -> Sheet:
    """Return the sheet of a plot, with its caption.

    Parameters
    ----------
    table : DataFrame
        The result of `load_results`.
    view : View
        What to show of the table.
    kind, width : str
        As in `plot`; an empty width is chosen by the number of cells.
    """
    check_choice("kind", kind, [*KINDS])
    if width:
        check_choice("width", width, [*WIDTHS])
    if view.line == (LINE,) and not view.where and view.x in ("", "epsilon", *ALONG):
        # This is checked early, because it takes long to tell thousands of lines apart.
        lines = table[LINE].str.removesuffix(OVER).nunique()
        _check_room("lines", lines, MOST_LINES * MOST_CELLS)
    if kind == "curves":
        views = [replace(view, y=y) for y in names_of(view.y) or ("",)]
        return curves_sheet([rows_of_view(table, one) for one in views], width)
    if view.x:
        column_of(table, view.x, "x")
    drawn = rows_of_view(table, replace(view, x="epsilon"))
    return (profiles_sheet if kind == "profile" else winners_sheet)(drawn, width)


@dataclass(frozen=True)
class Curves(Figure):
    """A figure of an experiment, drawn as `dp-erm-bench plot` draws it.

    Attributes
    ----------
    name : str
        Name of the files, written after the name of the experiment. By default it is
        made of the names of the axes.
    x, y, statistic, width : str
        As in `plot`.
    panel, line, facet : tuple of str
        Names of columns, as in `plot`. In the yaml file they are lists.
    where : mapping
        The values to keep, by the name of the column.
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
        """Raise UsageError for an unknown statistic or width, or an invalid name."""
        check_choice("statistic", self.statistic, [*STATISTICS])
        if self.width:
            check_choice("width", self.width, [*WIDTHS])
        check_stem(self.name)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the figure and return the files written.

        If there is nothing to draw, the reason is printed.
        """
        kept = {name: _words_of_value(value) for name, value in self.where.items()}
        split = self.panel, self.line, self.facet or None, self.statistic, kept
        view = View(self.x, self.y, *split, drawing.folder.parent)
        try:
            with house_style():
                one = sheet_of_view(drawing.table, view, self.kind, self.width)
                text = join_paragraphs(self.about, one.caption)
                one = replace(one, caption=text, mark=drawing.mark)
                return save_sheet(one, drawing.path(self.name or one.name))
        except UsageError as error:
            print(f"{drawing.paper}: no {self.kind}: {error}", file=sys.stderr)
            return []


@dataclass(frozen=True)
class Profile(Curves):
    """Performance profiles over panels and epsilon."""

    kind: ClassVar[str] = "profile"


@dataclass(frozen=True)
class Winners(Curves):
    """A map of the winning line on each problem."""

    kind: ClassVar[str] = "winners"
