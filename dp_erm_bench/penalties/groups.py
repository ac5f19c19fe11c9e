"""The penalty that selects whole groups of coordinates."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from dp_erm_bench.norms.groups import GroupNorm as Norm
from dp_erm_bench.penalties.structured import StructuredPenalty

HELP = "a list of groups; a group is a list of feature names, or of indices from 0"


@dataclass(frozen=True)
class Groups(StructuredPenalty):
    """Group penalty psi(w) = strength sum_G w_G max_G |w| + (l2 / 2) norm2(w)^2.

    w_G is the weight of the group G of coordinates. Groups may overlap.
    """

    name: ClassVar[str] = "groups"
    strength: float = 0.0
    groups: Any = field(default=None, metadata={"help": HELP})
    weights: Any = field(
        default=None,
        metadata={"help": "one weight per group, as [[w_1,w_2,..]]; null: all 1"},
    )
    uncovered: str = field(
        default="refused",
        metadata={
            "help": "coordinates outside all groups; refused: raise an error; free: "
            "have no penalty except l2"
        },
    )
    l2: float = 0.0

    @classmethod
    def example(cls, p: int) -> dict[str, Any]:
        """Return pairs of neighbouring coordinates as groups, for an example.

        The last two pairs overlap if p is odd.
        """
        firsts = [*range(0, p - 1, 2), *([max(p - 2, 0)] if p % 2 else [])]
        return {"groups": [sorted({j, min(j + 1, p - 1)}) for j in firsts]}

    @property
    def is_given(self) -> bool:
        """Return whether groups are given."""
        return self.groups is not None

    def make(self) -> Norm:
        """Return the norm of the groups."""
        return Norm(self.groups, self.weights, self.uncovered)

    def keep(self, norm: Norm) -> None:
        """Keep groups and weights as tuples, so that equal penalties have one key."""
        object.__setattr__(self, "groups", norm.groups)
        if self.weights is not None:
            object.__setattr__(self, "weights", norm.weights)
