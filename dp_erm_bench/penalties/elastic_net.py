"""The elastic net."""

from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.errors import UsageError, number
from dp_erm_bench.penalties.base import SeparablePenalty, check_strength


@dataclass(frozen=True)
class ElasticNet(SeparablePenalty):
    """psi(w) = strength * (l1_ratio norm1(w) + (1 - l1_ratio) / 2 norm2(w)^2).

    References
    ----------
    Zou, Hastie, "Regularization and variable selection via the elastic net",
    JRSS B 2005; in the parametrisation of scikit-learn.
    """

    name: ClassVar[str] = "elastic_net"
    strength: float = 0.0
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        """Check both parameters and derive the kernel's."""
        strength = check_strength(self.name, self.strength)
        ratio = number(self.l1_ratio)
        if not 0.0 <= ratio <= 1.0:
            raise UsageError(
                f"penalty.l1_ratio={self.l1_ratio} of {self.name}: must be a number in "
                "[0, 1]"
            )
        object.__setattr__(self, "l1", strength * ratio)
        object.__setattr__(self, "l2", strength * (1.0 - ratio))
