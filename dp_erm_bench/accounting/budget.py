"""The privacy budget of a trial."""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from dp_erm_bench.errors import UsageError
from dp_erm_bench.paths import spell_infinities
from dp_erm_bench.releases.adjacency import Adjacency

LEAST_DELTA = 1e-60
"""The smallest positive delta of a budget, which both accountants still resolve.

Measured on 10^5 releases at 1e-60, the epsilon that ``pld`` proves on its lattice is
within 4e-4 of the exact one, and that of ``rdp`` within 1 %. At smaller deltas ``pld``
loses more by the rounding of Fourier transforms than ``rdp`` loses by the conversion:
2 % at 1e-80 and 37 % at 1e-200, always on the safe side. The tails that the random
draws cut off, of mass 1e-307 each, are negligible compared with this delta.
"""
POWER_OF_N = re.compile(r"1/n(?:\^(\d+(?:\.\d+)?))?")
TOO_SMALL = (
    f"must be 0 or at least {LEAST_DELTA:g}, the smallest delta that the accountants "
    "support"
)


@dataclass(frozen=True)
class Budget:
    """The privacy that a trial may spend.

    Attributes
    ----------
    epsilon : float
        Positive, or ``inf`` for no privacy and no noise. The string ``"inf"`` is
        accepted too.
    delta : float or str
        0 or a number in [`LEAST_DELTA`, 1). A string ``'1/n'``, ``'1/n^2'`` or
        ``'1/n^k'`` depends on the data set, until ``resolve_delta`` makes it a number.
    adjacency : Adjacency
        The relation between neighbouring datasets.

    Raises
    ------
    UsageError
        For any other value.
    """

    epsilon: float
    delta: float | str
    adjacency: Adjacency = Adjacency.REPLACE_ONE

    def __post_init__(self) -> None:
        epsilon = number_or_nan(self.epsilon)
        if not epsilon > 0:
            wrong = "must be a positive number or inf"
            raise UsageError(f"epsilon={self.epsilon}: {wrong}")
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", parsed_delta(self.delta))
        if self.adjacency not in list(Adjacency):
            names = " or ".join(Adjacency)
            raise UsageError(f"adjacency={self.adjacency}: must be {names}")
        object.__setattr__(self, "adjacency", Adjacency(self.adjacency))

    def resolve_delta(self, n: int) -> "Budget":
        """Return the budget with delta as a number, for ``n`` records."""
        if isinstance(self.delta, float):
            return self
        value = self._delta_for(n)
        if not LEAST_DELTA <= value < 1:
            wrong = TOO_SMALL if value < 1 else "must be a number in [0, 1)"
            raise UsageError(f"delta={self.delta} with n={n} is {value:g}: {wrong}")
        return replace(self, delta=value)

    def is_loose(self, n: int) -> bool:
        """Return whether epsilon is finite but delta is at least 1/n.

        Such a delta permits publishing a record that is drawn at random (Dwork and
        Roth, 2014, section 2.3).
        """
        return math.isfinite(self.epsilon) and self._delta_for(n) * n >= 1 - 1e-12

    def _delta_for(self, n: int) -> float:
        if isinstance(self.delta, float):
            return self.delta
        match = POWER_OF_N.fullmatch(self.delta)
        assert match is not None
        return math.pow(n, -float(match[1] or 1))

    @property
    def spec(self) -> dict[str, Any]:
        """Return the budget's entries in the specification of a trial, for JSON."""
        return dict(spell_infinities(vars(self) | {"adjacency": self.adjacency.value}))

    @property
    def number(self) -> float:
        """Return delta as a number; raise UsageError if it still depends on n."""
        if isinstance(self.delta, str):
            text = f"delta={self.delta} depends on n; call resolve_delta(n) first"
            raise UsageError(text)
        return self.delta


def number_or_nan(value: Any) -> float:
    """Return a value as a float, or NaN if it is a boolean or not a number."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


def parsed_delta(value: Any) -> float | str:
    """Return delta as a float or as the string of a power of 1/n.

    Any other value raises UsageError.
    """
    if isinstance(value, str):
        text = value.replace(" ", "")
        match = POWER_OF_N.fullmatch(text)
        if match is not None and float(match[1] or 1) > 0:
            return text
    number = number_or_nan(value)
    if not 0 <= number < 1:
        raise UsageError(
            f"delta={value}: must be a number in [0, 1), '1/n', '1/n^2' or '1/n^k'"
        )
    if 0 < number < LEAST_DELTA:
        raise UsageError(f"delta={value}: {TOO_SMALL}")
    return number
