"""Laplace noise on every entry of a vector, a second time."""

from dataclasses import dataclass
from typing import Any

from dp_erm_bench.trust.twins.laplace import LaplaceTwin


@dataclass(frozen=True)
class L1LaplaceTwin(LaplaceTwin):
    """Laplace mechanisms on all entries.

    The largest change is that of one entry, a number: of an exact instance, too. Of a
    row of sensitivities each entry is a number.

    Attributes
    ----------
    epsilon_share : float or None
        None where the budget is not split.
    """

    epsilon_share: float | None = None

    @classmethod
    def of(
        cls, release: Any, mechanism: Any, ratio: float, times: int
    ) -> "L1LaplaceTwin":
        """Return the twin of a mechanism, of which ``ratio`` is that of an entry."""
        # As certified: entries that nobody moves are counted, too.
        entries = mechanism.scale.shape[1]
        return cls(ratio, times * entries, release.epsilon_share)

    @property
    def is_composed_apart(self) -> bool:
        """Return whether a share of the budget was taken for it."""
        return self.epsilon_share is not None

    @property
    def is_exact(self) -> bool:
        """Return whether it is composed with the rest."""
        return not self.is_composed_apart
