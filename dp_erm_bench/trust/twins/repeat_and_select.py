"""Second implementation (twin) of the best of a geometric number of runs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.trust.twins.base import Array, Twin, required_twin
from dp_erm_bench.trust.twins.fixed_size_gaussian import FixedSizeGaussianTwin
from dp_erm_bench.trust.twins.poisson_gaussian import PoissonGaussianTwin


@dataclass(frozen=True)
class RepeatAndSelectTwin(Twin):
    """Twin of the best of many runs: a second implementation of its privacy.

    The twin uses dp_accounting's bound for a geometric number of runs.

    Attributes
    ----------
    gamma : float
        Probability of stopping after a run.
    run : tuple of tuple of Twin
        For each mechanism of a run, the different twins that it has in the runs. Each
        twin has the least noise and the most uses of all runs.
    """

    gamma: float = 0.5
    run: tuple[tuple[Twin, ...], ...] = ()

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> Twin:
        """Return the twin (second implementation) of a mechanism as a run used it.

        The twin is made from the runs that the mechanism kept for an audit. The
        sensitivities are those that the release declares.

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
        if mechanism.audit is None:
            raise ValueError(f"release {release.name}: nobody saw its runs")
        uses = []
        for one in release.run:
            made = [run[one.name] for run in mechanism.audit.made]
            sizes = np.asarray(one.sensitivity, np.float64)
            scales = [(m.scale / np.where(sizes > 0, sizes, 1.0)).min() for m in made]
            least = float(min([ratio * one.weight, *scales]))
            used = max((m.used for m in made), default=0)
            if used and np.any(sizes > 0):
                twin = required_twin(one)
                forms = dict.fromkeys(twin.of(one, m, least, used) for m in made)
                uses.append(tuple(map(twin_of_fixed_size, forms)))
        return cls(ratio, times, release.gamma, tuple(uses))

    def renyi(self, orders: Array) -> Array:
        """Return dp_accounting's Renyi curve of the best run, for the worst twins."""
        from dp_accounting.rdp import rdp_privacy_accountant as library

        total = np.zeros(orders.shape)
        for forms in self.run:
            curves = [form.times * form.renyi(orders) for form in forms]
            total += np.max(curves, axis=0)
        # A shape of 1 is the geometric law.
        how = (orders, total, 1 / self.gamma, 1.0)
        return np.asarray(library._compute_rdp_repeat_and_select(*how))


def twin_of_fixed_size(use: Twin) -> Twin:
    """Return the twin of fixed-size samples for a given twin of Poisson samples.

    Other twins are returned unchanged.
    """
    if isinstance(use, PoissonGaussianTwin):
        return FixedSizeGaussianTwin(use.ratio, use.times, use.rate)
    return use
