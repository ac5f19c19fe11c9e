"""The guarantee of an audited run: noise multipliers and the privacy profile."""

import functools
from dataclasses import dataclass, replace

import numpy as np

from dp_erm_bench.accounting.bounds import Laws
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.certify import delta_at
from dp_erm_bench.errors import UsageError
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.base import Array
from dp_erm_bench.releases.nested import with_inside
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.trust.twins.base import required_twin

MANY = 5
CLAIM = "claim"
"""The identity whose schedule a guarantee is for."""
# Epsilons of the profile: no others are tested.
GRID = np.concatenate([np.linspace(0.0, 1.0, 41), np.geomspace(1.05, 20.0, 40)])


@dataclass(frozen=True, eq=False)
class Guarantee:
    """The noise of a run and the privacy that our accountants prove for it.

    Attributes
    ----------
    budget : Budget
        With delta as a number.
    z : float
        The calibrated common multiplier.
    multipliers : dict
        Noise scale / sensitivity of each release.
    laws : tuple of Law
        All releases, relative to ``z``, those of a share of the budget too.
    epsilon : float
        The certified epsilon at the budget's delta.
    secret : bool
        Whether noise is used that is never added to what is published.
    """

    budget: Budget
    z: float
    multipliers: dict[str, float]
    laws: Laws
    epsilon: float
    secret: bool = False

    @property
    def bell_shaped(self) -> bool:
        """Return whether the profile nearly has a Gaussian's shape.

        Normal noise has it, and by the central limit theorem so have sums of many
        releases; a few bounded losses have not.
        """
        uses = sum(law.times for law in self.laws)
        return uses >= MANY or all(law.normal for law in self.laws)

    @functools.cached_property
    def profile(self) -> tuple[Array, Array]:
        """Return epsilons and the deltas proved for them.

        The certificate is one more point: it may be proved by another accountant.
        """
        deltas = delta_at(self.laws, self.z, self.budget.adjacency, GRID)
        certified = np.where(GRID >= self.epsilon, self.budget.number, 1.0)
        return GRID, np.minimum(deltas, certified)


def guarantee_of(solver: Solver, problem: Problem, budget: Budget) -> Guarantee:
    """Return the guarantee of a solver under a budget, as `Run` calibrates it.

    Laws know no data and no constants, so those of one run stand for all.

    Raises
    ------
    UsageError
        Without noise there is nothing to audit.
    Unsupported
        If a release has no finite sensitivity, or no twin.
    """
    budget = budget.resolved(problem.n)
    if not np.isfinite(budget.epsilon):
        raise UsageError("epsilon=inf: an audit needs a finite epsilon")
    run = Run(problem, [solver], budget, identities=[CLAIM]).declare()
    for release in run.releases:
        required_twin(release)
    z = run.calibration.z or 1.0
    parts = [(r, run.calibration.z) for r in run.releases]
    parts += [(r, r.multiplier(budget.epsilon)) for r in run.shares]
    inside = [(one, at) for r, at in parts for one in with_inside([r], at)]
    return Guarantee(
        budget=budget,
        z=z,
        multipliers={r.name: r.weight * at for r, at in inside},
        laws=tuple(
            replace(r.law(), weight=r.weight * at / z) for r, at in parts if at > 0.0
        ),
        epsilon=run.calibration.epsilon_certified,
        secret=any(release.secret for release in run.releases),
    )
