"""The best of a secret and random number of runs of one mechanism.

The number of runs is geometric.
"""

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
"""More than CUT / gamma runs have a probability of at most e^-CUT."""

INSIDE = (*STEPS, RenyiFilter)
"""Kinds of release that a run may contain.

The curves of these kinds bound the divergence in both directions, under both
adjacencies, as the proof below assumes.
"""

Attempt = Any
"""A method that maps (oracle, mechanisms, schedule) to (output, noisy score)."""


@dataclass(frozen=True)
class RepeatAndSelectLaw(Law):
    """The law of the best of a geometric number of runs, see `RepeatAndSelect`.

    Attributes
    ----------
    gamma : float
        The probability of stopping after a run.
    run : tuple of (str, Law)
        The laws of all releases of one run, with their names.
    """

    name: ClassVar[str] = "repeat_and_select"

    gamma: float = 0.5
    run: tuple[tuple[str, Law], ...] = ()

    def rdp(self, z: float, orders: Floats) -> Floats | None:
        """Return the Renyi curve of the best run; None if a law in it has none.

        The order b of the proof is chosen as the best one of ``orders``.
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
    """The repeated runs of a mechanism, stored only for an auditor.

    Attributes
    ----------
    made : list of Mechanisms
        The mechanisms of each run.
    outputs : list of array
        The output of each run.
    scores : list of float
        The noisy score of each run.
    """

    made: list[Mechanisms] = field(default_factory=list)
    outputs: list[Array] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    @property
    def winner(self) -> int:
        """Return the number of the run whose output is published."""
        return int(np.argmin(self.scores))


class RepeatAndSelectMechanism(NestedMechanism):
    """Repeats a run, and publishes the output with the best score.

    Attributes
    ----------
    afresh : callable
        Returns an oracle in its initial state and the schedule for one run. Each call
        returns new objects.
    audit : Runs, optional
        A record for an auditor, filled when the mechanism is used. Without this record,
        the mechanism stores neither the runs, nor their number, nor which was the best.
    """

    release: "RepeatAndSelect"

    def __init__(self, release: Release, z: float, identities: Sequence[str]) -> None:
        super().__init__(release, z, identities)
        self.afresh: Callable[[], tuple[Any, Any]] = lambda: (None, None)
        self.audit: Runs | None = None

    def publish(self, attempt: Attempt) -> Array:
        """Return the output of the run with the smallest noisy score, shape (1, p).

        Parameters
        ----------
        attempt : method
            Makes one run, given an oracle, new mechanisms of the release's ``run`` and
            the schedule. It returns the output and the noisy score. Each run is made on
            a copy of the object whose method it is.

        Raises
        ------
        UsageError
            If ``attempt`` is not a method, or uses variables of an enclosing function,
            which runs would share.
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
        """Make one run; return a copy of its output, and its score."""
        name = f"{self.release.name}/run {number}"
        mechanisms = self.mechanisms_of(self.release.run, name)
        if self.audit is not None:
            self.audit.made.append(mechanisms)
        self.listen(mechanisms)
        alone, (oracle, schedule) = copy.deepcopy(attempt.__self__), self.afresh()
        output, score = attempt.__func__(alone, oracle, mechanisms, schedule)
        mechanisms.finish()
        self.compare_uses(mechanisms, np.append(output, score))
        # NaN is worse than any number: otherwise the order of the runs would decide.
        output, score = np.array(output), math.inf if math.isnan(score) else score
        if self.audit is not None:
            self.audit.outputs.append(output)
            self.audit.scores.append(score)
        return output, score

    def _is_last(self, number: int) -> bool:
        """Return whether a secret coin ends the repetition after this run."""
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
    """Raised if the method that makes a run may keep data of an earlier run."""


def check_apart(attempt: Any, name: str) -> None:
    """Raise an error unless ``attempt`` is a method whose runs share no variables.

    Raises
    ------
    SharedVariables
        If ``attempt`` is not such a method; the message names the line of its
        definition.
    """
    code = getattr(getattr(attempt, "__func__", None), "__code__", None)
    # A method with `super()` holds its class.
    held = sorted({*code.co_freevars} - {"__class__"} if code else ())
    if code is None or held or isinstance(attempt.__self__, type):
        shared = f"; this function holds {', '.join(held)}" if held else ""
        line = getattr(getattr(attempt, "__code__", None), "co_firstlineno", "")
        raise SharedVariables(
            f"release {name}: the function that makes a run must be a method of the "
            f"solver, as in mechanisms[{name!r}](self.attempt), because a nested "
            f"function{line and f' (line {line})'} may keep data of an earlier "
            f"run{shared}"
        )


