"""What claims of papers are judged by, without any run: numbers, curves and bounds.

A number of a claim is a function whose first parameter has the `curves` of the claim's
figure, or is not used; the others are keys of the claim. No trial runs any of this.

**One pass that reads each record once.** Beside what is certified stand two more noise
scales: the printed one, wherever it is proved, and that which shuffling would ask for.
The latter rests on constants that we did not derive again: it is shown, and never
certified.

**Structured norms.** True epsilons of the noise that Kumar and Deisenroth (2019) print,
on the instances that show them too small, beside those of ours; the gap of Frank-Wolfe
on the dual with both steps; their Proposition 2. docs/errata.md says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.accounting.bounds import gdp_epsilon, mu_for, smallest_true
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.audit import profile
from dp_erm_bench.constraints.sets import L1Ball
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.kernels.coins import failures
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.norms.base import SubmodularNorm
from dp_erm_bench.norms.cardinality import CardinalityNorm
from dp_erm_bench.norms.groups import GroupNorm
from dp_erm_bench.papers.instances import Instance, violation_factor
from dp_erm_bench.registry import check_choice
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.printed import arora2020_scale, printed_prefix
from dp_erm_bench.releases.single_use_gaussian import SingleUseLaw
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.results.statistics import (
    LIKELY,
    Estimate,
    estimate_of_largest,
    estimate_sum,
)
from dp_erm_bench.solvers.bias_reduced_sgd import BiasReducedSGD, probabilities

Numbers = Mapping[str, Callable[[int], Any]]
"""Numbers, or arrays of draws, along another one, by the label of their line."""


@dataclass(frozen=True)
class PaperCurves:
    """Numbers along another one, evaluated without a run.

    Attributes
    ----------
    quantity : str
        One of `LABELS`, which has what stands at the axes.
    values : tuple of int
        Where it is evaluated, increasing.
    """

    LABELS: ClassVar[Mapping[str, tuple[str, str]]]

    quantity: str
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a quantity that is not one of `LABELS`."""
        check_choice("quantity", self.quantity, list(self.LABELS))

    def numbers(self) -> Numbers:
        """Return the numbers by label; not finite where there are none."""
        raise NotImplementedError


def mean_of_draws(drawn: Array) -> Estimate:
    """Return the mean of positive draws with its interval."""
    return estimate_sum([(drawn[:, None], np.ones(1))]).map(np.exp)


def length_within(length: float, error: float) -> Estimate:
    """Return a length that is known up to an error."""
    return Estimate(length, max(length - error, 0.0), length + error)


def _slope_of_logs(x: Sequence[int], y: Array) -> float:
    """Return the least-squares slope of positive numbers on log-log scales."""
    across = np.log(np.array(x, np.float64))
    across = across - across.mean()
    return float(across / (across @ across) @ np.log(y))


RECORDS, FEATURES, NONZEROS = 64, 20, 3


def stopping_times(n: int, epsilon: float, delta: float, seeds: int) -> Array:
    """Return the steps of runs of n records to the printed end, shape (seeds,)."""
    problem: Any = SimpleNamespace(n=n)
    solver, steps = BiasReducedSGD(n_iter=n), []
    for seed in range(seeds):
        costs = solver.costs(problem, solver.plan(problem, [str(seed)]))
        asked = epsilon, delta, Adjacency.REPLACE_ONE
        steps.append(printed_prefix(solver.printed_constant, costs, *asked)[1])
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


def share_of_bias(_: Any) -> Estimate:
    """Return the bias of bias-reduced SGD's estimator over that of a batch of two.

    The error of the latter, of 40000 draws, is not in the interval.
    """
    (length, limit), whole = estimator_bias(), batch_bias(2)
    return length_within(length / whole, (limit - length) / whole)


def mean_steps(_: Any, n: int, delta: float, seeds: int) -> Estimate:
    """Return the mean steps of bias-reduced SGD as printed at epsilon = 1."""
    return mean_of_draws(stopping_times(n, 1.0, delta, seeds))


