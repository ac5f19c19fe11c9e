"""Releases that take a fixed share of the budget, apart from the search for z."""

import math
from collections.abc import Sequence
from dataclasses import replace

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import Calibration
from dp_erm_bench.accounting.certify import pure_epsilon
from dp_erm_bench.releases.laplace_vector import (
    EntrywiseMechanism,
    LaplaceVector,
    Shared,
)
from dp_erm_bench.releases.mechanisms import Mechanisms

# A few units in the last place: sums of budgets are rounded to the safe side.
ROUNDING = 4e-16


def shared_mechanisms(
    releases: Shared, budget: Budget, identities: Sequence[str]
) -> Mechanisms:
    """Return the mechanisms of releases that take a share of a budget."""
    made = Mechanisms(len(identities))
    for release in releases:
        z = release.multiplier(budget.epsilon)
        made[release.name] = EntrywiseMechanism(release, z, identities)
    return made


def spent_by(release: LaplaceVector, budget: Budget) -> float:
    """Return the pure epsilon that a release takes of a finite budget."""
    spent = pure_epsilon((release.law(),), release.multiplier(budget.epsilon))
    assert spent is not None
    return spent


def left_over(budget: Budget, releases: Shared) -> Budget:
    """Return what shares leave of a budget, never rounded up."""
    if not releases or math.isinf(budget.epsilon):
        return budget
    spent = math.fsum(spent_by(release, budget) for release in releases)
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
    spent = math.fsum(spent_by(release, budget) for release in releases)
    alone = calibration.accountant in ("pure", "none")
    return replace(
        calibration,
        budget=budget,
        accountant="pure" if alone else f"{calibration.accountant}+pure",
        epsilon_certified=spent + calibration.epsilon_certified,
    )
