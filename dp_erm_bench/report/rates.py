"""Excess risk along n, p or epsilon: cells that are asked for, drawn if they ran."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.crosses import Cross, Shape, found, save_crosses, setting
from dp_erm_bench.report.scaling import facts, scaling
from dp_erm_bench.report.style import of

if TYPE_CHECKING:
    import pandas as pd

EXCESS = r"excess risk $F(w) - F^*$"
SYMBOLS = {"p": "p", "n": "n", "epsilon": r"$\varepsilon$"}


@dataclass(frozen=True)
class Asked:
    """A cell to be looked up in the table.

    Attributes
    ----------
    panel, axis : str
        The panel's label, and the column that varies in it: n, p or epsilon.
    title : str
        What stands above it.
    lines : sequence of str
        Labels of its lines, in the order of the legend.
    shapes : sequence of Shape
        Drawn through the first point of the first line.
    """

    panel: str
    axis: str
    title: str
    lines: Sequence[str]
    shapes: Sequence[Shape] = ()


def draw_rates(
    table: pd.DataFrame,
    asked: Iterable[Asked],
    path: Path,
    about: str,
    profile: str,
    *,
    notes: Sequence[str] = (),
    beside: Sequence[Cross] = (),
    size: tuple[float, float] = (2.9, 2.5),
) -> list[Path]:
    """Draw cells of excess risk side by side, those of which a line ran.

    Parameters
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    asked : iterable of Asked
        The cells.
    path : Path
        Folder and stem.
    about : str
        The problem in words, the caption's beginning.
    profile : str
        The profile that was run.
    notes : sequence of str
        Further lines of the caption.
    beside : sequence of Cross
        Cells that need no runs, on the same sheet.
    size : (float, float)
        Of one cell in inches.

    Returns
    -------
    list of Path
        The files written, none where nothing ran.
    """
    ran, gaps = _ran(table, asked)
    if not ran:
        return []
    crosses, told = [cross for cross, _ in ran], [row for _, row in ran]
    common = {**told[0], "uncharged": _uncharged(told)}
    text = [f"{about} {setting(common, crosses[0].rates, profile)}", *notes]
    text += [*_unproved(crosses), *_unserved(crosses)]
    text += [f"Not drawn: {'; '.join(dict.fromkeys(gaps))}."] if gaps else []
    return save_crosses([*crosses, *beside], path, "\n".join(text), EXCESS, size)


def _ran(
    table: pd.DataFrame, asked: Iterable[Asked]
) -> tuple[list[tuple[Cross, Mapping[str, Any]]], list[str]]:
    """Return the cells of which a line ran, with a row of each; and what is missing."""
    ran: list[tuple[Cross, Mapping[str, Any]]] = []
    gaps: list[str] = []
    for cell in asked:
        look = partial(scaling, table, cell.panel, axis=cell.axis)
        rates, missing = found(cell.lines, look)
        if rates:
            gaps += [f"{of(line).label}: {why}" for line, why in missing.items()]
            cross = Cross(cell.title, SYMBOLS[cell.axis], rates, cell.shapes)
            ran.append((cross, facts(table, cell.panel)))
    return ran, gaps


def _uncharged(told: Iterable[Mapping[str, Any]]) -> str:
    """Return the uncharged uses of the data in any of the panels."""
    uses = [use for row in told for use in str(row["uncharged"]).split(",")]
    return ",".join(dict.fromkeys(uses))


def _unproved(crosses: Iterable[Cross]) -> list[str]:
    """Say which lines have a larger certified epsilon than the nominal one."""
    worst: dict[str, float] = {}
    for cross in crosses:
        for line, rate in cross.rates.items():
            worst[line] = max(worst.get(line, 0.0), rate.excess)
    found = [
        f"{of(line).label} ({_times(excess)})"
        for line, excess in worst.items()
        if excess > 1 + 1e-6
    ]
    lines = "; ".join(found) or "no line"
    return [f"Certified epsilon above the nominal one: {lines}."]


def _times(excess: float) -> str:
    return f"up to {excess:.2f} times" if math.isfinite(excess) else "none is proved"


def _unserved(crosses: Iterable[Cross]) -> list[str]:
    """Say at which values of an axis a line has no point, and why at the largest."""
    told: dict[tuple[str, str], dict[float, str]] = {}
    for cross in crosses:
        for line, rate in cross.rates.items():
            if rate.skipped:
                told.setdefault((line, cross.axis), {}).update(rate.skipped)
    return [
        f"{of(line).label}: no point at {axis} = "
        f"{', '.join(f'{at:g}' for at in sorted(places))} ({places[max(places)]})."
        for (line, axis), places in told.items()
    ]