@dataclass(frozen=True)
class BiasReduced(PaperCurves):
    """What single batches and the estimator are biased by, or steps against n.

    Attributes
    ----------
    quantity : {'bias', 'steps'}
        Lengths of biases against the size of a batch; or steps of `seeds` runs to the
        printed end at epsilon = 1.
    values : tuple of int
        Sizes of batches, or of n, increasing.
    delta : float
    seeds : int
    least, most : tuple of float
        The paper's bounds on the expected steps at the values of n.
    """

    LABELS = {
        "bias": ("records of a batch", "length of the bias"),
        "steps": ("n", "steps"),
    }

    delta: float = 1e-8
    seeds: int = 100
    least: tuple[float, ...] = ()
    most: tuple[float, ...] = ()

    def numbers(self) -> Numbers:
        """Return the numbers by label."""
        if self.quantity == "bias":
            length, limit = estimator_bias()
            return {
                "a batch": batch_bias,
                "the estimator": lambda size: length,
                "its upper 95 % limit": lambda size: limit,
            }
        bounds = {"lower bound of the mean": self.least}
        bounds |= {"upper bound of the mean": self.most}
        return {
            "steps of a run": lambda n: stopping_times(n, 1.0, self.delta, self.seeds),
            **{
                label: dict(zip(self.values, bound, strict=True)).__getitem__
                for label, bound in bounds.items()
                if bound
            },
        }


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


def length_of_a_pass(_: Any, n: int, seeds: int) -> Estimate:
    """Return the mean steps of one-pass SGD over n."""
    return mean_of_draws(steps_over_n(n, seeds))


def long_passes(_: Any, n: int, seeds: int) -> Estimate:
    """Return the share of passes of one-pass SGD that are longer than proved."""
    long, level = np.array([np.sum(steps_over_n(n, seeds) > 2.0)]), (1.0 - LIKELY) / 2
    low, high = (of(long, seeds, level) for of in (profile.at_least, profile.at_most))
    return Estimate(float(long[0]) / seeds, float(low[0]), float(high[0]))


def excess_bound(n: int, p: int, radius: float, scale: float) -> float:
    """Return the bound on the expected excess risk of one-pass SGD, for L = 1.

    With m = ceil(n / 2) fresh steps of E tau, and the step that is best for it, it is
    R sqrt(m + E[tau] p s^2) / m for norm2(u - w_1) <= R: the regret of online mirror
    descent at noise scale s, whose mean iterate is judged by fresh records.
    """
    m = math.ceil(n / 2)
    steps = float((n / (n - np.arange(m))).sum())
    return radius * math.sqrt(m + steps * p * scale**2) / m


def one_pass_bound(row: Mapping[str, Any], p: int, radius: float) -> float:
    """Return the bound on one-pass SGD's excess at the noise of a run's row."""
    # The table says behind it what is not proved.
    how = str(row["calibration"]).partition(" (")[0]
    n, budget = int(row["n"]), (float(row["epsilon"]), float(row["delta"]))
    return excess_bound(n, p, radius, certified_scale(n, *budget, calibration=how))


THEOREM, PROVED = "printed theorem", ("single use", "shuffling (not certified)")
OUTSIDE = "printed constant outside its range (a study)"


@dataclass(frozen=True)
class OnePass(PaperCurves):
    """What one pass needs along the number of records n.

    Attributes
    ----------
    quantity : {'noise', 'steps'}
        Noise scales in units of L by three ways of accounting, under ``replace_one``;
        or tau / n, the steps until half of the records are read, beside log 2.
    values : tuple of int
        Of n, increasing.
    epsilon : float
        The budget at every n; or, with ``falling``, that times 1 / sqrt(n).
    falling : bool
    delta : float
    seeds : int
        Passes whose steps are counted.
    """

    LABELS = {"noise": ("n", r"noise scale / $L$"), "steps": ("n", r"steps / $n$")}

    epsilon: float = 1.0
    falling: bool = False
    delta: float = 1e-8
    seeds: int = 100

    def numbers(self) -> Numbers:
        """Return the numbers by label."""
        if self.quantity == "steps":
            steps = partial(steps_over_n, seeds=self.seeds)
            return {"steps of a pass": steps, "log 2": lambda n: math.log(2.0)}
        scales, labels = map(self.scales, self.values), (THEOREM, OUTSIDE, *PROVED)
        at = dict(zip(self.values, scales, strict=True))
        return {k: partial(lambda k, n: at[n].get(k, math.nan), k) for k in labels}

    def scales(self, n: int) -> dict[str, float]:
        """Return the noise scales at n, infinite where there is none."""
        epsilon = self.epsilon / math.sqrt(n) if self.falling else self.epsilon
        budget = epsilon, self.delta
        try:
            printed = {THEOREM: certified_scale(n, *budget, calibration="paper")}
        except Unsupported:
            printed = {OUTSIDE: arora2020_scale(n, *budget)}
        scales = certified_scale(n, *budget), shuffled_scale(n, *budget)
        return printed | dict(zip(PROVED, scales, strict=True))


