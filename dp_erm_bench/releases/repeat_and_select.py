"""The best of a secret, geometric number of runs of one mechanism."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.base import Array, Mechanism, Mechanisms, Query, Release
from dp_erm_bench.releases.fixed_size_gaussian import (
    FixedSizeGaussian,
    FixedSizeGaussianLaw,
)
from dp_erm_bench.releases.gaussian import Gaussian
from dp_erm_bench.releases.laplace import Laplace
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats
from dp_erm_bench.releases.nested import NestedMechanism, NestedRelease
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussian, PoissonGaussianLaw
from dp_erm_bench.releases.renyi_filter import RenyiFilter

CUT = 1000.0
"""A number of runs beyond CUT / gamma has a probability of at most e^-CUT."""

INSIDE = (Gaussian, Laplace, PoissonGaussian, FixedSizeGaussian, RenyiFilter)
"""Kinds that a run may release: their curves bound the divergence of D from D' and of
D' from D, under both adjacencies, which the proof below takes for granted."""

Trial = Callable[[Mechanisms], tuple[Array, float]]


@dataclass(frozen=True)
class RepeatAndSelectLaw(Law):
    """The best of a geometric number of runs, see the release's proof.

    Attributes
    ----------
    gamma : float
        The probability to stop after a run.
    run : tuple of (str, Law)
        All that one run releases, each law with its name.
    """

    name: ClassVar[str] = "repeat_and_select"

    gamma: float = 0.5
    run: tuple[tuple[str, Law], ...] = ()

    def rdp(self, z: float, orders: Floats) -> Floats | None:
        """Return the curve of the best run, None if one of a run has none.

        The order b of the proof is the best of ``orders``.
        """
        total = np.zeros(orders.shape)
        for _, law in self.run:
            curve = law.rdp(self.multiplier(z), orders)
            if curve is None:
                return None
            total = total + law.times * curve
        mean = -math.log(self.gamma)
        with np.errstate(invalid="ignore"):
            rank = 2 * np.min((1 - 1 / orders) * total + mean / orders)
        return np.asarray(total + rank + mean / (orders - 1))


class RepeatAndSelectMechanism(NestedMechanism):
    """Runs a mechanism again and again, and publishes the output of the best score.

    Attributes
    ----------
    runs : list of Mechanisms
    winner : int
        The mechanisms of each run so far, and the number of the best one: for auditors.
    """

    release: "RepeatAndSelect"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self.runs, self.winner = list[Mechanisms](), 0

    def publish(self, run: Trial) -> Array:
        """Return the output of the run with the least noisy score, (1, p).

        Parameters
        ----------
        run : callable
            Makes one run with new mechanisms of the release's ``run``; returns the
            output and the noisy score.
        """
        self.spend(1)
        best, least = self._attempt(run)
        while len(self.runs) < self.release.most and not self._stops():
            output, score = self._attempt(run)
            if score < least:
                best, least, self.winner = output, score, len(self.runs) - 1
        return best

    def finish(self) -> None:
        """Raise if the uses of a run are not those certified."""
        for mechanisms in self.runs:
            mechanisms.finish()

    def _attempt(self, run: Trial) -> tuple[Array, float]:
        name = f"{self.release.name}/run {len(self.runs)}"
        mechanisms = self.made_of(self.release.run, name)
        self.runs.append(mechanisms)
        self.listen(mechanisms)
        return run(mechanisms)

    def _stops(self) -> bool:
        """Return the secret coin after a run."""
        coin = uniforms(self.seeds[0], len(self.runs) - 1, 1)
        return bool(coin[0] < self.release.gamma)

    def _hand_on(self, mechanisms: Mechanisms) -> None:
        mechanisms.ahead = mechanisms.ahead and self.intercept is None
        if self.intercept is not None:
            for mechanism in mechanisms.values():
                mechanism.intercept = partial(self._told, len(self.runs) - 1)

    def _told(self, run: int, query: Query, publish: Callable[[], Any]) -> Any:
        assert self.intercept is not None
        return self.intercept(replace(query, run=run), publish)


