"""The penalty that selects an interval of coordinates."""

from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.norms.range import RangeNorm as Norm
from dp_erm_bench.penalties.structured import StructuredPenalty


@dataclass(frozen=True)
class Range(StructuredPenalty):
    """psi(w) = strength Omega(w) + (l2 / 2) norm2(w)^2, which selects an interval.

    Omega is the norm of F(A) = p - 2 + range of A, where the range of a set is the
    length of the interval that it spans.
    """

    name: ClassVar[str] = "range"
    everywhere: ClassVar[bool] = False
    strength: float = 0.0
    l2: float = 0.0

    def make(self) -> Norm:
        """Return the norm Omega."""
        return Norm()
