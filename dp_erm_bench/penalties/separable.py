"""Penalties that are sums over coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.errors import UsageError, real_number
from dp_erm_bench.penalties.base import SeparablePenalty, check_strength


@dataclass(frozen=True)
class NoPenalty(SeparablePenalty):
    """No penalty: psi = 0."""

    name: ClassVar[str] = "none"


@dataclass(frozen=True)
class L1(SeparablePenalty):
    """The L1 penalty psi(w) = strength * norm1(w)."""

    name: ClassVar[str] = "l1"
    strength: float = 0.0

    def __post_init__(self) -> None:
        """Check the strength, and derive the parameters of the compiled kernel."""
        object.__setattr__(self, "l1", check_strength(self.name, self.strength))


@dataclass(frozen=True)
class L2(SeparablePenalty):
    """The squared L2 penalty psi(w) = (strength / 2) * norm2(w)^2."""

    name: ClassVar[str] = "l2"
    strength: float = 0.0

    def __post_init__(self) -> None:
        """Check the strength, and derive the parameters of the compiled kernel."""
        object.__setattr__(self, "l2", check_strength(self.name, self.strength))


@dataclass(frozen=True)
class ElasticNet(SeparablePenalty):
    """The elastic net, strength * (l1_ratio norm1(w) + (1 - l1_ratio) / 2 norm2(w)^2).

    References
    ----------
    Zou, Hastie, "Regularization and variable selection via the elastic net",
    JRSS B 2005; in the parametrisation of scikit-learn.
    """

    name: ClassVar[str] = "elastic_net"
    strength: float = 0.0
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        """Check both parameters, and derive the parameters of the compiled kernel."""
        strength = check_strength(self.name, self.strength)
        ratio = real_number(self.l1_ratio)
        if not 0.0 <= ratio <= 1.0:
            raise UsageError(
                f"penalty.l1_ratio={self.l1_ratio} of {self.name}: must be a number in "
                "[0, 1]"
            )
        object.__setattr__(self, "l1", strength * ratio)
        object.__setattr__(self, "l2", strength * (1.0 - ratio))


@dataclass(frozen=True)
class Box(SeparablePenalty):
    """A box as penalty: 0 if lower <= w_j <= upper for all j, else infinity.

    The prox clips to the box, whatever the step. The box contains 0, where every run
    starts. A side may be infinite. Saved results write an infinite side as null, and
    null is also allowed as a parameter.
    """

    name: ClassVar[str] = "box"
    lower: float = -1.0
    upper: float = 1.0

    def __post_init__(self) -> None:
        """Check that the box contains 0."""
        for key, sign, word in (("lower", -1.0, "<="), ("upper", 1.0, ">=")):
            value = getattr(self, key)
            side = sign * math.inf if value is None else real_number(value)
            if not sign * side >= 0.0:
                raise UsageError(
                    f"penalty.{key}={value} of box: must be a number {word} 0 (runs "
                    "start at w = 0), or null for no bound"
                )
            object.__setattr__(self, key, side)
