"""The base classes of releases and mechanisms, and the mechanisms of a batch."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import BudgetExhausted
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.streams import stream_seeds

Array = NDArray[np.float64]
Seed = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Release(ABC):
    """A noisy quantity that a solver declares and publishes ``times`` times.

    Parameters
    ----------
    name : str
        Name of the release among the mechanisms of the solver.
    sensitivity : float or array, broadcastable to (B, p)
        The largest change of the published value between neighbours, for the
        budget's adjacency; per trial, or per trial and coordinate.
    times : int
        The largest number of uses.
    weight : float
        Noise scale divided by z * sensitivity, where z is the common noise multiplier.

    Attributes
    ----------
    mechanism : type of Mechanism
        The class of the release's mechanism.
    proof : type of Law
        The law that is proved for the release, unless ``law`` is overridden.
    vectors : bool
        Whether one use may publish a vector whose sensitivity is given in a norm.
    secret : bool
        Whether the noise stays secret and is not added to a published quantity.
    selects : bool
        Whether the release publishes the index of a winner.
    twin : type, optional
        For a kind of release from outside the package: a second implementation of its
        law, which also computes the likelihood of answers (``trust/twins/base.py``).
        Runs that use a kind without a twin are not recounted.
    """

    mechanism: ClassVar["type[Mechanism]"]
    proof: ClassVar[type[Law]]
    vectors: ClassVar[bool] = False
    secret: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    twin: ClassVar[Any] = None

    name: str
    sensitivity: Array | float
    times: int
    weight: float = 1.0

    def law(self) -> Law:
        """Return the law of the release.

        By default this is ``proof``, with fields copied from the release's fields of
        the same names.
        """
        names = {field.name for field in fields(self.proof)} & vars(self).keys()
        return self.proof(**{name: getattr(self, name) for name in names})

    @staticmethod
    @abstractmethod
    def draw(seed: Seed, start: int, count: int) -> Array:
        """Return noise of scale 1: draws start .. start + count - 1 of a stream.

        Parameters
        ----------
        seed : uint32 array of shape (4,)
            Seed of the stream.
        start : int
            Number of the first draw, from 0.
        count : int
            Number of draws.
        """

    @classmethod
    def is_built_in(cls) -> bool:
        """Return whether the package defines this class, not just one of its name."""
        if not cls.__module__.startswith(f"{__package__}."):
            return False
        return vars(sys.modules[cls.__module__]).get(cls.__name__) is cls

    @classmethod
    def is_recounted(cls) -> bool:
        """Return whether the class has a twin (second implementation of its law).

        Subclasses do not inherit it.
        """
        if cls.is_built_in():
            return True
        # By name: the base class of twins is in a layer above the releases.
        places = getattr(vars(cls).get("twin"), "__mro__", ())
        return any(place.__qualname__ == "Twin" for place in places)

    def draws_of(self, size: int) -> int:
        """Return the number of random draws for one use on a vector of a given size."""
        return size

    def unit(self, seed: Seed, start: int, uses: int, size: int) -> Array:
        """Return noise of scale 1 for several uses, of shape (uses, size).

        Parameters
        ----------
        seed : uint32 array of shape (4,)
            Seed of the stream.
        start : int
            Number of the first draw, from 0.
        uses : int
            Number of uses.
        size : int
            Length of the vector of each use.
        """
        return self.draw(seed, start, uses * size).reshape(uses, size)


@dataclass(frozen=True, eq=False)
class Query:
    """One use of a mechanism, as the replay audit records it.

    Attributes
    ----------
    name : str
        Name of the release.
    value : array of shape (B,) or (B, size)
        The value before noise.
    sensitivity : array, broadcastable to (B, 1) or (B, size)
        Sensitivity that is declared for this use.
    vector : bool
        Whether the sensitivity bounds a norm of the whole row.
    order : float
        Order of that norm.
    run : int or None
        Number of the repeated run that makes the query; None if runs are not repeated.
    """

    name: str
    value: Array
    sensitivity: Array
    vector: bool
    order: float = 2.0
    run: int | None = None


Intercept = Callable[[Query, Callable[[], Any]], Any]


class Mechanism(ABC):
    """A release with its noise, for a batch of B trials.

    Parameters
    ----------
    release : Release
    z : float
        Common noise multiplier: noise scale divided by weight * sensitivity; 0 for no
        noise.
    identities : sequence of str
        The identity of each trial, which seeds its streams.

    Attributes
    ----------
    scale : array of shape (B, 1) or (B, p)
        The noise scale.
    used : int
        The number of uses so far.
    intercept : callable or None
        The hook of the replay audit. It is called with each query and a function that
        publishes the answer, and returns the answer that the solver gets.
    """

    vector, order = False, 2.0

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        self.release = release
        self.seeds = stream_seeds(identities, release.name)
        self.scale = self._scale(z * release.weight, len(identities))
        self.used = 0
        self._drawn = 0
        self.intercept: Intercept | None = None

    def _scale(self, multiplier: float, batch: int) -> Array:
        sensitivity = Mechanism.sensitivity_of(self)
        each = np.broadcast_to(sensitivity, (batch, sensitivity.shape[1]))
        return multiplier * each if multiplier else np.zeros(each.shape)

    def __call__(self, *args: Any, **keys: Any) -> Any:
        """Return the noisy answer to a query, given the arguments of ``publish``."""
        if self.intercept is None:
            return self.publish(*args, **keys)
        asked = self.query(*args, **keys), self.sensitivity_of(*args, **keys)
        query = Query(self.release.name, *asked, self.vector, self.order)
        return self.intercept(query, lambda: self.publish(*args, **keys))

    @abstractmethod
    def publish(self, *args: Any, **keys: Any) -> Any:
        """Return the noisy answer and count the use."""

    @abstractmethod
    def query(self, *args: Any, **keys: Any) -> Array:
        """Return the value before noise, of shape (B,) or (B, size)."""

    def sensitivity_of(self, *args: Any, **keys: Any) -> Array:
        """Return the declared sensitivity of a call, by default equal for all calls."""
        return np.atleast_2d(np.asarray(self.release.sensitivity, np.float64))

    def spend(self, uses: int) -> None:
        """Count ``uses`` more uses.

        Raises
        ------
        BudgetExhausted
            If the release is then used more often than declared.
        """
        if self.used + uses > self.release.times:
            raise BudgetExhausted(
                f"release {self.release.name} was declared with "
                f"times={self.release.times}, but use {self.used + uses} was requested"
            )
        self.used += uses

    def shortfall(self) -> str:
        """Return a message if declared uses were not made, otherwise empty."""
        used, times = self.used, self.release.times
        words = f"release {self.release.name} was used {used} of {times} times"
        return words if used < times else ""

    def finish(self, early: bool = False) -> None:
        """Raise an error if the uses of a finished run are not the certified ones.

        By default nothing is checked. ``early`` means that the run may have ended
        before its last use.
        """
        return

    def unit_noise(self, uses: int, size: int) -> Array:
        """Count ``uses`` more uses, and return noise of scale 1 for them.

        The noise is a new array of shape (B, uses, size).
        """
        self.spend(uses)
        # Draws are counted, not uses: calls of unequal size must not share a draw.
        start, self._drawn = self._drawn, self._drawn + uses * size
        noise = np.zeros((len(self.seeds), uses, size))
        # Row by row: memory for a second array of all rows costs more than the draws.
        for b, seed in enumerate(self.seeds if self.scale.any() else ()):
            noise[b] = self.release.unit(seed, start, uses, size)
        return noise


class Mechanisms(dict[str, Mechanism]):
    """The mechanisms of a batch of trials, by name.

    Attributes
    ----------
    batch : int
        The number B of trials.
    ahead : bool
        Whether a compiled step may draw the noise of many uses in advance. False in
        the replay audit, which answers each query itself.
    intercept : callable or None
        The hook of an audit, for all mechanisms, see ``Mechanism``.
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch
        self.ahead = True
        self.intercept: Intercept | None = None

    def __missing__(self, name: str) -> Mechanism:
        """Raise LookupError for an unknown name; the message lists the known names."""
        declared = ", ".join(self) or "none"
        raise LookupError(
            f"no release is named {name!r}; the declared names are {declared}"
        )

    def include(self, others: "Mechanisms") -> None:
        """Add mechanisms that are made later, and give them the hook of the audit."""
        for name, mechanism in others.items():
            if name in self:
                raise ValueError(f"two releases are named {name}")
            mechanism.intercept = self.intercept
            self[name] = mechanism

    def shortfall(self) -> str:
        """Return the first message on uses that were not made, otherwise empty."""
        return next(filter(None, (one.shortfall() for one in self.values())), "")

    def finish(self, early: bool = False) -> None:
        """Raise an error if the uses of a finished run are not the certified ones."""
        for mechanism in self.values():
            mechanism.finish(early)


def make_mechanisms(
    releases: Iterable[Release], z: float, identities: Sequence[str]
) -> Mechanisms:
    """Return the mechanisms of declared releases at the multiplier z.

    Parameters
    ----------
    releases : iterable of Release
        The declared releases, whose names must differ.
    z : float
        Common noise multiplier; 0 for no noise.
    identities : sequence of str
        The identity of each trial, which seeds its streams.
    """
    mechanisms = Mechanisms(len(identities))
    for release in releases:
        if release.name in mechanisms:
            raise ValueError(f"two releases are named {release.name}")
        mechanisms[release.name] = release.mechanism(release, z, identities)
    return mechanisms
