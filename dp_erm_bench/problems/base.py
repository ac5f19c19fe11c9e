"""The interface of a problem of any kind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from dp_erm_bench.datasets.base import Array, Uncharged
from dp_erm_bench.errors import Unsupported


@dataclass(frozen=True, eq=False)
class Optimum:
    """The minimum of a problem, or the reason why none is certified.

    Parameters
    ----------
    value : float or None
        The minimum F(w); None if there is no certificate.
    w : array of shape (p,) or None
        A minimiser.
    gap : float or None
        Certified bound on (F(w) - min F) / |F(w)|: at most 1e-9, or 1e-6 if the loss is
        not smooth.
    reason : str
        The reason why there is no certificate; empty if there is one.
    """

    value: float | None = None
    w: Array | None = None
    gap: float | None = None
    reason: str = ""


class Problem(ABC):
    """An objective F over a domain of R^p that depends on n private records.

    This class contains no code on privacy or solvers. Derive your own problem from this
    class. A solver names in ``serves`` the class of problems that it is for, and may
    call all methods of that class.

    Attributes
    ----------
    kind : str
        Name of this kind of problem in messages.
    n, p : int
        The numbers of records and of coordinates.
    """

    kind: ClassVar[str]

    @property
    @abstractmethod
    def n(self) -> int:
        """Return the number of records."""

    @property
    @abstractmethod
    def p(self) -> int:
        """Return the number of coordinates."""

    @property
    def entries(self) -> int:
        """Return the number of stored entries of the records: n p if they are dense."""
        return self.n * self.p

    @property
    @abstractmethod
    def spec(self) -> Mapping[str, Any]:
        """Return the part of a trial's spec that describes the problem, for JSON."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Return the digest of the spec and of the content of the records.

        The draws of a seeded trial depend on it.
        """

    @property
    @abstractmethod
    def optimum(self) -> Optimum:
        """Return the certified minimum."""

    @abstractmethod
    def value(self, w: Array) -> Any:
        """Return F(w): a number for shape (p,), shape (B,) for (B, p)."""

    @abstractmethod
    def contains(self, w: Array) -> Any:
        """Return whether points of shape (..., p) are in the domain, shape (...)."""

    @classmethod
    def neighbours(cls, zeroed: bool) -> tuple[Problem, Problem]:
        """Return two small problems whose first records differ as much as is allowed.

        An audit uses these problems, so their other records should hide the difference
        as little as possible.

        Parameters
        ----------
        zeroed : bool
            Whether the first record of the second problem is zeros (zero_out), or any
            other record (replace_one).

        Raises
        ------
        Unsupported
            If the class does not define neighbours. Then no solver for it can be
            audited.
        """
        raise Unsupported(
            f"audit: problems of {cls.kind} define no neighbouring datasets"
        )

    @property
    def title(self) -> str:
        """Return the name of this problem in messages."""
        return self.kind

    def uncharged(self, constants: bool) -> tuple[Uncharged, ...]:
        """Return the uses of the records that no budget pays for.

        Parameters
        ----------
        constants : bool
            Whether smoothness constants are used.
        """
        return ()

    @property
    def gradient_rms(self) -> float:
        """Return the unit in which clipping thresholds are given.

        Raises
        ------
        Unsupported
            If nothing is clipped in problems of this kind.
        """
        raise Unsupported(
            f"gradient_rms: problems of {self.kind} do not define this unit"
        )

    def start(self, batch: int) -> Array:
        """Return the starting points of B trials, zeros of shape (B, p)."""
        return np.zeros((batch, self.p))

    def oracle(self, batch: int, *, clipped: bool = True) -> BaseOracle:
        """Return the oracle through which B trials query the records.

        Parameters
        ----------
        batch : int
            B.
        clipped : bool
            Whether the contribution of a record may be clipped.
        """
        return BaseOracle(self, self.start(batch))

    def with_smoothness(self, kind: str) -> Self:
        """Return the problem with smoothness constants of another source, if any."""
        return self

    def facts(self) -> dict[str, Any]:
        """Return columns of the table of results that describe the problem."""
        return {}

    def model(self, w: Array) -> Any:
        """Return the `LinearModel` that a point defines, or None if there is none."""
        return None

    def measures(self, w: Array) -> dict[str, Array]:
        """Return further columns of the trajectory by name.

        Each column is computed from points of shape (B, p) and has shape (B,).
        """
        return {}

    def last_measures(self, w: Array) -> dict[str, Array]:
        """Return columns of the last checkpoint only, in the form of `measures`."""
        return {}

    @property
    def references(self) -> dict[str, dict[str, float]]:
        """Return `measures` and `last_measures` of models to compare with, by name.

        These measures are not private outputs. Saved records contain them. By default
        there are none.
        """
        return {}

    def lacking(self, quantity: str) -> str:
        """Return the reason against comparing trials by a quantity; empty if none.

        Parameters
        ----------
        quantity : str
            ``objective``, or a column of `measures` or `last_measures`.
        """
        known = quantity == "objective"
        return "" if known else f"problems of {self.kind} have only their objective"


class BaseOracle:
    """The iterates of B trials on a problem, which a solver reads and moves.

    Attributes
    ----------
    problem : Problem
    w : array of shape (B, p)
        The iterates.
    told : dict
        Columns of the trajectory that the solver computes as it runs, by name. Each has
        the shape (B,). Like the objective, these columns are recorded and not released.
    """

    def __init__(self, problem: Any, start: Array) -> None:
        self.problem = problem
        self.told: dict[str, Array] = {}
        self.w = np.array(start, dtype=np.float64, order="C")

    @property
    def batch(self) -> int:
        """Return the number B of trials."""
        return int(self.w.shape[0])

    def objective(self, w: Array) -> Array:
        """Return F, shape (B,), at given points of shape (B, p)."""
        return np.asarray(self.problem.value(w))

    def move_to(self, w: Array) -> None:
        """Set the iterates, shape (B, p)."""
        self.w = np.array(w, dtype=np.float64, order="C")