def mean_bound(row: Mapping[str, Any], nonzeros: int) -> float:
    """Return the bound on the expected error of mean_projection, L = 1, replace_one.

    The error is at most sqrt(2 sqrt(s) norm_inf(noise)), and at most norm2(noise);
    by Jensen's inequality so are the expectations with those of norm_inf and of norm2
    squared. The largest of p Gaussian entries has an expectation of at most sigma
    sqrt(2 log(2 p)), that of p Laplace entries is b (1 + 1/2 + ... + 1/p) <= b (1 + log
    p); the squares' sums are sigma^2 p and 2 b^2 p (Ghazi et al., NeurIPS 2024, lemma
    3.1, with constants).
    """
    n, p = int(row["n"]), int(row["p"])
    epsilon, delta = float(row["epsilon"]), float(row["delta"])
    if delta > 0.0:
        sigma = 2.0 / (n * mu_for(epsilon, delta))
        largest = sigma * math.sqrt(2.0 * math.log(2.0 * p))
        whole = sigma * math.sqrt(p)
    else:
        b = 2.0 * math.sqrt(nonzeros) / (n * epsilon)
        largest, whole = b * (1.0 + math.log(p)), b * math.sqrt(2.0 * p)
    return min(math.sqrt(2.0 * math.sqrt(nonzeros) * largest), whole)


GROUP, RIDGE, DELTA = 5, 0.01, 1e-5
"""Coordinates of a group; the ridge of our noise; of true epsilons."""

NAMES = ("L1", "Linf", "sqrt", "log1p", f"groups of {GROUP}")


def norm_named(name: str, p: int) -> SubmodularNorm:
    """Return one of `NAMES` for p coordinates; of groups the last may be smaller."""
    check_choice("norm", name, list(NAMES))
    if name == NAMES[-1]:
        return GroupNorm([[*range(k, min(k + GROUP, p))] for k in range(0, p, GROUP)])
    functions = {"L1": "count", "Linf": "one"}
    return CardinalityNorm(functions.get(name, name))


def gaussian_width(name: str, p: int) -> float:
    """Return the Gaussian width of |P|(F) in closed form."""
    return norm_named(name, p).width(p)


def width_quotient(name: str, p: int, draws: int = 4000) -> tuple[float, float]:
    """Return a Monte Carlo width over the closed form, and its standard error."""
    norm = norm_named(name, p)
    mean, error = norm.sampled_width(p, draws)
    return mean / norm.width(p), error / norm.width(p)


def width_error(study: Any) -> Estimate:
    """Return the largest relative error of a figure's Gaussian widths."""
    from scipy.special import ndtri

    drawn = study.curves
    found = [width_quotient(name, p) for name in drawn.norms for p in drawn.values]

    def make(share: float) -> list[Estimate]:
        wide = float(ndtri(0.5 + share / 2))
        return [length_within(abs(x - 1.0), wide * error) for x, error in found]

    return estimate_of_largest(make)


def width_slope(study: Any, norm: str, p: int) -> float:
    """Return the slope of a Gaussian width in the number of coordinates, from p on."""
    along = [one for one in study.curves.values if one >= p]
    return _slope_of_logs(along, np.array([gaussian_width(norm, one) for one in along]))


def two_records(n: int, ridge: float = 0.0) -> tuple[float, float]:
    """Return how far the optimum of neighbours is apart, and the paper's lambda.

    Logistic loss, norm1, p = 2, L = R_2 = 1: n - 1 records are (1, 1) / sqrt 2, the
    last one is (1, 0) or (0, 1), all labels are 1. By symmetry one optimum is the other
    with its coordinates exchanged.

    References
    ----------
    Kumar, Deisenroth, 2019, equation (7) and Theorem 1, for lambda = sqrt n / G.
    """
    # Not at the top: scipy.optimize takes long to import.
    from scipy.optimize import minimize
    from scipy.special import expit

    strength = math.sqrt(n) / CardinalityNorm().width(2)
    root = math.sqrt(0.5)

    def objective(w: Array) -> tuple[float, Array]:
        margin = root * (w[0] + w[1])
        value = (n - 1) * np.logaddexp(0.0, -margin) + np.logaddexp(0.0, -w[0])
        value += strength * (w[0] + w[1]) + 0.5 * n * ridge * (w @ w)
        common = strength - (n - 1) * root * expit(-margin)
        slope = np.array([common - expit(-w[0]), common]) + n * ridge * w
        return value / n, slope / n

    # Both coordinates are at least 0 at the optimum, where norm1 is linear.
    found = minimize(
        objective,
        np.array([1.0, 0.1]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * 2,
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 10_000},
    )
    return math.sqrt(2.0) * abs(float(found.x[0] - found.x[1])), strength


