"""Final values along n, p, epsilon or a quotient of bounds, with measured slopes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.caption import adjacency, problem
from dp_erm_bench.report.crosses import Cross, Shape, form, save_crosses
from dp_erm_bench.report.figure import Drawing, Figure, LinesOf, check_stem
from dp_erm_bench.report.missing import Missing
from dp_erm_bench.report.noise import Noise
from dp_erm_bench.report.quotients import QUOTIENT, along, quotients
from dp_erm_bench.report.scaling import Scaling, facts
from dp_erm_bench.report.style import house_style, of

SYMBOLS = {
    "p": "p",
    "n": "n",
    "epsilon": r"$\varepsilon$",
    QUOTIENT: r"$\Vert L\Vert_{M^{-1}} R_M\;/\;(\Lambda R_I)$",
}


@dataclass(frozen=True)
class Cell:
    """One cell: the lines of a panel along an axis.

    Attributes
    ----------
    panel : str
        Its label; against a quotient what the names of its panels begin with.
    axis : str
        What varies in it: n, p, epsilon or quotient.
    title : str
        What stands above it.
    lines : tuple of str
        In the order of the legend.
    shapes : mapping of str to (float, str)
        Bounds, drawn through the first point of `anchor`: the power of the axis, as a
        number or a fraction, or `log`, by what stands in the legend.
    anchor : str
        A line; the first one if not given.
    """

    panel: str
    axis: str
    title: str
    lines: tuple[str, ...]
    shapes: dict[str, Any] = field(default_factory=dict)
    anchor: str = ""

    def __post_init__(self) -> None:
        """Refuse an axis that there is not, and shapes that are no power."""
        registry.check_choice("axis", self.axis, list(SYMBOLS))
        for power in self.shapes.values():
            form(power)

    def members(self, lines: LinesOf) -> list[str]:
        """Return the panels that it is drawn from."""
        if self.axis == QUOTIENT:
            return [panel for panel in lines if panel.startswith(f"{self.panel}_")]
        return [self.panel] if self.panel in lines else []

    def cross(self, rates: Mapping[str, Scaling]) -> Cross:
        """Return what is drawn of it."""
        shapes = [Shape(label, form(power)) for label, power in self.shapes.items()]
        return Cross(self.title, SYMBOLS[self.axis], rates, shapes, self.anchor)


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
        What stands along the y axis.
    """

    name: str
    about: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    beside: tuple[Noise, ...] = ()
    size: tuple[float, ...] = (2.9, 2.5)
    quantity: str = r"excess risk $F(w) - F^*$"

    def __post_init__(self) -> None:
        """Refuse a name that is none of a file, and a size that is none."""
        check_stem(self.name)
        if len(self.size) != 2 or min(self.size) <= 0:
            raise UsageError(f"size={list(self.size)}: must be width and height")

    def check(self, lines: LinesOf) -> None:
        """Refuse panels and lines that the experiment does not have."""
        for noise in self.beside:
            noise.check(lines)
        for cell in self.cells:
            members = cell.members(lines)
            if not members:
                registry.check_choice("panel", cell.panel, list(lines))
            lines_run = {line: None for panel in members for line in lines[panel]}
            for line in cell.lines:
                registry.check_choice(
                    f"panel {cell.panel}: lines", line, list(lines_run)
                )

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the cells, none where nothing ran."""
        ran, gaps = self._ran(drawing)
        if not ran:
            return []
        crosses, rows = [cross for cross, _ in ran], [row for _, row in ran]
        common = {**rows[0], "uncharged": _uncharged(rows)}
        about = self.about.replace("{problem}", problem(common))
        text = [f"{about} {setting(common, crosses[0].rates, drawing.profile)}"]
        text += [*self.notes, *_unproved(crosses), *_unserved(crosses)]
        text += [f"Not drawn: {'; '.join(dict.fromkeys(gaps))}."] if gaps else []
        crosses += [noise.cross() for noise in self.beside]
        size, path = (self.size[0], self.size[1]), drawing.path(self.name)
        with house_style():
            return save_crosses(crosses, path, "\n".join(text), self.quantity, size)

    def _ran(
        self, drawing: Drawing
    ) -> tuple[list[tuple[Cross, Mapping[str, Any]]], list[str]]:
        """Return the cells of which a line ran, a row of each, and what is missing."""
        ran: list[tuple[Cross, Mapping[str, Any]]] = []
        gaps: list[str] = []
        for cell in self.cells:
            look = partial(along, drawing.table, drawing.config, cell.panel, cell.axis)
            rates, missing = looked_up(cell.lines, look)
            if rates:
                gaps += [f"{of(line).label}: {why}" for line, why in missing.items()]
                panel = cell.panel
                if cell.axis == QUOTIENT:
                    panel = min(quotients(drawing.config, panel))
                ran.append((cell.cross(rates), facts(drawing.table, panel)))
        return ran, gaps


def noises(figures: Iterable[Figure]) -> dict[str, Noise]:
    """Return the figures of noise by name, also those beside others on a sheet."""
    among: list[Noise] = []
    for figure in figures:
        among += figure.beside if isinstance(figure, Rates) else ()
        among += [figure] if isinstance(figure, Noise) else []
    return {noise.name: noise for noise in among}


def looked_up(
    lines: Sequence[str], look: Callable[[str], Scaling]
) -> tuple[dict[str, Scaling], dict[str, str]]:
    """Look up lines; return those that ran and why the others are missing."""
    rates: dict[str, Scaling] = {}
    missing: dict[str, str] = {}
    for line in lines:
        try:
            rates[line] = look(line)
        except Missing as reason:
            missing[line] = str(reason)
    return rates, missing


def setting(
    facts: Mapping[str, Any], rates: Mapping[str, Scaling], profile: str
) -> str:
    """Return adjacency, runs behind a point and uncharged uses for a caption.

    Parameters
    ----------
    facts : mapping
        A report row of the table.
    rates : mapping of str to Scaling
        The lines drawn.
    profile : str
        The profile that was run.
    """
    runs = sorted({len(ends) for rate in rates.values() for ends in rate.ends})
    count = " or ".join(str(number) for number in runs)
    return (
        f"delta = 1/n^2, {adjacency(facts)}. Median and min..max of {count} report "
        f"runs at each point, at settings tuned on other seeds (profile {profile}).\n"
        f"Uncharged: {str(facts['uncharged']).replace(',', ', ')}."
    )


def _uncharged(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the uncharged uses of the data in any of the panels."""
    uses = [use for row in rows for use in str(row["uncharged"]).split(",")]
    return ",".join(dict.fromkeys(uses))


