"""The relation between neighbouring datasets, and the sensitivities it implies."""

import math
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Bound = TypeVar("Bound", float, NDArray[np.float64])


class _Change(float):
    """A sensitivity that is marked: one record's own term may exceed half of it."""


class _Changes(np.ndarray[Any, np.dtype[np.float64]]):
    """An array of marked sensitivities; arrays computed from it keep the mark."""


class Adjacency(StrEnum):
    """Relation between neighbouring datasets, which have the same public size n.

    ``replace_one`` exchanges one record for another (Hamming distance one).
    ``zero_out`` replaces the contribution of one record to every sum by zero (a record
    is added or removed, with a public normaliser).
    """

    REPLACE_ONE = "replace_one"
    ZERO_OUT = "zero_out"

    def of_sum(
        self, bound: Bound, *, signed: bool = True, positive: bool = False
    ) -> Bound:
        """Return the sensitivity of a sum of terms bounded by ``bound``.

        Let the exchanged record have the term A in D and B in D', each of norm at most
        b. Under ``zero_out``, B = 0 and the sum changes by norm(A) <= b. Under
        ``replace_one``, the sum changes by norm(A - B) <= 2 b, reached at B = -A. The
        change is smaller if terms cannot be opposite:

        - Numbers in [0, b] differ by at most b (``signed=False``).
        - Positive semidefinite matrices have <A, B> = tr(A B) = tr(R A R) >= 0, where R
          is the root of B, because R A R is positive semidefinite, too. In Frobenius
          norm, norm(A - B)^2 = norm(A)^2 + norm(B)^2 - 2 <A, B> <= 2 b^2
          (``positive=True``), reached at A = b uu', B = b vv' for orthogonal unit
          vectors u, v. The same holds for vectors without negative entries in l2 norm.

        For a sum over a secret Poisson sample (`SampledRelease`), ``replace_one`` does
        not need a bound on the change. It needs each record's own term to be at most
        half of the sensitivity. So the sensitivity is 2 b for all kinds of terms,
        ``of_sum(bound)``. Such a release raises an error for ``positive=True``, and
        `check` detects ``signed=False``.

        Parameters
        ----------
        bound : float or ndarray
            Largest absolute value (or norm) of one record's term.
        signed : bool
            False if a term is a number in [0, bound]. Not allowed for a
            `SampledRelease`.
        positive : bool
            Whether a term is a positive semidefinite matrix, or a vector without
            negative entries, and ``bound`` bounds its Frobenius or l2 norm. Not allowed
            for a `SampledRelease`.

        Returns
        -------
        float or ndarray
            Largest change of the sum between neighbours, in the shape of ``bound``.
        """
        if positive and self is Adjacency.REPLACE_ONE:
            return _mark_doubled(math.sqrt(2.0) * bound)
        factor = 2.0 if signed and self is Adjacency.REPLACE_ONE else 1.0
        return factor * bound

    def of_mean(
        self, bound: Bound, n: int, *, signed: bool = True, positive: bool = False
    ) -> Bound:
        """Return the sensitivity of a mean over ``n`` terms.

        Parameters
        ----------
        bound, signed, positive
            As in ``of_sum``.
        n : int
            Number of terms, which is public.
        """
        change = self.of_sum(bound, signed=signed, positive=positive)
        return _mark_doubled(change / n) if is_change_only(change) else change / n


def _mark_doubled(change: Bound) -> Bound:
    """Return a sensitivity with the mark that a record's term may exceed half of it."""
    if isinstance(change, np.ndarray):
        return change.view(_Changes)
    return _Change(change)


def is_change_only(sensitivity: Any) -> bool:
    """Return whether a sensitivity is marked by `_mark_doubled`.

    Then a record's own term may exceed half of it.
    """
    return isinstance(sensitivity, _Change | _Changes)
