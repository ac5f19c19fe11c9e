"""The squared L2 penalty."""

from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.penalties.base import SeparablePenalty, check_strength


@dataclass(frozen=True)
class L2(SeparablePenalty):
    """psi(w) = (strength / 2) * norm2(w)^2."""

    name: ClassVar[str] = "l2"
    strength: float = 0.0

    def __post_init__(self) -> None:
        """Check the strength and derive the kernel's parameters."""
        object.__setattr__(self, "l2", check_strength(self.name, self.strength))
