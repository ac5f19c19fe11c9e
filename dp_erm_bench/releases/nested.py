"""Releases whose mechanisms make others at each use, which are accounted as one."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.base import (
    Array,
    Mechanism,
    Mechanisms,
    Release,
    make_mechanisms,
)


class NestedMechanism(Mechanism):
    """A mechanism of one trial that makes others.

    Attributes
    ----------
    identity : str
        Of the trial, or of the run that it is a part of.
    listen : callable
        The hook of an auditor, called with mechanisms as soon as they are made.
    lacks_uses : bool
        Whether a run inside, which did not diverge, made fewer uses than it declares.
        Secret: it is not to be told before the end, nor of which run.
    """

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        if len(identities) != 1:
            raise ValueError(f"release {release.name}: one trial at a time")
        self.identity = identities[0]
        self.listen: Callable[[Mechanisms], None] = self._hand_on
        self.lacks_uses = False

    def __call__(self, *args: Any, **keys: Any) -> Any:
        """Publish; the mechanisms inside are listened to."""
        return self.publish(*args, **keys)

    def query(self, *args: Any, **keys: Any) -> Array:
        """Return nothing: the mechanisms inside are asked."""
        return np.empty((1, 0))

    @property
    def z(self) -> float:
        """Return the common multiplier, of the scale as it is."""
        return float(self.scale.min()) / self.release.weight

    def mechanisms_of(self, releases: Sequence[Release], name: str) -> Mechanisms:
        """Return the mechanisms of releases, for a part of some name."""
        return make_mechanisms(releases, self.z, [f"{self.identity}/{name}"])

    def compare_uses(self, made: Mechanisms, output: Array) -> None:
        """Note whether a run that ended with an output used all that it declares."""
        if made.shortfall() and np.isfinite(output).all():
            self.lacks_uses = True

    def shortfall(self) -> str:
        """Return the sentence on uses that were not made, its own or those inside."""
        inside = f"release {self.release.name}: a run inside it made fewer uses"
        words = f"{inside} than it declares" if self.lacks_uses else ""
        return super().shortfall() or words

    def _hand_on(self, mechanisms: Mechanisms) -> None:
        mechanisms.ahead = mechanisms.ahead and self.intercept is None
        for mechanism in mechanisms.values():
            mechanism.intercept = self.intercept


@dataclass(frozen=True, eq=False)
class NestedRelease(Release):
    """A release that stands for others.

    Parameters
    ----------
    sensitivity : float
        1, as those inside have their own; infinite where one of these is.
    """

    def __post_init__(self) -> None:
        """Find releases without a finite sensitivity."""
        if not all(np.isfinite(one.sensitivity).all() for one in self.inside(1.0)):
            object.__setattr__(self, "sensitivity", math.inf)

    @abstractmethod
    def inside(self, z: float) -> Sequence[Release]:
        """Return the releases that it stands for, at the common multiplier z."""


def check_kind(release: Release, kinds: Sequence[type[Release]], of: str) -> None:
    """Refuse a release inside another one of a kind that the proof does not know.

    A subclass is another kind: it may have another law.
    """
    if type(release) not in kinds:
        names = ", ".join(kind.__name__ for kind in kinds)
        kind = f"release {release.name} of a {of} is a {type(release).__name__}"
        raise UsageError(f"{kind}: must be one of {names}")


def with_inside(releases: Iterable[Release], z: float) -> Iterator[Release]:
    """Yield releases, and all that are inside, at the common multiplier z."""
    for release in releases:
        yield release
        if isinstance(release, NestedRelease):
            yield from with_inside(release.inside(z), z)
