"""No penalty."""

from dataclasses import dataclass
from typing import ClassVar

from dp_erm_bench.penalties.base import Penalty


@dataclass(frozen=True)
class NoPenalty(Penalty):
    """psi = 0."""

    name: ClassVar[str] = "none"
