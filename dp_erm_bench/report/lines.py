"""Figures of lines along an axis, either from runs or computed without runs.

A *line* is drawn as one curve. It consists of the runs of one algorithm, or comes from
a *source*, which computes it without runs. A *cell* is one plot of a figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report import figure
from dp_erm_bench.report.captions import caption_of, name_few
from dp_erm_bench.report.curves import Array, RunsAlong
from dp_erm_bench.report.draw import (
    Chart,
    chart_of_lines,
    charts_of_figure,
    drawn_shape,
    split_chart,
)
from dp_erm_bench.report.figure import QUOTIENT, Drawing, Figure, LinesOf, check_stem
from dp_erm_bench.report.layout import Sheet, save_sheet
from dp_erm_bench.report.scaling import Scaling, finals_along
from dp_erm_bench.report.style import house_style, style_of
from dp_erm_bench.results.columns import COLUMNS, COUNT, NUMBER, axis_words

if TYPE_CHECKING:
    from dp_erm_bench.papers.claims import PaperCurves
    from dp_erm_bench.problems.erm.problem import ERMProblem
    from dp_erm_bench.releases.base import Release
    from dp_erm_bench.run import Run


def slopes_in_words(axis: str, lines: Mapping[str, RunsAlong]) -> str:
    """Return the measured slopes of lines as a string; empty if no slope is known."""
    values = [
        f"{style_of(line).label} {rate.slope:.2f}{_interval_in_words(rate)}"
        for line, rate in lines.items()
        if isinstance(rate, Scaling) and math.isfinite(rate.slope)
    ]
    return f"slopes of means against {axis}: {'; '.join(values)}" if values else ""


def _interval_in_words(rate: Scaling) -> str:
    """Return the interval of a measured slope as a string; empty if unknown."""
    known = rate.quantity and np.isfinite(rate.interval).all()
    return " [{:.2f}, {:.2f}]".format(*rate.interval) if known else ""


class LineSource:
    """Base class of lines that need no run; a subclass is a dataclass of inputs."""

    @property
    def labels(self) -> tuple[str, str]:
        """Return the labels of the x axis and of the y axis."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise UsageError, before anything runs, for lines that cannot be computed."""

    def lines(self) -> dict[str, Scaling]:
        """Return the lines by label."""
        raise NotImplementedError


@dataclass(frozen=True)
class Computed(LineSource):
    """Curves that are computed from formulas of a paper (`papers.claims`)."""

    curves: PaperCurves

    @property
    def labels(self) -> tuple[str, str]:
        """Return the labels of the two axes."""
        return self.curves.LABELS[self.curves.quantity]

    def lines(self) -> dict[str, Scaling]:
        """Return the lines with at least one finite point, by label."""
        found = {}
        for label, number in self.curves.numbers().items():
            ends = {x: np.atleast_1d(number(x)) for x in self.curves.values}
            ends = {x: drawn for x, drawn in ends.items() if np.isfinite(drawn).all()}
            if ends:
                x = np.array([*ends], np.float64)
                found[label] = Scaling(x, tuple(ends.values()))
        return found


SOURCES = {
    "bias_reduced": "dp_erm_bench.papers.claims.BiasReduced",
    "noise": "dp_erm_bench.report.lines.Noise",
    "one_pass": "dp_erm_bench.papers.claims.OnePass",
    "structured": "dp_erm_bench.papers.claims.Structured",
}
S = TypeVar("S", bound=LineSource)

NOISE_LABELS = {
    "p": ("number of features p", "noise, standard deviation"),
    "n_iter": ("steps T", "noise, scale"),
}


class Calibrated(NamedTuple):
    """A release, the scale of its calibrated noise, and the certified epsilon."""

    release: Release
    scale: float
    epsilon_certified: float


