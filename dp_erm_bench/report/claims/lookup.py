"""What a claim is measured on: the runs that its figure and its lines name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dp_erm_bench.report.curves import Curves, curves
from dp_erm_bench.report.figure import figures_of
from dp_erm_bench.report.noise import Noise
from dp_erm_bench.report.quotients import along
from dp_erm_bench.report.rates import noises
from dp_erm_bench.report.scaling import Scaling

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Lookup:
    """Look up runs in a table by line.

    Attributes
    ----------
    table : DataFrame
        The tidy table, one row per checkpoint.
    config : mapping
        The experiment's resolved yaml.
    figure : str
        Panel of the claim, or the family of its panels.
    epsilon : float
        The epsilon of the runs.
    data_seed : int or None
        Seed of the data where the panel has several.
    """

    table: pd.DataFrame
    config: Mapping[str, Any]
    figure: str
    epsilon: float = 1.0
    data_seed: int | None = None

    def __call__(self, line: str) -> Curves:
        """Return the report runs of a line; `Missing` says why there are none."""
        return curves(self.table, self.figure, line, self.epsilon, self.data_seed)

    def along(self, line: str, axis: str) -> Scaling:
        """Return the final values of a line along `n`, `p`, `epsilon` or `quotient`."""
        return along(self.table, self.config, self.figure, axis, line)

    @property
    def noise(self) -> Noise:
        """Return the figure of noise that the claim names."""
        return noises(figures_of(self.config))[self.figure]
