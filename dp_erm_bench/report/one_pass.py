"""Noise scales and lengths of one pass over half of the records, against n.

Nothing is run: accountants are asked, and public schedules drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from dp_erm_bench import registry
from dp_erm_bench.audit import single_use
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.releases.printed import arora2020_scale
from dp_erm_bench.report.crosses import Cross, save_crosses
from dp_erm_bench.report.curves import Array
from dp_erm_bench.report.figure import Drawing, Figure, check_stem
from dp_erm_bench.report.scaling import Scaling
from dp_erm_bench.report.style import house_style

PRINTED, SINGLE, SHUFFLED = "printed theorem", "single use", "shuffling (not certified)"
OUTSIDE = "printed constant outside its range (a study)"


@dataclass(frozen=True)
class OnePass(Figure):
    """What one pass needs along the number of records n.

    Attributes
    ----------
    name, title : str
        Of the file; above the cell.
    quantity : {'noise', 'steps'}
        Noise scales in units of L by three ways of accounting, under ``replace_one``;
        or tau / n, the steps until half of the records are read, beside log 2.
    values : tuple of int
        Of n, increasing.
    epsilon : float
        The budget at every n; or, with ``falling``, that times 1 / sqrt(n).
    falling : bool
    delta : float
    seeds : int
        Passes whose steps are counted.
    about : str
        The caption.
    """

    QUANTITIES: ClassVar[tuple[str, ...]] = ("noise", "steps")

    name: str
    title: str
    quantity: str
    values: tuple[int, ...]
    epsilon: float = 1.0
    falling: bool = False
    delta: float = 1e-8
    seeds: int = 100
    about: str = ""

    def __post_init__(self) -> None:
        """Refuse invalid names and quantities."""
        check_stem(self.name)
        registry.check_choice("quantity", self.quantity, list(self.QUANTITIES))

    def draw(self, drawing: Drawing) -> list[Path]:
        """Draw one cell on a sheet of its own."""
        steps = self.quantity == "steps"
        label = r"steps / $n$" if steps else r"noise scale / $L$"
        lines = self.steps() if steps else self.noise()
        cross = Cross(self.title, "$n$", lines)
        path = drawing.path(self.name)
        with house_style():
            return save_crosses([cross], path, self.about, label, (4.4, 3.0))

    def budget(self, n: int) -> float:
        """Return the epsilon at n."""
        return self.epsilon / math.sqrt(n) if self.falling else self.epsilon

    def noise(self) -> dict[str, Scaling]:
        """Return the noise scales by label; without points where one has no answer."""
        rows: dict[str, list[tuple[int, float]]] = {}
        for n in self.values:
            for label, scale in self.scales(n).items():
                if math.isfinite(scale):
                    rows.setdefault(label, []).append((n, scale))
        return {label: _scaling(points) for label, points in rows.items()}

    def scales(self, n: int) -> dict[str, float]:
        """Return the noise scales at n, not a number where there is none."""
        budget = self.budget(n), self.delta
        try:
            printed = {
                PRINTED: single_use.certified_scale(n, *budget, calibration="paper")
            }
        except Unsupported:
            printed = {OUTSIDE: arora2020_scale(n, *budget)}
        return {
            **printed,
            SINGLE: single_use.certified_scale(n, *budget),
            SHUFFLED: single_use.shuffled_scale(n, *budget),
        }

    def steps(self) -> dict[str, Scaling]:
        """Return tau / n of the seeds, and log 2."""
        x = np.array(self.values, np.float64)
        drawn = tuple(single_use.steps_over_n(n, self.seeds) for n in self.values)
        limit = tuple(np.array([math.log(2.0)]) for _ in self.values)
        return {"steps of a pass": Scaling(x, drawn), "log 2": Scaling(x, limit)}


def _scaling(points: list[tuple[int, float]]) -> Scaling:
    """Return a line through points (n, value)."""
    x: Array = np.array([n for n, _ in points], np.float64)
    return Scaling(x, tuple(np.array([value]) for _, value in points))
