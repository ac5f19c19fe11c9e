"""Figures of a paper's panels: errors against passes and epsilon, and an overview.

A *line* consists of the runs of one algorithm, and is drawn as one curve. The authors'
curves were read off the figures of their paper. The file log.txt lists the runs, and
the lines that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.errors import UsageError
from dp_erm_bench.report.captions import (
    caption_of,
    commit_in_words,
    runs_of,
)
from dp_erm_bench.report.claims.lookup import without_repetitions
from dp_erm_bench.report.curves import (
    Array,
    LineErrors,
    Missing,
    add_failed_lines,
    line_errors,
)
from dp_erm_bench.report.draw import (
    Chart,
    chart_of_lines,
    charts_of_figure,
    split_chart,
)
from dp_erm_bench.report.figure import (
    Drawing,
    Figure,
    LinesOf,
    check_stem,
    lines_of_panel,
    look_up_lines,
)
from dp_erm_bench.report.layout import Sheet, save_sheet, write_text_file
from dp_erm_bench.report.scaling import final_errors
from dp_erm_bench.report.style import house_style
from dp_erm_bench.results.runs import read_manifest
from dp_erm_bench.results.tuned import CHOICES, list_open_choices, read_choices

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Panel:
    """One panel of a paper's figure.

    Attributes
    ----------
    name : str
        Label of the panel in the table.
    title : str
        Title of the panel.
    lines : tuple of str
        Labels of the lines drawn against passes, in the order of the legend.
    over_epsilon : tuple of str
        Lines drawn against epsilon. Their runs at epsilons other than 1 have the label
        "<line> over epsilon".
    authors : mapping of str to str
        The authors' name of the algorithm, by the label of the line. The curve of this
        algorithm was read off the authors' figure.
    note : str
        A sentence for the caption that is about this panel alone.
    log_passes : bool
        Whether passes beyond 1 are on a log scale.
    epsilon : float
        The epsilon of the runs that are drawn against passes.
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
        """Raise UsageError for an invalid file name or an unknown curve of authors."""
        check_stem(self.name)
        for curve in self.authors.values():
            registry.check_choice("authors", curve, sorted(decoded_curves(self.name)))

    def check(self, lines: LinesOf) -> None:
        """Raise UsageError for lines that the panel of an experiment does not have."""
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
        The runs of each line at the panel's epsilon, by the label of the line. Lines
        that did not run are left out.
    over_epsilon : mapping of str to list of (float, LineErrors)
        The runs of each line at each epsilon, sorted by epsilon.
    missing : mapping of str to str
        The reason why a line, or one epsilon of a line, is missing.
    """

    panel: Panel
    lines: Mapping[str, LineErrors]
    over_epsilon: Mapping[str, Sequence[tuple[float, LineErrors]]]
    missing: Mapping[str, str]

    @property
    def along_passes(self) -> list[Chart]:
        """Return the charts of the lines against passes; empty if no line ran.

        The authors' curves are means. If they are drawn, the lines are means, too.
        """
        own, panel = decoded_curves(self.panel.name), self.panel
        authors = {k: own[v][0] for k, v in panel.authors.items() if k in self.lines}
        along = "passes" if panel.log_passes else "linear"
        more: dict[str, Any] = {"along": along, "scales": (along, "log")}
        more |= {"authors": authors, "statistic": "mean" if authors else "median"}
        chart = partial(chart_of_lines, panel.title, "passes", self.lines, **more)
        return split_chart(chart()) if self.lines else []

    @property
    def along_epsilon(self) -> list[Chart]:
        """Return the chart of final errors against epsilon; empty if no line ran."""
        lines = {line: final_errors(runs) for line, runs in self.over_epsilon.items()}
        title = f"{self.panel.title}, over ε"
        return [chart_of_lines(title, "ε", lines)] if lines else []


def look_up(table: pd.DataFrame, panel: Panel) -> PanelRuns:
    """Return the runs of a panel's lines, and the reasons for missing lines.

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
    ordered = {k: sorted(runs, key=itemgetter(0)) for k, runs in over.items() if runs}
    return PanelRuns(panel, lines, ordered, missing)