@dataclass(frozen=True)
class Released:
    """The release whose noise is drawn as one line of the figure.

    Attributes
    ----------
    algorithm : str
        Name of the algorithm, equal to the name of its yaml file.
    release : str
        Name of the release among those of the solver.
    parameters : mapping
        Parameters of the solver besides its number of iterations.
    per_feature : bool
        Whether an iteration updates one coordinate, so that a pass has p iterations.
    calibration : str
        Calibration of the noise, such as `certified`.
    """

    algorithm: str
    release: str
    parameters: dict[str, Any] = field(default_factory=dict)
    per_feature: bool = False
    calibration: str = "certified"

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown algorithm."""
        registry.check_choice("algorithm", self.algorithm, registry.names("algorithm"))


@dataclass(frozen=True)
class Noise(LineSource):
    """Lines that show the noise of releases against `p` or `n_iter`.

    Each solver declares its releases, and the accountant calibrates them. No solver
    runs. The problem has the logistic loss and features within [-1, 1]. All L_j and M_j
    are then equal for any p, and L_1 = 1 on the L1 ball of radius 1.

    Attributes
    ----------
    axis : str
        If `p`, the values are standard deviations in units of an entry of the mean
        gradient. If `n_iter`, they are noise scales as the releases define them.
    values : tuple of int
        Points of the axis, increasing.
    releases : mapping of str to Released
        The release of each line, by its label.
    n, p, n_iter, epsilon, constraint
        Numbers of records and features of the problem, number of passes over the data,
        epsilon of the budget (whose delta is 1/n^2), and name of the constraint.
    """

    axis: str
    values: tuple[int, ...]
    releases: dict[str, Released]
    n: int = 1000
    p: int = 20
    n_iter: int = 10
    epsilon: float = 1.0
    constraint: str = "none"

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown axis."""
        registry.check_choice("axis", self.axis, list(NOISE_LABELS))

    @property
    def labels(self) -> tuple[str, str]:
        """Return the labels of the two axes."""
        return NOISE_LABELS[self.axis]

    def check(self) -> None:
        """Raise UsageError for parameters or releases that an algorithm lacks."""
        for line, what in self.releases.items():
            run = self._declared_run(what, self.n_iter, self._unit_problem(2), 1.0)
            names = [release.name for release in run.releases]
            registry.check_choice(f"line {line}: release", what.release, names)

    def lines(self) -> dict[str, Scaling]:
        """Return the noise of each release along the axis, by the label of the line."""
        x = np.array(self.values, float)
        return {k: Scaling(x, tuple(self.along(k)[:, None])) for k in self.releases}

    def along(self, line: str, values: Sequence[int] = ()) -> Array:
        """Return the noise of one line at values of the axis, by default at all."""
        at = values or self.values
        if self.axis == "p":
            return np.array([self._deviation_of(line, p) for p in at])
        return np.array([self.noise_of_line(line, n_iter).scale for n_iter in at])

    def noise_of_line(self, line: str, n_iter: int, p: int | None = None) -> Calibrated:
        """Return the calibrated noise of one line.

        Parameters
        ----------
        line : str
            Label of the line.
        n_iter : int
            Number of iterations of the solver.
        p : int or None
            Number of features; if None, that of the figure.
        """
        what = self.releases[line]
        run = self._declared_run(
            what, n_iter, self._unit_problem(p or self.p), what.calibration
        )
        (release,) = (one for one in run.releases if one.name == what.release)
        calibration, size = run.calibration, float(np.max(release.sensitivity))
        scale = calibration.z * release.weight * size
        return Calibrated(release, scale, calibration.epsilon_certified)

    def _unit_problem(self, p: int) -> ERMProblem:
        from dp_erm_bench.audit.accounting import unit_problem

        constraint = registry.build("constraint", self.constraint)
        return replace(unit_problem(self.n, p), constraint=constraint)

    def _declared_run(
        self, what: Released, n_iter: int, problem: ERMProblem, noise: str | float
    ) -> Run:
        """Return a run with its declared releases, calibrated but not started.

        If `noise` is a number, it is the noise multiplier, and no calibration is
        needed.
        """
        from dp_erm_bench.run import Run

        fixed = {"n_iter": n_iter, "smoothness": "public", **what.parameters}
        solver = registry.build("algorithm", what.algorithm, **fixed)
        budget = Budget(self.epsilon, "1/n^2")
        return Run(problem, [solver], budget, noise, ["figure"])

    def _deviation_of(self, line: str, p: int) -> float:
        n_iter = self.n_iter * (p if self.releases[line].per_feature else 1)
        noise = self.noise_of_line(line, n_iter, p)
        return noise.scale * _unit_deviation(noise.release, self._unit_problem(p))


