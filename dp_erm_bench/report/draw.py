"""Lines with bands along an axis: statistics over runs, and how they are drawn.

A *line* consists of the runs with one label in a panel, usually those of one algorithm,
and is drawn as one curve.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.errors import UsageError, real_number
from dp_erm_bench.report import style
from dp_erm_bench.report.curves import Array, RunsAlong
from dp_erm_bench.report.style import Style, style_of
from dp_erm_bench.results.settings import final_rows
from dp_erm_bench.results.statistics import BASELINES, by_split, centre_of, quantile

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

ALONG = ("passes", "iteration", "seconds")
"""Columns that grow along a run; against any other column, final values are drawn."""

STATISTICS = {
    "median": ("median and min..max", (0.0, 0.5, 1.0)),
    "quantiles": ("median and 10..90 % quantiles", (0.1, 0.5, 0.9)),
    "interval": ("median and its 95 % interval", None),
    "mean": ("mean and min..max", (0.0, None, 1.0)),
}
"""Statistics over runs, each with its name in words and three quantiles.

The quantiles are those of the lower end, the middle and the upper end of a band.

A quantile of None is the mean. `interval` has no quantiles.
"""

BAND = ("low", "middle", "high")
MOST_LINES = 7
"""Largest number of lines in a panel; more lines are spread over several panels."""

FEW = 2
"""A panel with at most this many points on its axis becomes rows of a table."""

ALIKE = 0.01
"""A relative difference that is not visible on a log scale."""


def bands(
    rows: pd.DataFrame,
    x: str,
    y: str,
    by: Sequence[str],
    statistic: str = "median",
    beside: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Return the statistics over the runs of each group, along an axis.

    Parameters
    ----------
    rows : DataFrame
        Rows of the tidy table.
    x, y : str
        Columns of the axes. If x is one of `ALONG`, each iteration is a point, whose x
        is the median over runs.
    by : sequence of str
        Columns that tell the groups apart.
    statistic : str
        One of `STATISTICS`.
    beside : mapping of str to str
        Columns of baselines, by the name of their column in the result.

    Returns
    -------
    DataFrame
        One row per group and point of the axis; groups are in the order of the rows.
        The columns are `by`, `x`, `low`, `middle`, `high`, `count`, and the medians of
        the baselines.
    """
    import pandas as pd

    groups = rows.groupby([*by, "iteration" if x in ALONG else x], sort=False).indices
    order = rows.groupby([*by], sort=False).ngroup().to_numpy()
    at, values, seeds = (rows[name].to_numpy() for name in (x, y, "dataset_seed"))
    levels = {name: rows[of].to_numpy(float) for name, of in (beside or {}).items()}
    found = []
    for key, own in groups.items():
        assert isinstance(key, tuple)
        place = float(np.nanmedian(at[own])) if x in ALONG else key[-1]
        row = (*key[:-1], place, *band_of(values[own], seeds[own], statistic), len(own))
        beneath = (_known_median(one[own]) for one in levels.values())
        found.append((order[own[0]], *row, *beneath))
    frame = pd.DataFrame(found, columns=["order", *by, "x", *BAND, "count", *levels])
    return frame.sort_values(["order", "x"], ignore_index=True).drop(columns="order")


def band_of(values: Array, seeds: Array, statistic: str) -> tuple[float, float, float]:
    """Return the lower end, the middle and the upper end of a statistic over runs.

    Parameters
    ----------
    values, seeds : ndarray of shape (runs,)
        The value of each run, and its `dataset_seed`.
    statistic : str
        One of `STATISTICS`.
    """
    levels = STATISTICS[statistic][1]
    if levels is None:
        middle, low, high = centre_of(by_split(values, seeds))
        return low, middle, high
    low, middle, high = (
        float(np.mean(values) if q is None else quantile(values, q)) for q in levels
    )
    return low, middle, high


