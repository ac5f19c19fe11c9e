"""Second implementation (twin) of normal noise on a random sketch."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, logsumexp
from scipy.stats import chi2, norm

from dp_erm_bench.trust.twins.base import SMALLEST_DRAW, Answered, Array, Twin

STEEPEST = 0.98
"""Largest exponent for which a moment of chi^2 is computed.

This limit is relative to the exponent at which the moment becomes infinite.
"""
FAR, CELLS = 20.0, 40_000


@dataclass(frozen=True)
class SketchedGaussianTwin(Twin):
    """Twin (second implementation) of a noisy sketch with ``rows`` rows.

    The order of integration is the reverse of the release's. The outer integral is over
    the noise x, and the tails of the chi^2 law of m R^2 give the inner one. With r = R
    / ratio, the loss is r x + r^2 / 2 on the first dataset and r x - r^2 / 2 on the
    second.
    """

    rows: int = 1

    def delta(self, epsilon: float, mu: float) -> float:
        """Return delta of one use, P[loss > epsilon] - e^epsilon Q[loss > epsilon]."""
        ends = np.linspace(-FAR, FAR, CELLS + 1)
        x = (ends[1:] + ends[:-1]) / 2
        masses = np.diff(norm.cdf(ends))
        masses[x > 0] = -np.diff(norm.sf(ends))[x > 0]

        def beyond(least: Array) -> Array:
            """Return P[r > least], where r^2 is that of the sketch alone plus mu^2."""
            squares = np.maximum(np.square(np.maximum(least, 0.0)) - mu * mu, 0.0)
            return np.asarray(chdtrc(self.rows, self.rows * self.ratio**2 * squares))

        first = masses @ beyond(-x + np.sqrt(x * x + 2 * epsilon))
        inside = x * x > 2 * epsilon
        half = np.sqrt(np.where(inside, x * x - 2 * epsilon, 0.0))
        between = np.where(inside & (x > 0), beyond(x - half) - beyond(x + half), 0.0)
        return float(first - math.exp(epsilon) * (masses @ between))

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi divergence, by quadrature of the moment of chi^2."""
        curve = np.full(orders.shape, np.inf)
        tilts = orders * (orders - 1) / (2 * self.rows * self.ratio**2)
        for k in np.flatnonzero(tilts < STEEPEST / 2):
            top = (self.rows + 60 * math.sqrt(self.rows) + 400) / (1 - 2 * tilts[k])
            nodes, weights = np.polynomial.legendre.leggauss(8)
            ends = math.sqrt(top) * np.linspace(0.0, 1.0, 801)
            half = np.diff(ends)[:, None] / 2
            root = (ends[:-1, None] + half * (1 + nodes)).ravel()
            t = root * root
            logs = chi2.logpdf(t, self.rows) + tilts[k] * t + np.log(2 * root)
            moment = logsumexp(logs, b=(half * weights).ravel())
            curve[k] = moment / (orders[k] - 1)
        return curve

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of the normal laws of the product, given the sketch."""
        sketch, told = use.answer[..., :-1], use.answer[..., -1]
        sizes = [
            np.square(told - np.einsum("bmp,bp->bm", sketch, v)).sum(axis=1)
            for v in (use.first, use.second)
        ]
        scale = np.broadcast_to(use.scale, (len(told), 1))[:, 0]
        return np.asarray((sizes[1] - sizes[0]) / (2 * scale * scale))

    @staticmethod
    def recovered_multiplier(
        query: Any, draws: Array, scale: Array, answer: Array
    ) -> float:
        """Return the smallest noise / (draw * sensitivity) of an answer.

        The result is 0 if the sketch A is not the one that the stream gives.

        Parameters
        ----------
        query : Query
            The query, with its value before noise.
        draws : array of shape (B, k)
            The stream's draws for this use, of scale 1.
        scale : array, broadcastable to (B, k)
            The noise scale before the run.
        answer : array
            The published answer.
        """
        rows = answer.shape[1]
        sketch, told = answer[..., :-1], answer[..., -1]
        drawn = draws[:, rows:].reshape(sketch.shape) / math.sqrt(rows)
        if not np.allclose(sketch, drawn, rtol=1e-9, atol=0.0):
            return 0.0
        noise = np.abs(told - np.einsum("bmp,bp->bm", sketch, query.value))
        moved = np.abs(draws[:, :rows]) * query.sensitivity
        loud = moved > SMALLEST_DRAW * query.sensitivity
        return float((noise[loud] / moved[loud]).min(initial=np.inf))
