"""The estimator of bias-reduced SGD, and the end of its runs, without any run."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from dp_erm_bench.constraints.l1_ball import L1Ball
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.releases.printed import printed_prefix
from dp_erm_bench.solvers.bias_reduced_sgd import BiasReducedSGD, probabilities

RECORDS, FEATURES, NONZEROS = 64, 20, 3


def stopping_times(n: int, epsilon: float, delta: float, seeds: int) -> Array:
    """Return the steps of runs of n records to the printed end, shape (seeds,)."""
    problem: Any = SimpleNamespace(n=n)
    solver, steps = BiasReducedSGD(n_iter=n), []
    for seed in range(seeds):
        costs = solver.costs(problem, solver.plan(problem, [str(seed)]))
        steps.append(printed_prefix(solver.printed, costs, epsilon, delta)[1])
    return np.array(steps, np.float64)


def private_means(seed: int, size: int, draws: int) -> tuple[Array, Array, Array]:
    """Return draws of g(B), g(O) and g(E) of a batch B, of 2 size records, and halves.

    Records have 3 of 20 entries 1 / sqrt(3); there are 64 of them, L = 1, z = 1, and g
    is the projection mechanism. Shape (draws, 20) each.
    """
    rng = np.random.default_rng([seed, size])
    order = np.argsort(np.random.default_rng(0).random((RECORDS, FEATURES)), axis=1)
    records = np.where(order < NONZEROS, 1.0 / math.sqrt(NONZEROS), 0.0)
    drawn = np.argsort(rng.random((draws, RECORDS)), axis=1)[:, : 2 * size]
    one, other = (records[half].sum(axis=1) for half in np.split(drawn, 2, axis=1))

    def private(total: Array, count: int) -> Array:
        noise = 2.0 * rng.standard_normal(total.shape)
        return L1Ball(math.sqrt(NONZEROS)).project((total + noise) / count)

    return private(one + other, 2 * size), private(one, size), private(other, size)


def estimator_bias(seed: int = 0, draws: int = 40_000) -> tuple[float, float]:
    """Return the length of the estimator's bias, and its upper 95 % limit.

    That is E G - E g(all records), level by level with its exact probability. The limit
    adds 1.96 times the root of the sum of the squared standard errors, which bounds the
    error's length at least as often.
    """
    p = probabilities(RECORDS)
    # Terms g(I) do not depend on the level: one mean for all.
    _, single, _ = private_means(seed, 1, draws)
    found, square = single.mean(axis=0), single.var(axis=0) / draws
    for level in range(p.size):
        both, one, other = private_means(seed + 1, 2**level, draws)
        gained = both - (one + other) / 2
        # p_N cancels: the level is drawn as often as its term is divided by it.
        found, square = found + gained.mean(axis=0), square + gained.var(axis=0) / draws
    whole, _, _ = private_means(seed + 2, RECORDS // 2, draws)
    square = square + whole.var(axis=0) / draws
    length = float(np.linalg.norm(found - whole.mean(axis=0)))
    return length, length + 1.96 * math.sqrt(float(square.sum()))


def batch_bias(size: int, seed: int = 0, draws: int = 40_000) -> float:
    """Return norm2(E g(B) - E g(all records)) of batches of some records."""
    whole, _, _ = private_means(seed, RECORDS // 2, draws)
    both, one, _ = private_means(seed + 1, max(size // 2, 1), draws)
    mean = (one if size == 1 else both).mean(axis=0)
    return float(np.linalg.norm(mean - whole.mean(axis=0)))
