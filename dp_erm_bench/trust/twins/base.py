"""Twins: the law of a release a second time, and how likely its answers are.

A twin shares no bound and no formula with the release: nothing here imports a law or
an accountant. The twin of ``releases/<kind>.py`` is the one class of
``trust/twins/<kind>.py``; a kind from outside the package names its own in the
attribute ``twin`` of its class. A kind without a twin runs, and is not recounted.
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
# Below this draw, rounding of the published value drowns the noise.
SMALLEST_DRAW = 1e-3
# Beyond this power times mu the nodes of a normal loss end before its moment does.
LARGEST_TILT = 30.0


@dataclass(frozen=True, eq=False)
class Answered:
    """One use of a mechanism by B runs, replayed on two datasets.

    Attributes
    ----------
    answer : array of shape (B,) or (B, k)
        The published answer: noisy values, or the index of the winner.
    first, second : arrays of shape (B, k)
        The query on either dataset.
    scale : array, broadcastable to (B, k)
        The certified noise scale; 0 where nothing may change.
    """

    answer: Array
    first: Array
    second: Array
    scale: Array

    def normalise_queries(self) -> tuple[Array, Array]:
        """Return both queries in units of the noise; 0 where there is none."""
        unit = np.where(self.scale > 0.0, self.scale, np.inf)
        return self.first / unit, self.second / unit

    def values(self) -> Array:
        """Return the published values in units of the noise, (B, k)."""
        unit = np.where(self.scale > 0.0, self.scale, np.inf)
        return np.asarray(self.answer.reshape(self.first.shape) / unit)


@dataclass(frozen=True)
class Twin(ABC):
    """One mechanism as a run used it.

    Attributes
    ----------
    ratio : float
        The smallest noise scale / sensitivity, under the budget's adjacency.
    times : int
    exact : bool
        Whether ``distribution`` knows an exact instance.
    joint : bool
        Whether the answers of a run have no log-ratios one by one, but together.
    slack : float
        By which part of it a certified epsilon may be above the recounted one, beyond
        what two implementations of one bound may differ by.
    """

    exact: ClassVar[bool] = False
    joint: ClassVar[bool] = False
    slack: ClassVar[float] = 0.0

    ratio: float
    times: int

    @classmethod
    def of(cls, release: Any, mechanism: Any, ratio: float, times: int) -> "Twin":
        """Return the twin of a mechanism, with the other parameters of its law.

        By default the release's own fields of the same names.
        """
        others = [getattr(release, f.name, f.default) for f in fields(cls)[2:]]
        return cls(ratio, times, *others)

    @property
    def level(self) -> float:
        """Return the pure level of one use; infinite where there is none."""
        return math.inf

    @property
    def mu_square(self) -> float | None:
        """Return mu^2 of all uses, None unless they are Gaussian mechanisms."""
        return None

    @property
    def typical_loss(self) -> float:
        """Return the typical privacy loss of one use."""
        return 1 / self.ratio

    @property
    def is_composed_apart(self) -> bool:
        """Return whether its level is added to the rest by basic composition."""
        return False

    @property
    def is_exact(self) -> bool:
        """Return whether ``distribution`` knows an exact instance."""
        return self.exact

    def renyi(self, orders: Array) -> Array:
        """Return the Renyi divergence of one use at orders > 1, of their shape.

        Raises
        ------
        ValueError
            If Renyi accounting is not kept for the kind.
        """
        raise ValueError(f"Renyi accounting is not kept for {type(self).__name__}")

    def distribution(self, step: float, adjacency: Adjacency, least: bool) -> Any:
        """Return the library's privacy-loss distribution of one use.

        ``least``: of an exact instance and rounded down; else of a dominating pair,
        rounded up, on a lattice of spacing ``step``.
        """
        raise ValueError(f"no distribution is known for {type(self).__name__}")

    def delta(self, epsilon: float, mu: float) -> float | None:
        """Return the delta of one use beside Gaussian uses of ``mu`` in total.

        None but for kinds whose whole profile is known.
        """
        return None

    def losses(self) -> tuple[Array, Array] | None:
        """Return nodes (losses, masses), increasing, of which ``terms`` bound the loss.

        None for kinds whose profile is not kept.
        """
        return None

    def terms(self, adjacency: Adjacency) -> int:
        """Return how many times the profile of the ``losses`` bounds delta."""
        return 1

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return log p(answer | first) - log p(answer | second), (B,)."""
        raise NotImplementedError(f"{type(release).__name__} answers no query")

    @staticmethod
    def log_ratio_of_run(release: Any, uses: Sequence[Answered]) -> Array:
        """Return the log-ratio of all answers of a run, of ``joint`` kinds, (B,)."""
        raise NotImplementedError(f"{type(release).__name__} is answered use by use")

    @staticmethod
    def log_noise(size: Array) -> Array:
        """Return the log-density of secret noise of a norm, up to a constant.

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

        That is scale / sensitivity if the noise is the stream's, arbitrary otherwise;
        infinite where nothing can be heard.
        """
        noise = np.abs(answer.reshape(query.value.shape) - query.value)
        moved = np.abs(draws) * query.sensitivity
        loud = (np.abs(draws) > SMALLEST_DRAW) & (query.sensitivity > 0)
        return float((noise[loud] / moved[loud]).min(initial=np.inf))


def log_moments_of_losses(nodes: tuple[Array, Array], powers: Array) -> Array:
    """Return log E e^(power l) of losses l at nodes (losses, masses), of any powers."""
    losses, masses = nodes
    logs = powers[:, None] * losses + np.log(np.maximum(masses, 1e-300))
    return np.asarray(logsumexp(logs, axis=1))


def discretisation(step: float, least: bool) -> dict[str, Any]:
    """Return the library's options for rounding: down if ``least``, else up."""
    return {
        "pessimistic_estimate": not least,
        "value_discretization_interval": step,
        "use_connect_dots": not least,
    }


def twin_of(kind: Any) -> type[Twin] | None:
    """Return the twin of a kind of release, None if it has none."""
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
    """A release is of a kind whose law is known once only."""


def required_twin(release: Any) -> type[Twin]:
    """Return the twin of a release.

    Raises
    ------
    NoTwin
        The message names the missing twin.
    """
    twin = twin_of(type(release))
    if twin is None:
        raise NoTwin(
            f"release {release.name} is not recounted: its kind, "
            f"{type(release).__name__}, names no twin"
        )
    return twin
