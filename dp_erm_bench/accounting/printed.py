"""Noise constants printed in papers, as z = scale / sensitivity.

Every rule maps (budget, events) to z. The absolute noise is the paper's under both
adjacencies: where the sensitivity is half as large, z is twice as large.
"""

import functools
import math
from collections.abc import Callable

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.search import smallest_multiplier
from dp_erm_bench.errors import Unsupported, UsageError
from dp_erm_bench.releases.events import Event

Rule = Callable[[Budget, tuple[Event, ...]], float]


def log_inverse_delta(budget: Budget) -> float:
    """Return log(1/delta), refusing delta = 0."""
    if budget.number == 0:
        raise UsageError("delta=0: must be positive where a printed constant is used")
    return -math.log(budget.number)


def updates(events: tuple[Event, ...], kind: str) -> int:
    """Return how often the releases of a kind happen."""
    return sum(event.times for event in events if event.kind == kind)


def curvatures(events: tuple[Event, ...], kind: str) -> list[float]:
    """Return the curvatures of the releases of a kind."""
    return [event.curvature for event in events if event.kind == kind]


def mangold2023(budget: Budget, events: tuple[Event, ...]) -> float:
    """Return z of DP greedy coordinate descent.

    lambda_j = 8 L_j sqrt(T log(1/delta)) / (n eps) for the noise inside the selection
    and for the update (Mangold, Bellet, Salmon, Tommasi, "High-Dimensional Private ERM
    by Greedy Coordinate Descent", AISTATS 2023, poster). The sensitivity is 2 L_j / n
    under replace_one and L_j / n under zero_out. No adjacency is printed.
    """
    root = math.sqrt(updates(events, "laplace") * log_inverse_delta(budget))
    return 8 * root / budget.epsilon / budget.adjacency.of_sum(1.0)


def mangold2022(budget: Budget, events: tuple[Event, ...]) -> float:
    """Return z of DP coordinate descent.

    sigma_j^2 = 12 L_j^2 T K log(1/delta) / (n eps)^2, proved for eps <= 1 and
    delta < 1/3 under replace_one (Mangold, Bellet, Salmon, Tommasi, "Differentially
    Private Coordinate Descent for Composite ERM", ICML 2022, Theorem 1).
    """
    root = math.sqrt(12 * updates(events, "gaussian") * log_inverse_delta(budget))
    return root / budget.epsilon / budget.adjacency.of_sum(1.0)


def talwar2015(budget: Budget, events: tuple[Event, ...]) -> float:
    """Return z of the private Frank-Wolfe algorithm.

    lambda = L_1 norm1(C) sqrt(8 T log(1/delta)) / (n eps), the scale of the Laplace
    noise of each selection (Talwar, Thakurta, Zhang, "Nearly optimal private LASSO",
    NIPS 2015, Algorithm 2). No adjacency is printed; under ``zero_out`` the
    sensitivity is L_1 norm1(C) / n.
    """
    times = updates(events, "pure") + updates(events, "bounded_range")
    root = math.sqrt(8 * times * log_inverse_delta(budget))
    return root / budget.epsilon / budget.adjacency.of_sum(1.0)


def chaudhuri2011(budget: Budget, events: tuple[Event, ...]) -> float:
    """Return z of pure objective perturbation.

    The noise has density exp(-eps' norm2(b) / 2) for Lambda = 1, with
    eps' = eps - 2 log(1 + beta / ridge) (Chaudhuri, Monteleoni, Sarwate, JMLR 2011,
    Algorithm 2: log(1 + 2 c/(n l2) + c^2/(n l2)^2)). Where that is not positive the
    algorithm adds a ridge; here it is refused, for a solver's ridge is given. No noise
    is printed for the distance to the exact minimiser: it gets its weight times z.
    """
    (curvature,) = curvatures(events, "objective_pure")
    left = budget.epsilon - 2 * curvature
    if left <= 0:
        raise Unsupported(
            f"epsilon={budget.epsilon:g}: must exceed {2 * curvature:.3g}, what "
            "the printed constant takes for the curvature; give a larger ridge"
        )
    return 2 / left / budget.adjacency.of_sum(1.0)


def kifer2012(budget: Budget, events: tuple[Event, ...]) -> float:
    """Return z of Gaussian objective perturbation.

    sigma^2 = Lambda^2 (8 log(2/delta) + 4 eps) / eps^2 for ridge >= 2 beta / eps
    (Kifer, Smith, Thakurta, "Private convex empirical risk minimization and
    high-dimensional regression", COLT 2012, Theorem 3). The distance to the exact
    minimiser is treated as in :func:`chaudhuri2011`.
    """
    (curvature,) = curvatures(events, "objective")
    least = 2 / budget.epsilon
    if math.expm1(curvature) * least > 1 + 1e-12:
        raise Unsupported(
            f"epsilon={budget.epsilon:g}: the printed constant needs a ridge of at "
            f"least {least:.3g} beta, on the scale of the sum over the records"
        )
    square = 8 * (math.log(2) + log_inverse_delta(budget)) + 4 * budget.epsilon
    return math.sqrt(square) / budget.epsilon / budget.adjacency.of_sum(1.0)


PAPERS: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (mangold2022, mangold2023, talwar2015, chaudhuri2011, kifer2012)
}


def printed_multiplier(
    name: str | None, budget: Budget, events: tuple[Event, ...]
) -> float:
    """Return the z that a paper prints; UsageError where it prints none."""
    if name not in PAPERS:
        raise UsageError(
            "calibration=paper: no noise constant is printed for this algorithm, "
            "use calibration=certified"
        )
    return PAPERS[name](budget, events)


def authors_multiplier(budget: Budget, events: tuple[Event, ...]) -> float:
    """Return z of the DP-SGD that Mangold et al. compare with.

    Their noise has standard deviation C z_a on the sum of clipped gradients with
    z_a = 2 z_RDP, z_RDP being the noise multiplier of Renyi accounting for Poisson
    sampling and a record added or removed (Mironov, Talwar, Zhang, 2019, at
    dp_accounting's default orders). z is that noise over the adjacency's sensitivity.
    """
    if len(events) != 1 or events[0].kind not in ("poisson_gaussian", "gaussian"):
        raise UsageError(
            "calibration=authors: is defined for sgd only, use calibration=certified"
        )
    log_inverse_delta(budget)
    event = events[0]
    noise = sampled_rdp_multiplier(
        event.rate, event.times, budget.epsilon, budget.number
    )
    return 2 * noise / budget.adjacency.of_sum(1.0) / event.weight


@functools.cache
def sampled_rdp_multiplier(
    rate: float, times: int, epsilon: float, delta: float
) -> float:
    """Return the noise multiplier that Renyi accounting needs (add or remove)."""

    def epsilon_at(z: float) -> float:
        return sampled_rdp_epsilon(rate, times, z, delta)

    spent = rate * math.sqrt(-times * math.log(delta)) / epsilon
    return smallest_multiplier(epsilon_at, epsilon, 1 + 2 * spent, 1e-7)


def sampled_rdp_epsilon(rate: float, times: int, z: float, delta: float) -> float:
    """Return dp_accounting's Renyi epsilon of a Poisson sampled Gaussian."""
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    event = PoissonSampledDpEvent(rate, GaussianDpEvent(z))
    return float(accountant.compose(event, times).get_epsilon(delta))
