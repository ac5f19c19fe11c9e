"""Figures of rates: final values or noise along an axis, each with its measured slope.

For a figure of noise nothing is run: each solver declares its releases, the accountant
calibrates them, and the scale of their noise is read off. The problem is logistic loss
on features within [-1, 1]: all L_j and M_j are equal, whatever p, and L_1 = 1 on the L1
ball of radius 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report import figure, style
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.figure import QUOTIENT, Drawing, Figure, LinesOf, check_stem
from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.panels import origin, paragraphs, problem
from dp_erm_bench.report.scaling import Scaling, along, facts
from dp_erm_bench.report.style import house_style, of
from dp_erm_bench.results.statistics import BASELINES
from dp_erm_bench.results.table import MEASURED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dp_erm_bench.problems.erm.problem import ERMProblem
    from dp_erm_bench.releases.base import Release
    from dp_erm_bench.run import Run

SHAPES: tuple[Any, ...] = tuple(
    {"color": colour, "linestyle": dashes, "linewidth": 0.9, "zorder": 1.2}
    for colour in ("#444444", style.BROWN)
    for dashes in ((0, (6, 1.5, 1, 1.5)), (0, (4, 1, 1, 1, 1, 1)), "solid", (0, (1, 1)))
)
"""The looks of bounds: none is that of w = 0."""


def form(power: float | str) -> Callable[[Array], Array]:
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


def drawn_shape(shape: Any, x: Array, anchor: float) -> Array:
    """Return a shape along an axis, (len(x),).

    Parameters
    ----------
    shape : float, str or mapping
        As in `RateCell.shapes`: a power goes through the anchor at the first x; with
        `times`, its value at 1, it stands where it is.
    x : ndarray
        Values of the axis.
    anchor : float

    Raises
    ------
    UsageError
        If it is no power, or its value no positive number.
    """
    if not isinstance(shape, Mapping):
        values = form(shape)(x)
        return np.asarray(values / values[0] * anchor)
    times = shape.get("times")
    known = isinstance(times, int | float) and math.isfinite(times) and times > 0
    if {*shape} != {"power", "times"} or not known:
        raise UsageError(
            f"shapes={dict(shape)}: must be power and times, a number above 0"
        )
    return np.asarray(times * form(shape["power"])(x))


@dataclass(frozen=True)
class Cross:
    """A cell of a sheet: lines along one axis beside the shapes of bounds.

    Attributes
    ----------
    title, axis : str
        Its title, and the label of its x axis.
    rates : mapping of str to Scaling
        The lines by their labels in the table, at least one.
    shapes : mapping of str to (float, str, mapping)
        How bounds depend on the axis, by label, see `drawn_shape`; the anchor is the
        first point of the line `anchor`.
    anchor : str
        A line; the first one if not given.
    """

    title: str
    axis: str
    rates: Mapping[str, Scaling]
    shapes: Mapping[str, Any] = field(default_factory=dict)
    anchor: str = ""


def draw_cross(ax: Axes, cross: Cross, shapes: Sequence[str] = ()) -> None:
    """Draw median and range of each line, the baselines and the anchored shapes.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    cross : Cross
        The cell to draw.
    shapes : sequence of str
        The labels of all shapes of the sheet, by whose places they are told apart.
    """
    rates = cross.rates.values()
    for line, rate in cross.rates.items():
        band = [rate.low, rate.median, rate.high]
        style.draw_line(ax, rate.x, band, of(line))
    low = min(float(np.min(rate.low)) for rate in rates)
    high = max(_top(rate) for rate in rates)
    anchor = cross.rates.get(cross.anchor, next(iter(rates)))
    for name in BASELINES:
        beside = {k: r.beside[name] for k, r in cross.rates.items() if name in r.beside}
        levels = {line: (cross.rates[line].x, own) for line, own in beside.items()}
        values = style.draw_baseline(ax, name, levels)
        low, high = min([low, *values]), max([high, *values])
    labels = [*dict.fromkeys([*shapes, *cross.shapes])]
    along = np.geomspace(anchor.x[0], anchor.x[-1], 60)
    for label, power in cross.shapes.items():
        values = drawn_shape(power, along, float(anchor.median[0]))
        ax.plot(along, values, label=label, **SHAPES[labels.index(label) % len(SHAPES)])
    ax.set_title(cross.title)
    ax.set_xlabel(cross.axis)
    every = sorted({float(at) for rate in rates for at in rate.x})
    style.scale_numbers(ax, every, (low, high))


def _top(rate: Scaling) -> float:
    """Return the upper end to show: the band, but no far outlier."""
    finite = rate.median[np.isfinite(rate.median)]
    most = 10.0 * float(finite.max()) if finite.size else 1.0
    return min(float(np.max(rate.high)), most)


def slopes(cross: Cross) -> str:
    """Return the measured slopes of the lines in words."""
    values = [
        f"{of(line).label} {rate.slope:.2f}{_interval(rate)}"
        for line, rate in cross.rates.items()
        if math.isfinite(rate.slope)
    ]
    return f"Slopes against {cross.axis}: {'; '.join(values) or 'none'}."


def _interval(rate: Scaling) -> str:
    """Return the interval of the slope of a quantity, in words; empty if unknown."""
    known = rate.quantity and np.isfinite(rate.interval).all()
    return " [{:.2f}, {:.2f}]".format(*rate.interval) if known else ""


def save_crosses(
    crosses: Sequence[Cross],
    path: Path,
    caption: str,
    quantity: str,
    size: tuple[float, float] = (2.9, 2.5),
) -> list[Path]:
    """Save cells side by side, with the measured slopes in the caption.

    Parameters
    ----------
    crosses : sequence of Cross
        The cells; none of them, no files.
    path : Path
        Folder and stem.
    caption : str
        The text before the slopes.
    quantity : str
        The label of the y axis.
    size : (float, float)
        Of one cell in inches.
    """
    if not crosses:
        return []
    shapes = [label for cross in crosses for label in cross.shapes]
    cells: list[Cell] = [
        partial(draw_cross, cross=cross, shapes=shapes) for cross in crosses
    ]
    drawn = [rate for cross in crosses for rate in cross.rates.values()]
    along = [cross.axis for cross in crosses]
    measured = [
        f"{cross.title}. " * (along.count(cross.axis) > 1) + slopes(cross)
        for cross in crosses
    ]
    text = paragraphs(caption, *measured, origin(drawn, path.parent.parent))
    return save(Sheet(cells, len(cells), text, size, quantity), path)


AXES = ("p", "n_iter")


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
class Noise(Figure):
    """Noise of releases along `p` (its deviation) or `n_iter` (its scale).

    Attributes
    ----------
    name, title, label : str
        Of the file and of the claims on it; above the cell; along its axis.
    axis : str
        `p`: deviations on one number, in units of an entry of the mean gradient.
        `n_iter`: scales, as the releases have them.
    values : tuple of float
        Of the axis, increasing.
    lines : mapping of str to Released
        The releases, by label.
    about : str
        The caption; not needed beside other cells.
    n, p, n_iter, epsilon, constraint
        The problem, the passes over it and the budget, delta being 1/n^2.
    """

    name: str
    title: str
    axis: str
    label: str
    values: tuple[int, ...]
    lines: dict[str, Released]
    about: str = ""
    n: int = 1000
    p: int = 20
    n_iter: int = 10
    epsilon: float = 1.0
    constraint: str = "none"

    def __post_init__(self) -> None:
        """Refuse invalid names and axes."""
        check_stem(self.name)
        registry.check_choice("axis", self.axis, list(AXES))

    def check(self, lines: LinesOf) -> None:
        """Refuse parameters and releases that an algorithm does not have."""
        for line, what in self.lines.items():
            run = self._run(what, self.n_iter, self._problem(2), 1.0)
            names = [release.name for release in run.releases]
            registry.check_choice(f"line {line}: release", what.release, names)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the noise of each release on a sheet of its own."""
        quantity = "noise, standard deviation" if self.axis == "p" else "noise, scale"
        path = drawing.path(self.name)
        with house_style():
            return save_crosses([self.cross()], path, self.about, quantity, (4.4, 3.0))

    def cross(self) -> Cross:
        """Return the cell of a sheet, with all lines."""
        x = np.array(self.values, float)
        rates = {
            line: Scaling(x, tuple(self.along(line)[:, None])) for line in self.lines
        }
        return Cross(self.title, self.label, rates)

    def along(self, line: str, values: Sequence[int] = ()) -> Array:
        """Return the noise of one line along the axis, shape (len(values),)."""
        at = values or self.values
        if self.axis == "p":
            return np.array([self._deviation(line, p) for p in at])
        return np.array([self.calibrated(line, n_iter).scale for n_iter in at])

    def calibrated(self, line: str, n_iter: int, p: int | None = None) -> Calibrated:
        """Return the noise of one line at some iterations, of p features if given."""
        what = self.lines[line]
        run = self._run(what, n_iter, self._problem(p or self.p), what.calibration)
        (release,) = (one for one in run.releases if one.name == what.release)
        calibration, size = run.calibration, float(np.max(release.sensitivity))
        scale = calibration.z * release.weight * size
        return Calibrated(release, scale, calibration.epsilon_certified)

    def _problem(self, p: int) -> ERMProblem:
        from dp_erm_bench.audit.accounting import unit_problem

        constraint = registry.build("constraint", self.constraint)
        return replace(unit_problem(self.n, p), constraint=constraint)

    def _run(
        self, what: Released, n_iter: int, problem: ERMProblem, noise: str | float
    ) -> Run:
        """Return a run that has declared its releases; a multiplier costs no time."""
        from dp_erm_bench.run import Run

        fixed = {"n_iter": n_iter, "smoothness": "public", **what.parameters}
        solver = registry.build("algorithm", what.algorithm, **fixed)
        budget = Budget(self.epsilon, "1/n^2")
        return Run(problem, [solver], budget, noise, ["figure"])

    def _deviation(self, line: str, p: int) -> float:
        n_iter = self.n_iter * (p if self.lines[line].per_feature else 1)
        noise = self.calibrated(line, n_iter, p)
        return noise.scale * _unit(noise.release, self._problem(p))


