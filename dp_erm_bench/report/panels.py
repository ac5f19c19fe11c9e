"""Lines along an axis, panels of a paper, and captions: what an epsilon is worth."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError, real_number
from dp_erm_bench.report import style
from dp_erm_bench.report.curves import (
    Array,
    Bands,
    LineErrors,
    Missing,
    line_errors,
    runs_in,
)
from dp_erm_bench.report.figure import (
    LinesOf,
    check_stem,
    lines_of_panel,
    look_up_lines,
)
from dp_erm_bench.report.scaling import final_errors
from dp_erm_bench.report.style import STYLES, literal_text, style_of
from dp_erm_bench.report.view import Shown, nothing_beaten
from dp_erm_bench.results.runs import read_run
from dp_erm_bench.results.settings import (
    final_rows,
    text_of,
    unchecked_in,
    under_bounds,
)
from dp_erm_bench.results.statistics import BASELINES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


Lines = Mapping[str, LineErrors]
OverEpsilon = Mapping[str, Sequence[tuple[float, LineErrors]]]


@dataclass(frozen=True)
class Panel:
    """One panel of a paper's figure.

    Attributes
    ----------
    name : str
        Its label in the table.
    title : str
        Its title.
    lines : tuple of str
        Labels of the lines drawn against passes, in the order of the legend.
    over_epsilon : tuple of str
        Lines drawn against epsilon; their runs away from epsilon = 1 have the label
        "<line> over epsilon".
    authors : mapping of str to str
        The authors' decoded curve that belongs to a line.
    note : str
        A sentence of its own for the caption.
    log_passes : bool
        Whether the passes beyond 1 stand on a log scale.
    epsilon : float
        The epsilon of the lines against passes.
    """

    name: str
    title: str
    lines: tuple[str, ...]
    over_epsilon: tuple[str, ...] = ()
    authors: dict[str, str] = field(default_factory=dict)
    note: str = ""
    log_passes: bool = False
    epsilon: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a name that is none of a file, and curves that were not decoded."""
        check_stem(self.name)
        for curve in self.authors.values():
            registry.check_choice("authors", curve, sorted(decoded_curves(self.name)))

    def check(self, lines: LinesOf) -> None:
        """Refuse lines that the panel of an experiment does not have."""
        ran = lines_of_panel(lines, self.name)
        for line in (*self.lines, *self.over_epsilon):
            registry.check_choice(f"panel {self.name}: line", line, ran)


@dataclass(frozen=True)
class PanelRuns:
    """The runs of a panel in the table.

    Attributes
    ----------
    panel : Panel
        The panel.
    lines : mapping of str to LineErrors
        Lines against passes, at the panel's epsilon, that ran.
    over_epsilon : mapping of str to list of (float, LineErrors)
        Runs of a line sorted by epsilon.
    missing : mapping of str to str
        The reason why a line is missing, by line.
    """

    panel: Panel
    lines: Lines
    over_epsilon: OverEpsilon
    missing: Mapping[str, str]

    @property
    def curves(self) -> list[LineErrors]:
        """Return everything that is drawn of the panel."""
        several = [run for runs in self.over_epsilon.values() for _, run in runs]
        return [*self.lines.values(), *several]

    @property
    def along_passes(self) -> Cross:
        """Return the cell of the lines against passes, over the authors' curves."""
        own, panel = decoded_curves(self.panel.name), self.panel
        authors = {k: own[v][0] for k, v in panel.authors.items() if k in self.lines}
        scale = "log" if panel.log_passes else "linear"
        axis = "passes over the data"
        return Cross(panel.title, axis, self.lines, authors=authors, passes=scale)

    @property
    def along_epsilon(self) -> Cross:
        """Return the cell of the final errors against epsilon, with those of w = 0."""
        lines = {line: final_errors(runs) for line, runs in self.over_epsilon.items()}
        return Cross(self.panel.title, r"$\varepsilon$", lines)


