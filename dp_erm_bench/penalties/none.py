"""No penalty."""

from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.penalties.base import SeparablePenalty


@dataclass(frozen=True)
class NoPenalty(SeparablePenalty):
    """psi = 0."""

    name: ClassVar[str] = "none"
