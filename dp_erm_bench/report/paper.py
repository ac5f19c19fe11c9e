"""Draw all figures of a paper: each panel, an overview and a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from dp_erm_bench.errors import UsageError
from dp_erm_bench.report import panels
from dp_erm_bench.report.claims.lookup import without_repetitions
from dp_erm_bench.report.curves import LineErrors, add_failed_lines
from dp_erm_bench.report.figure import Drawing, Figure, LinesOf, check_stem
from dp_erm_bench.report.layout import Cell, Sheet, save_sheet, write_caption
from dp_erm_bench.report.panels import Panel, PanelRuns
from dp_erm_bench.report.style import house_style
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.tuned import CHOICES, list_open_choices, read_choices

SINGLE, SMALL = (4.4, 3.0), (2.5, 2.0)
COLUMNS = 3


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
        missing = {"not_run": read_manifest(folder.parent).get("not_run")}
        table = add_failed_lines(drawing.table, missing | {**drawing.config})
        drawn = [panels.look_up(table, panel) for panel in self.panels]
        written: list[Path] = []
        with house_style():
            for one in drawn if self.alone else ():
                written += _draw_singles(one, folder, profile)
            written += _draw_overview(drawn, drawing.path(self.name), profile)
        if self.alone:
            written.append(write_log(drawing, drawn))
        return written


def _draw_singles(drawn: PanelRuns, folder: Path, profile: str) -> list[Path]:
    """Draw one panel against passes and against epsilon, each on its own."""
    panel, lines, over = drawn.panel, drawn.lines, drawn.over_epsilon
    written: list[Path] = []
    if lines:
        cell: Cell = partial(panels.draw_cross, cross=drawn.along_passes)
        sheet = Sheet([cell], 1, panels.caption_of(panel, lines, profile), SINGLE)
        written += _save_with_origin(sheet, folder / panel.name, [drawn])
    if over:
        cell = partial(panels.draw_cross, cross=drawn.along_epsilon)
        sheet = Sheet([cell], 1, panels.epsilon_caption(over, profile), SINGLE)
        written += _save_with_origin(sheet, folder / f"{panel.name}_epsilon", [drawn])
    return written


def _draw_overview(drawn: Sequence[PanelRuns], path: Path, profile: str) -> list[Path]:
    """Draw all panels on one sheet: against passes above, against epsilon below."""
    ran = [one for one in drawn if one.lines]
    if not ran:
        return []
    cells, columns = overview_grid(ran)
    missing = ", ".join(one.panel.title for one in drawn if not one.lines)
    text = panels.join_paragraphs(
        panels.overview_caption([one.lines for one in ran], profile),
        _notes_of_panels(ran),
        f"Not run: {missing} (log.txt says why)." if missing else "",
    )
    return _save_with_origin(Sheet(cells, columns, text, SMALL), path, ran)


def _save_with_origin(sheet: Sheet, path: Path, ran: Sequence[PanelRuns]) -> list[Path]:
    """Save a sheet that says at its end which runs it was drawn from."""
    runs = [run for one in ran for run in one.curves]
    text = panels.join_paragraphs(
        sheet.caption, panels.origin_in_words(runs, path.parent.parent)
    )
    return save_sheet(replace(sheet, caption=text), path)


def overview_grid(ran: Sequence[PanelRuns]) -> tuple[list[Cell | None], int]:
    """Return the cells of an overview, row by row, and the number of columns.

    Parameters
    ----------
    ran : sequence of PanelRuns
        The panels, those against epsilon after all those against passes.
    """
    above: list[Cell] = [
        partial(panels.draw_cross, cross=one.along_passes) for one in ran
    ]
    below: list[Cell] = [
        partial(panels.draw_cross, cross=one.along_epsilon)
        for one in ran
        if one.over_epsilon
    ]
    columns = min(COLUMNS, len(ran))
    gap = [None] * (-len(above) % columns if below else 0)
    return [*above, *gap, *below], columns


def _notes_of_panels(ran: Sequence[PanelRuns]) -> str:
    """Return the sentences of all panels' notes, each once, as one paragraph."""
    sentences = [part for one in ran for part in one.panel.note.split(". ") if part]
    once = dict.fromkeys(sentence.removesuffix(".") for sentence in sentences)
    return ". ".join(once) + "." if once else ""


def write_log(drawing: Drawing, drawn: Sequence[PanelRuns]) -> Path:
    """Write log.txt beside the figures.

    Parameters
    ----------
    drawing : Drawing
        Its folder is that of the figures; choices.csv is read from its parent.
    drawn : sequence of PanelRuns
        The look-ups, panel by panel.
    """
    paper, profile, beside = drawing.paper, drawing.profile, drawing.folder.parent
    text = [f"{paper}, profile {profile}", ""]
    reasons = [[*dict.fromkeys(one.missing.values())] for one in drawn]
    told = iter(without_repetitions(why for own in reasons for why in own))
    for one, own in zip(drawn, reasons, strict=True):
        words = {why: next(told) for why in own}
        if one.lines:
            text += [*_panel_in_words(one, words), ""]
        else:
            why = "; ".join(words.values())
            command = f"dp-erm-bench experiment={paper} profile={profile}"
            text += [f"{one.panel.name}: not run ({why}); then: {command}", ""]
    text += ["Choices beyond which a better setting may lie", *open_choices(beside), ""]
    names = panels.runs_of(run for one in drawn for run in one.curves)
    runs = [
        f"  runs/{name}.json: {panels.commit_in_words(beside, name)}" for name in names
    ]
    text += ["Runs", *(runs or ["  unknown: the records name none"]), ""]
    if any(one.panel.authors for one in drawn):
        text += [f"Dashed curves: {panels.source_in_words()}"]
    return write_caption(drawing.folder / "log.txt", "\n".join([*text, ""]))


def _panel_in_words(drawn: PanelRuns, reasons: Mapping[str, str]) -> list[str]:
    """Return the final errors and settings of a panel's lines, and why some have none.

    `reasons` are the words of each reason of `missing`.
    """
    panel = drawn.panel
    lines = [f"{panel.name}: final errors, relative"]
    lines += [_numbers_in_words(line, run) for line, run in drawn.lines.items()]
    for line, runs in drawn.over_epsilon.items():
        lines += [_numbers_in_words(f"{line}, epsilon = {e:g}", run) for e, run in runs]
    for why, words in reasons.items():
        names = [name for name, own in drawn.missing.items() if own == why]
        lines.append(f"  not drawn: {', '.join(names)} ({words})")
    unused = panels.decoded_curves(panel.name).keys() - set(panel.authors.values())
    lines += [f"  decoded, not drawn: {name}" for name in sorted(unused)]
    return lines


def _numbers_in_words(name: str, run: LineErrors) -> str:
    return (
        f"  {name}: median {run.median[-1]:.4g}, mean {run.mean[-1]:.4g}, "
        f"min {run.low[-1]:.4g}, max {run.high[-1]:.4g}; {run.n_seeds} seeds, "
        f"{run.x[-1]:g} passes; certified epsilon {panels.proof_in_words(run)}; "
        f"{panels.setting_in_words(run)}"
    )


def open_choices(folder: Path) -> list[str]:
    """Return a line for each choice of a folder beyond which a better one may lie."""
    try:
        return list_open_choices(read_choices(folder))
    except UsageError:
        return [f"  unknown: {CHOICES} is damaged"]