def look_up(table: pd.DataFrame, panel: Panel) -> PanelRuns:
    """Look up the lines of a panel.

    Parameters
    ----------
    table : DataFrame
        The tidy table.
    panel : Panel
        The panel to look up.
    """
    look = partial(line_errors, table, panel.name)
    lines, missing = look_up_lines(panel.lines, partial(look, epsilon=panel.epsilon))
    over: dict[str, list[tuple[float, LineErrors]]] = {}
    reported = table[(table["panel"] == panel.name) & (table["phase"] == "report")]
    for line in panel.over_epsilon:
        for label in (line, f"{line} over epsilon"):
            epsilons = reported.loc[reported["line"] == label, "epsilon"].unique()
            for epsilon in map(float, epsilons):
                try:
                    over.setdefault(line, []).append((epsilon, look(label, epsilon)))
                except Missing as reason:
                    missing[f"{label}, epsilon = {epsilon:g}"] = str(reason)
    over = {
        line: sorted(runs, key=itemgetter(0)) for line, runs in over.items() if runs
    }
    return PanelRuns(panel, lines, over, missing)


SHAPES: tuple[Any, ...] = tuple(
    {"color": colour, "linestyle": dashes, "linewidth": 0.9, "zorder": 3.5}
    for colour in ("#444444", style.BROWN)
    for dashes in ((0, (6, 1.5, 1, 1.5)), (0, (4, 1, 1, 1, 1, 1)), "solid", (0, (1, 1)))
)
"""The looks of bounds, none of which is that of w = 0: above the lines, which they may
lie on."""


