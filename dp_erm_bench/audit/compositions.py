"""Mechanisms that were called, and their composition by dp_accounting's distributions.

Of dominating pairs, rounded up, and of exact instances, rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency

LATTICE = 60
FEW = 10


@dataclass(frozen=True)
class Use:
    """One mechanism that was called.

    Attributes
    ----------
    kind : str
        ``gaussian``, ``poisson_gaussian``, ``laplace``, ``norm_laplace``,
        ``bounded_range``, ``pure``, ``vector`` (Laplace noise on every entry, ``ratio``
        the inverse of its level), ``objective`` or ``objective_pure`` (a minimiser).
    ratio : float
        Noise scale / sensitivity under the budget's adjacency.
    times : int
    rate : float
        Poisson sampling rate.
    spread : float
        Ratio of the largest to the smallest score sensitivity, of noise inside.
    curvature : float
        log(1 + beta / ridge) of a perturbed objective.
    """

    kind: str
    ratio: float
    times: int
    rate: float = 1.0
    spread: float = 1.0
    curvature: float = 0.0

    @property
    def level(self) -> float:
        """Return the pure level of one use; infinite for Gaussian noise."""
        if self.ratio == 0 or "gaussian" in self.kind or self.kind == "objective":
            return math.inf
        selects = self.kind in ("bounded_range", "pure")
        return self.curvature + (1 + self.spread if selects else 1.0) / self.ratio


def full_batch(use: Use) -> bool:
    """Return whether a use is the Gaussian mechanism itself."""
    return use.kind == "gaussian" or (use.kind == "poisson_gaussian" and use.rate == 1)


def deviation(uses: Sequence[Use], full: bool = False) -> float:
    """Return mu of all Gaussian uses together; ``full``: there must be no other."""
    if full and not all(full_batch(use) for use in uses):
        raise ValueError("Gaussian accounting knows no other noise")
    squares = [use.times / use.ratio**2 for use in uses if full_batch(use)]
    return math.sqrt(math.fsum(squares))


def lattice_step(uses: Sequence[Use]) -> float:
    """Return an interval short against the loss of one use.

    It divides the levels of equally loud mechanisms: their atoms stay where they are.
    """
    sampled = [
        use.rate * math.sqrt(math.expm1(min((2 * use.ratio) ** -2, 600)))
        for use in uses
        if use.kind == "poisson_gaussian"
    ]
    others = [1 / use.ratio for use in uses if use.kind != "poisson_gaussian"]
    # The rounding of few losses is not averaged out.
    finer = 5 if sum(use.times for use in uses) < FEW else 1
    return min([*sampled, *others]) / (finer * LATTICE)


def composed(uses: Sequence[Use], adjacency: Adjacency, least: bool = False) -> Any:
    """Return the library's privacy-loss distribution of the composition.

    ``least``: of exact instances and rounded down, so that its epsilon is a lower
    bound; else of dominating pairs, rounded up.
    """
    step = lattice_step(uses)
    parts = []
    mu = deviation(uses)
    if mu > 0:
        # One Gaussian that all of them amount to.
        alone = Use("gaussian", 1 / mu, 1)
        parts.append(distribution(alone, step, adjacency, least))
    for use in uses:
        if not full_batch(use):
            made = distribution(use, step, adjacency, least)
            parts.append(made.self_compose(use.times))
    return reduce(lambda one, other: one.compose(other), parts)


def distribution(use: Use, step: float, adjacency: Adjacency, least: bool) -> Any:
    """Return the library's privacy-loss distribution of one use."""
    from dp_accounting.pld import privacy_loss_distribution as library

    options = {
        "pessimistic_estimate": not least,
        "value_discretization_interval": step,
        "use_connect_dots": not least,
    }
    if "gaussian" in use.kind:
        relation = library.NeighborRel.ADD_OR_REMOVE_ONE
        ratio = use.ratio
        if use.kind == "poisson_gaussian" and adjacency is Adjacency.REPLACE_ONE:
            # The library takes scale / bound and doubles the bound itself.
            relation, ratio = library.NeighborRel.REPLACE_ONE, 2 * ratio
        return library.from_gaussian_mechanism(
            ratio, sampling_prob=use.rate, neighboring_relation=relation, **options
        )
    if use.kind == "laplace":
        return library.from_laplace_mechanism(use.ratio, **options)
    if least:
        return instance(use, step)
    return dominating(use, step)


def dominating(use: Use, step: float) -> Any:
    """Return the distribution of a selection's largest profile, on the lattice."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as library

    level = use.level
    last = math.ceil(level / step - 1e-9)
    cells = np.arange(-last, last + 1)
    losses = cells * step
    inside = np.clip(losses, -level, level)
    if use.kind == "bounded_range":
        profile = np.expm1((inside - level) / 2) ** 2 / -math.expm1(-level)
    else:
        profile = -np.expm1(inside - level) / (1 + math.exp(-level))
    profile = np.where(losses < -level, -np.expm1(losses), profile)
    made = pld_pmf.create_pmf_pessimistic_connect_dots(step, cells, profile)
    return library.PrivacyLossDistribution(made)


def instance(use: Use, step: float) -> Any:
    """Return the distribution of a selection between two candidates, rounded down.

    Both scores move by the sensitivity, in opposite directions, from -1 to 1 apart.
    The winner under Gumbel noise is logistic; under Laplace noise of scale b the
    difference of two has the tail e^(-d/b) (1/2 + d/(4b)).
    """
    from dp_accounting.pld import privacy_loss_distribution as library

    d = 1 / use.ratio
    if use.kind == "bounded_range":
        p = 1 / (1 + math.exp(-d))
    else:
        p = 1 - math.exp(-d) * (0.5 + d / 4)
    one = {0: math.log(p), 1: math.log1p(-p)}
    other = {0: math.log1p(-p), 1: math.log(p)}
    return library.from_two_probability_mass_functions(
        one, other, pessimistic_estimate=False, value_discretization_interval=step
    )
