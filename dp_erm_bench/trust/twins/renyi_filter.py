"""Second implementation (twin) of a Renyi filter over random steps."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.trust.twins.base import Array, Twin, required_twin


@dataclass(frozen=True)
class RenyiFilterTwin(Twin):
    """Twin of a filter: the larger of the promised curve and the curve of its steps.

    A twin is a second implementation of a law.

    Attributes
    ----------
    steps : tuple of Twin
        The twins of the mechanisms of the steps that were made.
    """

    steps: tuple[Twin, ...] = ()

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> Twin:
        """Return the twin (second implementation) of a mechanism as a run used it.

        The twin is made from the steps that passed the filter. The sensitivities of the
        steps are those that the release declares.

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
        claimed = {one.name: one for kind in release.steps for one in kind}
        uses = []
        for name, one in mechanism.made.items():
            sizes = np.asarray(claimed[name].sensitivity, np.float64)
            inverse = (sizes / one.scale).max() if one.scale.all() else np.inf
            if one.used and inverse > 0:
                twin = required_twin(claimed[name])
                uses.append(twin.of(one.release, one, float(1 / inverse), one.used))
        return cls(ratio, times, tuple(uses))

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi curve of the filter, by chords between whole orders.

        The curve is infinite above the last whole order.
        """
        if self.ratio > 512 and not self.steps:
            return np.maximum(orders, 2.0) / (2 * self.ratio**2)
        last = math.ceil(min(512.0, max(2.0, 5 * self.ratio)))
        whole = np.arange(2.0, last + 1)
        sums = [use.times * use.renyi(whole) for use in self.steps]
        promised = whole / (2 * self.ratio**2)
        spent = np.maximum(promised, np.sum(sums, axis=0)) if sums else promised
        nodes = np.append(1.0, whole), np.append(0.0, (whole - 1) * spent)
        return np.asarray(np.interp(orders, *nodes, right=np.inf) / (orders - 1))
