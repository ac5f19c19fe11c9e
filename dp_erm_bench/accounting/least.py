"""The least noise multiplier that is certified for a budget."""

import math

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.certify import (
    Certificate,
    Laws,
    certify,
    quick,
    slow,
    smaller,
)
from dp_erm_bench.accounting.gdp import mu_for
from dp_erm_bench.accounting.pld import COARSE, pld_epsilon
from dp_erm_bench.accounting.search import smallest_multiplier

QUICK_TOLERANCE = 1e-10
SLOW_TOLERANCE = 1e-5


def proof_of_least(
    z: float, accountant: str, laws: Laws, budget: Budget
) -> Certificate | None:
    """Return the accountant's proof at z, None if z is not the least of a budget.

    The accountant must prove the budget at z, and no accountant may prove it at a z
    that is smaller by ten times the tolerance of the search.
    """
    delta, adjacency = budget.number, budget.adjacency
    exact = accountant != "pld" and not is_sampled(laws)
    less = z * (1 - 10 * (QUICK_TOLERANCE if exact else SLOW_TOLERANCE))
    if not 0.0 < less < math.inf:
        return None
    try:
        if accountant == "pld":
            proof = slow(laws, z, delta, adjacency)
        else:
            proof = quick(laws, z, delta)
        if proof.accountant != accountant or not proof.epsilon <= budget.epsilon:
            return None
        below = certify(laws, less, delta, adjacency)
    except ArithmeticError:
        return None
    return proof if below.epsilon > budget.epsilon else None


def certified_multiplier(laws: Laws, budget: Budget) -> tuple[float, Certificate]:
    """Return the smallest z within the budget, and the proof.

    The quick accountants come first. PLD is asked once at their z and searched only
    if it proves less there; being asked near the answer bounds its memory.
    """
    epsilon, delta = budget.epsilon, budget.number
    z = guess(laws, budget)
    if is_sampled(laws):
        z = coarse_multiplier(laws, budget, z)
    else:
        z = smallest_multiplier(
            lambda z: quick(laws, z, delta).epsilon, epsilon, z, QUICK_TOLERANCE
        )
        proof = quick(laws, z, delta)
        other = slow(laws, z, delta, budget.adjacency)
        if not other.epsilon < proof.epsilon * (1 - SLOW_TOLERANCE):
            return z, proof
    proofs: dict[float, Certificate] = {}

    def epsilon_at(z: float) -> float:
        proof = slow(laws, z, delta, budget.adjacency)
        proofs[z] = proof
        if proof.epsilon > epsilon:
            proofs[z] = smaller(quick(laws, z, delta), proof)
        return proofs[z].epsilon

    z = smallest_multiplier(epsilon_at, epsilon, z, SLOW_TOLERANCE)
    return z, proofs[z]


def is_sampled(laws: Laws) -> bool:
    """Return whether a law is over Poisson samples, for PLD to account."""
    return any(law.sampled for law in laws)


def coarse_multiplier(laws: Laws, budget: Budget, start: float) -> float:
    """Return the z of a budget to a few per cent, from a coarse lattice."""

    def epsilon_at(z: float) -> float:
        bound = quick(laws, z, budget.number).epsilon
        proved = pld_epsilon(laws, z, budget.number, budget.adjacency, COARSE)
        return bound if proved is None else min(bound, proved)

    return smallest_multiplier(epsilon_at, budget.epsilon, start, 1e-2)


def guess(laws: Laws, budget: Budget) -> float:
    """Return a z near the answer, from the central limit theorem.

    A step of mean square loss s^2 counts like a Gaussian of mu = s (Dong, Roth, Su
    2022, Theorem 3.4); each gets an equal share of mu^2. It only starts the search.
    """
    mu = mu_for(budget.epsilon, max(budget.number, 1e-12))
    return max(law.guess(mu * mu / len(laws) / law.times) for law in laws)