def _known_median(values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else math.nan


def bands_of_lines(
    lines: Mapping[str, RunsAlong], statistic: str = "median"
) -> pd.DataFrame:
    """Return the statistics of lines that were looked up, in the columns of `bands`.

    The column `line` tells the lines apart.

    Parameters
    ----------
    lines : mapping of str to RunsAlong
        Lines by label, at least one.
    statistic : str
        One of `STATISTICS`.
    """
    import pandas as pd

    found = []
    for line, one in lines.items():
        for place, runs in enumerate(one.samples):
            row = dict(zip(BAND, band_of(runs, np.zeros(0), statistic), strict=True))
            levels = {name: own[place] for name, own in one.beside.items()}
            found.append({"line": line, "x": one.x[place], **row, **levels})
            found[-1]["count"] = len(runs)
    return pd.DataFrame(found)


@dataclass(frozen=True, eq=False)
class Chart:
    """A panel of a figure: lines along an axis, with baselines and bounds.

    Attributes
    ----------
    title, axis : str
        Title of the panel, and label of its x axis.
    bands : DataFrame
        The result of `bands` for the lines, with the column `line`.
    rows : DataFrame or None
        The rows of the table behind the lines, with the column `line`, for the caption;
        None for lines that need no run.
    along : str
        The scale of an axis along runs, `linear` or `passes`; empty for any other axis.
    scales : (str, str)
        The scales of the x and y axes. The first is empty if the values of the x axis
        are strings.
    shapes : mapping of str to float, str or mapping
        How bounds depend on the axis, by label; see `drawn_shape`.
    anchor : str
        The line through whose first point the shapes are scaled; by default the first
        line.
    authors : mapping of str to ndarray of shape (k, 2)
        The authors' own points (x, y) by line.
    looks : mapping of str to Style
        Styles of lines that do not have the style of their label.
    statistic : str
        One of `STATISTICS`, for lines of runs.
    said : str
        A sentence for the caption that is about this panel alone.
    letter : str
        The letter by which captions name the panel; if empty, they use the title.
    """

    title: str
    axis: str
    bands: pd.DataFrame
    rows: Any = None
    along: str = ""
    scales: tuple[str, str] = ("log", "log")
    shapes: Mapping[str, Any] = field(default_factory=dict)
    anchor: str = ""
    authors: Mapping[str, Array] = field(default_factory=dict)
    looks: Mapping[str, Style] = field(default_factory=dict)
    statistic: str = "median"
    said: str = ""
    letter: str = ""

    @property
    def name(self) -> str:
        """Return the name of the panel in captions: its letter, or else its title."""
        return self.letter or self.title

    @property
    def heading(self) -> str:
        """Return the text above the panel: its letter, if it has one, and its title."""
        return f"({self.letter}) {self.title}" if self.letter else self.title

    @property
    def lines(self) -> list[str]:
        """Return the labels of the lines, in the order of the legend."""
        return [*dict.fromkeys(self.bands["line"])]

    @property
    def has_few_points(self) -> bool:
        """Return whether the chart has so few points that a table replaces it."""
        return not self.along and self.bands["x"].nunique() <= FEW

    def look(self, line: str) -> Style:
        """Return the style of a line."""
        return self.looks.get(line) or style_of(line, self.lines)

    def __call__(self, ax: Axes) -> None:
        """Draw the panel."""
        draw(ax, self)


def draw(ax: Axes, chart: Chart) -> None:
    """Draw the lines of a chart with bands, baselines, authors' points and bounds.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    chart : Chart
        What to draw.
    """
    x_scale, y_scale = chart.scales
    places = [*dict.fromkeys(chart.bands["x"])]
    places = sorted(places) if x_scale else places
    x = _places_on_axis(chart.bands["x"], x_scale, places)
    frame = chart.bands.assign(x=x)
    shown = [name for name in BASELINES if name in frame]
    for name in (*BAND, *shown):
        frame[name] = _without_undrawable(frame[name], y_scale)
    for order, (line, own) in enumerate(frame.groupby("line", sort=False)):
        _draw_line(ax, own, chart.look(str(line)), order, bool(chart.along))
    for name in shown:
        _draw_baseline(ax, name, frame, chart)
    for name, points in chart.authors.items():
        ax.plot(*points.T, **chart.look(name).authors())
    for label, shape in chart.shapes.items():
        own = frame[frame["line"] == (chart.anchor or chart.lines[0])]
        # The bound is drawn longer than the line, because they may coincide.
        along = np.geomspace(own["x"].min() / 1.1, own["x"].max() * 1.2, 60)
        values = drawn_shape(shape, along, (own["x"].iloc[0], own["middle"].iloc[0]))
        ax.plot(along, values, label=label, **style.bound_style(label))
    ax.set_title(chart.heading)
    ax.set_xlabel(chart.axis)
    if not x_scale:
        ax.set_xticks(range(len(places)), [style.literal_text(str(p)) for p in places])
        ax.tick_params("x", rotation=30 if sum(len(str(p)) for p in places) > 24 else 0)
    else:
        ends = [float(points[-1, 0]) for points in chart.authors.values()]
        whole = sorted({*map(float, places), *ends}) if chart.along else places
        style.scale_x(ax, x_scale, whole)
    style.scale_y(ax, y_scale, _extent_to_show(frame, shown, chart))


def _places_on_axis(x: Any, scale: str, places: Sequence[Any]) -> Array:
    """Return the positions of values on an axis.

    Words are side by side. On a log axis, infinity is beyond the largest number.
    """
    if not scale:
        return np.array([places.index(one) for one in x], float)
    values = np.asarray(x, float)
    beyond = style.place_of_infinity(places) if np.isinf(values).any() else 0.0
    return np.where(np.isposinf(values), beyond, values)


def _without_undrawable(values: Any, scale: str) -> Array:
    """Return the values, with nan for those that the axis cannot show."""
    column = np.asarray(values, float)
    good = np.isfinite(column) & ((column > 0) | (scale != "log"))
    return np.where(good, column, np.nan)


def _draw_line(
    ax: Axes, own: pd.DataFrame, look: Style, order: int, along: bool
) -> None:
    """Draw a line with its band; the line stays visible under bands of other lines."""
    x, low, middle, high = (own[name].to_numpy() for name in ("x", *BAND))
    if len(x) > 1:
        ax.fill_between(x, low, high, **look.band())
    else:
        ends = np.nan_to_num([middle - low, high - middle])
        ax.errorbar(x, middle, yerr=ends, capsize=2.5, color=look.colour, linewidth=0.9)
    few: dict[str, Any] = {"markevery": max(1, len(x) // 8)} if along else {}
    ax.plot(x, middle, zorder=3 - order / 100, **look.curve(), **few)


def _draw_baseline(ax: Axes, name: str, frame: pd.DataFrame, chart: Chart) -> None:
    """Draw a baseline for the lines of a chart.

    Lines on the same problems share one baseline. If it is a single number, it is drawn
    across the whole axes. If problems differ, each line has its own baseline, dotted in
    the colour of the line.
    """
    known = frame[["line", "x", name]].dropna()
    if known.empty:
        return
    # The baseline is drawn above the lines, because a line may coincide with it.
    look = style.STYLES[name].curve() | {"marker": None, "zorder": 3.2}
    ends: Any = known.groupby("x")[name].agg(["min", "max"])
    if np.allclose(ends["min"], ends["max"], rtol=1e-6, atol=0.0):
        if np.allclose(ends, ends.iloc[0, 0], rtol=1e-6, atol=0.0):
            ax.axhline(float(ends.iloc[0, 0]), **look)
        else:
            ax.plot(ends.index, ends["min"], **look)
        return
    ax.plot(
        [], [], **look | {"linestyle": (0, (1, 2)), "label": f"{name}, each line's own"}
    )
    drawn: dict[tuple[float, ...], int] = {}
    for line, own in known.groupby("line", sort=False):
        level = tuple(float(f"{value:.4g}") for value in own[name])
        turn = drawn[level] = drawn.get(level, -1) + 1
        # Dots are sparse, because baselines of other lines may be at the same place.
        mine: dict[str, Any] = {"linestyle": (2.8 * turn, (1.0, 7.4))}
        mine |= {"color": chart.look(str(line)).colour, "label": f"_{name}"}
        mark = {"marker": "_", "markersize": 9.0} if len(own) == 1 else {}
        ax.plot(own["x"], own[name], **look | mine | mark)


def _extent_to_show(
    frame: pd.DataFrame, shown: Sequence[str], chart: Chart
) -> tuple[float, float]:
    """Return the range of values that the y axis shows: the bands without far outliers.

    On a log axis, values above 10 times the largest value of the lines are outliers.
    Along runs, so are values below a tenth of the smallest value of the lines. On an
    axis that is partly linear, the range is from the smallest to the largest absolute
    value.
    """
    beside = [points[:, 1] for points in chart.authors.values()]
    beside += [frame[name].to_numpy() for name in shown]
    low, middle, high = (frame[name].to_numpy() for name in BAND)
    if chart.scales[1] != "log":
        every = np.abs(np.concatenate([low, middle, high, *beside]))
        size = every[np.isfinite(every) & (every > 0)]
        return (float(size.min()), float(size.max())) if len(size) else (1.0, 1.0)
    if np.isnan(middle).all():
        return 1e-3, 1.0
    least = np.nanmin(middle) / (10.0 if chart.along else math.inf)
    # A band may be unknown.
    ends = [max(np.fmin(low, middle)[~np.isnan(middle)].min(), least)]
    ends += [min(np.nanmax(np.fmax(high, middle)), 10.0 * np.nanmax(middle))]
    ends += [value for own in beside for value in own if not math.isnan(value)]
    return float(min(ends)), float(max(ends))


def draw_rows(ax: Axes, charts: Iterable[Chart]) -> None:
    """Draw the points of charts with few points as rows of a table.

    Parameters
    ----------
    ax : Axes
        The axes that the table replaces.
    charts : iterable of Chart
        The charts with few points.
    """
    from matplotlib.transforms import Bbox

    cells = [["", "at", "value [range]", "w = 0"]]
    for chart in charts:
        cells.append([chart.heading, "", "", ""])
        for row in chart.bands.to_dict("records"):
            zero = row.get(BASELINES[0], math.nan)
            low, middle, high = (f"{row[name]:.3g}" for name in BAND)
            cells.append(
                [
                    chart.look(str(row["line"])).label,
                    f"{chart.axis} = {row['x']:.6g}",
                    middle if row["count"] == 1 else f"{middle} [{low}, {high}]",
                    "" if math.isnan(zero) else f"{zero:.3g}",
                ]
            )
    ax.set_axis_off()
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    table = ax.table(
        cells,
        cellLoc="left",
        edges="open",
        colWidths=[one / sum(widths) for one in widths],
        bbox=Bbox.unit(),
    )
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    table.set_in_layout(False)


def chart_of_lines(
    title: str,
    axis: str,
    lines: Mapping[str, RunsAlong],
    statistic: str = "median",
    **more: Any,
) -> Chart:
    """Return the chart of lines that were looked up.

    Parameters
    ----------
    title, axis, statistic : str
        As in `Chart`.
    lines : mapping of str to RunsAlong
        Lines by label, at least one.
    **more
        Further attributes of `Chart`.
    """
    import pandas as pd

    rows = [
        final_rows(one.rows).assign(line=line)
        for line, one in lines.items()
        if one.rows is not None
    ]
    frame = bands_of_lines(lines, statistic)
    behind = pd.concat(rows) if rows else None
    return Chart(title, axis, frame, behind, statistic=statistic, **more)


def spread_lines(lines: Sequence[str], most: int = MOST_LINES) -> list[Sequence[str]]:
    """Split lines into as few parts of at most `most` lines as possible, evenly."""
    parts = max(1, -(-len(lines) // most))
    ends = [round(part * len(lines) / parts) for part in range(parts + 1)]
    return [lines[a:b] for a, b in itertools.pairwise(ends)]


def split_chart(chart: Chart) -> list[Chart]:
    """Return a list with the chart, or with its parts if it has too many lines."""
    parts = spread_lines(chart.lines)
    if len(parts) == 1:
        return [chart]
    anchor = chart.anchor or chart.lines[0]
    return [
        replace(
            chart,
            title=f"{chart.title} ({k}/{len(parts)})",
            bands=chart.bands[chart.bands["line"].isin(part)],
            rows=None
            if chart.rows is None
            else chart.rows[chart.rows["line"].isin(part)],
            shapes=chart.shapes if anchor in part else {},
            authors={name: own for name, own in chart.authors.items() if name in part},
            said=chart.said if k == 1 else "",
        )
        for k, part in enumerate(parts, 1)
    ]


def charts_of_figure(charts: Sequence[Chart]) -> list[Chart]:
    """Return the charts with letters; x axes of the same name get the same scale."""
    kinds: dict[str, set[str]] = {}
    for one in charts:
        kinds.setdefault(one.axis, set()).add(one.along or one.scales[0])
    letters = iter(string.ascii_letters)
    found = []
    for one in charts:
        kind = max(kinds[one.axis], key=("", "linear", "log", "passes").index)
        kind = one.scales[0] and kind
        along = kind if one.along else ""
        letter = next(letters) if len(charts) > 1 else ""
        scales = kind, one.scales[1]
        found.append(replace(one, along=along, scales=scales, letter=letter))
    return found


def drawn_points(charts: Iterable[Chart]) -> pd.DataFrame:
    """Return a table of the points of charts and of authors' curves, to four digits."""
    import pandas as pd

    parts = []
    for one in charts:
        said = {"panel": one.heading, "axis": one.axis, "statistic": one.statistic}
        parts.append(one.bands.assign(**said))
        for line, points in one.authors.items():
            theirs = pd.DataFrame(points, columns=["x", "middle"])
            parts.append(theirs.assign(**said | {"statistic": "authors"}, line=line))
    frame = pd.concat(parts)[[*said, *parts[0].columns.drop([*said])]]
    numbers = frame.select_dtypes(float).columns.drop("x", errors="ignore")
    frame[numbers] = frame[numbers].map(lambda one: float(f"{one:.4g}"))
    return frame


def lines_alike(chart: Chart) -> list[list[str]]:
    """Return the groups of lines of a chart that coincide in the figure."""
    middles = chart.bands.pivot_table("middle", "x", "line", sort=False)
    found: list[list[str]] = []
    for line in middles:
        for group in found:
            if np.allclose(middles[line], middles[group[0]], rtol=ALIKE, atol=0.0):
                group.append(str(line))
                break
        else:
            found.append([str(line)])
    return [group for group in found if len(group) > 1]


def form_of_axis(power: float | str) -> Callable[[Array], Array]:
    """Return the function of a bound's form: a log, or a power such as -1 or -2/3."""
    if power == "log":
        return np.log
    try:
        exponent = float(Fraction(str(power)))
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            f"shapes={power}: must be log, or a power such as -1 or -2/3"
        ) from None
    return lambda x: x**exponent


def drawn_shape(shape: Any, x: Array, anchor: tuple[float, float]) -> Array:
    """Return the values of a bound along an axis, an array of shape (len(x),).

    Parameters
    ----------
    shape : float, str or mapping
        A power or `log` is scaled to go through the anchor. A mapping has the keys
        `power` and `times` (the value at x = 1), and is not scaled.
    x : ndarray
        Values of the axis.
    anchor : (float, float)
        The point (x, y) to go through.

    Raises
    ------
    UsageError
        If the power is invalid, or `times` is not a positive number.
    """
    if not isinstance(shape, Mapping):
        at = form_of_axis(shape)
        return np.asarray(at(x) / at(np.array([anchor[0]])) * anchor[1])
    times = real_number(shape.get("times"))
    if {*shape} != {"power", "times"} or not 0.0 < times < math.inf:
        raise UsageError(
            f"shapes={dict(shape)}: must be power and times, a number above 0"
        )
    return np.asarray(times * form_of_axis(shape["power"])(x))