def form_of_axis(power: float | str) -> Callable[[Array], Array]:
    """Return a function of the axis: `log`, or a power such as -1 or -2/3."""
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
    """Return a shape along an axis, (len(x),).

    Parameters
    ----------
    shape : float, str or mapping
        As in `LinesCell.shapes`: a power goes through the anchor; with `times`, its
        value at 1, it stands where it is.
    x : ndarray
        Values of the axis.
    anchor : (float, float)
        A point x, y.

    Raises
    ------
    UsageError
        If it is no power, or its value no positive number.
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


@dataclass(frozen=True)
class Cross:
    """A cell of a sheet: lines along an axis, and what they are held against.

    Attributes
    ----------
    title, axis : str
        Its title, and the label of its x axis.
    lines : mapping of str to Bands
        By their labels in the table, at least one.
    shapes : mapping of str to (float, str, mapping)
        How bounds depend on the axis, by label, see `drawn_shape`; the anchor is the
        first point of the line `anchor`.
    anchor : str
        A line; the first one if not given.
    authors : mapping of str to ndarray of shape (k, 2)
        The authors' own points (x, y) by line.
    passes : str
        The scale of an axis of passes over the data: `linear`, or `log` beyond 1; any
        other axis has a log scale.
    """

    title: str
    axis: str
    lines: Mapping[str, Bands]
    shapes: Mapping[str, Any] = field(default_factory=dict)
    anchor: str = ""
    authors: Mapping[str, Array] = field(default_factory=dict)
    passes: str = ""


def draw_cross(ax: Axes, cross: Cross, shapes: Sequence[str] = ()) -> None:
    """Draw median and range of each line, baselines, shapes and the authors' curves.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    cross : Cross
        The cell to draw.
    shapes : sequence of str
        The labels of all shapes of the sheet, by whose places they are told apart.
    """
    every = [*cross.lines.values()]
    shown = [*_extent_of_lines(every, 10.0 if cross.passes else math.inf)]
    ends = [float(line.x[-1]) for line in every]
    for name, points in cross.authors.items():
        x, y = points.T
        ax.plot(x, y, **style_of(name).authors())
        ends.append(float(x[-1]))
        shown += [float(y.min()), float(y.max())]
    ticks = style.pass_ticks(max(ends)) if cross.passes else []
    for place, (name, line) in enumerate(cross.lines.items()):
        band = [*map(_replace_undrawable, (line.low, line.median, line.high))]
        more: dict[str, Any] = {"zorder": 3 - place / 100}
        if cross.passes:
            marks = {int(np.abs(line.x - tick).argmin()) for tick in ticks}
            more["markevery"] = sorted(marks)
        style.draw_line(ax, line.x, band, style_of(name), **more)
    for name in BASELINES:
        levels = {
            k: (one.x, one.beside[name])
            for k, one in cross.lines.items()
            if name in one.beside
        }
        shown += style.draw_baseline(ax, name, levels)
    anchor = cross.lines.get(cross.anchor, every[0])
    labels = [*dict.fromkeys([*shapes, *cross.shapes])]
    for label, shape in cross.shapes.items():
        # Longer than the line: it may lie on it.
        along = np.geomspace(anchor.x[0] / 1.1, anchor.x[-1] * 1.2, 60)
        start = float(anchor.x[0]), float(anchor.median[0])
        values = drawn_shape(shape, along, start)
        ax.plot(along, values, label=label, **SHAPES[labels.index(label) % len(SHAPES)])
    ax.set_title(cross.title)
    ax.set_xlabel(cross.axis)
    extent = min(shown), max(shown)
    if cross.passes:
        style.scale_passes(ax, ticks, cross.passes == "log")
        style.scale_errors(ax, extent)
    else:
        places = sorted({float(at) for line in every for at in line.x})
        style.scale_numbers(ax, places, extent)


def _replace_undrawable(errors: Array) -> Array:
    """Replace values that a log axis cannot show by NaN."""
    return np.where(np.isfinite(errors) & (errors > 0), errors, np.nan)


def _extent_of_lines(lines: Sequence[Bands], most: float) -> tuple[float, float]:
    """Return the range of values to show: the bands, but no far outlier.

    Above that is beyond 10 times the largest median, below it is `most` times.
    """
    bands = [(line.low, line.median, line.high) for line in lines]
    low, median, high = _replace_undrawable(np.concatenate(bands, axis=1))
    if not np.isfinite(median).any():
        return 1e-3, 1.0
    bottom = max(np.nanmin(low), np.nanmin(median) / most)
    return float(bottom), float(min(np.nanmax(high), np.nanmax(median) * 10))


@cache
def _authors_curves() -> dict[str, Any]:
    path = Path(__file__).with_name("authors_curves.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def decoded_curves(panel: str) -> dict[str, tuple[Array, Array]]:
    """Return the authors' curves of a panel.

    Parameters
    ----------
    panel : str
        Label of the panel.

    Returns
    -------
    dict of str to (ndarray, ndarray)
        Line `[(passes, error)]` of shape (k, 2) and band `[(passes, low, high)]` of
        shape (k, 3) by the authors' name of the algorithm; empty where no figure of
        theirs was decoded.
    """
    panels = _authors_curves()["panels"]
    return {
        name: (np.asarray(curve["line"]), np.asarray(curve["band"]))
        for name, curve in panels.get(panel, {}).items()
    }


def source_in_words() -> str:
    """Return the source of the decoded numbers."""
    return str(_authors_curves()["source"])


NAMED_RUNS = 3
"""More runs than these are named in log.txt only."""


def caption_of(panel: Panel, lines: Lines, profile: str) -> str:
    """Return the caption of a panel of error against passes.

    Parameters
    ----------
    panel : Panel
        Its note and the authors' curves.
    lines : mapping of str to LineErrors
        The lines drawn, at least one.
    profile : str
        The profile that was run.
    """
    facts = next(iter(lines.values())).facts
    proofs = [
        f"{style_of(line).label}: {proof_in_words(run)} ({run.facts['calibration']})"
        for line, run in lines.items()
    ]
    return join_paragraphs(
        f"{problem_in_words(facts)} epsilon = {float(facts['epsilon']):g}, "
        f"{budget_in_words(facts)}.",
        seeds_in_words(lines.values(), profile),
        uncharged_by_line(lines),
        f"Certified epsilon (calibration). {'; '.join(proofs)}.",
        unlike_bounds_in_words(lines.values()),
        panel.note,
        "Dashed: the authors' own figure." if panel.authors else "",
    )


def join_paragraphs(*parts: str) -> str:
    """Return the parts of a caption that are not empty, each on a line of its own."""
    return "\n".join(part for part in parts if part)


def epsilon_caption(lines: OverEpsilon, profile: str) -> str:
    """Return the caption of a panel of final error against epsilon.

    Parameters
    ----------
    lines : mapping of str to list of (float, LineErrors)
        The lines drawn, at least one.
    profile : str
        The profile that was run.
    """
    flat = {line: runs[-1][1] for line, runs in lines.items()}
    facts = next(iter(flat.values())).facts
    proofs = [
        f"{style_of(line).label}: "
        f"{', '.join(f'{proof_in_words(r)} at {e:g}' for e, r in runs)}"
        for line, runs in lines.items()
    ]
    return join_paragraphs(
        f"{problem_in_words(facts)} {budget_in_words(facts)}.",
        f"{seeds_in_words(flat.values(), profile)} Passes as chosen at epsilon = 1.",
        uncharged_by_line(flat),
        f"Certified epsilon. {'; '.join(proofs)}.",
        unlike_bounds_in_words(flat.values()),
    )


def overview_caption(panels: Sequence[Lines], profile: str) -> str:
    """Return the caption of all panels of a paper on one sheet.

    Parameters
    ----------
    panels : sequence of mapping of str to LineErrors
        The lines drawn against passes, panel by panel.
    profile : str
        The profile that was run.
    """
    first = [next(iter(lines.values())).facts for lines in panels]
    runs = [(line, run) for lines in panels for line, run in lines.items()]
    words = sorted({use for _, run in runs for use in uses_of_run(run)})
    beyond = [line for line, run in runs if is_unproved(run)]
    order = [*(line for line in STYLES if line in beyond), *beyond]
    labels = ", ".join(dict.fromkeys(style_of(line).label for line in order))
    at, *others = dict.fromkeys(f"{float(facts['epsilon']):g}" for facts in first)
    elsewhere = f" (where a title says so, {' or '.join(others)})" if others else ""
    return join_paragraphs(
        " ".join(problem_in_words(facts) for facts in first),
        f"Against passes: epsilon = {at}{elsewhere}, delta = 1/n^2, "
        f"adjacency {first[0]['adjacency']}.",
        seeds_in_words([run for _, run in runs], profile),
        f"Uncharged: {', '.join(words) or 'none'}.",
        f"Certified epsilon above the nominal one or unknown: {labels or 'no line'}.",
    )


def is_unproved(run: LineErrors) -> bool:
    """Return whether the nominal epsilon of a line is not proved."""
    return not run.certified_epsilon <= float(run.facts["epsilon"]) * (1 + 1e-6)


def problem_in_words(facts: Mapping[str, Any]) -> str:
    """Return the data set with its size and the objective."""
    form = ", standardised" if facts["standardise"] else ""
    size = f"{facts['dataset']}{form}: n x p = {int(facts['n'])} x {int(facts['p'])}"
    if facts["loss"] == "none":
        return f"{size}, the mean of the records."
    penalty = "no penalty"
    if facts["penalty"] != "none":
        penalty = f"{facts['penalty']} penalty {float(facts['strength']):.3g}"
    return f"{size}, {facts['loss']} loss, {penalty}."


def budget_in_words(facts: Mapping[str, Any]) -> str:
    """Return delta, as 1/n^2 where it is that, and adjacency."""
    value, square = float(facts["delta"]), float(facts["n"]) ** 2
    name = "1/n^2 = " if abs(value * square - 1) < 1e-6 else ""
    return f"delta = {name}{value:.2g}, adjacency {facts['adjacency']}"


def origin_in_words(drawn: Iterable[Bands], *folders: Path) -> str:
    """Return the runs that computed some lines with their commits, the latest first.

    Also which of their algorithms have not passed `dp-erm-bench check`, or with a
    doubt.

    Parameters
    ----------
    drawn : iterable of LineErrors or Scaling
        The lines.
    folders : Path
        The results folders, with the manifests of their runs.
    """
    drawn = list(drawn)
    names = runs_of(drawn)
    known = {
        run: next(
            (c for c in (commit_in_words(one, run) for one in folders) if c != UNKNOWN),
            "",
        )
        for run in names[:NAMED_RUNS]
    }
    shown = ", ".join(f"{run} ({commit or UNKNOWN})" for run, commit in known.items())
    more = len(names) - NAMED_RUNS
    tail = f"; {more} more in log.txt" if more > 0 else ""
    return join_paragraphs(
        f"Computed by runs/{shown}{tail}." if shown else "",
        in_doubt(sorted({name for one in drawn for name in one.unchecked})),
    )


def in_doubt(names: Iterable[str]) -> str:
    """Return which algorithms have not passed `check`, or passed with a doubt.

    Parameters
    ----------
    names : iterable of str
        What `unchecked_in` returns.
    """
    names = [*names]
    half = [name for name in names if name.endswith(")")]
    foreign = ", ".join(name for name in names if name not in half)
    return join_paragraphs(
        f"Not passed by dp-erm-bench check: {foreign}." if foreign else "",
        f"Passed with a doubt: {', '.join(half)}." if half else "",
    )


def runs_of(drawn: Iterable[Bands]) -> list[str]:
    """Return the runs behind some lines, the latest first."""
    return sorted({run for one in drawn for run in one.runs}, reverse=True)


UNKNOWN = "commit unknown"


def commit_in_words(folder: Path, run: str) -> str:
    """Return a run's commit, and whether files were changed since."""
    environment = read_run(folder, run).get("environment")
    git = environment.get("git") if isinstance(environment, dict) else None
    git = git if isinstance(git, dict) else {}
    name = git.get("commit")
    if not isinstance(name, str) or not name:
        return UNKNOWN
    if "dirty" not in git:
        return f"commit {name[:7]}, with or without changes"
    return f"commit {name[:7]}{', with changes' if git['dirty'] else ''}"


