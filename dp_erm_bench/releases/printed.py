"""Noise constants stated in papers, as z = scale / sensitivity.

Every rule maps the laws and the budget's epsilon and delta to a z. This z is for a
sensitivity equal to the bound on one record's term. The absolute noise is the paper's
under both adjacencies: if the sensitivity is twice as large, z is half as large.
"""

import math
from collections.abc import Callable

import numpy as np

from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats
from dp_erm_bench.releases.single_use_gaussian import SingleUseLaw

Laws = tuple[Law, ...]
Rule = Callable[[Laws, float, float], float]


def log_inverse(delta: float) -> float:
    """Return log(1/delta), or raise UsageError if delta = 0."""
    if delta == 0:
        raise UsageError(
            "delta=0: must be positive if the noise constant is printed in a paper"
        )
    return -math.log(delta)


def updates(laws: Laws, *names: str) -> int:
    """Return the total number of uses of the laws with given names."""
    return sum(law.times for law in laws if law.name in names)


def curvature_of(laws: Laws, name: str) -> float:
    """Return log(1 + beta / ridge) of the one law with this name."""
    (curvature,) = [law.least() for law in laws if law.name == name]
    return curvature


def mangold2023(laws: Laws, epsilon: float, delta: float) -> float:
    """Return the z stated for DP greedy coordinate descent.

    The paper prints lambda_j = 8 L_j sqrt(T log(1/delta)) / (n eps), for the noise
    inside the selection and for the update (Mangold, Bellet, Salmon, Tommasi,
    "High-Dimensional Private ERM by Greedy Coordinate Descent", AISTATS 2023, poster).
    The sensitivity is 2 L_j / n under replace_one and L_j / n under zero_out. No
    adjacency is stated.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    epsilon, delta : float
        The privacy budget.
    """
    root = math.sqrt(updates(laws, "laplace") * log_inverse(delta))
    return 8 * root / epsilon


def mangold2022(laws: Laws, epsilon: float, delta: float) -> float:
    """Return the z stated for DP coordinate descent.

    The paper prints sigma_j^2 = 12 L_j^2 T K log(1/delta) / (n eps)^2, proved for
    eps <= 1 and delta < 1/3 under replace_one (Mangold, Bellet, Salmon, Tommasi,
    "Differentially Private Coordinate Descent for Composite ERM", ICML 2022,
    Theorem 1).

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    epsilon, delta : float
        The privacy budget.
    """
    root = math.sqrt(12 * updates(laws, "gaussian") * log_inverse(delta))
    return root / epsilon


def talwar2015(laws: Laws, epsilon: float, delta: float) -> float:
    """Return the z stated for the private Frank-Wolfe algorithm.

    The paper prints lambda = L_1 norm1(C) sqrt(8 T log(1/delta)) / (n eps), the scale
    of the Laplace noise of each selection (Talwar, Thakurta, Zhang, "Nearly optimal
    private LASSO", NIPS 2015, Algorithm 2). No adjacency is stated. Under ``zero_out``,
    the sensitivity is L_1 norm1(C) / n.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    epsilon, delta : float
        The privacy budget.
    """
    times = updates(laws, "pure", "bounded_range")
    root = math.sqrt(8 * times * log_inverse(delta))
    return root / epsilon


def chaudhuri2011(laws: Laws, epsilon: float, delta: float) -> float:
    """Return the z stated for pure objective perturbation.

    The noise has density exp(-eps' norm2(b) / 2) for Lambda = 1, with
    eps' = eps - 2 log(1 + beta / ridge) (Chaudhuri, Monteleoni, Sarwate, JMLR 2011,
    Algorithm 2: log(1 + 2 c/(n l2) + c^2/(n l2)^2)). If eps' is not positive, the
    algorithm adds a ridge. Here Unsupported is raised instead, because the ridge of a
    solver is given. No noise is printed for the distance to the exact minimiser. The
    release for this distance has the noise multiplier weight times z.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    epsilon, delta : float
        The privacy budget.
    """
    curvature = curvature_of(laws, "objective_pure")
    left = epsilon - 2 * curvature
    if left <= 0:
        raise Unsupported(
            f"epsilon={epsilon:g}: must exceed {2 * curvature:.3g}, the part that the "
            "printed constant spends on the curvature; use a larger ridge"
        )
    return 2 / left


def kifer2012(laws: Laws, epsilon: float, delta: float) -> float:
    """Return the z stated for Gaussian objective perturbation.

    The paper prints sigma^2 = Lambda^2 (8 log(2/delta) + 4 eps) / eps^2 for
    ridge >= 2 beta / eps (Kifer, Smith, Thakurta, "Private convex empirical risk
    minimization and high-dimensional regression", COLT 2012, Theorem 3). Unsupported is
    raised for a smaller ridge. The distance to the exact minimiser is treated as in
    :func:`chaudhuri2011`.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    epsilon, delta : float
        The privacy budget.
    """
    curvature = curvature_of(laws, "objective")
    least = 2 / epsilon
    if math.expm1(curvature) * least > 1 + 1e-12:
        raise Unsupported(
            f"epsilon={epsilon:g}: the printed constant needs a ridge of at least "
            f"{least:.3g} beta in the objective that is a sum over the records"
        )
    square = 8 * (math.log(2) + log_inverse(delta)) + 4 * epsilon
    return math.sqrt(square) / epsilon