@dataclass(frozen=True, eq=False)
class RepeatAndSelect(NestedRelease):
    """The output with the best noisy score among K runs; other runs stay secret.

    After each run, a secret coin stops the repetition with probability gamma: K is
    geometric on 1, 2, .. with mean 1/gamma. A run is one mechanism, whose Renyi curve
    e(a) counts all that the run releases, including its score. The best run then has a
    Renyi divergence of order a of at most

        e(a) + 2 ((1 - 1/b) e(b) + log(1/gamma) / b) + log(1/gamma) / (a - 1)

    for any b > 1, where e bounds both directions.

    Let p and q be the densities of output and score of a run on D and D', and x(y),
    x'(y) the probabilities that a run scores no better than y. As
    E x^K = f(x) = gamma x / (1 - (1 - gamma) x), the best run has the density p f'(x)
    at y, and f'(x) = gamma / s^2. Here s = 1 - (1 - gamma) x
    = gamma + (1 - gamma)(1 - x) >= gamma is the probability that a coin stops or,
    otherwise, a run scores better than y. The same holds for q with s', and the factor
    of p^a q^(1 - a) in the moment of order a is

        f'(x)^a f'(x')^(1 - a) = gamma s^-2 (s'/s)^(2 (a - 1)).

    The moment of order b for the event of probabilities s and s' is
    s'^b s^(1 - b) <= e^((b - 1) e(b)), hence s'/s <= s^(-1/b) e^((1 - 1/b) e(b)). With
    s >= gamma, the factor is at most
    (1/gamma)^(1 + 2 (a - 1) / b) e^(2 (a - 1) (1 - 1/b) e(b)). Its logarithm, divided
    by a - 1, gives the terms added to e(a). Among equal scores, the first one is
    published. As the runs are exchangeable, this is a fair draw among them, by an order
    that does not depend on data. So x(y) is then the probability of a later place.

    The law f(x) needs runs that are independent given D, and a K that nothing published
    reveals. So each run is made with new mechanisms, by a copy of the solver, on a new
    oracle in its initial state, with a copy of the schedule. The inputs of a run do not
    show the number of earlier runs, and nothing shows which run was the best. A run may
    still reach variables of its modules and of its class; `check` examines these
    (``losers_are_secret``).

    No more than ``most`` runs are made. That changes the law by at most
    t = (1 - gamma)^most <= e^-1000 in total variation, and delta by (1 + e^epsilon) t,
    which is less than the rounding of the least delta for any epsilon up to 800. At
    delta = 0, no guarantee is left.

    Parameters
    ----------
    gamma : float
        Probability of stopping after a run, in (0, 1].
    run : tuple of Release
        All releases of one run, with one noise multiplier z. The last one is the score.

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
        """Raise UsageError for a gamma outside (0, 1] or a kind without a proof."""
        if not 0.0 < self.gamma <= 1.0:
            raise UsageError(f"gamma={self.gamma}: must be in (0, 1]")
        for one in self.run:
            check_kind(one, INSIDE, "run")
        super().__post_init__()

    def with_weight(self, weight: float) -> "RepeatAndSelect":
        """Return a copy with all weights but the score's multiplied by ``weight``."""
        *steps, score = self.run
        run = (replace(one, weight=one.weight * weight) for one in steps)
        return replace(self, run=(*run, score))

    def inside(self, z: float) -> tuple[Release, ...]:
        """Return the releases of one run."""
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
    """Return the law of fixed-size samples if the given law is of Poisson samples.

    The former also holds for Poisson samples (see `FixedSizeGaussianLaw`), and its
    Renyi curve includes amplification by sampling. Other laws are returned unchanged.
    """
    if isinstance(law, PoissonGaussianLaw):
        return FixedSizeGaussianLaw(law.times, law.weight, law.rate)
    return law
