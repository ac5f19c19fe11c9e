"""The smallest noise multiplier for a budget, and the multiplier of other authors."""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

from dp_erm_bench.accounting.bounds import Laws, library_epsilon, mu_for
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.certify import (
    BY_EPSILON,
    Certificate,
    certify,
    pld_certificate,
    quick_certificate,
)
from dp_erm_bench.accounting.pld import COARSE, pld_epsilon
from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.law import Law

QUICK_TOLERANCE = 1e-10
SLOW_TOLERANCE = 1e-5


def proof_of_least(
    z: float, accountant: str, laws: Laws, budget: Budget
) -> Certificate | None:
    """Return a certificate for z; None if z is not the smallest for a budget.

    The named accountant must prove the budget at z. No accountant may prove the budget
    at a z that is smaller by ten times the tolerance of the search.

    Parameters
    ----------
    z : float
        The common noise multiplier to check.
    accountant : str
        Name of the accountant that found z, as in ``Certificate.accountant``.
    laws : tuple of Law
        The laws of all releases, in canonical order.
    budget : Budget
        Delta must be a number.
    """
    delta, adjacency = budget.number, budget.adjacency
    pld = accountant == "pld"
    searched = pld or is_sampled(laws)
    less = z * (1 - 10 * (SLOW_TOLERANCE if searched else QUICK_TOLERANCE))
    if not 0.0 < less < math.inf:
        return None
    try:
        proof = (
            pld_certificate(laws, z, delta, adjacency)
            if pld
            else quick_certificate(laws, z, delta)
        )
        if proof.accountant != accountant or not proof.epsilon <= budget.epsilon:
            return None
        below = certify(laws, less, delta, adjacency)
    except ArithmeticError:
        return None
    return proof if below.epsilon > budget.epsilon else None


def certified_multiplier(laws: Laws, budget: Budget) -> tuple[float, Certificate]:
    """Return the smallest z certified to be within the budget, and its certificate.

    The search first uses the quick accountants. The PLD accountant is evaluated once at
    the z found, and is used for a search only if it proves a smaller epsilon there.
    Starting near the answer bounds its memory. For sampled releases, a coarse lattice
    first finds z to a few per cent.
    """
    epsilon, delta, adjacency = budget.epsilon, budget.number, budget.adjacency
    proofs: dict[float, Certificate] = {}

    def quick_epsilon(z: float) -> float:
        return quick_certificate(laws, z, delta).epsilon

    def coarse_epsilon(z: float) -> float:
        bound = quick_epsilon(z)
        proved = pld_epsilon(laws, z, delta, adjacency, COARSE)
        return bound if proved is None else min(bound, proved)

    def epsilon_at(z: float) -> float:
        proof = pld_certificate(laws, z, delta, adjacency)
        if proof.epsilon > epsilon:
            proof = min(quick_certificate(laws, z, delta), proof, key=BY_EPSILON)
        proofs[z] = proof
        return proof.epsilon

    z = guess_multiplier(laws, budget)
    if is_sampled(laws):
        z = smallest_multiplier(coarse_epsilon, epsilon, z, 1e-2)
    else:
        z = smallest_multiplier(quick_epsilon, epsilon, z, QUICK_TOLERANCE)
        proof = quick_certificate(laws, z, delta)
        other = pld_certificate(laws, z, delta, adjacency)
        if not other.epsilon < proof.epsilon * (1 - SLOW_TOLERANCE):
            return z, proof
    z = smallest_multiplier(epsilon_at, epsilon, z, SLOW_TOLERANCE)
    return z, proofs[z]


def is_sampled(laws: Laws) -> bool:
    """Return whether a release uses samples, for which only PLD accounting is tight."""
    return any(law.sampled for law in laws)


def guess_multiplier(laws: Laws, budget: Budget) -> float:
    """Return a first guess of the smallest z, by the central limit theorem.

    A step whose mean squared privacy loss is s^2 counts like a Gaussian of mu = s
    (Dong, Roth, Su 2022, Theorem 3.4). Each step gets an equal share of mu^2. The
    result only starts the search.
    """
    mu = mu_for(budget.epsilon, max(budget.number, 1e-12))
    return max(law.guess(mu * mu / len(laws) / law.times) for law in laws)


