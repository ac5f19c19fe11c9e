"""Numbers, curves and bounds by which claims of papers are judged without any run.

A claim's number is computed by a function. The first parameter of the function is a
look-up with the `curves` of the claim's figure, or is not used. The other parameters
are keys of the claim. Trials do not run this code.

**One pass that reads each record once.** Two noise scales are shown next to the
certified one. The first is the scale stated in the paper, wherever it is proved. The
second is the scale that shuffling would need. It rests on constants that we did not
derive ourselves, so it is shown but never certified.

**Structured norms.** These are checks of Kumar and Deisenroth (2019). One check
computes the true epsilons of our noise, and of the noise stated in the paper on
instances for which it is too small. Others concern the gap of Frank-Wolfe on the dual
with two step sizes, and their Proposition 2. docs/errata.md explains them.
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
"""Maps the label of a line to a function of the axis that returns a number or draws."""


@dataclass(frozen=True)
class PaperCurves:
    """Base class of curves along an axis that are computed without a run.

    Attributes
    ----------
    quantity : str
        A key of `LABELS`, which contains the labels of the axes.
    values : tuple of int
        Points of the axis, increasing.
    """

    LABELS: ClassVar[Mapping[str, tuple[str, str]]]

    quantity: str
    values: tuple[int, ...]

    def __post_init__(self) -> None:
        """Raise UsageError for a quantity that is not one of `LABELS`."""
        check_choice("quantity", self.quantity, list(self.LABELS))

    def numbers(self) -> Numbers:
        """Return, by the label of a line, the function that computes the line.

        The function maps a point of the axis to a number, or to draws of a number. This
        is not finite where the line is undefined.
        """
        raise NotImplementedError


def mean_of_draws(drawn: Array) -> Estimate:
    """Return the mean of positive random draws, with its interval."""
    return estimate_sum([(drawn[:, None], np.ones(1))]).map(np.exp)


def length_within(length: float, error: float) -> Estimate:
    """Return the estimate of a norm that is known up to a given error."""
    return Estimate(length, max(length - error, 0.0), length + error)


def _slope_of_logs(x: Sequence[int], y: Array) -> float:
    """Return the least-squares slope of positive numbers on log-log scales."""
    across = np.log(np.array(x, np.float64))
    across = across - across.mean()
    return float(across / (across @ across) @ np.log(y))


RECORDS, FEATURES, NONZEROS = 64, 20, 3


def stopping_times(n: int, epsilon: float, delta: float, seeds: int) -> Array:
    """Return the steps of bias-reduced SGD by the paper's rule, shape (seeds,).

    Parameters
    ----------
    n : int
        Number of records.
    epsilon, delta : float
        The privacy budget, for ``replace_one``.
    seeds : int
        Number of runs, seeded from 0 on.
    """
    problem: Any = SimpleNamespace(n=n)
    solver, steps = BiasReducedSGD(n_iter=n), []
    for seed in range(seeds):
        costs = solver.costs(problem, solver.plan(problem, [str(seed)]))
        asked = epsilon, delta, Adjacency.REPLACE_ONE
        steps.append(printed_prefix(solver.printed_constant, costs, *asked)[1])
    return np.array(steps, np.float64)


def private_means(seed: int, size: int, draws: int) -> tuple[Array, Array, Array]:
    """Return draws of g(B), g(O) and g(E) for a batch B and its halves O and E.

    There are 64 records, each with 3 of its 20 entries equal to 1 / sqrt(3). L = 1,
    z = 1, and g is the projection mechanism. Each result has the shape (draws, 20).

    Parameters
    ----------
    seed : int
        Seed of the batches and of the noise.
    size : int
        Number of records of each half; the batch has twice as many.
    draws : int
        Number of draws.
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
    """Return the norm of the bias of bias-reduced SGD's gradient, and a limit on it.

    The bias is E G - E g(all records), computed level by level with exact
    probabilities. The second number is an upper 95 % confidence limit. It adds 1.96
    times the root of the sum of the squared standard errors. This bounds the error's
    norm with probability at least 95 %.
    """
    p = probabilities(RECORDS)
    # Terms g(I) do not depend on the level, so one mean serves all levels.
    _, single, _ = private_means(seed, 1, draws)
    found, square = single.mean(axis=0), single.var(axis=0) / draws
    for level in range(p.size):
        both, one, other = private_means(seed + 1, 2**level, draws)
        gained = both - (one + other) / 2
        # The probability p_N of a level cancels, because its term is divided by p_N.
        found, square = found + gained.mean(axis=0), square + gained.var(axis=0) / draws
    whole, _, _ = private_means(seed + 2, RECORDS // 2, draws)
    square = square + whole.var(axis=0) / draws
    length = float(np.linalg.norm(found - whole.mean(axis=0)))
    return length, length + 1.96 * math.sqrt(float(square.sum()))


def batch_bias(size: int, seed: int = 0, draws: int = 40_000) -> float:
    """Return norm2(E g(B) - E g(all records)) for batches B of a given size.

    Parameters
    ----------
    size : int
        Number of records of a batch.
    seed : int
        Seed of the draws.
    draws : int
        Number of draws for each expectation.
    """
    whole, _, _ = private_means(seed, RECORDS // 2, draws)
    both, one, _ = private_means(seed + 1, max(size // 2, 1), draws)
    mean = (one if size == 1 else both).mean(axis=0)
    return float(np.linalg.norm(mean - whole.mean(axis=0)))


def share_of_bias(_: Any) -> Estimate:
    """Return the bias of bias-reduced SGD's estimator over that of a batch of two.

    The interval ignores the error of the bias of a batch, which is a mean of 40000
    draws.
    """
    (length, limit), whole = estimator_bias(), batch_bias(2)
    return length_within(length / whole, (limit - length) / whole)


def mean_steps(_: Any, n: int, delta: float, seeds: int) -> Estimate:
    """Return the mean steps of bias-reduced SGD by the paper's stopping rule.

    Parameters
    ----------
    _ : object
        Not used.
    n : int
        Number of records.
    delta : float
        Delta of the budget, with epsilon = 1.
    seeds : int
        Number of runs, seeded from 0 on.
    """
    return mean_of_draws(stopping_times(n, 1.0, delta, seeds))


@dataclass(frozen=True)
class BiasReduced(PaperCurves):
    """Curves of the estimator's bias against batch size, or of SGD's steps against n.

    Attributes
    ----------
    quantity : {'bias', 'steps'}
        With `bias`, the curves are norms of biases against the size of a batch. With
        `steps`, they are numbers of steps of `seeds` runs that stop by the paper's
        rule, at epsilon = 1.
    values : tuple of int
        Sizes of batches, or values of n, increasing.
    delta : float
        Delta of the budget; used for `steps` only.
    seeds : int
        Number of runs; used for `steps` only.
    least, most : tuple of float
        The paper's lower and upper bounds on the expected number of steps, for each of
        `values`.
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
        """Return the functions that compute the lines, by label."""
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
"""Shares of delta for the local randomisers; the best of them is used."""
PLENTY = 4.0
"""Largest value of (e^eps + 1)(1 + e^-eps0 / 2) for which a split of delta is valid."""


def pass_of(n: int) -> tuple[Law]:
    """Return the privacy law of a pass over half of n records, in a secret order."""
    return (SingleUseLaw(1, fresh=math.ceil(n / 2), records=n),)


def certified_scale(
    n: int,
    epsilon: float,
    delta: float,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    calibration: str = "certified",
) -> float:
    """Return the certified noise scale of one-pass SGD, in units of L.

    Parameters
    ----------
    n : int
        Number of records.
    epsilon, delta : float
        The privacy budget.
    adjacency : Adjacency
        The relation between neighbouring datasets.
    calibration : str
        With `paper`, the scale stated in the paper is returned, and Unsupported is
        raised outside of the range of this scale.
    """
    budget = Budget(epsilon, delta, adjacency)
    found = calibrate(pass_of(n), budget, calibration, "arora2020")
    return found.z * adjacency.of_sum(1.0)


def shuffled_epsilon(n: int, scale: float, delta: float) -> float:
    """Return the epsilon of a pass over n shuffled records at a noise scale.

    Each step is an (eps0, delta0) local randomiser of its record. Here eps0 is the
    epsilon at delta0 of a Gaussian mechanism with mu = 2 L / scale. With e = e^eps0,
    the shuffled run has

        eps = log(1 + (e - 1)/(e + 1) (8 sqrt(e log(4/d)) / sqrt(n) + 8 e / n))

    for eps0 <= log(n / (16 log(2/d))), at d + (e^eps + 1)(1 + 1/(2 e)) n delta0
    (Feldman, McMillan, Talwar, "Hiding among the clones: a simple and nearly optimal
    analysis of privacy amplification by shuffling", FOCS 2021, adaptive approximate
    randomisers, constants as printed). The result is the smallest epsilon over the
    splits of delta in `SPLITS`, infinite if none of them is valid. Records are
    exchanged, so ``zero_out`` does not need less noise.

    Parameters
    ----------
    n : int
        Number of records.
    scale : float
        Noise scale in units of L.
    delta : float
        Delta of the shuffled run.
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
    """Return the smallest noise scale whose `shuffled_epsilon` is within a budget.

    Parameters
    ----------
    n : int
        Number of records.
    epsilon, delta : float
        The privacy budget.
    """
    return smallest_true(lambda scale: shuffled_epsilon(n, scale, delta) <= epsilon)


def steps_over_n(n: int, seeds: int) -> Array:
    """Return tau / n of each pass, where tau counts steps until half the data are read.

    The result has the shape (seeds,).
    """
    m, taus = math.ceil(n / 2), []
    for seed in stream_seeds([str(k) for k in range(seeds)], "noise_only"):
        waits = np.empty(m, np.int64)
        failures(uniforms(seed, 0, m), n, waits)
        taus.append(m + int(waits.sum()))
    return np.array(taus) / n


def length_of_a_pass(_: Any, n: int, seeds: int) -> Estimate:
    """Return the mean number of steps of one-pass SGD divided by n.

    Parameters
    ----------
    _ : object
        Not used.
    n : int
        Number of records.
    seeds : int
        Number of passes.
    """
    return mean_of_draws(steps_over_n(n, seeds))


def long_passes(_: Any, n: int, seeds: int) -> Estimate:
    """Return the share of passes of one-pass SGD longer than the proved 2 n steps.

    Parameters
    ----------
    _ : object
        Not used.
    n : int
        Number of records.
    seeds : int
        Number of passes.
    """
    long, level = np.array([np.sum(steps_over_n(n, seeds) > 2.0)]), (1.0 - LIKELY) / 2
    low, high = (of(long, seeds, level) for of in (profile.at_least, profile.at_most))
    return Estimate(float(long[0]) / seeds, float(low[0]), float(high[0]))


def excess_bound(n: int, p: int, radius: float, scale: float) -> float:
    """Return the bound on the expected excess risk of one-pass SGD, for L = 1.

    A pass has tau steps, of which m = ceil(n / 2) read a fresh record. With the step
    size that minimises the bound, the bound is R sqrt(m + E[tau] p s^2) / m for
    norm2(u - w_1) <= R. This is the regret of online mirror descent at noise scale s,
    whose mean iterate is judged by fresh records.

    Parameters
    ----------
    n : int
        Number of records.
    p : int
        Number of features.
    radius : float
        The radius R.
    scale : float
        The noise scale s.
    """
    m = math.ceil(n / 2)
    steps = float((n / (n - np.arange(m))).sum())
    return radius * math.sqrt(m + steps * p * scale**2) / m


def one_pass_bound(row: Mapping[str, Any], p: int, radius: float) -> float:
    """Return the bound on the excess risk of one-pass SGD at the noise of a run.

    Parameters
    ----------
    row : mapping
        A row of the run: `n`, `epsilon`, `delta` and `calibration`.
    p : int
        Number of features.
    radius : float
        The radius R of `excess_bound`.
    """
    # The table appends in brackets what is not proved.
    how = str(row["calibration"]).partition(" (")[0]
    n, budget = int(row["n"]), (float(row["epsilon"]), float(row["delta"]))
    return excess_bound(n, p, radius, certified_scale(n, *budget, calibration=how))


THEOREM, PROVED = "printed theorem", ("single use", "shuffling (not certified)")
OUTSIDE = "printed constant outside its range (a study)"


@dataclass(frozen=True)
class OnePass(PaperCurves):
    """Curves of the noise or the steps of one pass against the number of records n.

    Attributes
    ----------
    quantity : {'noise', 'steps'}
        With `noise`, the curves are noise scales in units of L by three ways of
        accounting, under ``replace_one``. With `steps`, they are tau / n and log 2,
        where tau is the number of steps that read half of the records.
    values : tuple of int
        Values of n, increasing.
    epsilon : float
        Epsilon of the budget at every n; if `falling`, it is divided by sqrt(n).
    falling : bool
        Whether epsilon falls with n.
    delta : float
        Delta of the budget.
    seeds : int
        Number of passes whose steps are counted.
    """

    LABELS = {"noise": ("n", r"noise scale / $L$"), "steps": ("n", r"steps / $n$")}

    epsilon: float = 1.0
    falling: bool = False
    delta: float = 1e-8
    seeds: int = 100

    def numbers(self) -> Numbers:
        """Return functions of a point of the axis, by label."""
        if self.quantity == "steps":
            steps = partial(steps_over_n, seeds=self.seeds)
            return {"steps of a pass": steps, "log 2": lambda n: math.log(2.0)}
        scales, labels = map(self.scales, self.values), (THEOREM, OUTSIDE, *PROVED)
        at = dict(zip(self.values, scales, strict=True))
        return {k: partial(lambda k, n: at[n].get(k, math.nan), k) for k in labels}

    def scales(self, n: int) -> dict[str, float]:
        """Return the noise scales at n by label; infinite if no scale is valid."""
        epsilon = self.epsilon / math.sqrt(n) if self.falling else self.epsilon
        budget = epsilon, self.delta
        try:
            printed = {THEOREM: certified_scale(n, *budget, calibration="paper")}
        except Unsupported:
            printed = {OUTSIDE: arora2020_scale(n, *budget)}
        scales = certified_scale(n, *budget), shuffled_scale(n, *budget)
        return printed | dict(zip(PROVED, scales, strict=True))


def mean_bound(row: Mapping[str, Any], nonzeros: int) -> float:
    """Return the bound on the expected error of mean_projection for a row of a run.

    Here L = 1, and the adjacency is replace_one. The error is at most sqrt(2 sqrt(s)
    norm_inf(noise)), and at most norm2(noise). By Jensen's inequality both bounds hold
    for the expected error, with the expectations of norm_inf and of norm2 squared. The
    expected largest absolute value of p Gaussian entries is at most sigma sqrt(2 log(2
    p)). For p Laplace entries it is b (1 + 1/2 + ... + 1/p) <= b (1 + log p). The
    expected sums of squares are sigma^2 p and 2 b^2 p (Ghazi et al., NeurIPS 2024,
    lemma 3.1, with constants).
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
"""Number of coordinates in a group, ridge for our noise, delta for true epsilons."""

NAMES = ("L1", "Linf", "sqrt", "log1p", f"groups of {GROUP}")


def norm_named(name: str, p: int) -> SubmodularNorm:
    """Return the norm of a name in `NAMES` on p coordinates.

    If the norm has groups, the last group may be smaller.
    """
    check_choice("norm", name, list(NAMES))
    if name == NAMES[-1]:
        return GroupNorm([[*range(k, min(k + GROUP, p))] for k in range(0, p, GROUP)])
    functions = {"L1": "count", "Linf": "one"}
    return CardinalityNorm(functions.get(name, name))


def gaussian_width(name: str, p: int) -> float:
    """Return the Gaussian width of the polytope |P|(F) of a norm, in closed form."""
    return norm_named(name, p).width(p)


def width_quotient(name: str, p: int, draws: int = 4000) -> tuple[float, float]:
    """Return a Monte Carlo width divided by its closed form, and the standard error.

    Parameters
    ----------
    name : str
        The norm, one of `NAMES`.
    p : int
        Number of coordinates.
    draws : int
        Number of draws.
    """
    norm = norm_named(name, p)
    mean, error = norm.sampled_width(p, draws)
    return mean / norm.width(p), error / norm.width(p)


def width_error(study: Any) -> Estimate:
    """Return the largest relative error of the Monte Carlo widths in a figure."""
    from scipy.special import ndtri

    drawn = study.curves
    found = [width_quotient(name, p) for name in drawn.norms for p in drawn.values]

    def make(share: float) -> list[Estimate]:
        wide = float(ndtri(0.5 + share / 2))
        return [length_within(abs(x - 1.0), wide * error) for x, error in found]

    return estimate_of_largest(make)


def width_slope(study: Any, norm: str, p: int) -> float:
    """Return the log-log slope of a Gaussian width against the number of coordinates.

    Parameters
    ----------
    study : Lookup
        The look-up of the claim, for the curves of its figure.
    norm : str
        The norm, one of `NAMES`.
    p : int
        Smallest number of coordinates to include.
    """
    along = [one for one in study.curves.values if one >= p]
    return _slope_of_logs(along, np.array([gaussian_width(norm, one) for one in along]))


def two_records(n: int, ridge: float = 0.0) -> tuple[float, float]:
    """Return the distance between the optima of neighbours, and the paper's lambda.

    The problem has the logistic loss, norm1, p = 2 and L = R_2 = 1. The features of
    n - 1 records are (1, 1) / sqrt 2; the last record is (1, 0), or (0, 1) in the
    neighbouring dataset. All labels are 1. By symmetry, one optimum is the other with
    exchanged coordinates.

    References
    ----------
    Kumar, Deisenroth, 2019, equation (7) and Theorem 1, for lambda = sqrt n / G.
    """
    # Imported here, because importing scipy.optimize takes long.
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
    """Return the true epsilon of a multiple of the paper's output noise.

    The paper claims epsilon = 1 for its noise.

    Parameters
    ----------
    _ : object
        Not used.
    n : int
        Number of records.
    factor : float
        Factor by which the noise stated in the paper is multiplied.
    """
    moved, strength = two_records(n)
    sigma = factor * math.sqrt(math.log(1.0 / DELTA) + 1.0) / strength
    return gdp_epsilon(moved / sigma, DELTA)


def printed_output_growth(study: Any) -> float:
    """Return the smallest ratio of true epsilons between successive values of n."""
    along = study.curves.values
    found = np.array([printed_output_epsilon(study, n, 1.0) for n in along])
    return float((found[1:] / found[:-1]).min())


def epsilon_of_ridge_output(n: int, ridge: float = RIDGE) -> float:
    """Return the true epsilon of our output noise with a ridge, for a budget of 1."""
    moved, _ = two_records(n, ridge)
    sigma = 2.0 / (n * ridge * mu_for(1.0, DELTA))
    return gdp_epsilon(moved / sigma, DELTA)


def ridge_output_epsilon(study: Any) -> float:
    """Return the largest true epsilon of our output noise over the n of a figure."""
    return max(map(epsilon_of_ridge_output, study.curves.values))


def output_bound(
    row: Mapping[str, Any],
    p: int,
    kappa: float,
    radius: float,
    epsilon: float,
    delta: float,
) -> float:
    """Return the bound on output perturbation's mean excess risk at the best ridge.

    Let L = R_2 = 1, and let the noise have standard deviation sigma = 2 / (n ridge mu).
    The excess of the objective without the ridge is then at most sqrt(2 / pi) sigma +
    kappa sigma G + ridge B^2 / 2, where B is at least the norm of the minimiser. With a
    constant a, the bound is a / ridge + ridge B^2 / 2. It is smallest at ridge = sqrt(2
    a) / B.

    Parameters
    ----------
    row : mapping
        A row of a run, with `n` and `line`, the name of the norm with Gaussian width G.
    p : int
        Number of features.
    kappa, radius : float
        Strength kappa of the norm, and the bound B on the norm of the minimiser.
    epsilon, delta : float
        The privacy budget.
    """
    noise, width = 2.0 / (int(row["n"]) * mu_for(epsilon, delta)), gaussian_width
    a = noise * (math.sqrt(2.0 / math.pi) + kappa * width(str(row["line"]), p))
    return radius * math.sqrt(2.0 * a)


NOISES = PRINTED, CORRECTED = "printed", "corrected"


def noisy_choice_epsilon(_: Any, weight: float, noise: str) -> float:
    """Return the exact epsilon of one noisy choice between two vertices.

    The paper claims epsilon = 1. Here p = 1, n = 100, kappa = 1/2 and T = 1. Losses are
    c (theta - y)^2 / 2. All records (c, y) are (1, 0) except one, which is (C, 1) or
    (C, -1). Scores are +-theta / 2 with theta = +-C / (99 + C), and the noise of their
    difference is the difference of two Laplace draws. The scale stated in the paper
    uses the Lipschitz constant 3/2 of the dual and 1 / n. The corrected scale uses the
    distance that theta moves, 2 L_l / (Delta n), with L_l = 2 C and Delta = (99 + C) /
    100.

    Parameters
    ----------
    _ : object
        Not used.
    weight : float
        The weight C of the record that differs.
    noise : str
        One of `NOISES`.

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
"""Step sizes of Frank-Wolfe for t = 0, 1, ...; the paper's rule starts at t = 1."""


def dual_gaps(name: str, rule: str, steps: int) -> Array:
    """Return the gaps of Frank-Wolfe on a dual problem, shape (steps,).

    A gap is kappa Omega(theta) - s.theta.

    The problem is least squares with a ridge of 1/10 and kappa = 1/5. It has 60 records
    of 8 normal features, of which 3 affect the label.

    Parameters
    ----------
    name : str
        The norm Omega, one of `NAMES`.
    rule : str
        The step size, one of `STEPS`.
    steps : int
        Number of steps T.

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
    """Return the log-log slope of Frank-Wolfe's smallest gap for the step 2/(t+2)."""
    along = np.array(study.curves.values)
    gaps = dual_gaps(norm, "2/(t+2)", int(along.max()))
    return _slope_of_logs(along.tolist(), np.minimum.accumulate(gaps)[along - 1])


def gap_ratio(study: Any, norm: str) -> float:
    """Return the smallest gap for the paper's step size over that for the usual one."""
    usual, printed = (
        dual_gaps(norm, rule, max(study.curves.values)).min() for rule in STEPS
    )
    return float(printed / usual)


def shifted_dual(_: Any, shifted: str) -> float:
    """Return the distance between one reading of Proposition 2 and the true minimiser.

    The true minimiser is that of the perturbed objective norm2(theta - a)^2 / 2 + kappa
    Omega + b.theta / n. Proposition 2 of the paper can be read in two ways: either the
    dual set or the dual solution is shifted by b / n.

    Parameters
    ----------
    _ : object
        Not used.
    shifted : {'set', 'point'}
        The reading: the dual set or the dual solution is shifted.

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
    """Curves for the claims on structured norms, against p, n, C or T.

    Attributes
    ----------
    quantity : {'width', 'output', 'selection', 'gap'}
        With `width`, the curves are Gaussian widths of the polytope |P|(F) against the
        number of coordinates p. With `output`, they are true epsilons of output noise
        against the number of records n. With `selection`, they are true epsilons of one
        noisy choice against the weight C of a record. The paper claims epsilon = 1, and
        true epsilons are those at delta = 1e-5. With `gap`, they are gaps of
        Frank-Wolfe on a dual problem against the number of steps T.
    values : tuple of int
        Values of p, n, C or T, increasing.
    norms : tuple of str
        Names of norms, out of `NAMES`. `width` has a curve for each norm; `gap` uses
        the first norm only.
    """

    LABELS = {
        "width": ("p", "Gaussian width"),
        "output": ("n", r"true $\varepsilon$ (claimed: 1)"),
        "selection": ("weight $C$", r"true $\varepsilon$ (claimed: 1)"),
        "gap": ("$T$", "dual gap"),
    }

    norms: tuple[str, ...] = NAMES

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown quantity or norm."""
        super().__post_init__()
        for name in self.norms:
            check_choice("norms", name, list(NAMES))

    def numbers(self) -> Numbers:
        """Return the functions that compute the lines, by label."""
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
    """Return the smallest gap within a number of first steps, but at least 1e-16."""
    return max(float(gaps[:steps].min()), 1e-16)


def violated(_: Any, kappa: float, rivals: int, n_iter: int, delta: float) -> float:
    """Return the true delta of the paper's greedy selection over the claimed delta.

    The claimed epsilon is 1. Coordinates have unequal constants L (see
    `papers.instances`).

    Parameters
    ----------
    _ : object
        Not used.
    kappa : float
        The constant L of a loud coordinate divided by that of the quiet coordinate.
    rivals : int
        Number of loud coordinates.
    n_iter : int
        Number of iterations, 1 or 2.
    delta : float
        The claimed delta.
    """
    return violation_factor(Instance(kappa, rivals, n_iter, delta))
