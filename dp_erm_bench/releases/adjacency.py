"""The relation between neighbouring datasets, and its factor in sensitivities."""

from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Bound = TypeVar("Bound", float, NDArray[np.float64])


class Adjacency(StrEnum):
    """Relation between neighbouring datasets; the size n is public in both.

    ``replace_one`` exchanges one record for another (Hamming distance one);
    ``zero_out`` replaces its contribution to every sum by zero (add or remove with
    a public normaliser).
    """

    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    def of_sum(self, bound: Bound, *, signed: bool = True) -> Bound:
        """Return the sensitivity of a sum of terms bounded by ``bound``.

        Parameters
        ----------
        bound : float or ndarray
            Largest absolute value (or norm) of one record's term.
        signed : bool
            False where a term lies in [0, bound], so that a replacement moves the
            sum by at most ``bound`` too. Not for a `SampledRelease`: there it is the
            term itself that must be within half of the sensitivity.

        Returns
        -------
        float or ndarray
            Largest change of the sum between neighbours, of the shape of ``bound``.
        """
        factor = 2.0 if signed and self is Adjacency.REPLACE_ONE else 1.0
        return factor * bound

    def of_mean(self, bound: Bound, n: int, *, signed: bool = True) -> Bound:
        """Return the sensitivity of a mean over ``n`` terms (see ``of_sum``)."""
        return self.of_sum(bound, signed=signed) / n
