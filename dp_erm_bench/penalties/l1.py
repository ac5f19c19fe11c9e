"""The L1 penalty."""

from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.penalties.base import SeparablePenalty, check_strength


@dataclass(frozen=True)
class L1(SeparablePenalty):
    """psi(w) = strength * norm1(w)."""

    name: ClassVar[str] = "l1"
    strength: float = 0.0

    def __post_init__(self) -> None:
        """Check the strength and derive the kernel's parameters."""
        object.__setattr__(self, "l1", check_strength(self.name, self.strength))
