"""Lines along an axis: of report runs, or computed without any, each with its slope."""

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
    """Return the measured slopes of lines against an axis, empty if there are none."""
    values = [
        f"{style_of(line).label} {rate.slope:.2f}{_interval_in_words(rate)}"
        for line, rate in lines.items()
        if isinstance(rate, Scaling) and math.isfinite(rate.slope)
    ]
    return f"slopes of means against {axis}: {'; '.join(values)}" if values else ""


def _interval_in_words(rate: Scaling) -> str:
    """Return the interval of the slope of a quantity, in words; empty if unknown."""
    known = rate.quantity and np.isfinite(rate.interval).all()
    return " [{:.2f}, {:.2f}]".format(*rate.interval) if known else ""


class LineSource:
    """Lines that need no run; a subclass is a dataclass of what they depend on."""

    @property
    def labels(self) -> tuple[str, str]:
        """Return what stands at the x axis and at the y axis."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse what cannot be computed, before anything runs."""

    def lines(self) -> dict[str, Scaling]:
        """Return the lines by label."""
        raise NotImplementedError


@dataclass(frozen=True)
class Computed(LineSource):
    """The curves that statements of a paper are about (`papers.claims`)."""

    curves: PaperCurves

    @property
    def labels(self) -> tuple[str, str]:
        """Return what stands at the axes."""
        return self.curves.LABELS[self.curves.quantity]

    def lines(self) -> dict[str, Scaling]:
        """Return the lines by label, those that have a finite point."""
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
    """The noise of a release: its scale, and the epsilon that is certified for it."""

    release: Release
    scale: float
    epsilon_certified: float


@dataclass(frozen=True)
class Released:
    """The release of one line of the figure.

    Attributes
    ----------
    algorithm : str
        Name of its yaml.
    release : str
        Name of the solver's release.
    parameters : mapping
        The solver's parameters beside its number of iterations.
    per_feature : bool
        Whether an iteration touches one coordinate, so that a pass has p of them.
    calibration : str
        The calibration of its noise.
    """

    algorithm: str
    release: str
    parameters: dict[str, Any] = field(default_factory=dict)
    per_feature: bool = False
    calibration: str = "certified"

    def __post_init__(self) -> None:
        """Refuse an algorithm that there is not."""
        registry.check_choice("algorithm", self.algorithm, registry.names("algorithm"))