def _unit_deviation(release: Release, problem: ERMProblem) -> float:
    """Return the standard deviation of a mean gradient's entry at noise scale 1."""
    from dp_erm_bench.releases.gaussian import Gaussian
    from dp_erm_bench.releases.laplace import Laplace
    from dp_erm_bench.releases.noisy_max import NoisyMax

    if isinstance(release, NoisyMax):
        # The noise is Gumbel; scores are entries of the gradient over the root of M_j.
        M = float(problem.smoothness.columns[0])
        return math.pi / math.sqrt(6.0) * math.sqrt(M)
    if isinstance(release, Laplace):
        return math.sqrt(2.0)
    # Other releases are sums over the records rather than means.
    return 1.0 if type(release) is Gaussian else 1.0 / problem.n


SYMBOLS = {
    "p": "p",
    "n": "n",
    "epsilon": r"$\varepsilon$",
    "strength": r"$\kappa$",
    "nonzeros": "$s$",
    QUOTIENT: r"$\Vert L\Vert_{M^{-1}} R_M\;/\;(\Lambda R_I)$",
}
NUMBERS = [name for name, one in COLUMNS.items() if one.dtype in (NUMBER, COUNT)]


@dataclass(frozen=True)
class LinesCell:
    """One cell of a figure, which shows lines along an axis.

    The lines consist of report runs (all runs except those for tuning), or come from a
    source.

    Attributes
    ----------
    title : str
        Title of the cell.
    x : str
        Name of the axis: a numeric column of the table, a parameter of datasets, or
        `quotient` (`report.scaling`). If the cell has a source, a label that replaces
        the source's own label of the axis.
    y : str
        Name of the column to draw; if empty, F(w) - F* is drawn.
    panel : str
        Label of the runs' panel, or the beginning that the labels of several panels
        have in common. In that case each panel is a point of the axis. If the cell has
        a source, the name that claims use for the source; by default the name of the
        figure.
    lines : tuple of str
        Labels of the runs' lines, in the order of the legend.
    source : mapping
        A description of lines that need no run: its `kind` is a name in `SOURCES`, and
        its other keys are the parameters of this kind. Empty for lines of runs.
    shapes : mapping of str to float, str or mapping
        Theoretical bounds to draw, by their label in the legend. A power of the axis (a
        number or a fraction) or `log` is drawn through the first point of `anchor`. A
        mapping such as `{power: -1/2, times: 3}` is drawn as it is.
    anchor : str
        Label of the line through whose first point bounds are drawn; the first line if
        empty.
    """

    title: str
    x: str = ""
    y: str = ""
    panel: str = ""
    lines: tuple[str, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)
    shapes: dict[str, Any] = field(default_factory=dict)
    anchor: str = ""

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown axis or column, or for an invalid shape."""
        for shape in self.shapes.values():
            drawn_shape(shape, np.array([2.0]), (2.0, 1.0))
        if self.source:
            if self.lines or self.y:
                raise UsageError("source: has lines of its own: no lines and no y")
            self.source_of_lines.labels  # noqa: B018 (raises an error if invalid)
            return
        for key in ("x", "panel", "lines"):
            if not getattr(self, key):
                raise UsageError(f"{key}: must be given without a source")
        if self.y:
            registry.check_choice("y", self.y, NUMBERS)
        if self.x not in (*SYMBOLS, *NUMBERS):
            datasets = registry.names("dataset")
            keys = {
                key for one in datasets for key in registry.read_choice("dataset", one)
            }
            registry.check_choice("x", self.x, [*SYMBOLS, *NUMBERS, *sorted(keys)])

    @cached_property
    def source_of_lines(self) -> LineSource:
        """Return the source that the mapping `source` describes."""
        found = figure.figure_of(self.source, "source", SOURCES)
        return found if isinstance(found, LineSource) else Computed(found)

    def look_up(
        self, drawing: Drawing, gaps: dict[str, list[str]]
    ) -> Mapping[str, Scaling]:
        """Return the lines that exist, and add the missing lines to `gaps`.

        Parameters
        ----------
        drawing : Drawing
            The input of the figure, with the table of the runs.
        gaps : dict of str to list of str
            The missing lines and points for each reason; changed in place.
        """
        if self.source:
            return self.source_of_lines.lines()
        where = drawing.table, drawing.config, self.panel, self.x
        ask = partial(finals_along, *where, quantity=self.y)
        found, missing = figure.look_up_lines(self.lines, ask)
        for line, why in missing.items():
            gaps.setdefault(why, []).append(style_of(line).label)
        for line, rate in found.items():
            for at, why in rate.skipped.items():
                point = f"{style_of(line).label} at {self.labels[0]} = {at:g}"
                gaps.setdefault(why, []).append(point)
        return found

    @property
    def labels(self) -> tuple[str, str]:
        """Return the labels of the two axes."""
        if self.source:
            x, y = self.source_of_lines.labels
            return self.x or x, y
        y = axis_words(self.y) if self.y else r"excess risk $F(w) - F^*$"
        return SYMBOLS.get(self.x, axis_words(self.x)), y


@dataclass(frozen=True)
class Lines(Figure):
    """Figure whose cells show lines along an axis; cells without lines are left out.

    Attributes
    ----------
    name : str
        Name of the file.
    cells : tuple of LinesCell
        The cells, in the order in which they are drawn.
    about : str
        The beginning of the caption.
    notes : tuple of str
        Further lines of the caption.
    label : str
        Label of the y axis; if empty, the label of the first cell is used.
    """

    name: str
    cells: tuple[LinesCell, ...]
    about: str = ""
    notes: tuple[str, ...] = ()
    label: str = ""

    def __post_init__(self) -> None:
        """Raise UsageError if the name is not valid for a file."""
        check_stem(self.name)

    def panel_lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the lines of each cell."""
        yield from (cell.lines for cell in self.cells)

    def check(self, lines: LinesOf) -> None:
        """Raise UsageError for panels or lines that the experiment does not have."""
        for cell in self.cells:
            if cell.source:
                cell.source_of_lines.check()
                continue
            ran = figure.lines_of_panel(lines, cell.panel, cell.x)
            for line in cell.lines:
                registry.check_choice(f"panel {cell.panel}: lines", line, ran)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the cells and return the files written.

        Nothing is drawn if lines of runs are wanted, but none of them ran.
        """
        charts: list[Chart] = []
        gaps: dict[str, list[str]] = {}
        for cell in self.cells:
            axis, lines = cell.labels[0], cell.look_up(drawing, gaps)
            if not lines:
                continue
            more: dict[str, Any] = {"shapes": cell.shapes, "anchor": cell.anchor}
            more["said"] = slopes_in_words(axis, lines)
            charts += split_chart(chart_of_lines(cell.title, axis, lines, **more))
        if not any(one.rows is not None for one in charts) and not all(
            cell.source for cell in self.cells
        ):
            return []
        lost = [f"{name_few(names)}: {why}" for why, names in gaps.items()]
        text = caption_of(
            charts := charts_of_figure(charts),
            *self.notes,
            f"Not drawn: {'; '.join(lost)}." if lost else "",
            about=self.about,
            profile=drawing.profile,
            folders=[drawing.folder.parent],
        )
        label, path = self.label or self.cells[0].labels[1], drawing.path(self.name)
        cells = [one for one in charts if not one.has_few_points]
        few = [one for one in charts if one.has_few_points]
        with house_style():
            sheet = Sheet(cells, text, label, tabled=few, mark=drawing.mark)
            return save_sheet(sheet, path)


def sources_of(figures: Iterable[Figure], kind: type[S]) -> dict[str, S]:
    """Return the sources of one class, by the name that claims use for them."""
    return {
        cell.panel or one.name: cell.source_of_lines
        for one in figures
        if isinstance(one, Lines)
        for cell in one.cells
        if cell.source and isinstance(cell.source_of_lines, kind)
    }
