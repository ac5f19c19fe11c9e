"""Second implementation (twin) of Laplace noise on every entry of a vector."""

from dataclasses import dataclass
from typing import Any

from dp_erm_bench.trust.twins.laplace import LaplaceTwin


@dataclass(frozen=True)
class L1LaplaceTwin(LaplaceTwin):
    """Twin (second implementation) of a vector with Laplace noise on every entry.

    The largest change is a change of one entry. So a single number is an exact
    instance: a case whose privacy is known exactly. With a row of sensitivities, each
    entry counts as a number.

    Attributes
    ----------
    epsilon_share : float or None
        The share of the budget's epsilon that the release takes; None if the release
        has the common noise multiplier.
    """

    epsilon_share: float | None = None

    @classmethod
    def of(
        cls, release: Any, mechanism: Any, ratio: float, times: int
    ) -> "L1LaplaceTwin":
        """Return the twin (second implementation) of a mechanism as a run used it.

        The ``ratio`` of the twin is that of a single entry.

        Parameters
        ----------
        release : Release
            The release with its declared sensitivity.
        mechanism : Mechanism
            The mechanism after the run.
        ratio : float
            The smallest noise scale / sensitivity.
        times : int
            Number of uses.
        """
        # As certified, entries that do not change are counted too.
        entries = mechanism.scale.shape[1]
        return cls(ratio, times * entries, release.epsilon_share)

    @property
    def is_composed_apart(self) -> bool:
        """Return whether the release takes a share of the budget."""
        return self.epsilon_share is not None

    @property
    def is_exact(self) -> bool:
        """Return whether the mechanism is composed with the others."""
        return not self.is_composed_apart
