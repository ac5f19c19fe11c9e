"""The noise of the DP-SGD that Mangold et al. compare with."""

import functools
import math
from dataclasses import replace

from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.rdp import library_epsilon
from dp_erm_bench.accounting.search import smallest_multiplier
from dp_erm_bench.errors import UsageError
from dp_erm_bench.releases.law import Law


def authors_multiplier(budget: Budget, laws: tuple[Law, ...]) -> float:
    """Return z of the DP-SGD that Mangold et al. compare with.

    Their noise has standard deviation C z_a on the sum of clipped gradients with
    z_a = 2 z_RDP, z_RDP being the noise multiplier of Renyi accounting for Poisson
    sampling and a record added or removed (Mironov, Talwar, Zhang, 2019, at
    dp_accounting's default orders). z is that noise over the adjacency's sensitivity.
    """
    if len(laws) != 1 or not laws[0].normal:
        raise UsageError(
            "calibration=authors: is defined for sgd only, use calibration=certified"
        )
    if budget.number == 0:
        raise UsageError("delta=0: must be positive where a printed constant is used")
    law = laws[0]
    unit = replace(law, weight=1.0)
    noise = library_multiplier(unit, budget.epsilon, budget.number)
    return 2 * noise / budget.adjacency.of_sum(1.0) / law.weight


@functools.cache
def library_multiplier(law: Law, epsilon: float, delta: float) -> float:
    """Return the noise multiplier that Renyi accounting needs (add or remove)."""

    def epsilon_at(z: float) -> float:
        return library_epsilon((law,), z, delta)

    spent = law.sampling_rate() * math.sqrt(-law.times * math.log(delta)) / epsilon
    return smallest_multiplier(epsilon_at, epsilon, 1 + 2 * spent, 1e-7)
