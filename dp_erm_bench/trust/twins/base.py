"""Twins: second implementations of the law of a release and the density of its answers.

A twin shares no bound and no formula with its release: nothing here imports a law or an
accountant. The twin of ``releases/<kind>.py`` is the one class of
``trust/twins/<kind>.py``. A kind from outside the package names its twin in the
attribute ``twin`` of its class. A release of a kind without a twin can be used, but its
epsilon cannot be recounted, that is, computed a second time.
"""

import importlib
import math
from abc import ABC
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.releases.adjacency import Adjacency

Array = NDArray[np.float64]
# Below this draw the rounding of a published value exceeds its noise.
SMALLEST_DRAW = 1e-3
# Beyond this power times mu, the nodes of a normal loss do not cover its moment.
LARGEST_TILT = 30.0


@dataclass(frozen=True, eq=False)
class Answered:
    """One use of a mechanism by B runs, with the queries on two datasets.

    Attributes
    ----------
    answer : array of shape (B,) or (B, k)
        The published answer: noisy values, or the index of the winner.
    first, second : arrays of shape (B, k)
        The queries on the two datasets.
    scale : array, broadcastable to (B, k)
        The certified noise scale; 0 for entries without noise, which may not change.
    """

    answer: Array
    first: Array
    second: Array
    scale: Array

    def normalise_queries(self) -> tuple[Array, Array]:
        """Return both queries in units of the noise scale; 0 where the scale is 0."""
        unit = np.where(self.scale > 0.0, self.scale, np.inf)
        return self.first / unit, self.second / unit

    def values(self) -> Array:
        """Return the published values in units of the noise scale, shape (B, k)."""
        unit = np.where(self.scale > 0.0, self.scale, np.inf)
        return np.asarray(self.answer.reshape(self.first.shape) / unit)


