"""The penalty of a submodular function that the user defines."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.norms.general import FromGains
from dp_erm_bench.norms.tabulated import Tabulated
from dp_erm_bench.penalties.structured import StructuredPenalty

HELP = "all 2^p values of F for p <= 16, as a list [[..]] or a .csv or .npy file; "
HELP += "value m = 0, 1, .. is F of the set of the 1-bits of m; from Python, also an "
HELP += "object with gains(order)"


@dataclass(frozen=True)
class Submodular(StructuredPenalty):
    """psi(w) = strength Omega(w) + (l2 / 2) norm2(w)^2 for any submodular F.

    Omega is the norm of F. If the values of F on all sets are given, they are checked
    completely. An object with gains(order) cannot be checked in this way, so it is
    accepted only if privacy does not depend on the penalty.
    """

    name: ClassVar[str] = "submodular"
    everywhere: ClassVar[bool] = False
    strength: float = 0.0
    values: Any = field(default=None, metadata={"help": HELP})
    l2: float = 0.0

    @classmethod
    def example(cls, p: int) -> dict[str, Any]:
        """Return a set function as an example, by its values on all sets.

        The function is sqrt(|A|) plus half the number of pairs of neighbours that A
        meets.
        """
        sets = np.arange(2**p)
        pairs = [(sets >> j) & 3 != 0 for j in range(p - 1)]
        met = 0.5 * np.sum(pairs, axis=0) if pairs else 0.0
        return {"values": [(np.sqrt(np.bitwise_count(sets) * 1.0) + met).tolist()]}

    @property
    def is_given(self) -> bool:
        """Return whether the set function is given."""
        return self.values is not None

    def make(self) -> Tabulated | FromGains:
        """Return the norm of the values or of the object."""
        if hasattr(self.values, "gains"):
            return FromGains(self.values)
        return Tabulated(self.values)

    def check_features(self, p: int) -> None:
        """Raise UsageError if F is not a function of sets of p coordinates.

        If F is given by an object, the object gets a name that depends on its gains.
        """
        super().check_features(p)
        if isinstance(self.norm, FromGains):
            object.__setattr__(self, "values", self.norm.name_by_gains(p))

    def keep(self, norm: Tabulated | FromGains) -> None:
        """Keep the values as a tuple, because they are part of the key of a trial."""
        if isinstance(norm, Tabulated):
            object.__setattr__(self, "values", norm.values)
