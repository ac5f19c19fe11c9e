"""Decide whether two samples of statistics refute a privacy guarantee.

**Profile test.** If a mechanism has the privacy profile delta(.), every event E
satisfies P(E) <= e^eps Q(E) + delta(eps) for all eps >= 0 at once, in both orders. One
half of the runs chooses a threshold and a side. The other half is independent of that
choice. Given the choice, the numbers of hits and of false alarms are binomial. So the
Clopper-Pearson bounds hit_lo and alarm_hi, at alpha/2 each, both hold with probability
1 - alpha, whichever threshold was chosen. For a sound mechanism they imply
hit_lo <= P(E) <= e^eps Q(E) + delta(eps) <= e^eps alarm_hi + delta(eps) for all eps.
Therefore

    hit_lo > min over eps of e^eps alarm_hi + delta(eps)

happens with probability at most alpha. In a table of k audits, each is tested at
alpha = (false-alarm probability of the table) / k (Bonferroni).

**Lower bounds.** At the claimed delta, epsilon is at least log((hit_lo - delta) /
alarm_hi) with confidence 1 - alpha (Kairouz, Oh, Viswanath, ICML 2015; Jagielski,
Ullman, Oprea, NeurIPS 2020), for a threshold that the first half chose for this bound.
At epsilon = 1 even the best test stays far below the claimed epsilon, because at small
delta only rare events are informative. ``gaussian`` reads the same rates as those of a
mu-GDP mechanism, mu >= Phi^-1(hit_lo) - Phi^-1(alarm_hi), and gives the epsilon of that
mu at delta (Nasr et al., "Tight auditing of differentially private machine learning",
USENIX Security 2023). It is a bound if the mechanism's profile has that shape, as
compositions of many releases nearly do.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from dp_erm_bench.accounting.bounds import Laws, gdp_epsilon
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.certify import delta_at
from dp_erm_bench.errors import UsageError
from dp_erm_bench.problems.base import Problem
from dp_erm_bench.releases.base import Array
from dp_erm_bench.releases.nested import with_inside
from dp_erm_bench.run import Run
from dp_erm_bench.solvers.base import Solver
from dp_erm_bench.trust.twins.base import required_twin

MANY = 5
CLAIM = "claim"
"""Identity of the trial whose random schedule defines an audited guarantee."""
# The only epsilons at which the profile is tested.
GRID = np.concatenate([np.linspace(0.0, 1.0, 41), np.geomspace(1.05, 20.0, 40)])


@dataclass(frozen=True, eq=False)
class Guarantee:
    """The noise of a run and the privacy that accountants prove for it.

    Attributes
    ----------
    budget : Budget
        The budget, with delta as a number.
    z : float
        The calibrated common noise multiplier.
    multipliers : dict
        Noise scale divided by sensitivity, for each release by name.
    laws : tuple of Law
        The laws of all releases with weights relative to ``z``, including those that
        take a share of the budget.
    epsilon : float
        The certified epsilon at the budget's delta.
    secret : bool
        Whether some noise is never added to what is published.
    """

    budget: Budget
    z: float
    multipliers: dict[str, float]
    laws: Laws
    epsilon: float
    secret: bool = False

    @property
    def bell_shaped(self) -> bool:
        """Return whether the privacy profile nearly has the shape of a Gaussian's.

        Normal noise has that shape and, by the central limit theorem, so have
        compositions of many releases. A few bounded losses do not.
        """
        uses = sum(law.times for law in self.laws)
        return uses >= MANY or all(law.normal for law in self.laws)

    @functools.cached_property
    def profile(self) -> tuple[Array, Array]:
        """Return epsilons and the deltas that are proved for them.

        The certified epsilon counts too, because another accountant may have proved it.
        """
        deltas = delta_at(self.laws, self.z, self.budget.adjacency, GRID)
        certified = np.where(GRID >= self.epsilon, self.budget.number, 1.0)
        return GRID, np.minimum(deltas, certified)


def guarantee_of(solver: Solver, problem: Problem, budget: Budget) -> Guarantee:
    """Return the guarantee of a solver under a budget, as `Run` calibrates it.

    Laws do not depend on data or constants, so all runs have the same laws.

    Parameters
    ----------
    solver : Solver
        The algorithm with its parameters.
    problem : Problem
        The problem on one of the neighbours.
    budget : Budget
        With a finite epsilon.

    Raises
    ------
    UsageError
        If epsilon is infinite: without noise there is nothing to audit.
    Unsupported
        If a release has no finite sensitivity, or no twin.
    """
    budget = budget.resolve_delta(problem.n)
    if not np.isfinite(budget.epsilon):
        raise UsageError("epsilon=inf: an audit needs a finite epsilon")
    run = Run(problem, [solver], budget, identities=[CLAIM]).declare()
    for release in run.releases:
        required_twin(release)
    z = run.calibration.z or 1.0
    parts = [(r, run.calibration.z) for r in run.releases]
    parts += [(r, r.multiplier(budget.epsilon)) for r in run.shares]
    inside = [(one, at) for r, at in parts for one in with_inside([r], at)]
    return Guarantee(
        budget=budget,
        z=z,
        multipliers={r.name: r.weight * at for r, at in inside},
        laws=tuple(
            replace(r.law(), weight=r.weight * at / z) for r, at in parts if at > 0.0
        ),
        epsilon=run.calibration.epsilon_certified,
        secret=any(release.secret for release in run.releases),
    )


Counts = NDArray[np.int64]
Score = Callable[["RateBounds"], Array]
Row = dict[str, Any]

FALSE_ALARM = 0.01
OK, VIOLATION = "ok", "VIOLATION"
THRESHOLDS = 400


@dataclass(frozen=True)
class Verdict:
    """The result of an audit.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee that was tested.
    lower_bound : float
        Empirical lower bound on epsilon at delta.
    gaussian : float
        The lower bound for a profile of Gaussian shape; NaN if the profile has another
        shape.
    excess : float
        hit_lo minus the smallest e^eps alarm_hi + delta(eps), as in the module's
        docstring; positive if and only if the guarantee is refuted.
    confidence : float
        1 - alpha, for each of the bounds and for the verdict.
    runs : int
        Number of runs on each neighbour; the smaller one if they differ.
    verdict : str
        ``ok`` or ``VIOLATION``.
    """

    epsilon: float
    delta: float
    lower_bound: float
    gaussian: float
    excess: float
    confidence: float
    runs: int
    verdict: str


def verdict(
    first: Array, second: Array, guarantee: Guarantee, alpha: float = FALSE_ALARM
) -> Verdict:
    """Return whether runs on two neighbours refute a guarantee.

    Parameters
    ----------
    first, second : arrays of shape (N,)
        The statistics of independent runs on D, and on D'.
    guarantee : Guarantee
        The guarantee that is claimed for the runs.
    alpha : float
        Probability of a false violation; for a table, its probability divided by the
        number of audits.
    """
    delta = guarantee.budget.number
    epsilons, deltas = guarantee.profile
    scores: list[Score] = [
        lambda r: profile_excess(r, epsilons, deltas),
        lambda r: epsilon_bound(r, delta),
        mu_bound,
    ]
    most, bound, mu = (
        float(score(held_out(first, second, alpha, score))[0]) for score in scores
    )
    return Verdict(
        epsilon=guarantee.epsilon,
        delta=delta,
        lower_bound=bound,
        gaussian=gdp_epsilon(mu, delta) if guarantee.bell_shaped else math.nan,
        excess=most,
        confidence=1.0 - alpha,
        runs=min(first.size, second.size),
        verdict=VIOLATION if most > 0.0 else OK,
    )


def held_out(first: Array, second: Array, alpha: float, score: Score) -> RateBounds:
    """Return rate bounds from the odd runs for the best test on the even runs.

    The bounds have shape (1,). They refute nothing if all even statistics are equal.

    Parameters
    ----------
    first, second : arrays of shape (N,)
        The statistics of independent runs on D, and on D'.
    alpha : float
        Probability that the bounds are wrong.
    score : callable
        Returns a number per test from the rate bounds. The best test is the one with
        the largest number.
    """
    tests = candidate_tests(first[::2], second[::2])
    if not tests:
        return RateBounds(np.zeros(1), np.ones(1))
    best = int(score(rate_bounds(first[::2], second[::2], tests, alpha)).argmax())
    return rate_bounds(first[1::2], second[1::2], [tests[best]], alpha)


def audit_row(
    algorithm: str, params: Mapping[str, Any], adjacency: str, result: Verdict
) -> Row:
    """Return a row of the table of audits: what was audited, and the verdict's fields.

    Parameters
    ----------
    algorithm : str
        A name of conf/algorithm.
    params : mapping
        The parameters of the algorithm, written as JSON.
    adjacency : str
        The neighbouring relation.
    result : Verdict
        The result of the audit.
    """
    text = json.dumps(dict(params), sort_keys=True)
    key = {"algorithm": algorithm, "params": text, "adjacency": str(adjacency)}
    return key | asdict(result)


class RateBounds(NamedTuple):
    """A lower bound on the hit rate and an upper bound on the false-alarm rate.

    Both arrays, ``hits`` and ``alarms``, have one value per test. The two bounds of a
    test hold jointly.
    """

    hits: Array
    alarms: Array


class Threshold(NamedTuple):
    """A test: the statistic is above ``value``, or below it if ``flipped``.

    If flipped, D and D' exchange roles: the runs on D' are the hits.
    """

    value: float
    flipped: bool


def at_least(successes: Counts, trials: Counts | int, level: float) -> Array:
    """Return the Clopper-Pearson lower confidence bound on a probability.

    This is the largest p with P(Binomial(trials, p) >= successes) <= level. It exceeds
    the true probability with probability at most ``level``.

    Parameters
    ----------
    successes : array of int
        Number of successes; the bound has its shape.
    trials : int or array of int
        Number of independent trials.
    level : float
        Probability that the bound is wrong, in (0, 1).
    """
    k = np.asarray(successes, dtype=np.float64)
    bound = betaincinv(np.maximum(k, 1.0), trials - k + 1.0, level)
    return np.where(k > 0.0, bound, 0.0)


def at_most(successes: Counts, trials: Counts | int, level: float) -> Array:
    """Return the Clopper-Pearson upper confidence bound on a probability.

    Parameters
    ----------
    successes, trials, level
        As in ``at_least``.
    """
    return 1.0 - at_least(trials - np.asarray(successes), trials, level)


def rate_bounds(
    first: Array, second: Array, tests: list[Threshold], alpha: float
) -> RateBounds:
    """Return bounds on the hit rate and the false-alarm rate of each test.

    Both bounds of a test hold with probability at least 1 - alpha: each gets half of
    alpha (union bound).

    Parameters
    ----------
    first, second : arrays of shape (N,)
        The statistics of independent runs on D, and on D'.
    tests : list of Threshold
        The tests, chosen without these runs.
    alpha : float
        Probability that a bound of a test is wrong.
    """
    pair = (first, second)
    values = np.array([test.value for test in tests])
    flipped = np.array([test.flipped for test in tests])
    above = [s.size - np.searchsorted(np.sort(s), values, "right") for s in pair]
    below = [np.searchsorted(np.sort(s), values, "left") for s in pair]
    sizes = [np.where(flipped, t.size, s.size) for s, t in (pair, pair[::-1])]
    return RateBounds(
        at_least(np.where(flipped, below[1], above[0]), sizes[0], alpha / 2),
        at_most(np.where(flipped, below[0], above[1]), sizes[1], alpha / 2),
    )


def candidate_tests(first: Array, second: Array) -> list[Threshold]:
    """Return tests with thresholds between the observed values, flipped or not."""
    values = np.unique(np.concatenate([first, second]))
    middle = values[:-1] + np.diff(values) / 2
    if middle.size > THRESHOLDS:
        middle = middle[np.linspace(0, middle.size - 1, THRESHOLDS).astype(np.int64)]
    return [Threshold(v, flipped) for flipped in (False, True) for v in middle.tolist()]


def profile_excess(rates: RateBounds, epsilons: Array, deltas: Array) -> Array:
    """Return hits - min over eps of (e^eps alarms + delta(eps)) for each test.

    A positive value refutes the profile.

    Parameters
    ----------
    rates : RateBounds
        Bounds of shape (m,), for m tests.
    epsilons, deltas : arrays of shape (k,)
        The points of the privacy profile.
    """
    allowed = np.exp(epsilons) * rates.alarms[:, None] + deltas
    return np.asarray(rates.hits - allowed.min(axis=1))


def epsilon_bound(rates: RateBounds, delta: float) -> Array:
    """Return each test's lower bound on epsilon at a delta, at least 0."""
    gain = np.maximum(rates.hits - delta, 0.0)
    with np.errstate(divide="ignore"):
        bound = np.log(gain) - np.log(rates.alarms)
    return np.asarray(np.maximum(bound, 0.0))


def mu_bound(rates: RateBounds) -> Array:
    """Return each test's lower bound on mu for a mu-GDP mechanism, at least 0."""
    inner = np.clip(rates.alarms, 1e-300, 1.0 - 1e-16)
    with np.errstate(divide="ignore"):
        bound = ndtri(rates.hits) - ndtri(inner)
    return np.asarray(np.maximum(bound, 0.0))
