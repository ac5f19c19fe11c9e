"""Twins (second implementations) of mechanisms known only by their pure epsilon."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Array, Twin


@dataclass(frozen=True)
class PureTwin(Twin):
    """Second implementation (twin) of a mechanism known only by its pure epsilon.

    By default, the pure epsilon is 1 / ratio.
    """

    @property
    def level(self) -> float:
        """Return the pure epsilon of one use, its level."""
        return 1 / self.ratio if self.ratio > 0 else math.inf

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi divergence of two outcomes with log-ratios +-level."""
        return two_outcomes(orders, self.level, np.array([self.level]), 2 * self.level)

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return the distribution for the largest profile, or of an exact instance.

        An exact instance is a pair of neighbours whose privacy loss is known exactly.

        Parameters
        ----------
        step : float
            Spacing of the lattice of losses.
        adjacency : Adjacency
            The neighbouring relation.
        least : bool
            Whether to round down, for a lower bound; otherwise up.
        """
        from dp_accounting.pld import pld_pmf
        from dp_accounting.pld import privacy_loss_distribution as library

        if least:
            return self.instance(step)
        level = self.level
        last = math.ceil(level / step - 1e-9)
        cells = np.arange(-last, last + 1)
        losses = cells * step
        profile = self.profile(np.clip(losses, -level, level))
        profile = np.where(losses < -level, -np.expm1(losses), profile)
        masses = pld_pmf.create_pmf_pessimistic_connect_dots(step, cells, profile)
        return library.PrivacyLossDistribution(masses)

    def profile(self, epsilons: Array) -> Array:
        """Return the largest delta at epsilons within +-level."""
        largest = -np.expm1(epsilons - self.level) / (1 + math.exp(-self.level))
        return np.asarray(largest)

    def instance(self, step: float) -> Any:
        """Return the exact distribution for one pair of neighbours, rounded down."""
        raise ValueError(f"no instance is known for {type(self).__name__}")


def two_outcomes(orders: Array, level: float, ends: Array, width: float) -> Array:
    """Return the largest Renyi divergence of a choice between two outcomes.

    The log-ratios of the outcomes are t and t - width.

    Parameters
    ----------
    orders : array of shape (m,)
        Renyi orders > 1; the result has their shape.
    level : float
        The pure epsilon, at least every t.
    ends : array of shape (k,)
        The values of t over which the divergence is largest.
    width : float
        Difference of the two log-ratios.
    """
    power = orders - 1
    p = (math.exp(width) - np.exp(ends)) / math.expm1(width)
    a, less = power[:, None], ends - level
    pairs = p * np.exp(a * less) + (1 - p) * np.exp(a * (less - width))
    return np.asarray(level + np.log(pairs.max(axis=1)) / power)


def two_candidates(p: float, step: float) -> Any:
    """Return the distribution of a selection between two candidates, rounded down.

    Both scores move by the sensitivity, in opposite directions, so their difference
    goes from -1 to 1 sensitivities. The better candidate wins with probability ``p``.
    """
    from dp_accounting.pld import privacy_loss_distribution as library

    one = {0: math.log(p), 1: math.log1p(-p)}
    other = {0: math.log1p(-p), 1: math.log(p)}
    return library.from_two_probability_mass_functions(
        one, other, pessimistic_estimate=False, value_discretization_interval=step
    )
