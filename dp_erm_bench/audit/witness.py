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
from dp_erm_bench.releases.inside_noisy_max import InsideNoisyMax
from dp_erm_bench.releases.noisy_max import NoisyMax
from dp_erm_bench.releases.objective_gaussian import ObjectiveMechanism
from dp_erm_bench.releases.streams import Seeds

Array = NDArray[np.float64]
# Below this draw, rounding of the published value drowns the noise.
SMALLEST_DRAW = 1e-3


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
        selection whose winners are those of the stream's draws at its scale.
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
        if isinstance(self.release, InsideNoisyMax):
            # Its winner depends on the score of the noisy gradient, which is not heard.
            self.heard.hear(np.inf)
        elif isinstance(self.release, NoisyMax):
            winners = (query.value + self.scale * draws).argmax(axis=1)
            self.heard.hear(np.inf if np.array_equal(answer, winners) else 0.0)
        else:
            self.heard.hear(_ratio(query, draws, np.asarray(answer)))
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
        if isinstance(mechanism, ObjectiveMechanism):
            continue
        heard[name] = Heard()
        seeds, scale = mechanism.seeds.copy(), mechanism.scale.copy()
        known = (mechanism.release, seeds, scale, mechanism._drawn)
        mechanism.intercept = _Witness(*known, heard[name])
    return heard


def _ratio(query: Query, draws: Array, answer: Array) -> float:
    """Return the smallest noise / (draw * sensitivity), infinite if none can move."""
    noise = np.abs(answer.reshape(query.value.shape) - query.value)
    moved = np.abs(draws) * query.sensitivity
    told = (np.abs(draws) > SMALLEST_DRAW) & (query.sensitivity > 0)
    return float((noise[told] / moved[told]).min()) if told.any() else np.inf
