"""Penalties from functions of the number of coordinates."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dp_erm_bench.norms.cardinality import FUNCTIONS
from dp_erm_bench.norms.cardinality import CardinalityNorm as Norm
from dp_erm_bench.penalties.structured import StructuredPenalty

HELP = f"function g in F(A) = g(|A|): {', '.join(FUNCTIONS)}"


@dataclass(frozen=True)
class Cardinality(StructuredPenalty):
    """psi(w) = strength sum_k (g(k) - g(k-1)) |w|_(k) + (l2 / 2) norm2(w)^2.

    |w|_(k) is the k-th largest entry of |w|. ``function`` names g: ``count`` gives the
    L1 norm, ``one`` the maximum.
    """

    name: ClassVar[str] = "cardinality"
    strength: float = 0.0
    function: str = field(default="count", metadata={"help": HELP})
    cap: float | None = field(
        default=None, metadata={"help": "with function=capped: K in g(k) = min(k, K)"}
    )
    l2: float = 0.0

    @classmethod
    def example(cls, p: int) -> dict[str, Any]:
        """Return parameters for an example: a square root of the cardinality."""
        return {"function": "sqrt"}

    def make(self) -> Norm:
        """Return the norm of the function."""
        return Norm(self.function, self.cap)

    def keep(self, norm: Norm) -> None:
        """Keep the cap as a real number, so that equal penalties have one key."""
        object.__setattr__(self, "cap", norm.cap)