def seeds_in_words(runs: Iterable[LineErrors], profile: str) -> str:
    """Return a sentence with the number of seeds behind median and band."""
    counts = sorted({run.n_seeds for run in runs})
    return (
        f"Median and min..max of {' or '.join(map(str, counts))} report seeds at the "
        f"setting tuned on other seeds (profile {profile})."
    )


def uncharged_by_line(lines: Lines) -> str:
    """Return the uses of the data that no budget pays for, by line."""
    by_list: dict[str, list[str]] = {}
    for line, run in lines.items():
        text = ", ".join(uses_of_run(run)) or "none"
        by_list.setdefault(text, []).append(style_of(line).label)
    if len(by_list) == 1:
        return f"Uncharged: {next(iter(by_list))}."
    groups = [f"{text} ({'; '.join(names)})" for text, names in by_list.items()]
    return f"Uncharged: {'; '.join(groups)}."


def unlike_bounds_in_words(runs: Iterable[LineErrors]) -> str:
    """Return a sentence on the lines of a panel that are under different bounds."""
    import pandas as pd

    return literal_text(under_bounds(pd.DataFrame([run.facts for run in runs])))


def uses_of_run(run: LineErrors) -> list[str]:
    """Return the uncharged uses of the data by one line."""
    names = run.facts["uncharged"]
    return names.split(",") if isinstance(names, str) and names else []


