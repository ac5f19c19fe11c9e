"""Second implementation (twin) of normal noise."""

from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Answered, Array, Twin, discretisation


class GaussianTwin(Twin):
    """Twin (second implementation) of the Gaussian mechanism."""

    exact: ClassVar[bool] = True

    @property
    def mu_square(self) -> float:
        """Return mu^2 of all uses."""
        return self.times / self.ratio**2

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi divergence of one use, alpha / (2 ratio^2)."""
        return orders / (2 * self.ratio**2)

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return dp_accounting's distribution of the Gaussian mechanism.

        Parameters
        ----------
        step : float
            Spacing of the lattice of losses.
        adjacency : Adjacency
            The neighbouring relation.
        least : bool
            Whether to round down, for a lower bound; otherwise up.
        """
        return normal(self.ratio, 1.0, step, least)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of two normal densities."""
        a, (v, u) = use.values(), use.normalise_queries()
        return np.asarray(((a - (v + u) / 2) * (v - u)).sum(axis=1))


def normal(
    ratio: float, rate: float, step: float, least: bool, replaced: bool = False
) -> Any:
    """Return dp_accounting's distribution of a (sampled) Gaussian mechanism.

    Parameters
    ----------
    ratio : float
        Noise scale / sensitivity.
    rate : float
        Rate of Poisson samples; 1 for all records.
    step : float
        Spacing of the lattice of losses.
    least : bool
        Whether to round down, for a lower bound; otherwise up.
    replaced : bool
        Whether neighbours replace a record; otherwise one is added or removed.
    """
    from dp_accounting.pld import privacy_loss_distribution as library

    relation = library.NeighborRel.ADD_OR_REMOVE_ONE
    if replaced:
        # The library takes scale / bound and doubles the bound itself.
        relation, ratio = library.NeighborRel.REPLACE_ONE, 2 * ratio
    how = discretisation(step, least) | {"neighboring_relation": relation}
    return library.from_gaussian_mechanism(ratio, sampling_prob=rate, **how)
