"""Releases: noisy quantities that a solver declares before it runs.

A release has two faces that must not drift apart: ``event``, its law as an
accountant sees it, and ``draw``, the noise of scale 1 that is added.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.kernels import draws
from dp_erm_bench.kernels.selection import gumbel_argmax
from dp_erm_bench.privacy.events import Event

Array = NDArray[np.float64]
Seed = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Release(ABC):
    """One noisy quantity, published ``times`` times.

    Parameters
    ----------
    name : str
        What the solver calls it by.
    sensitivity : float or array, broadcastable to (B, p)
        The largest change between neighbours of what is published, for the
        budget's adjacency; per trial, or per trial and coordinate.
    times : int
        How often it is published at most.
    weight : float
        Noise scale / (z * sensitivity).

    Attributes
    ----------
    vectors : bool
        Whether one use may publish a vector, of given euclidean sensitivity.
    """

    vectors: ClassVar[bool] = False

    name: str
    sensitivity: Array | float
    times: int
    weight: float = 1.0

    @abstractmethod
    def event(self) -> Event:
        """Return what an accountant composes."""

    @staticmethod
    @abstractmethod
    def draw(seed: Seed, start: int, count: int) -> Array:
        """Return noise of scale 1: draws start .. start + count - 1 of a stream."""

    def unit(self, seed: Seed, start: int, uses: int, size: int) -> Array:
        """Return the noise of scale 1 of some uses, (uses, size), from draw start."""
        return self.draw(seed, start, uses * size).reshape(uses, size)


@dataclass(frozen=True, eq=False)
class Gaussian(Release):
    """A number or vector plus normal noise of deviation z * sensitivity.

    The sensitivity of a vector is in the euclidean norm.
    """

    vectors: ClassVar[bool] = True
    draw = staticmethod(draws.gaussian)

    def event(self) -> Event:
        """Return the Gaussian mechanism."""
        return Event("gaussian", self.times, self.weight)


@dataclass(frozen=True, eq=False)
class Laplace(Release):
    """A number plus Laplace noise of scale z * sensitivity."""

    draw = staticmethod(draws.laplace)

    def event(self) -> Event:
        """Return the Laplace mechanism."""
        return Event("laplace", self.times, self.weight)


@dataclass(frozen=True, eq=False)
class PoissonGaussian(Release):
    """A sum over a Poisson sample of the records, plus normal noise.

    Parameters
    ----------
    rate : float
        The probability with which each record is in the sample. The sample is
        part of the mechanism: it stays secret.
    """

    vectors: ClassVar[bool] = True
    # Nothing is claimed by default: the sum is charged for all records.
    rate: float = 1.0
    draw = staticmethod(draws.gaussian)

    def event(self) -> Event:
        """Return the Poisson-subsampled Gaussian mechanism."""
        return Event("poisson_gaussian", self.times, self.weight, rate=self.rate)


@dataclass(frozen=True, eq=False)
class NoisyMax(Release):
    """The index of the largest score after Gumbel noise: the exponential mechanism.

    The scores change by at most ``sensitivity`` (per score) in either direction,
    so the noise has scale z times the largest of them, the same for all scores:
    noise of different scales would favour the loud (solvers' docs: mangold2023).

    References
    ----------
    McSherry and Talwar, "Mechanism design via differential privacy", FOCS 2007;
    Dong, Durfee, Rogers, "Optimal differential privacy composition for
    exponential mechanisms", ICML 2020 (bounded range).
    """

    draw = staticmethod(draws.gumbel)

    def event(self) -> Event:
        """Return a mechanism of bounded range 2 / z (scores are not monotone)."""
        return Event("bounded_range", self.times, self.weight)

    def winner(self, seed: Seed, start: int, scores: Array, scale: float) -> int:
        """Return the largest score's index after noise from a stream.

        The noise of score j is draw ``start + j``; none at scale 0.
        """
        if scale == 0.0:
            return int(scores.argmax())
        return int(gumbel_argmax(seed, start, scores, scale))


@dataclass(frozen=True, eq=False)
class LaplaceNoisyMax(NoisyMax):
    """The index of the largest score after Laplace noise.

    Only the pure level 2 / z is proved: it is not of bounded range.

    References
    ----------
    Dwork and Roth, "The algorithmic foundations of differential privacy", 2014,
    section 3.3 (report noisy max).
    """

    draw = staticmethod(draws.laplace)

    def event(self) -> Event:
        """Return a mechanism of which the pure level alone is known."""
        return Event("pure", self.times, self.weight)

    def winner(self, seed: Seed, start: int, scores: Array, scale: float) -> int:
        """Return the largest score's index after noise from a stream."""
        if scale == 0.0:
            return int(scores.argmax())
        noise = self.draw(seed, start, scores.size)
        return int((scores + scale * noise).argmax())


@dataclass(frozen=True, eq=False)
class InsideNoisyMax(Release):
    """The index of the largest score of a gradient with Laplace noise.

    The noise, of scale z times the gradient's sensitivity per coordinate, is
    added before the score is taken. Let the score of coordinate j be |affine in
    g_j| with slope c_j, less a constant. Given the other coordinates' noise, j
    wins when its noisy g_j lies outside an interval; between neighbours each end
    moves by at most Delta_j (the gradient) and max_i s_i / c_j (the level to
    beat), with s_i = c_i Delta_i. The level is therefore at most
    (1 + max_i s_i / min_j s_j) / z. A score that is floored at zero is not covered:
    where all others tie at zero, the interval vanishes at once.

    Parameters
    ----------
    spread : float
        max_i s_i / min_j s_j; the slopes are the solver's, so that it must say.

    References
    ----------
    Mangold, Bellet, Salmon, Tommasi, AISTATS 2023, Algorithm 1 (the noise chi).
    """

    spread: float = field(kw_only=True)
    draw = staticmethod(draws.laplace)

    def event(self) -> Event:
        """Return a mechanism of which the pure level alone is known."""
        return Event("pure", self.times, self.weight, spread=self.spread)
