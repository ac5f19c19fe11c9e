"""Noise scales and lengths of one pass that reads each record once, without any run.

Beside what is certified stand two more: the printed noise, wherever it is proved, and
that which shuffling would ask for. The latter rests on constants that we did not derive
again: it is shown, and never certified.
"""

import math

import numpy as np

from dp_erm_bench.accounting.bounds import gdp_epsilon, smallest_true
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels.coins import failures
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.single_use_gaussian import SingleUseLaw
from dp_erm_bench.releases.streams import stream_seeds

SPLITS = (0.1, 0.3, 0.5)
"""Parts of delta that the local randomisers may have."""
PLENTY = 4.0
"""What (e^eps + 1)(1 + e^-eps0 / 2) may be for such a split."""


def pass_of(n: int) -> tuple[Law]:
    """Return the law of a pass over half of n records, in a secret order."""
    return (SingleUseLaw(1, fresh=math.ceil(n / 2), records=n),)


def certified_scale(
    n: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    calibration: str = "certified",
) -> float:
    """Return the noise scale of a budget by single use, in units of L.

    ``calibration=paper`` gives the printed one; Unsupported outside of its range.
    """
    budget = Budget(epsilon, delta, adjacency)
    found = calibrate(pass_of(n), budget, calibration, "arora2020")
    return found.z * adjacency.of_sum(1.0)


def shuffled_epsilon(n: int, scale: float, delta: float) -> float:
    """Return the epsilon of shuffling n records, at a noise scale in units of L.

    Each step is an (eps0, delta0) local randomiser of its record, eps0 that of a
    Gaussian of mu = 2 L / scale at delta0. With e = e^eps0, the shuffled run has

        eps = log(1 + (e - 1)/(e + 1) (8 sqrt(e log(4/d)) / sqrt(n) + 8 e / n))

    for eps0 <= log(n / (16 log(2/d))), at d + (e^eps + 1)(1 + 1/(2 e)) n delta0
    (Feldman, McMillan, Talwar, "Hiding among the clones: a simple and nearly optimal
    analysis of privacy amplification by shuffling", FOCS 2021, adaptive approximate
    randomisers, constants as printed). The best of some splits of delta; infinite where
    none holds. Records are exchanged: there is no smaller noise for ``zero_out``.
    """
    found = math.inf
    for part in SPLITS:
        d, local = (1.0 - part) * delta, part * delta / (PLENTY * n)
        eps0 = gdp_epsilon(2.0 / scale, local)
        if eps0 > math.log(n / (16.0 * math.log(2.0 / d))):
            continue
        e = math.exp(eps0)
        spread = 8.0 * math.sqrt(e * math.log(4.0 / d) / n) + 8.0 * e / n
        epsilon = math.log1p((e - 1.0) / (e + 1.0) * spread)
        if (math.exp(epsilon) + 1.0) * (1.0 + 0.5 / e) <= PLENTY:
            found = min(found, epsilon)
    return found


def shuffled_scale(n: int, epsilon: float, delta: float) -> float:
    """Return the smallest noise scale whose ``shuffled_epsilon`` is within a budget."""
    return smallest_true(lambda scale: shuffled_epsilon(n, scale, delta) <= epsilon)


def steps_over_n(n: int, seeds: int) -> Array:
    """Return tau / n of some passes, (seeds,): their steps until half of n are read."""
    m, taus = math.ceil(n / 2), []
    for seed in stream_seeds([str(k) for k in range(seeds)], "noise_only"):
        waits = np.empty(m, np.int64)
        failures(uniforms(seed, 0, m), n, waits)
        taus.append(m + int(waits.sum()))
    return np.array(taus) / n


def excess_bound(n: int, p: int, radius: float, scale: float) -> float:
    """Return the bound on the expected excess risk of one-pass SGD, for L = 1.

    With m = ceil(n / 2) fresh steps of E tau, and the step that is best for it, it is
    R sqrt(m + E[tau] p s^2) / m for norm2(u - w_1) <= R: the regret of online mirror
    descent at noise scale s, whose mean iterate is judged by fresh records.
    """
    m = math.ceil(n / 2)
    steps = float((n / (n - np.arange(m))).sum())
    return radius * math.sqrt(m + steps * p * scale**2) / m