@dataclass(frozen=True)
class Twin(ABC):
    """A second implementation of a mechanism's law, with the noise and uses of a run.

    Attributes
    ----------
    ratio : float
        The smallest ratio of noise scale to sensitivity, for the budget's adjacency.
    times : int
        Number of uses.
    exact : bool
        Whether ``distribution`` knows an exact instance: a pair of neighbours whose
        privacy loss is known exactly.
    joint : bool
        Whether the log-ratio of densities is known only for all answers of a run
        together, not for each use.
    slack : float
        The relative part by which a certified epsilon may exceed the recounted one, in
        addition to the tolerance of two implementations of one bound.
    """

    exact: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    slack: ClassVar[float] = 0.0

    ratio: float
    times: int

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> "Twin":
        """Return the twin (second implementation) of a mechanism as a run used it.

        By default the other parameters of the twin are the release's fields of the same
        names.

        Parameters
        ----------
        release : Release
            The release with its declared sensitivity.
        mechanism : Mechanism
            The mechanism after the run.
        ratio : float
            The smallest ratio of noise scale to sensitivity.
        times : int
            Number of uses.
        """
        others = [getattr(release, f.name, f.default) for f in fields(cls)[2:]]
        return cls(ratio, times, *others)

    @property
    def level(self) -> float:
        """Return the pure epsilon of one use; infinite if there is none."""
        return math.inf

    @property
    def mu_square(self) -> float | None:
        """Return mu^2 of all uses; None unless the mechanism is Gaussian."""
        return None

    @property
    def typical_loss(self) -> float:
        """Return the typical privacy loss of one use."""
        return 1 / self.ratio

    @property
    def is_composed_apart(self) -> bool:
        """Return whether basic composition adds the pure epsilon to other epsilons."""
        return False

    @property
    def is_exact(self) -> bool:
        """Return whether ``distribution`` is known exactly for some neighbours.

        These neighbours are called an exact instance, see ``exact``.
        """
        return self.exact

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi divergence of one use at each of the orders > 1.

        Raises
        ------
        ValueError
            If the twin of this kind has no Renyi curve.
        """
        raise ValueError(f"Renyi accounting is not kept for {type(self).__name__}")

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return dp_accounting's privacy-loss distribution of one use.

        Parameters
        ----------
        step : float
            Spacing of the lattice of losses.
        adjacency : Adjacency
            The neighbouring relation.
        least : bool
            Whether to take an exact instance and round down, for a lower bound.
            Otherwise a dominating pair is taken and rounded up.

        Raises
        ------
        ValueError
            If the twin of this kind has no distribution.
        """
        raise ValueError(f"no distribution is known for {type(self).__name__}")

    def delta(self, epsilon: float, mu: float) -> float | None:
        """Return the delta of one use together with Gaussian uses of ``mu`` in total.

        The result is None for kinds whose privacy profile is not known.
        """
        return None

    def losses(self) -> tuple[Array, Array] | None:
        """Return increasing losses and their masses, for a bound on the profile.

        ``terms`` times the profile of these losses bounds delta. The result is None for
        kinds without such a bound.
        """
        return None

    def terms(self, adjacency: Adjacency) -> int:
        """Return the factor by which the profile of the ``losses`` bounds delta."""
        return 1

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return log p(answer | first) - log p(answer | second), shape (B,)."""
        raise NotImplementedError(f"{type(release).__name__} answers no query")

    @staticmethod
    def log_ratio_of_run(release: Any, uses: Sequence[Answered]) -> Array:
        """Return the log-ratio of all answers of a run together, shape (B,).

        Only twins with ``joint`` implement this method; others implement ``log_ratio``.
        """
        raise NotImplementedError(f"{type(release).__name__} is answered use by use")

    @staticmethod
    def log_noise(size: Array) -> Array:
        """Return the log-density of secret noise, up to a constant, from its norm.

        Parameters
        ----------
        size : array
            Norms in units of the noise scale.
        """
        raise NotImplementedError("the noise is added to what is published")

    @staticmethod
    def recovered_multiplier(
        query: Any, draws: Array, scale: Array, answer: Array
    ) -> float:
        """Return the smallest noise / (draw * sensitivity) of an answer.

        This number is scale / sensitivity if the noise is the stream's, and arbitrary
        otherwise. It is infinite if the answer does not reveal its noise.

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
        noise = np.abs(answer.reshape(query.value.shape) - query.value)
        moved = np.abs(draws) * query.sensitivity
        loud = (np.abs(draws) > SMALLEST_DRAW) & (query.sensitivity > 0)
        return float((noise[loud] / moved[loud]).min(initial=np.inf))


def log_moments_of_losses(nodes: tuple[Array, Array], powers: Array) -> Array:
    """Return log E e^(power l) at each power, for losses l with the masses of nodes."""
    losses, masses = nodes
    logs = powers[:, None] * losses + np.log(np.maximum(masses, 1e-300))
    return np.asarray(logsumexp(logs, axis=1))


def discretisation(step: float, least: bool) -> dict[str, Any]:
    """Return dp_accounting's options for rounding: down if ``least``, else up."""
    return {
        "pessimistic_estimate": not least,
        "value_discretization_interval": step,
        "use_connect_dots": not least,
    }


def twin_of(kind: Any) -> type[Twin] | None:
    """Return the twin (second implementation) of a kind of release, or None."""
    own: type[Twin] | None = vars(kind).get("twin")
    if own is not None and not (isinstance(own, type) and issubclass(own, Twin)):
        raise UsageError(f"{kind.__name__}.twin={own}: must be a class, a Twin")
    if own is not None or not kind.is_built_in():
        return own
    name = kind.__module__.rpartition(".")[2]
    module = importlib.import_module(f"{__package__}.{name}")
    twin: type[Twin] = getattr(module, f"{kind.__name__}Twin")
    return twin


class NoTwin(Unsupported):
    """Raised if a release has no twin, the second implementation of its law."""


def required_twin(release: Any) -> type[Twin]:
    """Return the twin (second implementation) of a release.

    Raises
    ------
    NoTwin
        If there is no twin; the message names the kind of the release.
    """
    twin = twin_of(type(release))
    if twin is None:
        raise NoTwin(
            f"release {release.name} is not recounted: its kind, "
            f"{type(release).__name__}, names no twin"
        )
    return twin
