"""The mechanisms of a trial by name."""

from collections.abc import Iterable, Sequence

from dp_erm_bench.releases.base import Intercept, Mechanism, Release


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
        Where an audit listens to all of them, see ``Mechanism``.
    """

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch
        self.ahead = True
        self.intercept: Intercept | None = None

    def include(self, others: "Mechanisms") -> None:
        """Add mechanisms that are made later; an audit hears them too."""
        for name, mechanism in others.items():
            if name in self:
                raise ValueError(f"two releases are named {name}")
            mechanism.intercept = self.intercept
            self[name] = mechanism

    def finish(self) -> None:
        """Raise if a run that has ended did not keep to what is certified of it."""
        for mechanism in self.values():
            mechanism.finish()


def make_mechanisms(
    releases: Iterable[Release], z: float, identities: Sequence[str]
) -> Mechanisms:
    """Return the mechanisms of declared releases at the multiplier z."""
    made = Mechanisms(len(identities))
    for release in releases:
        if release.name in made:
            raise ValueError(f"two releases are named {release.name}")
        made[release.name] = release.mechanism(release, z, identities)
    return made