def printed_output_epsilon(_: Any, n: int, factor: float) -> float:
    """Return the true epsilon of printed output noise, times a factor, claimed 1."""
    moved, strength = two_records(n)
    sigma = factor * math.sqrt(math.log(1.0 / DELTA) + 1.0) / strength
    return gdp_epsilon(moved / sigma, DELTA)


def printed_output_growth(study: Any) -> float:
    """Return the least factor by which the true epsilon grows along n."""
    along = study.curves.values
    found = np.array([printed_output_epsilon(study, n, 1.0) for n in along])
    return float((found[1:] / found[:-1]).min())


def epsilon_of_ridge_output(n: int, ridge: float = RIDGE) -> float:
    """Return the true epsilon of our output noise with a ridge, at budget epsilon 1."""
    moved, _ = two_records(n, ridge)
    sigma = 2.0 / (n * ridge * mu_for(1.0, DELTA))
    return gdp_epsilon(moved / sigma, DELTA)


def ridge_output_epsilon(study: Any) -> float:
    """Return the largest true epsilon of our output noise on the same neighbours."""
    return max(map(epsilon_of_ridge_output, study.curves.values))


def output_bound(
    row: Mapping[str, Any],
    p: int,
    kappa: float,
    radius: float,
    epsilon: float,
    delta: float,
) -> float:
    """Return the bound on the mean excess of output perturbation at its best ridge.

    With L = R_2 = 1 and noise of deviation sigma = 2 / (n ridge mu) the excess without
    the ridge is at most sqrt(2 / pi) sigma + kappa sigma G + ridge B^2 / 2, B >= the
    norm of the minimiser: a / ridge + ridge B^2 / 2, least at ridge = sqrt(2 a) / B.

    Parameters
    ----------
    row : mapping
        Of a run: `line`, the name of the norm, whose Gaussian width is G, and `n`.
    p : int
    kappa, radius : float
        Strength of the norm; B.
    epsilon, delta : float
    """
    noise, width = 2.0 / (int(row["n"]) * mu_for(epsilon, delta)), gaussian_width
    a = noise * (math.sqrt(2.0 / math.pi) + kappa * width(str(row["line"]), p))
    return radius * math.sqrt(2.0 * a)


NOISES = PRINTED, CORRECTED = "printed", "corrected"


def noisy_choice_epsilon(_: Any, weight: float, noise: str) -> float:
    """Return the exact epsilon of one noisy choice among two vertices, claimed 1.

    p = 1, n = 100, kappa = 1/2, T = 1: losses c (theta - y)^2 / 2, all (c, y) = (1, 0)
    but one, which is (C, 1) or (C, -1). Scores are +-theta / 2, theta = +-C / (99 + C),
    and the noise of their difference is that of two Laplace draws. The printed scale
    has the Lipschitz constant 3/2 of the dual and 1 / n; the corrected one has how far
    theta moves, 2 L_l / (Delta n), L_l = 2 C and Delta = (99 + C) / 100.

    References
    ----------
    Kumar, Deisenroth, 2019, Algorithm 2.
    """
    check_choice("noise", noise, list(NOISES))
    moved = 4.0 * weight / (99.0 + weight)
    reach = {PRINTED: 1.5 / 100.0, CORRECTED: moved}[noise]
    scale = reach * math.sqrt(8.0 * math.log(1.0 / DELTA))
    gap = weight / (99.0 + weight) / scale
    wrong = math.exp(-gap) * (2.0 + gap) / 4.0
    return math.log((1.0 - wrong - DELTA) / wrong)


STEPS: dict[str, Callable[[int], float]] = {
    "2/(t+2)": lambda t: 2.0 / (t + 2),
    "1/(t+2)": lambda t: 1.0 / (t + 3),
}
"""Steps of Frank-Wolfe, from t = 0 on; the printed one counts from 1."""