@cache
def _authors_curves() -> dict[str, Any]:
    path = Path(__file__).with_name("authors_curves.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def decoded_curves(panel: str) -> dict[str, tuple[Array, Array]]:
    """Return the curves of a panel that were read off the authors' figure.

    Parameters
    ----------
    panel : str
        Label of the panel.

    Returns
    -------
    dict of str to (ndarray, ndarray)
        Line `[(passes, error)]` of shape (k, 2) and band `[(passes, low, high)]` of
        shape (k, 3) by the authors' name of the algorithm; empty if no curve of the
        panel was read off.
    """
    panels = _authors_curves()["panels"]
    return {
        name: (np.asarray(curve["line"]), np.asarray(curve["band"]))
        for name, curve in panels.get(panel, {}).items()
    }


def source_in_words() -> str:
    """Return a sentence on the source of the numbers that were read off figures."""
    return str(_authors_curves()["source"])


@dataclass(frozen=True)
class Panels(Figure):
    """Figures of errors against passes and epsilon: each panel, and an overview.

    Attributes
    ----------
    panels : tuple of Panel
        The panels, in the order of the overview.
    name : str
        Name of the overview's file; empty for the overview of the whole paper.
    alone : bool
        Whether to draw a sheet for each panel and to write log.txt, in addition to the
        overview.
    """

    panels: tuple[Panel, ...]
    name: str = ""
    alone: bool = True

    def __post_init__(self) -> None:
        """Raise UsageError if the name is not valid for a file."""
        check_stem(self.name)

    def panel_lines(self) -> Iterator[tuple[str, ...]]:
        """Yield the lines of each panel."""
        yield from ((*one.lines, *one.over_epsilon) for one in self.panels)

    def check(self, lines: LinesOf) -> None:
        """Raise UsageError for panels or lines that the experiment does not have."""
        for panel in self.panels:
            panel.check(lines)

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw the panels that ran and the overview; write the log; return all paths.

        The manifest in the results folder says which lines did not run. choices.csv is
        read from the same folder.
        """
        folder = drawing.folder
        missing = {"not_run": read_manifest(folder.parent).get("not_run")}
        table = add_failed_lines(drawing.table, missing | {**drawing.config})
        found = [look_up(table, panel) for panel in self.panels]
        ran = [one for one in found if one.lines]
        written: list[Path] = []
        with house_style():
            for one in found if self.alone else ():
                beside, over = one.panel.note, one.along_epsilon
                for charts, end in ((one.along_passes, ""), (over, "_epsilon")):
                    path = folder / f"{one.panel.name}{end}"
                    written += _save_charts(charts, path, drawing, beside)
            above = [chart for one in ran for chart in one.along_passes]
            below = [chart for one in ran for chart in one.along_epsilon]
            lost = ", ".join(one.panel.title for one in found if not one.lines)
            notes = [_notes_of_panels(ran)]
            notes += [f"Not run: {lost} (log.txt says why)."] if lost else []
            path = drawing.path(self.name)
            written += _save_charts([*above, *below], path, drawing, *notes)
        if self.alone:
            written.append(write_log(drawing, found))
        return written


def _save_charts(
    charts: Sequence[Chart], path: Path, drawing: Drawing, *notes: str
) -> list[Path]:
    """Save charts on one sheet and return the files written; none without charts."""
    if not charts:
        return []
    charts, folders = charts_of_figure(charts), [drawing.folder.parent]
    text = caption_of(charts, *notes, profile=drawing.profile, folders=folders)
    return save_sheet(Sheet(charts, text, mark=drawing.mark), path)


def _notes_of_panels(ran: Sequence[PanelRuns]) -> str:
    """Return the sentences of all panels' notes as one paragraph, without repeats."""
    sentences = [part for one in ran for part in one.panel.note.split(". ") if part]
    once = dict.fromkeys(sentence.removesuffix(".") for sentence in sentences)
    return ". ".join(once) + "." if once else ""


def write_log(drawing: Drawing, drawn: Sequence[PanelRuns]) -> Path:
    """Write log.txt next to the figures, and return its path.

    Parameters
    ----------
    drawing : Drawing
        The input of the figures; choices.csv is read from the parent of its folder.
    drawn : sequence of PanelRuns
        The runs of each panel.
    """
    paper, profile, beside = drawing.paper, drawing.profile, drawing.folder.parent
    text = [f"{paper}, profile {profile}", ""]
    reasons = [[*dict.fromkeys(one.missing.values())] for one in drawn]
    told = iter(without_repetitions(why for own in reasons for why in own))
    names: set[str] = set()
    for one, own in zip(drawn, reasons, strict=True):
        words = {why: next(told) for why in own}
        if not one.lines:
            why = "; ".join(words.values())
            command = f"dp-erm-bench experiment={paper} profile={profile}"
            text += [f"{one.panel.name}: not run ({why}); then: {command}", ""]
            continue
        for why, told_once in words.items():
            gone = [name for name, own in one.missing.items() if own == why]
            lost = f"{one.panel.name}: not drawn: {', '.join(gone)} ({told_once})"
            text += [lost, ""]
        several = [run for runs in one.over_epsilon.values() for _, run in runs]
        names |= {
            name
            for run in (*one.lines.values(), *several)
            for name in runs_of(run.rows)
        }
    text += ["Choices beyond which a better setting may lie", *open_choices(beside), ""]
    runs = [
        f"  runs/{k}.json: {commit_in_words(beside, k)}" for k in sorted(names)[::-1]
    ]
    text += ["Runs", *(runs or ["  unknown: the records name none"]), ""]
    if any(one.panel.authors for one in drawn):
        text += [f"Dashed curves: {source_in_words()}"]
    return write_text_file(drawing.folder / "log.txt", "\n".join([*text, ""]))


def open_choices(folder: Path) -> list[str]:
    """Return a string for each open choice of a folder.

    A choice is open if a better setting may lie beyond the settings that were tried.
    """
    try:
        return list_open_choices(read_choices(folder))
    except UsageError:
        return [f"  unknown: {CHOICES} is damaged"]
