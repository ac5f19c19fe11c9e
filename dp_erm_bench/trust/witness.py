"""The noise that a run added, by listening to what it asked and what it published.

A mechanism's own account, its scale, its count and its place in the stream, is not
believed: every answer is compared with the draws that the trial's stream, as it was
before the run, holds at that place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.releases.base import Mechanism, Query, Release
from dp_erm_bench.releases.streams import Seeds
from dp_erm_bench.trust.twins.base import twin_of

Array = NDArray[np.float64]


@dataclass
class Heard:
    """What was heard of one mechanism.

    Attributes
    ----------
    uses : int
        Answers published.
    ratio : float
        The smallest noise / (draw * sensitivity) of all numbers published: scale /
        sensitivity if the noise is the stream's, arbitrary otherwise. Infinite for a
        selection whose winners are those of the stream's draws at its scale, and for a
        kind without a twin.
    """

    uses: int = 0
    ratio: float = np.inf

    def hear(self, ratio: float) -> None:
        """Count an answer."""
        self.uses += 1
        self.ratio = min(self.ratio, ratio)


@dataclass
class _Witness:
    """Who listens to one mechanism: knows its streams as they were before the run."""

    release: Release
    seeds: Seeds
    scale: Array
    place: int
    heard: Heard

    def __call__(self, query: Query, publish: Callable[[], Any]) -> Any:
        answer, size = publish(), query.value.shape[1]
        draws = self._draws(size)
        self.place += size
        twin = twin_of(type(self.release))
        told = (query, draws, self.scale, np.asarray(answer))
        self.heard.hear(np.inf if twin is None else twin.heard(*told))
        return answer

    def _draws(self, size: int) -> Array:
        """Return the noise of scale 1 of one use, (B, size)."""
        draw = type(self.release).unit
        uses = [draw(self.release, seed, self.place, 1, size)[0] for seed in self.seeds]
        return np.stack(uses)


def listen(mechanisms: Mapping[str, Mechanism]) -> dict[str, Heard]:
    """Listen to mechanisms; what is returned fills as a run goes.

    It is heard with plain steps only (``mechanisms.ahead = False``), and not from the
    minimiser of a perturbed objective, which answers no query.
    """
    heard: dict[str, Heard] = {}
    for name, mechanism in mechanisms.items():
        if mechanism.release.secret:
            continue
        heard[name] = Heard()
        seeds, scale = mechanism.seeds.copy(), mechanism.scale.copy()
        known = (mechanism.release, seeds, scale, mechanism._drawn)
        mechanism.intercept = _Witness(*known, heard[name])
    return heard