def smallest_multiplier(
    epsilon_at: Callable[[float], float], epsilon: float, start: float, tolerance: float
) -> float:
    """Return nearly the smallest z whose certified epsilon is within a budget.

    This is a secant search on log epsilon as a function of log z, which is nearly
    linear for every accountant. It stays inside a bracket of one refused and one safe
    z, and aims a little to the safe side. The z that it returns was evaluated and is
    safe.

    Parameters
    ----------
    epsilon_at : callable
        Certified epsilon as a function of z. It falls with z, up to rounding, and may
        be infinite.
    epsilon : float
        The budget, positive and finite.
    start : float
        First guess of z.
    tolerance : float
        The search ends when the certified epsilon is within [1 - tolerance, 1] times
        the budget, or z is within that relative distance of a z that is refused.

    Raises
    ------
    ArithmeticError
        If no z below 1e200 is safe.
    """
    refused, safe, z = 0.0, math.inf, start
    points: list[tuple[float, float]] = []
    while refused < 1e200:
        at = epsilon_at(z)
        points.append((z, at))
        if at <= epsilon:
            safe = z
        else:
            refused = z
        done = at >= epsilon * (1 - tolerance) or safe < 1e-200
        if safe == z and done or safe <= refused * (1 + tolerance):
            return safe
        aim = math.log(epsilon * (1 - tolerance / 2))
        z = next_point(secant_root(points, aim), refused, safe, len(points) % 7 == 0)
    raise ArithmeticError(f"no noise is certified for epsilon={epsilon}")


def secant_root(points: list[tuple[float, float]], aim: float) -> float:
    """Return the z at which the line through two points meets log epsilon = aim.

    The line is straight in log z and log epsilon and goes through the last two points.
    Through a single point it has the slope of epsilon = 1/z^2, which lies between those
    of full-batch and of sampled noise. The result is NaN if there is no such line.
    """
    usable = [(math.log(z), math.log(e)) for z, e in points if 0 < e < math.inf]
    if not usable:
        return math.nan
    (y, g) = usable[-1]
    (x, f) = usable[-2] if len(usable) > 1 else (y - 1, g + 2)
    if f == g or x == y:
        return math.nan
    return math.exp(max(-600.0, min(600.0, y + (aim - g) * (y - x) / (g - f))))


def next_point(guess: float, refused: float, safe: float, halve: bool) -> float:
    """Return the z to try next: the guess, or a plain step if the guess is useless.

    Parameters
    ----------
    guess : float
        The z proposed by a secant step; may be NaN.
    refused : float
        Largest z known to exceed the budget; 0 if none is known.
    safe : float
        Smallest z known to be within the budget; infinite if none is known.
    halve : bool
        Whether to bisect log z whatever the guess is, once there is a bracket.
    """
    if refused == 0:
        return guess if 0.1 * safe < guess < safe else 0.7 * safe
    if math.isinf(safe):
        return guess if refused < guess < 10 * refused else 1.4 * refused
    if halve or not refused < guess < safe:
        return refused * math.sqrt(safe / refused)
    return guess


def authors_multiplier(budget: Budget, laws: Laws) -> float:
    """Return the z of the DP-SGD with which Mangold et al. compare their algorithms.

    Their noise on the sum of gradients clipped to C has standard deviation C z_a, with
    z_a = 2 z_RDP. Here z_RDP is the noise multiplier of Renyi accounting for Poisson
    sampling and a record added or removed (Mironov, Talwar, Zhang, 2019, at
    dp_accounting's default orders). z is the standard deviation divided by the
    sensitivity for the budget's adjacency.

    Raises
    ------
    UsageError
        If delta = 0, or for any release but one with normal noise over samples.
    """
    if len(laws) != 1 or not laws[0].normal:
        raise UsageError(
            "calibration=authors: is defined only for sgd with Poisson samples; use "
            "calibration=certified"
        )
    if budget.number == 0:
        raise UsageError(
            "delta=0: must be positive if the noise constant is printed in a paper"
        )
    unit = replace(laws[0], weight=1.0)
    noise = library_multiplier(unit, budget.epsilon, budget.number)
    return 2 * noise / budget.adjacency.of_sum(1.0) / laws[0].weight


@functools.cache
def library_multiplier(law: Law, epsilon: float, delta: float) -> float:
    """Return the noise multiplier that dp_accounting's Renyi accountant needs.

    Neighbours add or remove a record.

    Parameters
    ----------
    law : Law
        The law of a Gaussian release over samples.
    epsilon : float
        Positive and finite.
    delta : float
        In (0, 1).
    """
    spent = law.sampling_rate() * math.sqrt(-law.times * math.log(delta)) / epsilon
    start = 1 + 2 * spent
    return smallest_multiplier(
        lambda z: library_epsilon((law,), z, delta), epsilon, start, 1e-7
    )
