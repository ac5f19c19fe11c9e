"""Distributions of the privacy loss of single mechanisms, as weighted nodes.

The privacy-loss law of a dominating pair (P, Q) is the law of l = log dP/dQ under P.
Every law consists of nodes (losses, masses) and a mass ``infinite`` whose loss is taken
as infinite. Up to rounding, sum_k mass_k f(l_k) is E_P[f(l)] for every f that is smooth
on each cell [i h, (i+1) h] of the lattice. Continuous parts are integrated by
three-point Gauss-Legendre rules on panels. No lattice point cuts a panel, and panels
are short compared with the scale of the density, so that no mass is a difference of two
rounded numbers. Losses are only ever moved up (lower tails to their top, upper tails to
infinity), which can only raise every hockey-stick divergence.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]

ABSCISSAE = np.array([-math.sqrt(0.6), 0.0, math.sqrt(0.6)])
SHARES = np.array([5.0, 8.0, 5.0]) / 18
STEEPEST = 150.0
"""Largest steepness of a law, above which a pair has too many nodes. A Gaussian
mechanism of this mu has an epsilon of 11000."""


class Losses(NamedTuple):
    """Nodes of a privacy-loss law: losses, masses, and the mass at infinity."""

    losses: Floats
    masses: Floats
    infinite: float


class Dominating(NamedTuple):
    """A dominating pair, with its number of uses, typical loss and span of losses.

    ``losses`` returns the privacy-loss law of the pair, given the lattice step, the
    mass to cut off, and whether the order of the pair is reversed.
    """

    times: int
    scale: float
    span: float
    losses: Callable[[float, float, bool], Losses]
    mirrored: bool = True


def integration_nodes(breaks: Floats) -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes and weights on the panels between breakpoints."""
    half = np.diff(breaks) / 2
    keep = half > 0
    middle, half = (breaks[:-1] + np.diff(breaks) / 2)[keep], half[keep]
    nodes = middle[:, None] + half[:, None] * ABSCISSAE
    return nodes.ravel(), (2 * half[:, None] * SHARES).ravel()


def lattice_points(low: float, high: float, step: float) -> Floats:
    """Return the lattice points i * step strictly between two losses.

    Parameters
    ----------
    low, high : float
        The two losses.
    step : float
        Spacing of the lattice.
    """
    first, end = math.floor(low / step) + 1, math.ceil(high / step)
    return step * np.arange(first, end).astype(np.float64)


def exponential_part(level: float, rate: float, step: float) -> tuple[Floats, Floats]:
    """Return nodes of the density e^((l - level)/2) * rate on [-level, level].

    Parameters
    ----------
    level : float
        Largest privacy loss.
    rate : float
        The density at the largest loss.
    step : float
        Spacing of the lattice.

    Returns
    -------
    losses, masses : arrays of shape (k,)
    """
    inner = lattice_points(-level, level, step)
    panels = np.linspace(-level, level, 3 + math.ceil(20 * level))
    losses, widths = integration_nodes(np.sort(np.concatenate([inner, panels])))
    return losses, rate * np.exp((losses - level) / 2) * widths


@dataclass(frozen=True)
class MonotonePair:
    """A pair of laws on the real line whose privacy loss increases with the outcome x.

    Attributes
    ----------
    centres : tuple of (float, float)
        Weights and means of the unit normals whose mixture is P.
    steepness : float
        Largest slope of the loss in x.
    loss, outcome : callable
        The loss as a function of x, and its inverse.
    """

    centres: tuple[tuple[float, float], ...]
    steepness: float
    loss: Callable[[Floats], Floats]
    outcome: Callable[[Floats], Floats]

    def ends(self, tail: float) -> tuple[float, float]:
        """Return outcomes beyond which P has at most the mass ``tail`` on each side."""
        reach = [-float(ndtri(min(0.5, tail / (2 * w)))) for w, _ in self.centres]
        sides = [(c - r, c + r) for (_, c), r in zip(self.centres, reach, strict=True)]
        return min(low for low, _ in sides), max(high for _, high in sides)

    def span(self, tail: float) -> float:
        """Return the length of the interval of losses between the ends."""
        low, high = self.loss(np.array(self.ends(tail)))
        return float(high - low)

    def law(self, step: float, tail: float) -> Losses:
        """Return nodes of the privacy-loss law; ``tail`` bounds each mass cut off."""
        low, high = self.ends(tail)
        bottom, top = self.loss(np.array([low, high]))
        inner = self.outcome(lattice_points(float(bottom), float(top), step))
        count = 2 + math.ceil((high - low) * 20 * max(1.0, self.steepness))
        breaks = [inner.clip(low, high), np.linspace(low, high, count)]
        x, widths = integration_nodes(np.sort(np.concatenate(breaks)))
        density = sum(w * np.exp(-((x - c) ** 2) / 2) for w, c in self.centres)
        below = sum(w * float(ndtr(low - c)) for w, c in self.centres)
        masses = np.append(density / math.sqrt(2 * math.pi) * widths, below)
        infinite = sum(w * float(ndtr(c - high)) for w, c in self.centres)
        masses *= (1 - infinite) / masses.sum()
        return Losses(np.append(self.loss(x), bottom), masses, infinite)


def gaussian_pair(mu: float) -> MonotonePair:
    """Return the pair N(mu, 1) and N(0, 1), whose loss is mu x - mu^2 / 2."""
    return MonotonePair(
        centres=((1.0, mu),),
        steepness=mu,
        loss=lambda x: mu * x - mu * mu / 2,
        outcome=lambda loss: loss / mu + mu / 2,
    )
