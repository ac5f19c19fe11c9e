"""A box as a penalty: zero inside, infinite outside."""

import math
from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.errors import UsageError, number
from dp_erm_bench.penalties.base import SeparablePenalty


@dataclass(frozen=True)
class Box(SeparablePenalty):
    """psi(w) = 0 if lower <= w_j <= upper for all j, else infinity.

    The prox is the clipping to the box, whatever the step. The box contains 0,
    where every run starts. A side may be infinite; null, which is how records
    write that, means the same.
    """

    name: ClassVar[str] = "box"
    lower: float = -1.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        """Check that the box contains 0."""
        for key, sign, word in (("lower", -1.0, "<="), ("upper", 1.0, ">=")):
            value = getattr(self, key)
            side = sign * math.inf if value is None else number(value)
            if not sign * side >= 0.0:
                raise UsageError(
                    f"penalty.{key}={value} of box: must be a number {word} 0 (runs "
                    "start at w = 0), or null for no bound"
                )
            object.__setattr__(self, key, side)
