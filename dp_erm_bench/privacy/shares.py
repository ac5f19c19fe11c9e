"""Releases that take a fixed share of the budget, apart from the search for z."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels import draws
from dp_erm_bench.privacy.accountants import pure_epsilon
from dp_erm_bench.privacy.base import Mechanism
from dp_erm_bench.privacy.budget import Budget
from dp_erm_bench.privacy.calibration import Calibration
from dp_erm_bench.privacy.events import Event
from dp_erm_bench.privacy.mechanisms import Mechanisms
from dp_erm_bench.privacy.releases import Array, Release

# A few units in the last place: sums of budgets are rounded to the safe side.
ROUNDING = 4e-16


@dataclass(frozen=True, eq=False)
class LaplaceVector(Release):
    """A vector, each entry plus Laplace noise of scale z * size * sensitivity_j.

    Neighbours move entry j by at most its sensitivity Delta_j, so the log-ratio of
    the densities is at most sum_j Delta_j / (z size Delta_j) = 1 / z: the vector is
    (1/z)-DP, each of its entries taking an equal part (Dwork and Roth, 2014,
    Theorems 3.6 and 3.16). Entries of sensitivity 0 are published as they are.

    Parameters
    ----------
    epsilon_share : float
        The part of the budget's epsilon that it takes, in (0, 1).
    """

    draw = staticmethod(draws.laplace)
    epsilon_share: float = 0.1

    def __post_init__(self) -> None:
        """Weigh every entry with the size of the vector."""
        if not 0.0 < self.epsilon_share < 1.0:
            raise UsageError(f"epsilon_share={self.epsilon_share}: must be in (0, 1)")
        object.__setattr__(self, "weight", float(max(1, self.size)))

    @property
    def size(self) -> int:
        """Return the number of entries."""
        return int(np.shape(self.sensitivity)[-1])

    def event(self) -> Event:
        """Return ``size`` Laplace mechanisms of an equal part each."""
        return Event("laplace", self.times * self.size, self.weight)

    def multiplier(self, budget: Budget) -> float:
        """Return the z of its share of a budget, 0 at epsilon = inf."""
        return 1.0 / (self.epsilon_share * budget.epsilon)

    def spent(self, budget: Budget) -> float:
        """Return the pure epsilon that it takes of a finite budget."""
        spent = pure_epsilon((self.event(),), self.multiplier(budget))
        assert spent is not None
        return spent


class EntrywiseMechanism(Mechanism):
    """Publishes a vector of each trial, every entry with noise of its own scale."""

    def publish(self, value: Array) -> Array:
        """Return the noisy vectors, (B, size)."""
        noisy: Array = value + self.unit_noise(1, value.shape[1])[:, 0] * self.scale
        return noisy

    def query(self, value: Array) -> Array:
        """Return the vectors."""
        return value

    def sensitivity_of(self, value: Array) -> Array:
        """Return the sensitivity of each entry."""
        return np.atleast_2d(np.asarray(self.release.sensitivity, np.float64))


Shared = tuple[LaplaceVector, ...]


def shared_mechanisms(
    releases: Shared, budget: Budget, identities: Sequence[str]
) -> Mechanisms:
    """Return the mechanisms of releases that take a share of a budget."""
    made = Mechanisms(len(identities))
    for release in releases:
        z = release.multiplier(budget)
        made[release.name] = EntrywiseMechanism(release, z, identities)
    return made


def left_over(budget: Budget, releases: Shared) -> Budget:
    """Return what shares leave of a budget, never rounded up."""
    if not releases or math.isinf(budget.epsilon):
        return budget
    spent = math.fsum(release.spent(budget) for release in releases)
    return replace(budget, epsilon=(budget.epsilon - spent) * (1 - ROUNDING))


def with_shares(
    calibration: Calibration, budget: Budget, releases: Shared
) -> Calibration:
    """Return a calibration of the left-over that counts the shares too.

    Basic composition: the shares are eps'-DP; whatever they published, the rest is
    (eps_r, delta)-DP given it, for its z is fixed before and its sensitivities are
    functions of what was published. Together (eps' + eps_r, delta)-DP (Dwork and
    Roth, 2014, Theorem 3.16 and appendix B, adaptive). It holds whichever rule chose
    z: ``epsilon_certified`` is what is proved, within the budget if ``certified``.
    """
    if not releases:
        return calibration
    if math.isinf(budget.epsilon):
        return replace(calibration, budget=budget)
    spent = math.fsum(release.spent(budget) for release in releases)
    alone = calibration.accountant in ("pure", "none")
    return replace(
        calibration,
        budget=budget,
        accountant="pure" if alone else f"{calibration.accountant}+pure",
        epsilon_certified=spent + calibration.epsilon_certified,
    )
