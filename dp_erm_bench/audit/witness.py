"""The noise that a run added, by listening to what it asked and what it published.

A mechanism's own account, its scale and its count, is not believed: every answer is
compared with the draws that the trial's stream holds at that place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.privacy.base import Mechanism, Query
from dp_erm_bench.privacy.perturbation import ObjectiveMechanism
from dp_erm_bench.privacy.releases import InsideNoisyMax, NoisyMax

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
        mechanism.intercept = partial(_hear, mechanism, heard[name])
    return heard


def _hear(
    mechanism: Mechanism, heard: Heard, query: Query, publish: Callable[[], Any]
) -> Any:
    start = mechanism._drawn
    answer = publish()
    if isinstance(mechanism.release, InsideNoisyMax):
        # Its winner depends on the score of the noisy gradient, which is not heard.
        heard.hear(np.inf)
    elif isinstance(mechanism.release, NoisyMax):
        won = np.array_equal(answer, _winners(mechanism, query, start))
        heard.hear(np.inf if won else 0.0)
    else:
        heard.hear(_ratio(mechanism, query, start, np.asarray(answer)))
    return answer


def _draws(mechanism: Mechanism, start: int, size: int) -> Array:
    """Return the noise of scale 1 of one use, (B, size)."""
    unit = mechanism.release.unit
    return np.stack([unit(seed, start, 1, size)[0] for seed in mechanism.seeds])


def _winners(mechanism: Mechanism, query: Query, start: int) -> NDArray[np.int64]:
    """Return the largest scores after the stream's noise, of the declared scale."""
    noise = _draws(mechanism, start, query.value.shape[1])
    winners: NDArray[np.int64] = (query.value + mechanism.scale * noise).argmax(axis=1)
    return winners


def _ratio(mechanism: Mechanism, query: Query, start: int, answer: Array) -> float:
    """Return the smallest noise / (draw * sensitivity), infinite if none can move."""
    draws = _draws(mechanism, start, query.value.shape[1])
    noise = np.abs(answer.reshape(query.value.shape) - query.value)
    moved = np.abs(draws) * query.sensitivity
    told = (np.abs(draws) > SMALLEST_DRAW) & (query.sensitivity > 0)
    return float((noise[told] / moved[told]).min()) if told.any() else np.inf
