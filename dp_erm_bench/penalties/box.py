"""A box as a penalty: zero inside, infinite outside."""

import math
from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.errors import UsageError
from dp_erm_bench.penalties.base import Penalty


@dataclass(frozen=True)
class Box(Penalty):
    """psi(w) = 0 if lower <= w_j <= upper for all j, else infinity.

    The prox is the clipping to the box, whatever the step. The box contains 0,
    where every run starts.
    """

    name: ClassVar[str] = "box"
    lower: float = -1.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        """Check that the box contains 0."""
        if not _number(self.lower) <= 0.0:
            raise UsageError(
                f"penalty.lower={self.lower} of box: must be a number <= 0 "
                "(runs start at w = 0)"
            )
        if not _number(self.upper) >= 0.0:
            raise UsageError(
                f"penalty.upper={self.upper} of box: must be a number >= 0 "
                "(runs start at w = 0)"
            )


def _number(value: object) -> float:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if real else math.nan  # type: ignore[arg-type]
