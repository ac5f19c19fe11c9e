"""A mechanism that was called, as a run shows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Use:
    """One mechanism that was called.

    Attributes
    ----------
    kind : str
        ``gaussian``, ``poisson_gaussian``, ``laplace``, ``norm_laplace``,
        ``bounded_range``, ``pure``, ``vector`` (Laplace noise on every entry, ``ratio``
        the inverse of its level), ``objective`` or ``objective_pure`` (a minimiser).
    ratio : float
        Noise scale / sensitivity under the budget's adjacency.
    times : int
    rate : float
        Poisson sampling rate.
    spread : float
        Ratio of the largest to the smallest score sensitivity, of noise inside.
    curvature : float
        log(1 + beta / ridge) of a perturbed objective.
    """

    kind: str
    ratio: float
    times: int
    rate: float = 1.0
    spread: float = 1.0
    curvature: float = 0.0

    @property
    def level(self) -> float:
        """Return the pure level of one use; infinite for Gaussian noise."""
        if self.ratio == 0 or "gaussian" in self.kind or self.kind == "objective":
            return math.inf
        selects = self.kind in ("bounded_range", "pure")
        return self.curvature + (1 + self.spread if selects else 1.0) / self.ratio


def full_batch(use: Use) -> bool:
    """Return whether a use is the Gaussian mechanism itself."""
    return use.kind == "gaussian" or (use.kind == "poisson_gaussian" and use.rate == 1)


def deviation(uses: Sequence[Use], full: bool = False) -> float:
    """Return mu of all Gaussian uses together; ``full``: there must be no other."""
    if full and not all(full_batch(use) for use in uses):
        raise ValueError("Gaussian accounting knows no other noise")
    squares = [use.times / use.ratio**2 for use in uses if full_batch(use)]
    return math.sqrt(math.fsum(squares))
