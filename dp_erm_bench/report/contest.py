"""Cells that compare many lines on many problems: performance profiles, who wins."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_erm_bench.report.style import Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dp_erm_bench.report.curves import Array

FACTORS = np.geomspace(1.0, 100.0, 201)
TICKS = (1, 2, 5, 10, 20, 50, 100)
WORST = 30.0
"""Factors beyond it have one colour in the map of winners."""

SHADES = (1, 2, 5, 10, 30)
MARGINS = {"left": 0.95, "right": 0.72}
"""Inches beside a map of winners, for the names of its rows and its colour bar."""

MOST_LINES = 8
"""More lines than these are spread over several cells."""

Problem = tuple[str, float]


def shares(
    ratios: Mapping[str, Array], problems: int, factors: Array = FACTORS
) -> dict[str, Array]:
    """Return the performance profiles: the share of problems within each factor.

    Parameters
    ----------
    ratios : mapping of str to array
        Each line's factors over the best one of a problem, nan where it did not run.
    problems : int
        The number of problems.
    factors : array
        Factors over the best of a problem, at least 1.

    References
    ----------
    Dolan, More, "Benchmarking optimization software with performance profiles",
    Mathematical Programming 2002.
    """
    return {
        line: (own[:, None] <= factors).sum(axis=0) / problems
        for line, own in ratios.items()
    }


def draw_profiles(
    ax: Axes, profiles: Mapping[str, Array], looks: Mapping[str, Style], dashed: str
) -> None:
    """Draw performance profiles over `FACTORS`.

    Parameters
    ----------
    ax : Axes
        The axes to draw on.
    profiles : mapping of str to array
        Of each line, in the order of the legend.
    looks : mapping of str to Style
        The lines' styles.
    dashed : str
        A line that is dashed.
    """
    for line, share in profiles.items():
        dashes = "dashed" if line == dashed else "solid"
        look = looks[line].curve() | {"markevery": 40, "linestyle": dashes}
        ax.plot(FACTORS, share, drawstyle="steps-post", **look)
    ax.set_xscale("log")
    ax.set_xlim(1.0, FACTORS[-1])
    ax.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
    ax.minorticks_off()
    ax.set_ylim(0.0, 1.02)


def draw_winners(
    ax: Axes,
    lines: Sequence[str],
    problems: Sequence[Problem],
    grid: Array,
    marks: Mapping[str, Sequence[tuple[int, int]]],
) -> None:
    """Draw a map of factors over the best, dark to light, with its colour bar.

    Parameters
    ----------
    ax : Axes
        The axes to draw on; a colour bar goes beside, within the `MARGINS`.
    lines : sequence of str
        The names of the rows.
    problems : sequence of (str, float)
        Data and epsilon of the columns, those of the same data side by side.
    grid : ndarray of shape (len(lines), len(problems))
        Factors, at least 1; nan where a line did not run.
    marks : mapping of str to sequence of (int, int)
        Rows and columns of those that win or tie, in `wins` and `ties`.
    """
    shown = np.log10(np.clip(grid, 1.0, WORST))
    scale: dict[str, Any] = {"vmin": 0.0, "vmax": math.log10(WORST)}
    image = ax.imshow(shown, cmap="viridis", aspect="auto", **scale)
    for word, face in (("wins", "white"), ("ties", "none")):
        y, x = zip(*marks[word], strict=True) if marks.get(word) else ((), ())
        ax.scatter(x, y, s=14, facecolors=face, edgecolors="white", linewidths=0.9)
    ax.grid(visible=False)
    ax.set_yticks(range(len(lines)), lines, fontsize=7.5)
    budgets = [f"{epsilon:g}" for _, epsilon in problems]
    turned = 90 if sum(map(len, budgets)) > 60 else 0
    ax.set_xticks(range(len(problems)), budgets, fontsize=6, rotation=turned)
    ax.tick_params(length=0)
    ax.set_xlabel(r"$\varepsilon$")
    _group(ax, [name for name, _ in problems])
    beside = ax.inset_axes((1.015, 0.0, 0.015, 1.0))
    ticks = [math.log10(shade) for shade in SHADES]
    bar = ax.figure.colorbar(image, cax=beside, ticks=ticks)
    labels = [f"{shade:g}" for shade in SHADES[:-1]] + [f"≥ {WORST:g}"]
    bar.ax.set_yticklabels(labels, fontsize=6.5)
    bar.set_label("factor over the best", fontsize=7)


def _group(ax: Axes, names: Sequence[str]) -> None:
    """Write the names of equal neighbours above the map, with lines between them."""
    starts = [k for k, name in enumerate(names) if not k or name != names[k - 1]]
    room = max(3, int(100 / len(starts)))
    for start, stop in zip(starts, [*starts[1:], len(names)], strict=True):
        name = names[start]
        short = name if len(name) <= room else f"{name[: room - 1]}…"
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 7}
        ax.text((start + stop - 1) / 2, -0.6, short, **look)
        if start:
            ax.axvline(start - 0.5, color="white", linewidth=2.5)


def spread(lines: Sequence[str], most: int = MOST_LINES) -> list[Sequence[str]]:
    """Return lines in as few parts of about equal length as cells may show."""
    parts = max(1, -(-len(lines) // most))
    ends = [round(part * len(lines) / parts) for part in range(parts + 1)]
    return [lines[a:b] for a, b in zip(ends, ends[1:], strict=False)]