def _unit(release: Release, problem: ERMProblem) -> float:
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


@dataclass(frozen=True)
class RateCell:
    """One cell: the lines of a panel along an axis.

    Attributes
    ----------
    panel : str
        Its label; against a quotient the common start of its panels' names.
    axis : str
        Its x axis: n, p, epsilon, strength, nonzeros or quotient.
    title : str
        Its title.
    lines : tuple of str
        In the order of the legend.
    shapes : mapping of str to (float, str)
        Bounds by what stands in the legend: the power of the axis, as a number or a
        fraction, or `log`, drawn through the first point of `anchor`; or `{power: -1/2,
        times: 3}`, drawn where it is.
    anchor : str
        A line; the first one if not given.
    quantity : str
        The column that is drawn; F(w) - F* if not given.
    """

    panel: str
    axis: str
    title: str
    lines: tuple[str, ...]
    shapes: dict[str, Any] = field(default_factory=dict)
    anchor: str = ""
    quantity: str = ""

    def __post_init__(self) -> None:
        """Refuse an axis, or a quantity, that there is not, and shapes of no power."""
        if self.quantity:
            allowed = [*MEASURED, *registry.POPULATION]
            registry.check_choice("quantity", self.quantity, allowed)
        registry.check_choice("axis", self.axis, list(SYMBOLS))
        for shape in self.shapes.values():
            drawn_shape(shape, np.array([2.0]), 1.0)


