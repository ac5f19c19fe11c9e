"""Releases of one-solve methods: a noisy vector, or the minimiser of a noisy objective.

In the second kind the noise is a secret linear term of the objective; what is published
is the minimiser. ``objective`` has the proof.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.privacy.base import Mechanism
from dp_erm_bench.privacy.events import Event
from dp_erm_bench.privacy.releases import Array, Release, Seed


@dataclass(frozen=True, eq=False)
class NormLaplace(Release):
    """A vector plus noise of density proportional to exp(-norm2(b) / scale).

    Neighbours move the vector by at most the sensitivity in the euclidean norm, so by
    the triangle inequality the log-ratio of the densities is at most 1/z: it is
    (1/z)-DP. The norm has a Gamma law of shape p, the direction is uniform; in one
    dimension it is the Laplace release.

    References
    ----------
    Chaudhuri, Monteleoni, Sarwate, "Differentially private empirical risk
    minimization", JMLR 2011, Algorithm 1.
    """

    vectors: ClassVar[bool] = True

    def event(self) -> Event:
        """Return a mechanism of which the pure level 1/z is known."""
        return Event("norm_laplace", self.times, self.weight)

    @staticmethod
    def draw(seed: Seed, start: int, count: int) -> Array:
        """Return one vector of ``count`` entries: draws from start of a stream.

        A normal vector gives the direction, a sum of exponentials the norm. Vectors
        over disjoint draws share nothing: draw k owns the places 4 k .. 4 k + 3.
        """
        normal = draws.gaussian(seed, 4 * start, count)
        lengths = np.abs(draws.laplace(seed, 4 * start + count + count % 2, count))
        return np.asarray(normal * (lengths.sum() / np.linalg.norm(normal)))

    def unit(self, seed: Seed, start: int, uses: int, size: int) -> Array:
        """Return the noise of some uses, (uses, size): one vector each."""
        return np.stack(
            [self.draw(seed, start + use * size, size) for use in range(uses)]
        )


@dataclass(frozen=True, eq=False)
class ObjectiveGaussian(Release):
    """The minimiser of an objective with a secret normal linear term.

    Parameters
    ----------
    sensitivity : float
        Largest norm of the change of the gradient of sum_i phi between neighbours:
        Lambda under ``zero_out``, 2 Lambda under ``replace_one``.
    curvature : float
        log(1 + beta / ridge).
    terms : int
        1 under ``zero_out``, 2 under ``replace_one``.
    """

    vectors: ClassVar[bool] = True
    curvature: float = field(kw_only=True)
    terms: int = field(kw_only=True)
    draw = staticmethod(draws.gaussian)

    def event(self) -> Event:
        """Return objective perturbation with Gaussian noise."""
        event = Event("objective", self.times, self.weight, terms=self.terms)
        return replace(event, curvature=self.curvature)


@dataclass(frozen=True, eq=False)
class ObjectiveNormLaplace(NormLaplace):
    """The minimiser of an objective with a secret norm-Laplace linear term.

    Parameters
    ----------
    sensitivity, curvature
        As for :class:`ObjectiveGaussian`; the level is curvature + 1/z.
    """

    curvature: float = field(kw_only=True)

    def event(self) -> Event:
        """Return objective perturbation with a pure level."""
        event = Event("objective_pure", self.times, self.weight)
        return replace(event, curvature=self.curvature)


class ObjectiveMechanism(Mechanism):
    """Draws the secret linear term of an objective.

    It has no query, so that the replay audit does not apply: the solver must publish
    nothing but the minimiser.
    """

    def publish(self, size: int) -> Array:
        """Return the linear terms of the trials, (B, size), and count the use."""
        term: Array = self.unit_noise(1, size)[:, 0] * self.scale
        return term

    def query(self, size: int) -> Array:
        """Refuse: the noise is not added to a quantity that is published."""
        raise TypeError(
            f"release {self.release.name} is of a minimiser: the replay audit does "
            "not apply to it"
        )

    def sensitivity_of(self, size: int) -> Array:
        """Return the declared sensitivity, (B, 1)."""
        declared: Array = np.broadcast_to(self.release.sensitivity, self.scale.shape)
        return declared
