"""What statements of papers are worth: noise, lengths, instances, without any run.

**Greedy coordinate descent.** Mangold et al. (AISTATS 2023, poster) add Laplace noise
of scale lambda_j = 8 L_j sqrt(T log(1/delta)) / (n eps) to each entry of the gradient
before the selection. Where L_j / sqrt(M_j) differ by a factor kappa, a quiet coordinate
sees the others move by kappa times the scale of its own noise. The instance that shows
it: a separable Huber loss with m coordinates of L = M = 1 and one of L = 1 / kappa, M =
1, all in the linear region and far from zero, so that steps leave the gradient as it is
and |.| is linear. One record is replaced: the loud entries fall by their sensitivity,
the quiet one rises by its own. In units of 2 / n the noise has scale z on the loud
entries and z / kappa on the quiet one.

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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from dp_erm_bench.accounting.bounds import gdp_epsilon, mu_for, smallest_true
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.accounting.calibration import calibrate
from dp_erm_bench.constraints.sets import L1Ball
from dp_erm_bench.datasets.base import Array
from dp_erm_bench.kernels.coins import failures
from dp_erm_bench.kernels.philox import uniforms
from dp_erm_bench.norms.base import SubmodularNorm
from dp_erm_bench.norms.cardinality import CardinalityNorm
from dp_erm_bench.norms.groups import GroupNorm
from dp_erm_bench.registry import check_choice
from dp_erm_bench.releases.adjacency import Adjacency
from dp_erm_bench.releases.laplace import LaplaceLaw
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.printed import printed_multiplier, printed_prefix
from dp_erm_bench.releases.single_use_gaussian import SingleUseLaw
from dp_erm_bench.releases.streams import stream_seeds
from dp_erm_bench.solvers.bias_reduced_sgd import BiasReducedSGD, probabilities
from dp_erm_bench.trust.twins.laplace_noisy_max import laplace_below

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


PANELS, NODES, CELLS = 1500, 6, 60
ZERO = np.zeros(1)


@dataclass(frozen=True)
class Instance:
    """One coordinate of L = 1 / kappa among m of L = 1, over T iterations.

    Attributes
    ----------
    kappa : float
    rivals : int
        m.
    n_iter : int
        T, 1 or 2.
    delta : float
    epsilon : float
    adjacency : str
    """

    kappa: float
    rivals: int
    n_iter: int
    delta: float
    epsilon: float = 1.0
    adjacency: str = "replace_one"

    @property
    def z(self) -> float:
        """Return the printed noise scale / sensitivity."""
        laws, relation = (LaplaceLaw(self.n_iter),), Adjacency(self.adjacency)
        rule = "mangold2023"
        return printed_multiplier(rule, laws, self.epsilon, self.delta, relation)


INSTANCES = (
    Instance(30.0, 20, 1, 1e-8),
    Instance(30.0, 16, 1, 1e-6),
    Instance(100.0, 30, 2, 1e-10),
)
KAPPAS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 16.0, 20.0, 25.0, 30.0, 50.0, 70.0, 100.0)


def quiet_wins(instance: Instance, lead: float) -> float:
    """Return the probability that the quiet coordinate is selected.

    Parameters
    ----------
    instance : Instance
    lead : float
        Its gradient less that of the others, before noise, in units of 2 / n.
    """
    z, m = instance.z, instance.rivals
    scale = z / instance.kappa
    # Where the others are below for sure, the quiet noise's own tail is all.
    top = 60 * scale + z * (math.log(m) + 3) + max(0.0, -lead)
    breaks = np.unique([*np.linspace(-60 * scale, top, PANELS), 0.0, -lead])
    half = np.diff(breaks) / 2
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    x = (breaks[:-1] + half)[:, None] + half[:, None] * nodes
    density = np.exp(-np.abs(x) / scale) / (2 * scale)
    values = density * laplace_below((lead + x) / z, ZERO) ** m
    return float((values * half[:, None] * weights).sum())


def cell_probabilities(z: float, cells: int = CELLS) -> tuple[Array, Array]:
    """Return an entry with noise, moved by its sensitivity, sorted into cells."""
    ends = np.concatenate([[-np.inf], np.linspace(0.0, 1.0, cells + 1), [np.inf]])
    moved = np.diff(laplace_below((ends - 1.0) / z, ZERO))
    return moved, np.diff(laplace_below(ends / z, ZERO))


def one_iteration(instance: Instance, lead: float) -> tuple[Array, Array]:
    """Return the law of a selection with its measurement on both neighbours.

    Whether the quiet coordinate won, and in which cell the entry fell: a function of
    what is released, so that nothing is overstated.
    """
    p = quiet_wins(instance, lead)
    q = quiet_wins(instance, lead - 1.0 - 1.0 / instance.kappa)
    moved, still = cell_probabilities(instance.z)
    first = np.concatenate([p * moved, (1 - p) * still])
    return first, np.concatenate([q * still, (1 - q) * moved])


def profile_from_below(instance: Instance, lead: float) -> float:
    """Return the profile of all iterations at the claimed epsilon, from below."""
    one, other = one_iteration(instance, lead)
    first, second = one, other
    for _ in range(instance.n_iter - 1):
        first, second = np.outer(first, one).ravel(), np.outer(second, other).ravel()
    excess = first - math.exp(instance.epsilon) * second
    return float(np.maximum(excess, 0.0).sum())


def violation_factor(instance: Instance) -> float:
    """Return delta(epsilon) / delta on the worst lead; above 1 it is violated."""
    low, high = -2 * instance.z, 2 * instance.z
    best = 0.0
    for _ in range(3):
        leads = np.linspace(low, high, 17)
        deltas = [profile_from_below(instance, float(lead)) for lead in leads]
        place, best = int(np.argmax(deltas)), max(deltas)
        spacing = leads[1] - leads[0]
        low, high = leads[place] - spacing, leads[place] + spacing
    return best / instance.delta


def violation_table(
    instances: Sequence[Instance] = INSTANCES, kappas: Sequence[float] = KAPPAS
) -> list[dict[str, object]]:
    """Return the violation of each instance over kappa, one row each."""
    rows = [asdict(one) | {"kappa": kappa} for one in instances for kappa in kappas]
    about = {"study": "violation", "algorithm": "greedy_cd"}
    return [
        {**about, **row, "factor": violation_factor(Instance(**row))} for row in rows
    ]


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


GROUP = 5
"""Coordinates of a group."""

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


def epsilon_of_printed_output(
    n: int, factor: float = 1.0, delta: float = 1e-5
) -> float:
    """Return the true epsilon of printed output noise, times a factor, claimed 1."""
    moved, strength = two_records(n)
    sigma = factor * math.sqrt(math.log(1.0 / delta) + 1.0) / strength
    return gdp_epsilon(moved / sigma, delta)


def epsilon_of_ridge_output(n: int, ridge: float, delta: float = 1e-5) -> float:
    """Return the true epsilon of our output noise with a ridge, at budget epsilon 1."""
    moved, _ = two_records(n, ridge)
    sigma = 2.0 / (n * ridge * mu_for(1.0, delta))
    return gdp_epsilon(moved / sigma, delta)


def output_bound(
    name: str, n: int, p: int, kappa: float, radius: float, budget: tuple[float, float]
) -> float:
    """Return the bound on the mean excess of output perturbation at its best ridge.

    With L = R_2 = 1 and noise of deviation sigma = 2 / (n ridge mu) the excess without
    the ridge is at most sqrt(2 / pi) sigma + kappa sigma G + ridge B^2 / 2, B >= the
    norm of the minimiser: a / ridge + ridge B^2 / 2, least at ridge = sqrt(2 a) / B.

    Parameters
    ----------
    name : str
        Of the norm; G is its Gaussian width.
    n, p : int
    kappa, radius : float
        Strength of the norm; B.
    budget : (float, float)
        epsilon, delta.
    """
    noise = 2.0 / (n * mu_for(*budget))
    a = noise * (math.sqrt(2.0 / math.pi) + kappa * gaussian_width(name, p))
    return radius * math.sqrt(2.0 * a)


NOISES = PRINTED, CORRECTED = "printed", "corrected"


def epsilon_of_selection(weight: float, noise: str, delta: float = 1e-5) -> float:
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
    scale = reach * math.sqrt(8.0 * math.log(1.0 / delta))
    gap = weight / (99.0 + weight) / scale
    wrong = math.exp(-gap) * (2.0 + gap) / 4.0
    return math.log((1.0 - wrong - delta) / wrong)


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


def readings_of_shifted_dual() -> tuple[float, float]:
    """Return how far two readings of Proposition 2 are from the perturbed minimiser.

    That of norm2(theta - a)^2 / 2 + kappa Omega + b.theta / n, through the dual set
    that is shifted by b / n, and through the dual solution that is shifted by it.

    References
    ----------
    Kumar, Deisenroth, 2019, Proposition 2.
    """
    a, kappa, norm = np.array([1.0, -0.3, 0.2]), 0.4, CardinalityNorm("sqrt")
    b = np.array([0.35, -0.2, -0.5])
    direct = norm.prox(a - b, kappa)
    set_shifted = a - (b + norm.project(a - b, kappa))
    point_shifted = a - (norm.project(a, kappa) + b)
    first, second = (np.abs(w - direct).max() for w in (set_shifted, point_shifted))
    return float(first), float(second)
