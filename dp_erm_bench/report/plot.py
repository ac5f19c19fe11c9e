"""Plots of any results: curves, performance profiles, who wins where."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.registry import check_choice
from dp_erm_bench.report import style
from dp_erm_bench.report.figure import Drawing, Figure, check_stem
from dp_erm_bench.report.layout import WIDTHS, Sheet, draw_sheet, save_sheet
from dp_erm_bench.report.panels import caption_paragraphs, join_paragraphs
from dp_erm_bench.report.style import (
    Style,
    forget_styles,
    house_style,
    literal_text,
    reserve_styles,
    style_of,
)
from dp_erm_bench.report.view import (
    ALONG,
    FACET,
    LINE,
    OVER,
    PANEL,
    STATISTICS,
    Shown,
    View,
    first_of,
    rows_of_view,
    stands_out,
    statistics_along,
)
from dp_erm_bench.results.columns import axis_words, is_better_higher
from dp_erm_bench.results.settings import RAN, final_rows
from dp_erm_bench.results.statistics import (
    ALONE,
    BASELINES,
    CONSTANTS,
    FLOOR,
    MODELS,
    NOTHING,
    TIES,
    WINS,
    ZERO,
    by_split,
    centre_of,
    lack_interval,
    loss_beyond,
    nothing_beats,
    places_of_lines,
)
from dp_erm_bench.results.table import load_results

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

    from dp_erm_bench.report.curves import Array

PLOTS = "plots"
"""The folder, in that of the results, of what `dp-erm-bench plot` draws."""

FACTORS = np.geomspace(1.0, 100.0, 201)
TICKS = (1, 2, 5, 10, 20, 50, 100)
WORST = 30.0
"""Factors beyond it have one colour in the map of winners."""

SHADES = (1, 2, 5, 10, 30)
MARGINS = {"left": 0.95, "right": 0.72}
"""Inches beside a map of winners, for the names of its rows and its colour bar."""

MOST_LINES = 8
"""More lines than these are spread over several cells."""

Problem = tuple[str, float]


def shares_within(
    ratios: Mapping[str, Array], problems: int, factors: Array = FACTORS
) -> dict[str, Array]:
    """Return the performance profiles: the share of problems within each factor.

    Parameters
    ----------
    ratios : mapping of str to array
        Each line's factors over the best one of a problem, nan where it did not run.
    problems : int
        The number of problems.
    factors : array
        Factors over the best of a problem, at least 1.

    References
    ----------
    Dolan, More, "Benchmarking optimization software with performance profiles",
    Mathematical Programming 2002.
    """
    return {
        line: (own[:, None] <= factors).sum(axis=0) / problems
        for line, own in ratios.items()
    }


def draw_profiles(
    ax: Axes, profiles: Mapping[str, Array], looks: Mapping[str, Style]
) -> None:
    """Draw performance profiles over `FACTORS`.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    profiles : mapping of str to array
        Of each line, in the order of the legend.
    looks : mapping of str to Style
        The lines' styles.
    """
    for line, share in profiles.items():
        look = looks[line].curve() | {"markevery": 40}
        ax.plot(FACTORS, share, drawstyle="steps-post", **look)
    ax.set_xscale("log")
    ax.set_xlim(1.0, FACTORS[-1])
    ax.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.minorticks_off()
    ax.set_ylim(0.0, 1.02)


def draw_winners(
    ax: Axes,
    lines: Sequence[str],
    problems: Sequence[Problem],
    grid: Array,
    marks: Mapping[str, Sequence[tuple[int, int]]],
) -> None:
    """Draw a map of factors over the best, dark to light, with its colour bar.

    Parameters
    ----------
    ax : Axes
        The axes to draw on; a colour bar goes beside, within the `MARGINS`.
    lines : sequence of str
        The names of the rows.
    problems : sequence of (str, float)
        Data and epsilon of the columns, those of the same data side by side.
    grid : ndarray of shape (len(lines), len(problems))
        Factors, at least 1; nan where a line did not run.
    marks : mapping of str to sequence of (int, int)
        Rows and columns of those that win or tie, in `wins` and `ties`, and of w = 0
        where nothing beats it, in `nothing`.
    """
    shown = np.log10(np.clip(grid, 1.0, WORST))
    scale: dict[str, Any] = {"vmin": 0.0, "vmax": math.log10(WORST)}
    image = ax.imshow(shown, cmap="viridis", aspect="auto", **scale)
    for word, face in (("wins", "white"), ("ties", "none")):
        y, x = zip(*marks[word], strict=True) if marks.get(word) else ((), ())
        ax.scatter(x, y, s=14, facecolors=face, edgecolors="white", linewidths=0.9)
    y, x = zip(*marks["nothing"], strict=True) if marks.get("nothing") else ((), ())
    ax.scatter(x, y, s=16, marker="x", color="white", linewidths=1.1)
    ax.grid(visible=False)
    ax.set_yticks(range(len(lines)), lines, fontsize=7.5)
    budgets = [f"{epsilon:g}" for _, epsilon in problems]
    turned = 90 if sum(map(len, budgets)) > 60 else 0
    ax.set_xticks(range(len(problems)), budgets, fontsize=6, rotation=turned)
    ax.tick_params(length=0)
    ax.set_xlabel(r"$\varepsilon$")
    _draw_group_names(ax, [name for name, _ in problems])
    beside = ax.inset_axes((1.015, 0.0, 0.015, 1.0))
    ticks = [math.log10(shade) for shade in SHADES]
    bar = ax.figure.colorbar(image, cax=beside, ticks=ticks)
    labels = [f"{shade:g}" for shade in SHADES[:-1]] + [f"≥ {WORST:g}"]
    bar.ax.set_yticklabels(labels, fontsize=6.5)
    bar.set_label("factor over the best", fontsize=7)


def _draw_group_names(ax: Axes, names: Sequence[str]) -> None:
    """Write the names of equal neighbours above the map, with lines between them."""
    starts = [k for k, name in enumerate(names) if not k or name != names[k - 1]]
    room = max(3, int(100 / len(starts)))
    for start, stop in zip(starts, [*starts[1:], len(names)], strict=True):
        parts = names[start].split(", ")
        short = "\n".join(n if len(n) <= room else f"{n[: room - 1]}…" for n in parts)
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 7}
        ax.text((start + stop - 1) / 2, -0.6, short, **look)
        if start:
            ax.axvline(start - 0.5, color="white", linewidth=2.5)


def spread_lines(lines: Sequence[str], most: int = MOST_LINES) -> list[Sequence[str]]:
    """Return lines in as few parts of about equal length as cells may show."""
    parts = max(1, -(-len(lines) // most))
    ends = [round(part * len(lines) / parts) for part in range(parts + 1)]
    return [lines[a:b] for a, b in zip(ends, ends[1:], strict=False)]


MOST_CELLS, MOST_ROWS = 60, 150
SIZE = (3.0, 2.1)


def curves_sheet(views: Sequence[Shown], width: str) -> Sheet:
    """Return the sheet of lines, at most eight in a cell.

    Parameters
    ----------
    views : sequence of Shown
        The rows to draw; of several, those of a panel stand side by side, each with its
        quantity above it.
    width : str
        `column`, `page`, or empty for what suits.

    Raises
    ------
    UsageError
        If it would have more than `MOST_CELLS` cells.
    """
    first, several = views[0], len(views) > 1
    count = sum(_count_cells(one.rows, one.view) for one in views)
    _check_room("panels", count, MOST_CELLS)
    found: dict[str, list[Any]] = {}
    for drawn in views:
        for title, cell in _titled_cells(drawn, several):
            found.setdefault(title, []).append(cell)
    cells = [cell for row in found.values() for cell in row]
    about = ", ".join(axis_words(one.view.y) for one in views)
    about = f"{about} against {axis_words(first.view.x)}"
    said = dict.fromkeys(
        line for one in views for line in caption_paragraphs(one).split("\n")
    )
    more: dict[str, Any] = {"right": 0.75} if _looks_of_lines(first)[1] else {}
    more["name"] = "_".join(["curves", *(one.view.y for one in views), first.view.x])
    columns = max(map(len, found.values())) if several else len(cells)
    text = join_paragraphs(f"{about[0].upper()}{about[1:]}.", *said)
    label = "" if several else _quantity_label(first.view.y, _scale_of_axis(first))
    return Sheet(cells, columns, text, SIZE, label, width, **more)


def _count_cells(rows: pd.DataFrame, view: View) -> int:
    """Return the number of cells that rows need: before anything is computed."""
    lines = rows.groupby([PANEL, FACET], sort=False)[LINE].nunique()
    alone = _numbers_of_lines(rows, view) is not None
    return len(lines) if alone else int((-(-lines // MOST_LINES)).sum())


def check_lines(table: pd.DataFrame, view: View, kind: str) -> None:
    """Refuse more lines than a sheet holds before they are told apart.

    Only what the sheet of that kind draws is counted, facets apart: it never refuses
    what the sheet would not.

    Raises
    ------
    UsageError
        If there are too many.
    """
    told_apart = view.panel, view.line, [*view.where]
    if view.x not in ("", "epsilon", *ALONG) or told_apart != ((PANEL,), (LINE,), []):
        return
    rows = table[table["phase"].ne("tune") & table["status"].isin(RAN)]
    measured = [one for one in names_of(view.y) or [first_of(rows)] if one in rows]
    lost = rows["status"].eq("diverged")
    rows = rows[lost | rows[measured].notna().any(axis=1)] if measured else rows
    rows = rows[[PANEL, LINE]].drop_duplicates().assign(**{FACET: ""})
    rows[LINE] = rows[LINE].str.removesuffix(OVER)
    if kind == "curves":
        _check_room("panels", _count_cells(rows, view), MOST_CELLS)
    else:
        most = MOST_ROWS if kind == "winners" else MOST_LINES * MOST_CELLS
        _check_room("lines", rows[LINE].nunique(), most)


def _check_room(what: str, count: int, most: int) -> None:
    if count > most:
        raise UsageError(
            f"plot: {count} {what} are more than {most}: keep some with --where, draw "
            "along a key that differs, as with --x step, or tell fewer apart by "
            "--panel, --line and --facet"
        )


def _numbers_of_lines(rows: pd.DataFrame, view: View) -> Array | None:
    """Return what lines are called, where that is a number of each, else None."""
    import pandas as pd

    lines = list(dict.fromkeys(rows[LINE]))
    values = pd.to_numeric(pd.Series(lines), errors="coerce").to_numpy(float)
    one = len(view.line) == 1 and len(lines) > 1 and np.isfinite(values).all()
    return values if one else None


def _titled_cells(drawn: Shown, named: bool) -> Iterator[tuple[str, Any]]:
    """Yield the cells of a view with their titles, below which a quantity is named."""
    looks, numbers = _looks_of_lines(drawn)
    mode = _scale_of_axis(drawn)
    for (panel, facet), rows in drawn.cells.items():
        lines = list(dict.fromkeys(rows[LINE]))
        facet = facet.replace("epsilon = ", "ε = ")
        title = literal_text(", ".join(filter(None, (panel, facet))))
        for part in [lines] if numbers else spread_lines(lines):
            own = rows[rows[LINE].isin(part)]
            above = (
                f"{title}: {_quantity_label(drawn.view.y, mode)}" if named else title
            )
            given: dict[str, Any] = {"title": above, "rows": own}
            given["beside"] = drawn.columns_beside
            yield title, partial(_draw_cell, drawn.view, looks, mode, numbers, **given)


def _quantity_label(y: str, mode: str) -> str:
    """Return what stands at the axis of a quantity."""
    return axis_words(y) + " (linear around 0, then log)" * (mode == "symlog")


def _looks_of_lines(drawn: Shown) -> tuple[dict[str, Style], list[float] | None]:
    """Return the style of each line, and the scale of colour where it is a number."""
    from matplotlib import colormaps, colors

    lines = list(dict.fromkeys(drawn.rows[LINE]))
    values = _numbers_of_lines(drawn.rows, drawn.view)
    if values is None:
        reserve_styles(lines)
        return {line: _look_of_line(line, drawn.view) for line in lines}, None
    at = np.log10(values) if _suits_log_scale(values) else values
    shades = 0.9 * (at - at.min()) / (at.max() - at.min())
    mapped = [colors.to_hex(colour) for colour in colormaps["viridis"](shades)]
    pairs = zip(lines, mapped, strict=True)
    looks = {line: Style("_" + line, colour, "o", 3.0, 1.2) for line, colour in pairs}
    return looks, sorted(map(float, values))


def _look_of_line(line: str, view: View) -> Style:
    """Return the style of a line, thinner than others that are highlighted."""
    look = style_of(line)
    if not view.highlight:
        return look
    if stands_out(line, view):
        return replace(look, width=2.6, size=1.3 * look.size)
    return replace(look, width=0.8, size=0.7 * look.size)


def _suits_log_scale(values: Any) -> bool:
    """Return whether numbers are positive and so far apart that a log scale suits."""
    return bool(min(values) > 0 and max(values) >= 8 * min(values))


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


def _draw_cell(
    view: View,
    looks: Mapping[str, Style],
    mode: str,
    numbers: list[float] | None,
    ax: Axes,
    title: str,
    rows: pd.DataFrame,
    beside: Mapping[str, str],
) -> None:
    """Draw the lines of one cell with their bands, and the baselines beside them."""
    along = view.x in ALONG
    places = sorted({*rows["_x"]}, key=lambda one: (isinstance(one, str), one))
    texts = bool(places) and isinstance(places[0], str)
    ends: list[float] = []
    extent: list[float] = []
    for line, own in rows.groupby(LINE, sort=False):
        curve = statistics_along(own, view.statistic, along)
        x = (
            curve["x"].map(places.index)
            if texts
            else style.places_on_axis(curve["x"], places)
        )
        band = [
            _without_undrawable(curve[name], mode) for name in ("low", "line", "high")
        ]
        every = max(1, len(x) // 8)
        more: dict[str, Any] = {"markevery": every} if along else {}
        style.draw_line(ax, np.asarray(x, dtype=float), band, looks[str(line)], **more)
        ends.append(float(x.max()))
        extent += [float(v) for part in band for v in part[np.isfinite(part)]]
    for name, column in beside.items():
        levels: dict[str, tuple[Any, Any]] = {}
        for line, own in rows.groupby(LINE, sort=False):
            level = own.groupby("_x", sort=True)[column].median().dropna()
            at: Any = [*level.index]
            at = [*map(places.index, at)] if texts else style.places_on_axis(at, places)
            levels[str(line)] = at, level
        extent += style.draw_baseline(ax, name, levels, looks, mode == "log")
    ax.set_title(title)
    ax.set_xlabel(
        literal_text(axis_words(view.x)) if view.x != "epsilon" else axis_words(view.x)
    )
    if texts:
        turned = 30 if sum(len(str(place)) for place in places) > 24 else 0
        ax.set_xticks(range(len(places)), [literal_text(str(one)) for one in places])
        ax.tick_params(axis="x", rotation=turned)
    else:
        style.scale_axis(ax, [float(one) for one in places], ends if along else [])
    if extent and mode == "log":
        style.scale_errors(ax, (min(extent), max(extent)))
    elif mode == "symlog":
        size = min((abs(v) for v in extent if v), default=1.0)
        ax.set_yscale("symlog", linthresh=size)
        locator: Any = ax.yaxis.get_major_locator()
        locator.set_params(numticks=style.MOST_TICKS)
    else:
        style.scale_plain(ax.yaxis)
    if numbers:
        _draw_colour_bar(ax, numbers, ", ".join(view.line))


def _draw_colour_bar(ax: Axes, values: list[float], name: str) -> None:
    """Draw the colour bar of lines that are numbers."""
    from matplotlib import cm, colormaps, colors

    norm = (colors.LogNorm if _suits_log_scale(values) else colors.Normalize)(
        values[0], values[-1]
    )
    shades = colors.ListedColormap(colormaps["viridis"](np.linspace(0, 0.9, 256)))
    beside = ax.inset_axes((1.03, 0.0, 0.04, 1.0))
    bar = ax.figure.colorbar(cm.ScalarMappable(norm, shades), cax=beside)
    if len(values) <= 6:
        bar.set_ticks(values, labels=[f"{value:g}" for value in values])
        bar.ax.minorticks_off()
    bar.set_label(axis_words(name), fontsize=7)
    bar.ax.tick_params(labelsize=6.5)


def _without_undrawable(values: Any, mode: str) -> Array:
    """Return values without those that the axis cannot show."""
    column = np.asarray(values, dtype=float)
    good = np.isfinite(column) & ((column > 0) | (mode != "log"))
    return np.where(good, column, np.nan)


ROW = 0.2


def _median_finals(drawn: Shown) -> pd.DataFrame:
    """Return the median final value of every line on every problem, then `BASELINES`.

    A problem is a panel at an epsilon. Of accuracies and areas, what is missing to 1.
    """
    import pandas as pd

    runs = _comparable_ends(drawn)
    groups = runs.groupby([LINE, PANEL, "epsilon"], sort=False)
    medians = {
        key: centre_of(by_split(own["_y"], own["dataset_seed"]))[0]
        for key, own in groups
    }
    index = pd.MultiIndex.from_tuples(medians, names=[LINE, PANEL, "epsilon"])
    found = pd.Series(list(medians.values()), index)
    # Not sort=False: pandas before 3 puts values under the names of others then.
    table: pd.DataFrame = found.unstack([PANEL, "epsilon"])
    problems = index.droplevel(LINE).unique()
    table = table.reindex(index=index.unique(LINE), columns=problems)
    if min(table.shape) < 2:
        raise UsageError(
            "plot: profiles and winners compare lines over problems, which are panels "
            f"at one epsilon; here are {table.shape[0]} and {table.shape[1]}"
        )
    names = drawn.baselines
    beside = runs.groupby([PANEL, "epsilon"], sort=False)[names].median()
    return pd.concat([table, beside.T[table.columns].rename_axis(index=LINE)])


def _comparable_ends(drawn: Shown) -> pd.DataFrame:
    """Return the ends of runs of problems of which all lines minimise one function.

    Smaller values of `_y` are better.
    """
    runs = final_rows(drawn.rows.assign(epsilon=drawn.rows["epsilon"].astype(float)))
    extra = runs[FACET].where(~runs[FACET].str.fullmatch(r"(epsilon = [^,]*)?"), "")
    runs[PANEL] = (runs[PANEL] + ", " + extra).str.removesuffix(", ")
    one = runs.groupby([PANEL, "epsilon"])["_one_function"].transform("all")
    runs = runs[one]
    if runs.empty:
        raise UsageError(f"plot: profiles and winners have no problem: {drawn.unlike}")
    if is_better_higher(drawn.view.y):
        compared = ["_y", *drawn.baselines]
        runs[compared] = 1.0 - runs[compared]
    return runs


def _factors_over_best(values: pd.DataFrame) -> pd.DataFrame:
    """Return factors over the best line of each problem, w = 0 included.

    At least 1, but of what is not private.
    """
    if (values.min() < 0).any():
        raise UsageError("plot: factors over the best need values that are positive")
    floored = values.clip(lower=FLOOR)
    return floored / floored.drop(index=[*MODELS.values()], errors="ignore").min()


def profiles_sheet(drawn: Shown, width: str) -> Sheet:
    """Return the sheet of performance profiles, at most eight lines in a cell.

    Parameters
    ----------
    drawn : Shown
        The rows whose ends are compared.
    width : str
        `column`, `page`, or empty for what suits.

    Raises
    ------
    UsageError
        If there are not two lines and two problems, or values are negative.
    """
    _check_room("lines", drawn.rows[LINE].nunique(), MOST_CELLS * MOST_LINES)
    ratios = _factors_over_best(_median_finals(drawn))
    found = shares_within(
        {str(line): row.to_numpy(float) for line, row in ratios.iterrows()},
        len(ratios.columns),
    )
    reserve_styles(found)
    looks = {line: _look_of_line(line, drawn.view) for line in found}

    beside = [line for line in found if line in BASELINES]

    def cell(ax: Axes, lines: Sequence[str]) -> None:
        draw_profiles(ax, {line: found[line] for line in [*lines, *beside]}, looks)
        ax.set_xlabel("factor over the best")
        ax.set_title(f"{len(ratios.columns)} problems")

    lines = [line for line in found if line not in BASELINES]
    cells = [partial(cell, lines=part) for part in spread_lines(lines)]
    text = join_paragraphs(
        f"Performance profiles of the final {_measure_in_words(drawn)}: the share of "
        "problems "
        "(a panel at one epsilon) on which the median is within a factor of the best "
        "line's, w = 0 included. A line that did not run on a problem reaches no "
        "factor there.",
        caption_paragraphs(drawn),
    )
    name = f"profile_{drawn.view.y}"
    return Sheet(cells, len(cells), text, SIZE, "share of problems", width, name=name)


def _measure_in_words(drawn: Shown) -> str:
    name = axis_words(drawn.view.y)
    return f"{name}, as what it lacks to 1" if is_better_higher(drawn.view.y) else name


def winners_sheet(drawn: Shown) -> Sheet:
    """Return the sheet with the map of who wins where, as `profiles_sheet`."""
    _check_room("lines", drawn.rows[LINE].nunique(), MOST_ROWS)
    values = _median_finals(drawn)
    values = values[sorted(values.columns, key=_in_order(values.columns))]
    ratios, runs = _factors_over_best(values), _comparable_ends(drawn)
    lines = [str(line) for line in values.index]
    marks = _marks_of_winners(values, runs)
    grid = ratios.to_numpy(float)
    size = SIZE[0], ROW * (len(lines) + 1)
    longest = max(map(len, lines))
    names = [line if len(line) <= 40 else f"{line[:39]}…" for line in lines]
    problems = [(literal_text(str(one[0])), float(one[1])) for one in values.columns]

    def cell(ax: Axes) -> None:
        shown_names = [literal_text(name) for name in names]
        draw_winners(ax, shown_names, problems, grid, marks)
        for label, line in zip(ax.get_yticklabels(), lines, strict=True):
            if stands_out(line, drawn.view):
                label.set_fontweight("bold")
        ax.set_title("\n")

    few = lack_interval(runs, [LINE, PANEL, FACET, "epsilon"])
    text = join_paragraphs(
        f"Colour: the median final {_measure_in_words(drawn)} over that of the best "
        "line of the "
        "problem, w = 0 included. Filled circle: the best of the lines whose 95 % "
        "interval lies below w = 0 and the constant model; ring: one of these that "
        f"cannot be told from it. Cross: {NOTHING}, or that model. White: did not run.",
        f"{ALONE[0].upper()}{ALONE[1:]}." if few.any() else "",
        caption_paragraphs(drawn),
    )
    margins = {**MARGINS, "left": 0.3 + 0.062 * min(longest, 40)}
    named: dict[str, Any] = {"name": f"winners_{drawn.view.y}", **margins}
    return Sheet([cell], 1, text, size, "", "page", exact=True, **named)


def _in_order(problems: Iterable[Any]) -> Any:
    """Return a key that keeps the order of panels and sorts their epsilons."""
    panels = list(dict.fromkeys(panel for panel, _ in problems))
    return lambda problem: (panels.index(problem[0]), problem[1])


def _marks_of_winners(values: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """Return row and column of who wins, of who may be as good, and where nothing is.

    As `places_of_lines` has it.
    """
    marks: dict[str, list[tuple[int, int]]] = {WINS: [], TIES: [], "nothing": []}
    groups = dict(iter(runs.groupby([LINE, PANEL, "epsilon"])))
    others = runs.loc[~runs["_alike"], [PANEL, "epsilon"]]
    unlike: set[Any] = {*others.itertuples(index=False, name=None)}
    row_of = {line: row for row, line in enumerate(values.index)}
    for column, problem in enumerate(values.columns):
        own = {line: groups.get((line, *problem)) for line in values.index}
        errors = {
            k: e if e is None else by_split(e["_y"], e["dataset_seed"])
            for k, e in own.items()
        }
        models = {k: loss_beyond(ends) for k, ends in own.items() if ends is not None}
        zero = values[problem].get(ZERO, math.nan)
        found = places_of_lines(errors, zero, models) if problem not in unlike else {}
        for line, one in found.items():
            if one.place:
                marks[one.place].append((row_of[line], column))
        sure = any(not math.isnan(one.low) for one in found.values())
        nothing = nothing_beats(one.unbeaten for one in found.values())
        if sure and nothing:
            known = [*(MODELS[one] for one in CONSTANTS), ZERO]
            known = [ZERO] if nothing == NOTHING else known
            drawn = [row_of[one] for one in known if one in row_of]
            marks["nothing"] += [(row, column) for row in drawn[:1]]
    return marks


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
    names : mapping of str to str
        What lines are called, as in ``{"gd": "DP-GD (ours)"}``.
    highlight : str or sequence of str
        Lines that stand out; a text may hold several, by commas.

    A name that is none of the table, or nothing to draw, is a `UsageError`.
    """
    import matplotlib.pyplot as plt

    paths = isinstance(results, str | Path | Sequence)
    table: Any = load_results(results) if paths else results  # type: ignore[arg-type]
    kept = {name: _words_of_value(value) for name, value in (where or {}).items()}
    split = None if facet is None else names_of(facet)
    view = View(x, y, names_of(panel), names_of(line), split, statistic, kept)
    chosen = (highlight,) if isinstance(highlight, str) else tuple(highlight)
    view = replace(view, names=names or {}, highlight=tuple(filter(None, chosen)))
    with house_style():
        figure = plt.figure()
        plt.close(figure)
        draw_sheet(figure, sheet_of_view(table, view, kind, width))
    return figure


def _words_of_value(value: Any) -> list[str]:
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


def sheet_of_view(
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
    forget_styles()
    check_lines(table, view, kind)
    if kind == "curves":
        views = [replace(view, y=y) for y in names_of(view.y) or ("",)]
        return curves_sheet([rows_of_view(table, one) for one in views], width)
    drawn = rows_of_view(table, view)
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
        kept = {name: _words_of_value(value) for name, value in self.where.items()}
        split = self.panel, self.line, self.facet or None, self.statistic, kept
        view = View(self.x, self.y, *split, drawing.folder.parent)
        try:
            with house_style():
                one = sheet_of_view(drawing.table, view, self.kind, self.width)
                one = replace(one, caption=join_paragraphs(self.about, one.caption))
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
    """A map of who wins where."""

    kind: ClassVar[str] = "winners"
