"""Second implementation (twin) of Laplace noise on a number."""

from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.trust.twins.base import Answered, Array, discretisation
from dp_erm_bench.trust.twins.pure import PureTwin

# Panels of an interval that shrink towards its start, which high orders depend on.
GRADED: Array = np.append(0.0, np.geomspace(1e-8, 1.0, 1500))


class LaplaceTwin(PureTwin):
    """Twin (second implementation) of the Laplace mechanism."""

    exact: ClassVar[bool] = True

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi divergence of two Laplace densities, by quadrature."""
        level, power = self.level, orders - 1
        nodes, weights = np.polynomial.legendre.leggauss(4)
        half = level * np.diff(GRADED)[:, None] / 2
        x = (level * GRADED[:-1, None] + half * (nodes + 1)).ravel()
        gain = np.exp(-(2 * power[:, None] + 1) * x) @ (half * weights).ravel()
        ends = 1 + np.exp(-(1 + 2 * power) * level)
        moments = (gain + ends) / 2  # E (P/Q)^power over e^(power level)
        return np.asarray(level + np.log(moments) / power)

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return dp_accounting's distribution of the Laplace mechanism.

        Parameters
        ----------
        step : float
            Spacing of the lattice of losses.
        adjacency : Adjacency
            The neighbouring relation.
        least : bool
            Whether to round down, for a lower bound; otherwise up.
        """
        from dp_accounting.pld import privacy_loss_distribution as library

        how = discretisation(step, least)
        return library.from_laplace_mechanism(self.ratio, **how)

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of products of Laplace densities."""
        a, (v, u) = use.values(), use.normalise_queries()
        return np.asarray((np.abs(a - u) - np.abs(a - v)).sum(axis=1))