def dual_gaps(name: str, rule: str, steps: int) -> Array:
    """Return the gaps kappa Omega(theta) - s.theta of Frank-Wolfe on a dual, (T,).

    Least squares of 60 records of 8 normal features, 3 of which tell of the label, with
    a ridge of 1/10; kappa = 1/5.

    References
    ----------
    Kumar, Deisenroth, 2019, Algorithm 1.
    """
    n, p, kappa = 60, 8, 0.2
    random = np.random.default_rng(0)
    X = random.standard_normal((n, p))
    y = X @ np.repeat([1.0, -0.5, 0.25, 0.0], [1, 1, 1, p - 3])
    y += 0.5 * random.standard_normal(n)
    norm, step = norm_named(name, p), STEPS[rule]
    system, right = X.T @ X / n + 0.1 * np.eye(p), X.T @ y / n
    s, gaps = np.zeros(p), np.empty(steps)
    for t in range(steps):
        theta = np.linalg.solve(system, right - s)
        gaps[t] = kappa * norm.value(theta) - s @ theta
        s = s + step(t) * (kappa * norm.maximiser(theta) - s)
    return gaps


def gap_slope(study: Any, norm: str) -> float:
    """Return the slope of Frank-Wolfe's gap with the step 2/(t+2)."""
    along = np.array(study.curves.values)
    gaps = dual_gaps(norm, "2/(t+2)", int(along.max()))
    return _slope_of_logs(along.tolist(), np.minimum.accumulate(gaps)[along - 1])


def gap_ratio(study: Any, norm: str) -> float:
    """Return how far the printed step is behind at the end of the figure."""
    usual, printed = (
        dual_gaps(norm, rule, max(study.curves.values)).min() for rule in STEPS
    )
    return float(printed / usual)


def shifted_dual(_: Any, shifted: str) -> float:
    """Return how far a reading of Proposition 2 is from the perturbed minimiser.

    That of norm2(theta - a)^2 / 2 + kappa Omega + b.theta / n, through the dual `set`
    that is shifted by b / n, or through the dual solution, a `point`, that is.

    References
    ----------
    Kumar, Deisenroth, 2019, Proposition 2.
    """
    check_choice("shifted", shifted, ["set", "point"])
    a, kappa, norm = np.array([1.0, -0.3, 0.2]), 0.4, CardinalityNorm("sqrt")
    b = np.array([0.35, -0.2, -0.5])
    at = a - b if shifted == "set" else a
    read = a - (norm.project(at, kappa) + b)
    return float(np.abs(read - norm.prox(a - b, kappa)).max())


@dataclass(frozen=True)
class Structured(PaperCurves):
    """What statements on structured norms come to along one number.

    Attributes
    ----------
    quantity : {'width', 'output', 'selection', 'gap'}
        Gaussian widths of |P|(F) over p; true epsilons at 1e-5 of output noise over n,
        and of one noisy choice over the weight C of a record, where 1 is claimed; gaps
        of Frank-Wolfe on a dual over its steps.
    values : tuple of int
        Of p, n, C or T, increasing.
    norms : tuple of str
        Of `NAMES`, for widths; the first one, for gaps.
    """

    LABELS = {
        "width": ("p", "Gaussian width"),
        "output": ("n", r"true $\varepsilon$ (claimed: 1)"),
        "selection": ("weight $C$", r"true $\varepsilon$ (claimed: 1)"),
        "gap": ("$T$", "dual gap"),
    }

    norms: tuple[str, ...] = NAMES

    def __post_init__(self) -> None:
        """Refuse quantities and norms that there are not."""
        super().__post_init__()
        for name in self.norms:
            check_choice("norms", name, list(NAMES))

    def numbers(self) -> Numbers:
        """Return the numbers by label."""
        printed = partial(printed_output_epsilon, None)
        if self.quantity == "output":
            return {
                "printed": partial(printed, factor=1.0),
                "four times the printed": partial(printed, factor=4.0),
                "ours, with a ridge": epsilon_of_ridge_output,
            }
        if self.quantity == "selection":
            return {k: partial(noisy_choice_epsilon, None, noise=k) for k in NOISES}
        if self.quantity == "width":
            return {name: partial(gaussian_width, name) for name in self.norms}
        most = max(self.values)
        gaps = {rule: dual_gaps(self.norms[0], rule, most) for rule in STEPS}
        return {f"step {k}": partial(_least_gap, one) for k, one in gaps.items()}


def _least_gap(gaps: Array, steps: int) -> float:
    """Return the least gap of so many steps, at least one of rounding."""
    return max(float(gaps[:steps].min()), 1e-16)


def violated(_: Any, kappa: float, rivals: int, n_iter: int, delta: float) -> float:
    """Return delta(1) / delta of the printed greedy noise on unequal coordinates."""
    return violation_factor(Instance(kappa, rivals, n_iter, delta))
