"""Releases, what all their mechanisms share, and the mechanisms of a trial."""

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
    """One noisy quantity, published ``times`` times.

    Parameters
    ----------
    name : str
        Its name among the solver's mechanisms.
    sensitivity : float or array, broadcastable to (B, p)
        The largest change of the published value between neighbours, for the
        budget's adjacency; per trial, or per trial and coordinate.
    times : int
        The largest number of uses.
    weight : float
        Noise scale / (z * sensitivity).

    Attributes
    ----------
    mechanism : type of Mechanism
        The class of its mechanism.
    proof : type of Law
        The law that is proved of it, where ``law`` is not overridden.
    vectors : bool
        Whether one use may publish a vector, of a given sensitivity in a norm.
    secret : bool
        Whether the noise is never added to what is published.
    selects : bool
        Whether the index of a winner is published.
    twin : type, optional
        Of a kind from outside the package: its law a second time and how likely its
        answers are, see ``trust/twins/base.py``. Without it runs are not recounted.
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
        """Return its law, ``proof`` with the release's fields of the same names."""
        names = {field.name for field in fields(self.proof)} & vars(self).keys()
        return self.proof(**{name: getattr(self, name) for name in names})

    @staticmethod
    @abstractmethod
    def draw(seed: Seed, start: int, count: int) -> Array:
        """Return noise of scale 1: draws start .. start + count - 1 of a stream."""

    @classmethod
    def is_built_in(cls) -> bool:
        """Return whether the class is one of the package, not just called like it."""
        if not cls.__module__.startswith(f"{__package__}."):
            return False
        return vars(sys.modules[cls.__module__]).get(cls.__name__) is cls

    @classmethod
    def is_recounted(cls) -> bool:
        """Return whether the kind has a twin; a subclass does not inherit it."""
        if cls.is_built_in():
            return True
        # By its word: a twin's base lies above the releases.
        places = getattr(vars(cls).get("twin"), "__mro__", ())
        return any(place.__qualname__ == "Twin" for place in places)

    def draws_of(self, size: int) -> int:
        """Return the number of draws of one use on a vector of a size."""
        return size

    def unit(self, seed: Seed, start: int, uses: int, size: int) -> Array:
        """Return the noise of scale 1 of some uses, (uses, size), from draw start."""
        return self.draw(seed, start, uses * size).reshape(uses, size)


@dataclass(frozen=True, eq=False)
class Query:
    """One use of a mechanism, as the replay audit sees it.

    Attributes
    ----------
    name : str
        The release.
    value : array of shape (B,) or (B, size)
        The value before noise.
    sensitivity : array, broadcastable to (B, 1) or (B, size)
        Declared for this use.
    vector, order, run : bool, float, int or None
        Whether the sensitivity is of a norm of the row, its order, and which run asks.
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
        Noise scale / sensitivity; 0 for no noise.
    identities : sequence of str
        One per trial; they seed the streams.

    Attributes
    ----------
    scale : array of shape (B, 1) or (B, p)
        The noise scale.
    used : int
        The number of uses so far.
    intercept : callable or None
        The hook of the replay audit: gets each query and a function that
        publishes the answer, and returns the answer that the solver is to see.
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
        """Publish the noisy answer to a query, see ``publish`` of each kind."""
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
        """Return the sensitivity that is declared for a call, by default of all."""
        return np.atleast_2d(np.asarray(self.release.sensitivity, np.float64))

    def spend(self, uses: int) -> None:
        """Count ``uses`` more.

        Raises
        ------
        BudgetExhausted
            If that is more often than declared.
        """
        if self.used + uses > self.release.times:
            raise BudgetExhausted(
                f"release {self.release.name} was declared {self.release.times} times "
                f"and is asked for use {self.used + uses}"
            )
        self.used += uses

    def shortfall(self) -> str:
        """Return the sentence on uses that were declared and not made, if any."""
        used, times = self.used, self.release.times
        words = f"release {self.release.name} was used {used} of {times} times"
        return words if used < times else ""

    def finish(self, early: bool = False) -> None:
        """Raise if the uses of an ended run are not those certified.

        ``early`` says that it may have ended before its last use.
        """
        return

    def unit_noise(self, uses: int, size: int) -> Array:
        """Spend some uses and return their noise of scale 1, a new (B, uses, size)."""
        self.spend(uses)
        # Not uses alone: calls of unequal size must not share a draw.
        start, self._drawn = self._drawn, self._drawn + uses * size
        noise = np.zeros((len(self.seeds), uses, size))
        # Row by row: fresh memory for a second array of all costs more than the draws.
        for b, seed in enumerate(self.seeds if self.scale.any() else ()):
            noise[b] = self.release.unit(seed, start, uses, size)
        return noise


class Mechanisms(dict[str, Mechanism]):
    """The mechanisms of a trial by name.

    Attributes
    ----------
    batch : int
        B, the number of trials.
    ahead : bool
        Whether noise may be taken ahead for many uses, by a compiled step; the
        replay audit, which answers each query itself, says no.
    intercept : callable or None
        The hook of an audit on all of them, see ``Mechanism``.
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch
        self.ahead = True
        self.intercept: Intercept | None = None

    def __missing__(self, name: str) -> Mechanism:
        """Refuse a name that no release has, and say which there are."""
        declared = ", ".join(self) or "none"
        raise LookupError(f"no release is named {name!r}; declared are {declared}")

    def include(self, others: "Mechanisms") -> None:
        """Add mechanisms that are made later; an audit hears them too."""
        for name, mechanism in others.items():
            if name in self:
                raise ValueError(f"two releases are named {name}")
            mechanism.intercept = self.intercept
            self[name] = mechanism

    def shortfall(self) -> str:
        """Return the first sentence on uses that were not made, empty if all were."""
        return next(filter(None, (one.shortfall() for one in self.values())), "")

    def finish(self, early: bool = False) -> None:
        """Raise if the uses of an ended run are not those certified."""
        for mechanism in self.values():
            mechanism.finish(early)


def make_mechanisms(
    releases: Iterable[Release], z: float, identities: Sequence[str]
) -> Mechanisms:
    """Return the mechanisms of declared releases at the multiplier z."""
    mechanisms = Mechanisms(len(identities))
    for release in releases:
        if release.name in mechanisms:
            raise ValueError(f"two releases are named {release.name}")
        mechanisms[release.name] = release.mechanism(release, z, identities)
    return mechanisms
