"""Draw all figures of a paper: each panel, an overview and a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report import log
from dp_erm_bench.report.caption import (
    caption,
    epsilon_caption,
    origin,
    overview_caption,
)
from dp_erm_bench.report.curves import explained
from dp_erm_bench.report.layout import Cell, Sheet, save
from dp_erm_bench.report.panels import (
    Found,
    Panel,
    draw_epsilon,
    draw_passes,
    look_up,
)
from dp_erm_bench.report.style import house_style
from dp_erm_bench.results.runs import read_manifest

if TYPE_CHECKING:
    import pandas as pd

SINGLE, SMALL = (4.4, 3.0), (2.5, 2.0)
COLUMNS, ONE_ROW = 4, 5


def draw_paper(
    paper: str,
    panels: Sequence[Panel],
    table: pd.DataFrame,
    folder: Path,
    config: Mapping[str, Any],
    rules: Sequence[Panel] = (),
) -> list[Path]:
    """Draw every panel that ran, the overview and the log of a paper.

    Parameters
    ----------
    paper : str
        Stem of the overview and name of the experiment.
    panels : sequence of Panel
        What to draw.
    table : DataFrame
        The tidy table, one row per checkpoint.
    folder : Path
        Where the files go; choices.csv is looked for beside it and in it.
    config : mapping
        The experiment's resolved yaml; its `profile` is named in the captions. Lines
        that did not run are taken from `not_run`, else from the manifest beside.
    rules : sequence of Panel
        Panels that compare greedy rules, drawn on one sheet of their own.

    Returns
    -------
    list of Path
        The files written: .pdf, .png and log.txt.
    """
    folder.mkdir(parents=True, exist_ok=True)
    profile = str(config.get("profile", "?"))
    table = explained(table, {"not_run": _not_run(folder.parent), **config})
    drawn = [look_up(table, panel) for panel in panels]
    written: list[Path] = []
    with house_style():
        for panel in drawn:
            written += _singles(panel, folder, profile)
        written += _overview(drawn, folder / paper, profile)
        compared = [look_up(table, panel) for panel in rules]
        written += _overview(compared, folder / f"{paper}_rules", profile)
    return [*written, log.write(folder, paper, drawn, profile)]


def _not_run(folder: Path) -> list[dict[str, Any]]:
    """Return what the manifest of a results folder says did not run."""
    return list(read_manifest(folder).get("not_run") or ())


def _singles(found: Found, folder: Path, profile: str) -> list[Path]:
    """Draw one panel against passes and against epsilon, each on its own."""
    panel, written = found.panel, []
    if found.lines:
        text = caption(panel, found.lines, profile)
        text += _origin([found], folder)
        cell = partial(draw_passes, panel=panel, lines=found.lines)
        written += save(Sheet([cell], 1, text, SINGLE), folder / panel.name)
    if found.over_epsilon:
        text = epsilon_caption(found.over_epsilon, profile)
        text += _origin([found], folder)
        cell = partial(draw_epsilon, panel=panel, lines=found.over_epsilon)
        path = folder / f"{panel.name}_epsilon"
        written += save(Sheet([cell], 1, text, SINGLE), path)
    return written


def _overview(found: Sequence[Found], path: Path, profile: str) -> list[Path]:
    """Draw all panels on one sheet: against passes above, against epsilon below."""
    ran = [one for one in found if one.lines]
    if not ran:
        return []
    cells, columns = grid(ran)
    text = overview_caption([one.lines for one in ran], profile)
    text = "\n".join([text, *_notes(ran)])
    missing = [one.panel.title for one in found if not one.lines]
    if missing:
        text += f"\nNot run: {', '.join(missing)} (log.txt says why)."
    text += _origin(ran, path.parent)
    return save(Sheet(cells, columns, text, SMALL), path)


def _origin(ran: Sequence[Found], figures: Path) -> str:
    told = origin((run for one in ran for run in one.curves), figures.parent)
    return f"\n{told}" if told else ""


def grid(ran: Sequence[Found]) -> tuple[list[Cell | None], int]:
    """Return the cells of an overview, row by row, and the number of columns.

    Parameters
    ----------
    ran : sequence of Found
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


def _notes(ran: Sequence[Found]) -> list[str]:
    """Return the sentences of all panels' notes, each once, as one paragraph."""
    sentences = [part for one in ran for part in one.panel.note.split(". ") if part]
    once = dict.fromkeys(sentence.removesuffix(".") for sentence in sentences)
    return [". ".join(once) + "."] if once else []