def proof_in_words(run: LineErrors) -> str:
    """Return the certified epsilon of one line, or none."""
    return (
        "none" if math.isnan(run.certified_epsilon) else f"{run.certified_epsilon:.3g}"
    )


def setting_in_words(run: LineErrors) -> str:
    """Return the chosen parameters of a line as `name=value` pairs."""
    params = json.loads(run.facts["params"])
    return ", ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in sorted(params.items())
        if value is not None
    )


def caption_paragraphs(drawn: Shown, table: pd.DataFrame | None = None) -> str:
    """Return what every caption says: statistics, budget, what was not charged.

    `table` is the `summary_of` the ends, if there is one already.
    """
    rows = drawn.rows
    budget = [
        f"{name} = {literal_text(', '.join(sorted({*text_of(rows[name])})[:6]))}"
        for name in ("epsilon", "adjacency", "calibration")
    ]
    proved = rows["epsilon_certified"] <= rows["epsilon"] * (1 + 1e-6)
    beyond = sorted({*rows.loc[~proved & np.isfinite(rows["epsilon"]), "line"]})
    lost = final_rows(rows[rows["status"] == "diverged"])
    return join_paragraphs(
        f"{drawn.statistic_in_words[0].upper()}{drawn.statistic_in_words[1:]}.",
        f"{'; '.join(budget)}.",
        f"Uncharged: {_uses_in_words(rows)}.",
        f"Certified epsilon above the nominal one or unknown: {_few_names(beyond)}.",
        f"Diverged, counted as infinite: {len(lost)} runs." if len(lost) else "",
        *map(literal_text, drawn.left_out),
        literal_text(drawn.unlike),
        literal_text(nothing_beaten(drawn, table)),
        origin_in_words(
            [Bands(np.empty(0), runs=runs_in(rows), unchecked=unchecked_in(rows))],
            *(drawn.view.folder, *drawn.view.others),
        ),
    )


def _uses_in_words(rows: pd.DataFrame) -> str:
    """Return what was not charged, and of which lines where they differ."""
    # There may be 10^5 lines: a frame of each takes long.
    pairs = rows[["line", "uncharged"]].fillna("").drop_duplicates()
    uses: dict[str, set[str]] = {}
    for line, text in pairs.itertuples(index=False, name=None):
        uses.setdefault(line, set()).update(filter(None, text.split(",")))
    by_list: dict[str, list[str]] = {}
    for line, used in uses.items():
        text = literal_text(", ".join(sorted(used))) or "none"
        by_list.setdefault(text, []).append(line)
    if len(by_list) == 1:
        return next(iter(by_list))
    return "; ".join(f"{text} ({_few_names(lines)})" for text, lines in by_list.items())


def _few_names(names: Sequence[str]) -> str:
    shown = [literal_text(name) for name in names[:8]]
    more = [f"{len(names) - 8} more"] if len(names) > 8 else []
    return "; ".join([*shown, *more]) or "no line"