def _unproved(crosses: Iterable[Cross]) -> list[str]:
    """Say which lines have a larger certified epsilon than the nominal one."""
    worst: dict[str, float] = {}
    for cross in crosses:
        for line, rate in cross.rates.items():
            if not math.isnan(rate.excess):
                worst[line] = max(worst.get(line, 0.0), rate.excess)
    if not worst:
        return []
    beyond = [
        f"{of(line).label} ({_times(excess)})"
        for line, excess in worst.items()
        if excess > 1 + 1e-6
    ]
    lines = "; ".join(beyond) or "no line"
    return [f"Certified epsilon above the nominal one: {lines}."]


def _times(excess: float) -> str:
    return f"up to {excess:.2f} times" if math.isfinite(excess) else "none is proved"


def _unserved(crosses: Iterable[Cross]) -> list[str]:
    """Say at which values of an axis a line has no point, and why at the largest."""
    unserved: dict[tuple[str, str], dict[float, str]] = {}
    for cross in crosses:
        for line, rate in cross.rates.items():
            if rate.skipped:
                unserved.setdefault((line, cross.axis), {}).update(rate.skipped)
    return [
        f"{of(line).label}: no point at {axis} = "
        f"{', '.join(f'{at:g}' for at in sorted(places))} ({places[max(places)]})."
        for (line, axis), places in unserved.items()
    ]
