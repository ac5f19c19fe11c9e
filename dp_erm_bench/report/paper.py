"""Draw all figures of a paper: each panel, an overview and a log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from dp_erm_bench.report import log
from dp_erm_bench.report.caption import (
    caption,
    epsilon_caption,
    origin,
    overview_caption,
)
from dp_erm_bench.report.curves import explained
from dp_erm_bench.report.figure import Drawing, Figure, LinesOf, check_stem
from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.panels import (
    Panel,
    PanelRuns,
    draw_epsilon,
    draw_passes,
    look_up,
)
from dp_erm_bench.report.style import house_style
from dp_erm_bench.results.runs import read_manifest

SINGLE, SMALL = (4.4, 3.0), (2.5, 2.0)
COLUMNS, ONE_ROW = 4, 5


@dataclass(frozen=True)
class Panels(Figure):
    """Error against passes and epsilon, panel by panel, with an overview and a log.

    Attributes
    ----------
    panels : tuple of Panel
    name : str
        Of the overview's file; the paper's overview has none.
    alone : bool
        Whether each panel has a sheet of its own, and its numbers stand in log.txt.
    """

    panels: tuple[Panel, ...]
    name: str = ""
    alone: bool = True

    def __post_init__(self) -> None:
        """Refuse a name that is none of a file."""
        check_stem(self.name)

    def check(self, lines: LinesOf) -> None:
        """Refuse panels and lines that the experiment does not have."""
        for panel in self.panels:
            panel.check(lines)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw every panel that ran and the overview, and write the log.

        Lines that did not run are taken from the manifest of the results folder, where
        choices.csv is looked for, too.
        """
        folder, profile = drawing.folder, drawing.profile
        missing = {"not_run": _not_run(folder.parent), **drawing.config}
        table = explained(drawing.table, missing)
        drawn = [look_up(table, panel) for panel in self.panels]
        written: list[Path] = []
        with house_style():
            for panel in drawn if self.alone else ():
                written += _singles(panel, folder, profile)
            written += _overview(drawn, drawing.path(self.name), profile)
        if self.alone:
            written.append(log.write(folder, drawing.paper, drawn, profile))
        return written


def _not_run(folder: Path) -> list[dict[str, Any]]:
    """Return what the manifest of a results folder says did not run."""
    return list(read_manifest(folder).get("not_run") or ())


def _singles(drawn: PanelRuns, folder: Path, profile: str) -> list[Path]:
    """Draw one panel against passes and against epsilon, each on its own."""
    panel, sheets = drawn.panel, []
    if drawn.lines:
        cell: Cell = partial(draw_passes, panel=panel, lines=drawn.lines)
        sheets.append((cell, caption(panel, drawn.lines, profile), panel.name))
    if drawn.over_epsilon:
        cell = partial(draw_epsilon, panel=panel, lines=drawn.over_epsilon)
        text = epsilon_caption(drawn.over_epsilon, profile)
        sheets.append((cell, text, f"{panel.name}_epsilon"))
    written: list[Path] = []
    for cell, text, name in sheets:
        sheet = Sheet([cell], 1, text + _origin([drawn], folder), SINGLE)
        written += save(sheet, folder / name)
    return written


def _overview(drawn: Sequence[PanelRuns], path: Path, profile: str) -> list[Path]:
    """Draw all panels on one sheet: against passes above, against epsilon below."""
    ran = [one for one in drawn if one.lines]
    if not ran:
        return []
    cells, columns = grid(ran)
    text = overview_caption([one.lines for one in ran], profile)
    text = "\n".join([text, *_notes(ran)])
    missing = [one.panel.title for one in drawn if not one.lines]
    if missing:
        text += f"\nNot run: {', '.join(missing)} (log.txt says why)."
    text += _origin(ran, path.parent)
    return save(Sheet(cells, columns, text, SMALL), path)


def _origin(ran: Sequence[PanelRuns], figures: Path) -> str:
    computed = origin((run for one in ran for run in one.curves), figures.parent)
    return f"\n{computed}" if computed else ""


def grid(ran: Sequence[PanelRuns]) -> tuple[list[Cell | None], int]:
    """Return the cells of an overview, row by row, and the number of columns.

    Parameters
    ----------
    ran : sequence of PanelRuns
        The panels, those against epsilon after all those against passes.
    """
    above: list[Cell] = [
        partial(draw_passes, panel=one.panel, lines=one.lines) for one in ran
    ]
    below: list[Cell] = [
        partial(draw_epsilon, panel=one.panel, lines=one.over_epsilon)
        for one in ran
        if one.over_epsilon
    ]
    columns = len(ran) if len(ran) <= ONE_ROW else COLUMNS
    gap = [None] * (-len(above) % columns)
    cells = [*above, *(gap if below else []), *below]
    return cells, columns


def _notes(ran: Sequence[PanelRuns]) -> list[str]:
    """Return the sentences of all panels' notes, each once, as one paragraph."""
    sentences = [part for one in ran for part in one.panel.note.split(". ") if part]
    once = dict.fromkeys(sentence.removesuffix(".") for sentence in sentences)
    return [". ".join(once) + "."] if once else []