@dataclass(frozen=True)
class Noise(LineSource):
    """Noise of releases along `p` (its deviation) or `n_iter` (its scale).

    Each solver declares its releases, the accountant calibrates them, and the scale of
    their noise is read off. The problem is logistic loss on features within [-1, 1]:
    all L_j and M_j are equal, whatever p, and L_1 = 1 on the L1 ball of radius 1.

    Attributes
    ----------
    axis : str
        `p`: deviations on one number, in units of an entry of the mean gradient.
        `n_iter`: scales, as the releases have them.
    values : tuple of float
        Of the axis, increasing.
    releases : mapping of str to Released
        By the line's label.
    n, p, n_iter, epsilon, constraint
        The problem, the passes over it and the budget, delta being 1/n^2.
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
        """Refuse an axis that there is not."""
        registry.check_choice("axis", self.axis, list(NOISE_LABELS))

    @property
    def labels(self) -> tuple[str, str]:
        """Return what stands at the axes."""
        return NOISE_LABELS[self.axis]

    def check(self) -> None:
        """Refuse parameters and releases that an algorithm does not have."""
        for line, what in self.releases.items():
            run = self._declared_run(what, self.n_iter, self._unit_problem(2), 1.0)
            names = [release.name for release in run.releases]
            registry.check_choice(f"line {line}: release", what.release, names)

    def lines(self) -> dict[str, Scaling]:
        """Return the noise of each release."""
        x = np.array(self.values, float)
        return {k: Scaling(x, tuple(self.along(k)[:, None])) for k in self.releases}

    def along(self, line: str, values: Sequence[int] = ()) -> Array:
        """Return the noise of one line along the axis, shape (len(values),)."""
        at = values or self.values
        if self.axis == "p":
            return np.array([self._deviation_of(line, p) for p in at])
        return np.array([self.noise_of_line(line, n_iter).scale for n_iter in at])

    def noise_of_line(self, line: str, n_iter: int, p: int | None = None) -> Calibrated:
        """Return the noise of one line at some iterations, of p features if given."""
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
        """Return a run that has declared its releases; a multiplier costs no time."""
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
    """Return the deviation on an entry of the mean gradient at scale 1."""
    from dp_erm_bench.releases.gaussian import Gaussian
    from dp_erm_bench.releases.laplace import Laplace
    from dp_erm_bench.releases.noisy_max import NoisyMax

    if isinstance(release, NoisyMax):
        # Of Gumbel noise; a score is the gradient's entry by the root of M_j.
        M = float(problem.smoothness.columns[0])
        return math.pi / math.sqrt(6.0) * math.sqrt(M)
    if isinstance(release, Laplace):
        return math.sqrt(2.0)
    # A sum over the records rather than their mean.
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
    """One cell: lines along an axis, of report runs or of a source without any.

    Attributes
    ----------
    title : str
        Its title.
    x : str
        Its axis: a column that holds numbers, a key of datasets, or `quotient`. Of a
        source, what stands there, if not the source's own words.
    y : str
        The column that is drawn of the runs; F(w) - F* if not given.
    panel : str
        The runs': its label, or the common start of the names of its panels, each a
        point of the axis. Of a source, its name in claims: the figure's if not given.
    lines : tuple of str
        Labels of the runs' lines, in the order of the legend.
    source : mapping
        Where no run is needed: a `kind` of `SOURCES`, and its keys.
    shapes : mapping of str to (float, str)
        Bounds by what stands in the legend: the power of the axis, as a number or a
        fraction, or `log`, drawn through the first point of `anchor`; or `{power: -1/2,
        times: 3}`, drawn where it is.
    anchor : str
        A line; the first one if not given.
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
        """Refuse an axis, or a column, that there is not, and shapes of no power."""
        for shape in self.shapes.values():
            drawn_shape(shape, np.array([2.0]), (2.0, 1.0))
        if self.source:
            if self.lines or self.y:
                raise UsageError("source: has lines of its own: no lines and no y")
            self.source_of_lines.labels  # noqa: B018 (built, or refused)
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
        """Return the source."""
        found = figure.figure_of(self.source, "source", SOURCES)
        return found if isinstance(found, LineSource) else Computed(found)

    def look_up(
        self, drawing: Drawing, gaps: dict[str, list[str]]
    ) -> Mapping[str, Scaling]:
        """Return the lines that there are; what is missing is added to `gaps`.

        Parameters
        ----------
        drawing : Drawing
            With the table of the runs.
        gaps : dict of str to list of str
            Lines and points that are missing, by the reason.
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
        """Return what stands at the axes."""
        if self.source:
            x, y = self.source_of_lines.labels
            return self.x or x, y
        y = axis_words(self.y) if self.y else r"excess risk $F(w) - F^*$"
        return SYMBOLS.get(self.x, axis_words(self.x)), y


@dataclass(frozen=True)
class Lines(Figure):
    """Lines along an axis, cell beside cell, those of which a line ran.

    Attributes
    ----------
    name : str
        Of the file.
    cells : tuple of LinesCell
    about : str
        The caption's beginning.
    notes : tuple of str
        Further lines of the caption.
    label : str
        Of the y axis, if not what the first cell is of.
    """

    name: str
    cells: tuple[LinesCell, ...]
    about: str = ""
    notes: tuple[str, ...] = ()
    label: str = ""

    def __post_init__(self) -> None:
        """Refuse a name that is none of a file."""
        check_stem(self.name)

    def panel_lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the lines of each cell."""
        yield from (cell.lines for cell in self.cells)

    def check(self, lines: LinesOf) -> None:
        """Refuse panels and lines that the experiment does not have."""
        for cell in self.cells:
            if cell.source:
                cell.source_of_lines.check()
                continue
            ran = figure.lines_of_panel(lines, cell.panel, cell.x)
            for line in cell.lines:
                registry.check_choice(f"panel {cell.panel}: lines", line, ran)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the cells, none where none of the runs' lines ran."""
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
    """Return the sources of a kind, by the name of their cell, or of their figure."""
    return {
        cell.panel or one.name: cell.source_of_lines
        for one in figures
        if isinstance(one, Lines)
        for cell in one.cells
        if cell.source and isinstance(cell.source_of_lines, kind)
    }
