"""The best of a secret, geometric number of runs of one mechanism."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.errors import UsageError
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.base import Array, Mechanism, Mechanisms, Query, Release
from dp_erm_bench.releases.fixed_size_gaussian import FixedSizeGaussianLaw
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats
from dp_erm_bench.releases.nested import NestedMechanism, NestedRelease, check_kind
from dp_erm_bench.releases.poisson_gaussian import PoissonGaussianLaw
from dp_erm_bench.releases.renyi_filter import STEPS, RenyiFilter

CUT = 1000.0
"""A number of runs beyond CUT / gamma has a probability of at most e^-CUT."""

INSIDE = (*STEPS, RenyiFilter)
"""Kinds that a run may release: their curves bound the divergence of D from D' and of
D' from D, under both adjacencies, which the proof below takes for granted."""

Attempt = Any
"""A method (oracle, mechanisms, schedule) -> (output, noisy score)."""


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


@dataclass
class Runs:
    """Repeated runs as an auditor sees them; nobody else learns of them.

    Attributes
    ----------
    made : list of Mechanisms
        Those of each run.
    outputs : list of array
    scores : list of float
        What the runs returned, by run.
    """

    made: list[Mechanisms] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    @property
    def winner(self) -> int:
        """Return the number of the run that is published."""
        return int(np.argmin(self.scores))


class RepeatAndSelectMechanism(NestedMechanism):
    """Runs a mechanism again and again, and publishes the output of the best score.

    Attributes
    ----------
    afresh : callable
        Returns what each run begins with, an oracle at the start and the schedule: new
        ones at each call.
    audit : Runs, optional
        An auditor's, which the use fills. Without it the mechanism keeps neither the
        runs nor their number nor the place of the best.
    """

    release: "RepeatAndSelect"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self.afresh: Callable[[], tuple[Any, Any]] = lambda: (None, None)
        self.audit: Runs | None = None

    def publish(self, attempt: Attempt) -> Array:
        """Return the output of the run with the least noisy score, (1, p).

        Parameters
        ----------
        attempt : method
            Makes one run with an oracle, new mechanisms of the release's ``run`` and
            the schedule; returns the output and the noisy score. Each run is made by a
            copy of the object whose method it is.

        Raises
        ------
        UsageError
            If it is no method, or one that holds variables of another function: runs
            would share them.
        """
        check_apart(attempt, self.release.name)
        self.spend(1)
        best, least = np.empty(0), math.inf
        for number in range(self.release.most):
            output, score = self._run_attempt(number, attempt)
            if number == 0 or score < least:
                best, least = output, score
            if self._is_last(number):
                break
        return best

    def _run_attempt(self, number: int, attempt: Attempt) -> tuple[Array, float]:
        """Return a copy of the output, and the score, of the run with some streams."""
        name = f"{self.release.name}/run {number}"
        mechanisms = self.mechanisms_of(self.release.run, name)
        if self.audit is not None:
            self.audit.made.append(mechanisms)
        self.listen(mechanisms)
        alone, (oracle, schedule) = copy.deepcopy(attempt.__self__), self.afresh()
        output, score = attempt.__func__(alone, oracle, mechanisms, schedule)
        mechanisms.finish()
        self.compare_uses(mechanisms, np.append(output, score))
        # What is no number is beaten by any: else its place would decide.
        output, score = np.array(output), math.inf if math.isnan(score) else score
        if self.audit is not None:
            self.audit.outputs.append(output)
            self.audit.scores.append(score)
        return output, score

    def _is_last(self, number: int) -> bool:
        """Return the secret coin after a run."""
        coin = uniforms(self.seeds[0], number, 1)
        return bool(coin[0] < self.release.gamma)

    def _hand_on(self, mechanisms: Mechanisms) -> None:
        mechanisms.ahead = mechanisms.ahead and self.intercept is None
        run = None if self.audit is None else len(self.audit.made) - 1
        for mechanism in mechanisms.values() if self.intercept is not None else ():
            mechanism.intercept = partial(self._pass_to_intercept, run)

    def _pass_to_intercept(
        self, run: int | None, query: Query, publish: Callable[[], Any]
    ) -> Any:
        assert self.intercept is not None
        return self.intercept(replace(query, run=run), publish)


class SharedVariables(UsageError):
    """What makes a run may keep what an earlier run left."""


def check_apart(attempt: Any, name: str) -> None:
    """Refuse what makes a run unless it is a method that shares no variables.

    Raises
    ------
    SharedVariables
        With the line where it is defined.
    """
    code = getattr(getattr(attempt, "__func__", None), "__code__", None)
    # `super()` holds the class.
    held = sorted({*code.co_freevars} - {"__class__"} if code else ())
    if code is None or held or isinstance(attempt.__self__, type):
        shared = f", and this one holds {', '.join(held)}" if held else ""
        line = getattr(getattr(attempt, "__code__", None), "co_firstlineno", "")
        raise SharedVariables(
            f"release {name}: what makes a run must be a method of the solver, as in "
            f"mechanisms[{name!r}](self.attempt), for a function within another one"
            f"{line and f' (line {line})'} may keep what an earlier run left{shared}"
        )


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
    logarithm over a - 1 is what is added. Of equal scores the first one is published:
    the runs being exchangeable that is a fair draw among them, an order of its own
    that reads no data, so that x(y) is the probability of a later place.

    That the law is f(x) takes runs that are independent given D, and a K that nothing
    published tells. So each run is made with new mechanisms, by a copy of the solver,
    on a new oracle at the start, with a copy of the schedule; what it is handed does
    not say how many there were, and no one is told which was the best. What a run may
    still reach, variables of its modules and of its class, `check` looks at
    (``losers_are_secret``).

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
            check_kind(one, INSIDE, "run")
        super().__post_init__()

    def with_weight(self, weight: float) -> "RepeatAndSelect":
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
        laws = sorted((law_of_fixed_size(one.law()) for one in self.run), key=repr)
        named = tuple((law.name, law) for law in laws)
        return RepeatAndSelectLaw(self.times, self.weight, self.gamma, named)


def law_of_fixed_size(law: Law) -> Law:
    """Return the law of samples of fixed size in place of that of Poisson samples.

    It holds for coins, too (see there), and its curve is amplified.
    """
    if isinstance(law, PoissonGaussianLaw):
        return FixedSizeGaussianLaw(law.times, law.weight, law.rate)
    return law