@dataclass(frozen=True, eq=False)
class RepeatAndSelect(NestedRelease):
    """The output of the best of K runs by a noisy score; nothing is told of the others.

    After each run a secret coin stops with probability gamma: K is geometric on 1, 2,
    .. with mean 1/gamma. A run is one mechanism, whose Renyi curve e(a) counts all that
    it releases, its score included. The order a of the best run then has at most

        e(a) + 2 ((1 - 1/b) e(b) + log(1/gamma) / b) + log(1/gamma) / (a - 1)

    for any b > 1, where e bounds both directions. Let p and q be the densities of
    output and score of a run on D and D', and x(y), x'(y) the probabilities that a run
    scores no better than y. As E x^K = f(x) = gamma x / (1 - (1 - gamma) x), the best
    run has the density p f'(x) at y, and f'(x) = gamma / s^2 with s = 1 - (1 - gamma) x
    = gamma + (1 - gamma)(1 - x) >= gamma, the probability that a coin stops or else a
    run scores better than y. So does q with s', and the factor of p^a q^(1 - a) in the
    moment of order a is

        f'(x)^a f'(x')^(1 - a) = gamma s^-2 (s'/s)^(2 (a - 1)).

    Of the event of probabilities s and s' the moment of order b is s'^b s^(1 - b) <=
    e^((b - 1) e(b)), hence s'/s <= s^(-1/b) e^((1 - 1/b) e(b)). With s >= gamma the
    factor is at most (1/gamma)^(1 + 2 (a - 1) / b) e^(2 (a - 1) (1 - 1/b) e(b)); its
    logarithm over a - 1 is what is added. Equal scores have probability 0.

    No more than ``most`` runs are made. That changes the law by at most t = (1 -
    gamma)^most <= e^-1000 in total variation, and delta by (1 + e^epsilon) t, which is
    less than the rounding of the least delta for any epsilon up to 800. It leaves
    nothing at delta = 0.

    Parameters
    ----------
    gamma : float
        In (0, 1].
    run : tuple of Release
        All that one run releases, with one noise multiplier z; the last one the score.

    References
    ----------
    Papernot, Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR
    2022, Theorem 2 for eta = 1; Liu, Talwar, "Private selection from private
    candidates", STOC 2019.
    """

    vectors: ClassVar[bool] = True
    mechanism: ClassVar[type[Mechanism]] = RepeatAndSelectMechanism
    draw = staticmethod(uniforms)

    gamma: float = field(kw_only=True)
    run: tuple[Release, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what is no probability, and kinds whose curves may be of one side."""
        if not 0.0 < self.gamma <= 1.0:
            raise UsageError(f"gamma={self.gamma}: must be in (0, 1]")
        for one in self.run:
            if type(one) not in INSIDE:
                names = ", ".join(kind.__name__ for kind in INSIDE)
                kind = f"release {one.name} of a run is a {type(one).__name__}"
                raise UsageError(f"{kind}: must be one of {names}")
        super().__post_init__()

    def weighted(self, weight: float) -> "RepeatAndSelect":
        """Return the release with another weight of all but the score."""
        *steps, score = self.run
        run = (replace(one, weight=one.weight * weight) for one in steps)
        return replace(self, run=(*run, score))

    def inside(self, z: float) -> tuple[Release, ...]:
        """Return the releases of a run."""
        return self.run

    @property
    def most(self) -> int:
        """Return the largest number of runs."""
        return math.ceil(CUT / self.gamma)

    def law(self) -> RepeatAndSelectLaw:
        """Return the law of the best run."""
        laws = sorted((amplified(one.law()) for one in self.run), key=repr)
        named = tuple((law.name, law) for law in laws)
        return RepeatAndSelectLaw(self.times, self.weight, self.gamma, named)


def amplified(law: Law) -> Law:
    """Return the law of samples of fixed size in place of that of Poisson samples.

    It holds for coins, too (see there), and its curve is amplified.
    """
    if isinstance(law, PoissonGaussianLaw):
        return FixedSizeGaussianLaw(law.times, law.weight, law.rate)
    return law