@dataclass(frozen=True)
class Rates(Figure):
    """Cells side by side, those of which a line ran.

    Attributes
    ----------
    name : str
        Of the file.
    about : str
        The problem in words, the caption's beginning; {problem} is the data set of the
        first cell with its size and the objective.
    cells : tuple of Cell
    notes : tuple of str
        Further lines of the caption.
    beside : tuple of Noise
        Cells that need no runs, on the same sheet.
    size : tuple of float
        Width and height of a cell in inches.
    quantity : str
        The label of the y axis.
    """

    name: str
    about: str
    cells: tuple[RateCell, ...]
    notes: tuple[str, ...] = ()
    beside: tuple[Noise, ...] = ()
    size: tuple[float, ...] = (2.9, 2.5)
    quantity: str = r"excess risk $F(w) - F^*$"

    def __post_init__(self) -> None:
        """Refuse a name that is none of a file, and a size that is none."""
        figure.check_stem(self.name)
        if len(self.size) != 2 or min(self.size) <= 0:
            raise UsageError(f"size={list(self.size)}: must be width and height")

    def check(self, lines: LinesOf) -> None:
        """Refuse panels and lines that the experiment does not have."""
        for noise in self.beside:
            noise.check(lines)
        for cell in self.cells:
            ran = figure.lines_of(lines, cell.panel, cell.axis)
            for line in cell.lines:
                registry.check_choice(f"panel {cell.panel}: lines", line, ran)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the cells, none where nothing ran."""
        table, config = drawing.table, drawing.config
        style.reserve(line for cell in self.cells for line in cell.lines)
        blocks = {str(block["panel"]) for block in config.get("blocks") or ()}
        crosses: list[Cross] = []
        rows: list[Mapping[str, Any]] = []
        gaps: list[str] = []
        for cell in self.cells:
            look = partial(
                along, table, config, cell.panel, cell.axis, quantity=cell.quantity
            )
            rates, missing = figure.looked_up(cell.lines, look)
            if rates:
                symbol = SYMBOLS[cell.axis]
                crosses.append(
                    Cross(cell.title, symbol, rates, cell.shapes, cell.anchor)
                )
                panels = figure.members(blocks, cell.panel, cell.axis)
                rows.append(facts(table, min(panels, default=cell.panel)))
                gaps += [f"{of(line).label}: {why}" for line, why in missing.items()]
        if not crosses:
            return []
        uses = [use for row in rows for use in str(row["uncharged"]).split(",")]
        about = self.about.replace("{problem}", problem(rows[0]))
        first = rows[0]
        fixed = not math.isclose(first["delta"], first["n"] ** -2.0)
        delta = f"{first['delta']:g}" if fixed else "1/n^2"
        chosen = ", at settings tuned on other seeds" if first["tuned"] else ""
        counts = {len(ends) for one in crosses[0].rates.values() for ends in one.ends}
        text = [
            f"{about} delta = {delta}, adjacency {first['adjacency']}. Median and "
            f"min..max of {' or '.join(map(str, sorted(counts)))} report runs at each "
            f"point{chosen} (profile {drawing.profile}).",
            f"Uncharged: {', '.join(filter(None, dict.fromkeys(uses))) or 'none'}.",
            *self.notes,
            *_remarks(crosses),
        ]
        text += [f"Not drawn: {'; '.join(dict.fromkeys(gaps))}."] if gaps else []
        crosses += [noise.cross() for noise in self.beside]
        size, path = (self.size[0], self.size[1]), drawing.path(self.name)
        with house_style():
            return save_crosses(crosses, path, "\n".join(text), self.quantity, size)


def noises(figures: Iterable[Figure]) -> dict[str, Noise]:
    """Return the figures of noise by name, also those beside others on a sheet."""
    among: list[Noise] = []
    for one in figures:
        among += one.beside if isinstance(one, Rates) else ()
        among += [one] if isinstance(one, Noise) else []
    return {noise.name: noise for noise in among}


def _remarks(crosses: Iterable[Cross]) -> Iterator[str]:
    """Yield a sentence for lines that are not proved, and for missing points.

    A line is not proved if its certified epsilon is larger than the nominal one; the
    reason for a missing point is that at the largest value of the axis.
    """
    worst: dict[str, float] = {}
    unserved: dict[tuple[str, str], dict[float, str]] = {}
    for cross in crosses:
        for line, rate in cross.rates.items():
            if not math.isnan(rate.excess):
                worst[line] = max(worst.get(line, 0.0), rate.excess)
            if rate.skipped:
                unserved.setdefault((line, cross.axis), {}).update(rate.skipped)
    beyond = [
        f"{of(line).label} "
        + (f"(up to {most:.2f} times)" if math.isfinite(most) else "(none is proved)")
        for line, most in worst.items()
        if most > 1 + 1e-6
    ]
    if worst:
        lines = "; ".join(beyond) or "no line"
        yield f"Certified epsilon above the nominal one: {lines}."
    for (line, axis), places in unserved.items():
        values = ", ".join(f"{at:g}" for at in sorted(places))
        why = places[max(places)]
        yield f"{of(line).label}: no point at {axis} = {values} ({why})."
