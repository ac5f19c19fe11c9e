"""Final values along n, p, epsilon or a quotient of bounds, with measured slopes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report import figure
from dp_erm_bench.report.caption import problem
from dp_erm_bench.report.crosses import Cross, form, save_crosses
from dp_erm_bench.report.figure import QUOTIENT, Drawing, Figure, LinesOf
from dp_erm_bench.report.noise import Noise
from dp_erm_bench.report.scaling import along, facts
from dp_erm_bench.report.style import house_style, of
from dp_erm_bench.results.table import MEASURED

SYMBOLS = {
    "p": "p",
    "n": "n",
    "epsilon": r"$\varepsilon$",
    "strength": r"$\kappa$",
    "nonzeros": "$s$",
    QUOTIENT: r"$\Vert L\Vert_{M^{-1}} R_M\;/\;(\Lambda R_I)$",
}


@dataclass(frozen=True)
class Cell:
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
        Bounds, drawn through the first point of `anchor`: the power of the axis, as a
        number or a fraction, or `log`, by what stands in the legend.
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
        for power in self.shapes.values():
            form(power)


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
    cells: tuple[Cell, ...]
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
