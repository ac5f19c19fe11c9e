"""Draw one panel: error against passes, or error against epsilon."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.report import scales
from dp_erm_bench.report.curves import Array, Curves, Missing, curves
from dp_erm_bench.report.figure import LinesOf, check_stem, lines_of, looked_up
from dp_erm_bench.report.style import of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Lines = Mapping[str, Curves]
OverEpsilon = Mapping[str, Sequence[tuple[float, Curves]]]


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
            registry.check_choice("authors", curve, sorted(decoded(self.name)))

    def check(self, lines: LinesOf) -> None:
        """Refuse lines that the panel of an experiment does not have."""
        ran = lines_of(lines, self.name)
        for line in (*self.lines, *self.over_epsilon):
            registry.check_choice(f"panel {self.name}: line", line, ran)


@dataclass(frozen=True)
class PanelRuns:
    """The runs of a panel in the table.

    Attributes
    ----------
    panel : Panel
        The panel.
    lines : mapping of str to Curves
        Lines against passes, at the panel's epsilon, that ran.
    over_epsilon : mapping of str to list of (float, Curves)
        Runs of a line sorted by epsilon.
    missing : mapping of str to str
        The reason why a line is missing, by line.
    """

    panel: Panel
    lines: Lines
    over_epsilon: OverEpsilon
    missing: Mapping[str, str]

    @property
    def curves(self) -> list[Curves]:
        """Return everything that is drawn of the panel."""
        several = [run for runs in self.over_epsilon.values() for _, run in runs]
        return [*self.lines.values(), *several]


def look_up(table: pd.DataFrame, panel: Panel) -> PanelRuns:
    """Look up the lines of a panel.

    Parameters
    ----------
    table : DataFrame
        The tidy table.
    panel : Panel
        The panel to look up.
    """
    look = partial(curves, table, panel.name)
    lines, missing = looked_up(panel.lines, partial(look, epsilon=panel.epsilon))
    over: dict[str, list[tuple[float, Curves]]] = {}
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


def draw_passes(ax: Axes, panel: Panel, lines: Lines) -> None:
    """Draw median and min..max band of each line over the authors' curves.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    panel : Panel
        Title, scale and the authors' curves.
    lines : mapping of str to Curves
        The runs by label.
    """
    ends = [float(run.passes[-1]) for run in lines.values()]
    low, high = _extent(list(lines.values()))
    for line, name in panel.authors.items():
        if line in lines:
            passes, errors = decoded(panel.name)[name][0].T
            ax.plot(passes, errors, **of(line).authors())
            ends.append(float(passes[-1]))
            low, high = min(low, float(errors.min())), max(high, float(errors.max()))
    ticks = scales.pass_ticks(max(ends))
    for place, (line, run) in enumerate(lines.items()):
        band = [*map(_drawable, (run.low, run.median, run.high))]
        marks = sorted({int(np.abs(run.passes - tick).argmin()) for tick in ticks})
        more: dict[str, Any] = {"markevery": marks, "zorder": 3 - place / 100}
        scales.draw_line(ax, run.passes, band, of(line), **more)
    ax.set_title(panel.title)
    ax.set_xlabel("passes over the data")
    scales.scale_passes(ax, ticks, panel.log_passes)
    scales.scale_errors(ax, (low, high))


def draw_epsilon(ax: Axes, panel: Panel, lines: OverEpsilon) -> None:
    """Draw the final error of each line against epsilon, both on log scales.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    panel : Panel
        Its title.
    lines : mapping of str to list of (float, Curves)
        The runs by label and epsilon.
    """
    for place, (line, runs) in enumerate(lines.items()):
        ends = [(run.low[-1], run.median[-1], run.high[-1]) for _, run in runs]
        band = [*_drawable(np.array(ends)).T]
        epsilons = [epsilon for epsilon, _ in runs]
        scales.draw_line(ax, epsilons, band, of(line), zorder=3 - place / 100)
    ax.set_title(panel.title)
    ax.set_xlabel(r"$\varepsilon$")
    every = [run for runs in lines.values() for _, run in runs]
    scales.scale_epsilon(ax, sorted({e for runs in lines.values() for e, _ in runs}))
    scales.scale_errors(ax, _extent(every, last=True))


def _drawable(errors: Array) -> Array:
    """Replace values that a log axis cannot show by NaN."""
    return np.where(np.isfinite(errors) & (errors > 0), errors, np.nan)


def _extent(runs: list[Curves], last: bool = False) -> tuple[float, float]:
    """Return the range of errors to show: the bands, but no far outlier."""
    part = slice(-1, None) if last else slice(None)
    bands = [(run.low[part], run.median[part], run.high[part]) for run in runs]
    low, median, high = _drawable(np.concatenate(bands, axis=1))
    if not np.isfinite(median).any():
        return 1e-3, 1.0
    bottom = max(np.nanmin(low), np.nanmin(median) / 10)
    return float(bottom), float(min(np.nanmax(high), np.nanmax(median) * 10))


@cache
def _authors() -> dict[str, Any]:
    path = Path(__file__).with_name("authors_curves.json")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def decoded(panel: str) -> dict[str, tuple[Array, Array]]:
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
    panels = _authors()["panels"]
    return {
        name: (np.asarray(curve["line"]), np.asarray(curve["band"]))
        for name, curve in panels.get(panel, {}).items()
    }


def source() -> str:
    """Return the source of the decoded numbers."""
    return str(_authors()["source"])