def ghazi2024(costs: Floats, epsilon: float, delta: float) -> tuple[float, int]:
    """Return z under ``replace_one`` and the number of steps for bias-reduced SGD.

    The mean of a slot, over k terms of norm L, has noise
    (2 L/k) 32 sqrt(2 log(20/delta)) / eps under either adjacency. This is for a quarter
    of a quarter of eps/2. A step of level N takes the part a = (3 2^(N+1) + 1) / (16 n)
    of the budget. Steps are made as long as the steps before them have
    sqrt(2 log(4/delta) sum a^2) + (eps/2) sum a^2 <= 1/2 and sum a <= 1/4 (Ghazi,
    Guzman, Kamath, Kumar, Manurangsi, "Differentially private optimization with sparse
    gradients", NeurIPS 2024, Algorithms 3 and 4). Unsupported is raised for
    epsilon > 1.

    Parameters
    ----------
    costs : array of shape (steps,)
        The part a of the budget that each drawn step takes.
    epsilon, delta : float
        The privacy budget.
    """
    if epsilon > 1:
        raise Unsupported(
            f"epsilon={epsilon:g}: must be at most 1 for the noise and the stopping "
            "rule of the paper"
        )
    left = log_inverse(delta)
    z = 32 * math.sqrt(2 * (math.log(20) + left)) / epsilon
    sums, squares = np.cumsum(costs), np.cumsum(costs * costs)
    spent = np.sqrt(2 * (math.log(4) + left) * squares) + epsilon / 2 * squares
    goes_on = (spent <= 1 / 2) & (sums <= 1 / 4)
    return z, min(costs.size, 1 + int(goes_on.sum()))


def arora2020(laws: Laws, epsilon: float, delta: float) -> float:
    """Return the z stated for one-pass noisy descent (in Remark 1).

    The noise is sigma = 8 L sqrt(log(1/d)) / (sqrt(n) e) with d = delta/3 and
    e = epsilon / (8 sqrt(log(1/d))), hence 64 L log(3/delta) / (sqrt(n) epsilon)
    (Arora, Marinov, Ullah, 2020, Theorem 6, Remark 1). The theorem needs
    e <= 1 / (2 sqrt(n)), that is epsilon <= 4 sqrt(log(3/delta) / n). The remark needs
    6 e^(-n/16) <= delta <= 3 e^-4; it prints another range of epsilon, with the root on
    the wrong side. Outside these ranges, Unsupported is raised. The certificate uses
    the law of single use.

    Parameters
    ----------
    laws : tuple of Law
        The laws of all releases.
    epsilon, delta : float
        The privacy budget.
    """
    (n,) = {law.records for law in laws if isinstance(law, SingleUseLaw)}
    logarithm = math.log(3) + log_inverse(delta)
    least, most = 6 * math.exp(-n / 16), 3 * math.exp(-4)
    if not least <= delta <= most:
        raise Unsupported(
            f"delta={delta:g}: the printed constant needs a delta from {least:.3g} to "
            f"{most:.3g} at n={n}; use calibration=certified"
        )
    largest = 4 * math.sqrt(logarithm / n)
    if epsilon > largest:
        raise Unsupported(
            f"epsilon={epsilon:g}: the printed constant needs an epsilon of at most "
            f"{largest:.3g} at n={n}; use calibration=certified"
        )
    return arora2020_scale(n, epsilon, delta)


def arora2020_scale(n: int, epsilon: float, delta: float) -> float:
    """Return the noise scale of `arora2020` in units of L, with no check of ranges.

    Parameters
    ----------
    n : int
        Number of records.
    epsilon, delta : float
        The privacy budget.
    """
    return 64 * (math.log(3) + log_inverse(delta)) / (math.sqrt(n) * epsilon)


RULES = (mangold2022, mangold2023, talwar2015, chaudhuri2011, kifer2012, arora2020)
PAPERS: dict[str, Rule] = {rule.__name__: rule for rule in RULES}


PREFIXES: dict[str, Callable[[Floats, float, float], tuple[float, int]]] = {
    ghazi2024.__name__: ghazi2024
}


def printed_prefix(
    name: str | None,
    costs: Floats,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
) -> tuple[float, int]:
    """Return the z and the number of steps that a paper prints for drawn steps.

    The absolute noise is the same under both adjacencies, so that z is twice as large
    if the sensitivity is half as large.

    Parameters
    ----------
    name : str or None
        Name of the rule, one of ``PREFIXES``.
    costs : array of shape (steps,)
        The part of the budget that each drawn step takes.
    epsilon, delta : float
        The privacy budget.
    adjacency : Adjacency
        Relation between neighbouring datasets.
    """
    z, steps = PREFIXES[str(name)](costs, epsilon, delta)
    return z * Adjacency.REPLACE_ONE.of_sum(1.0) / adjacency.of_sum(1.0), steps


def printed_multiplier(
    name: str | None, laws: Laws, epsilon: float, delta: float, adjacency: Adjacency
) -> float:
    """Return the z that a paper prints, or raise UsageError if it prints none.

    Parameters
    ----------
    name : str or None
        Name of the rule, one of ``PAPERS``; None if no constant is stated.
    laws : tuple of Law
        The laws of all releases.
    epsilon, delta : float
        The privacy budget.
    adjacency : Adjacency
        Relation between neighbouring datasets.
    """
    if name not in PAPERS:
        raise UsageError(
            "calibration=paper: no noise constant is printed for this algorithm; use "
            "calibration=certified"
        )
    return PAPERS[name](laws, epsilon, delta) / adjacency.of_sum(1.0)
