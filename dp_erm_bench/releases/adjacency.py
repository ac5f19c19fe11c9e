"""The relation between neighbouring datasets, and its factor in sensitivities."""

import math
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Bound = TypeVar("Bound", float, NDArray[np.float64])


class _Change(float):
    """A sensitivity of which a record's own term may be more than half."""


class _Changes(np.ndarray[Any, np.dtype[np.float64]]):
    """Such sensitivities; what is computed from them is marked, too."""


class Adjacency(StrEnum):
    """Relation between neighbouring datasets; the size n is public in both.

    ``replace_one`` exchanges one record for another (Hamming distance one);
    ``zero_out`` replaces its contribution to every sum by zero (add or remove with
    a public normaliser).
    """

    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    def of_sum(
        self, bound: Bound, *, signed: bool = True, positive: bool = False
    ) -> Bound:
        """Return the sensitivity of a sum of terms bounded by ``bound``.

        Let the terms of the exchanged record be A in D and B in D', of norm at most b.
        Under ``zero_out`` B = 0, and the sum changes by norm(A) <= b. Under
        ``replace_one`` it changes by norm(A - B) <= 2 b, reached at B = -A. Terms that
        cannot be opposite change it by less:

        - Numbers in [0, b] differ by at most b (``signed=False``).
        - For positive semidefinite matrices <A, B> = tr(A B) = tr(R A R) >= 0 with R
          the root of B, as R A R is positive semidefinite, too. In Frobenius norm,
          norm(A - B)^2 = norm(A)^2 + norm(B)^2 - 2 <A, B> <= 2 b^2
          (``positive=True``), reached at A = b uu', B = b vv' for orthogonal unit
          vectors u, v. So it is for vectors without negative entries, in l2 norm.

        Over a secret Poisson sample (`SampledRelease`) it is not the change that has to
        be bounded under ``replace_one`` but each record's own term, by half of the
        sensitivity: that is 2 b whatever the terms, ``of_sum(bound)``. There
        ``positive=True`` is refused, and `check` finds ``signed=False``.

        Parameters
        ----------
        bound : float or ndarray
            Largest absolute value (or norm) of one record's term.
        signed : bool
            False where a term is a number in [0, bound]. Not for a `SampledRelease`.
        positive : bool
            Whether a term is a positive semidefinite matrix, or a vector without
            negative entries, and ``bound`` is of its Frobenius or l2 norm. Not for a
            `SampledRelease`.

        Returns
        -------
        float or ndarray
            Largest change of the sum between neighbours, of the shape of ``bound``.
        """
        if positive and self is Adjacency.REPLACE_ONE:
            return _mark_doubled(math.sqrt(2.0) * bound)
        factor = 2.0 if signed and self is Adjacency.REPLACE_ONE else 1.0
        return factor * bound

    def of_mean(
        self, bound: Bound, n: int, *, signed: bool = True, positive: bool = False
    ) -> Bound:
        """Return the sensitivity of a mean over ``n`` terms (see ``of_sum``)."""
        change = self.of_sum(bound, signed=signed, positive=positive)
        return _mark_doubled(change / n) if is_change_only(change) else change / n


def _mark_doubled(change: Bound) -> Bound:
    """Return a sensitivity as one of which a record's own term may be over a half."""
    if isinstance(change, np.ndarray):
        return change.view(_Changes)
    return _Change(change)


def is_change_only(sensitivity: Any) -> bool:
    """Return whether a sensitivity bounds the change of a sum, and not its terms."""
    return isinstance(sensitivity, _Change | _Changes)
