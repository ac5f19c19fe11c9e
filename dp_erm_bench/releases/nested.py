"""Releases that contain other releases and are accounted for as one."""

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
    """A mechanism of one trial that makes other mechanisms at each use.

    Attributes
    ----------
    identity : str
        Identity of the trial, or of the run to which the mechanism belongs.
    listen : callable
        The hook of an auditor, called with new mechanisms as soon as they are made.
    lacks_uses : bool
        Whether a nested run that did not diverge made fewer uses than it declares. This
        is secret until the end. The number of that run always stays secret.
    """

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        if len(identities) != 1:
            raise ValueError(
                f"release {release.name}: accepts only one trial at a time"
            )
        self.identity = identities[0]
        self.listen: Callable[[Mechanisms], None] = self._hand_on
        self.lacks_uses = False

    def __call__(self, *args: Any, **keys: Any) -> Any:
        """Return the answer; audits observe only the inner mechanisms."""
        return self.publish(*args, **keys)

    def query(self, *args: Any, **keys: Any) -> Array:
        """Return an empty value, because only the inner mechanisms answer queries."""
        return np.empty((1, 0))

    @property
    def z(self) -> float:
        """Return the common noise multiplier that matches the current scale."""
        return float(self.scale.min()) / self.release.weight

    def mechanisms_of(self, releases: Sequence[Release], name: str) -> Mechanisms:
        """Return the mechanisms of releases, with streams for a part named ``name``."""
        return make_mechanisms(releases, self.z, [f"{self.identity}/{name}"])

    def compare_uses(self, made: Mechanisms, output: Array) -> None:
        """Set ``lacks_uses`` if a run with finite output made too few uses."""
        if made.shortfall() and np.isfinite(output).all():
            self.lacks_uses = True

    def shortfall(self) -> str:
        """Return a message if uses were not made, here or in nested runs.

        The message is empty if all uses were made.
        """
        inside = f"release {self.release.name}: an inner run made fewer uses"
        words = f"{inside} than it declares" if self.lacks_uses else ""
        return super().shortfall() or words

    def _hand_on(self, mechanisms: Mechanisms) -> None:
        mechanisms.ahead = mechanisms.ahead and self.intercept is None
        for mechanism in mechanisms.values():
            mechanism.intercept = self.intercept


@dataclass(frozen=True, eq=False)
class NestedRelease(Release):
    """A release that contains other releases and is accounted for in their place.

    Parameters
    ----------
    sensitivity : float
        1, as the inner releases have their own sensitivities; infinite if one of these
        is infinite.
    """

    def __post_init__(self) -> None:
        """Set the sensitivity to infinity if that of an inner release is infinite."""
        if not all(np.isfinite(one.sensitivity).all() for one in self.inside(1.0)):
            object.__setattr__(self, "sensitivity", math.inf)

    @abstractmethod
    def inside(self, z: float) -> Sequence[Release]:
        """Return the inner releases, at the common noise multiplier z."""


def check_kind(release: Release, kinds: Sequence[type[Release]], of: str) -> None:
    """Raise UsageError for an inner release of a kind that the proof does not cover.

    A subclass is another kind, because it may have another law.

    Parameters
    ----------
    release : Release
        The inner release.
    kinds : sequence of type
        The kinds that the proof covers.
    of : str
        Name of the object that contains the release, for the message.
    """
    if type(release) not in kinds:
        names = ", ".join(kind.__name__ for kind in kinds)
        kind = f"release {release.name} of a {of} is a {type(release).__name__}"
        raise UsageError(f"{kind}: must be one of {names}")


def with_inside(releases: Iterable[Release], z: float) -> Iterator[Release]:
    """Yield releases and all their inner releases, at the common noise multiplier z."""
    for release in releases:
        yield release
        if isinstance(release, NestedRelease):
            yield from with_inside(release.inside(z), z)
