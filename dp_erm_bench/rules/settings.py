"""Rules for parameters that are set to `auto`.

A rule computes parameters from public numbers: n, p, the budget, the declared bounds,
constants of the loss and the strength of the penalty. It never sees a record. The
numbers are filled in before a trial gets its key, so the key depends on the numbers and
not on the rule. If a user sets the same numbers, the trial is the same. For this reason
rules are kept here and not in the classes of the solvers, whose source is part of keys.
If a rule computes other numbers, its version must change too.

Units are those of `rules.public`.

**Fitted numbers.** Three groups of numbers were fitted on the leaderboard's problems.
The first are the ``constants`` of each rule, by kind of problem. The second are numbers
in the rules of newton, feature_covariance and greedy_cd. The third are the 5 and the
eighth in ``PublicNumbers.margin``. The guesses tried for gd and frank_wolfe are
recorded (`python -m benchmarks.rules`, results/published/rules.csv). Guesses for other
rules were tried by hand. In mirror_descent and frank_wolfe, ``growth``, ``rise`` and
``flow`` are powers and lengths with a meaning that their rules define. All other rules
use them with z = N / sqrt(p), the number of records per direction.

share, growth, least, most
    A record's gradient is clipped to the share c = share (z / 30)^growth of its bound,
    but c is at least ``least`` and at most ``most``. A share below 1/4 is ruinous for
    gradient descent on the logistic loss if classes are unequal. Residuals of the
    squared loss are far below the bound on labels. The noise is proportional to the
    threshold, whatever the residuals are.
flow
    The longest flow that steps make. A longer flow gains little unless noise allows it
    for free.
noise, rise
    The noise allowed on a margin is nu times noise (z / 30)^rise.
bent
    The share of the modulus required by the noise that objective_perturbation adds as a
    ridge. A share suffices because the data add curvature, too.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.rules.public import LARGEST, PublicNumbers, safe_ratio
from dp_erm_bench.solvers.terms import ERM

Given = Mapping[str, Any]
Numbers = dict[str, Any]

STEP = 1.9
"""Largest step in units of 1 / beta; a step of 2 or more may expand distances."""

LONGEST, MOST_PASSES = 1_000, 300
"""Largest number of full-batch steps, and of passes of coordinate steps."""

MULTIPLIER = 2.0
"""Smallest noise multiplier z of a sampled step.

Sampling a share q of the records then needs 1.07 times the noise of steps on all
records. The factor is sqrt(z^2 (exp(1 / z^2) - 1)) (Dong, Roth, Su 2022).
"""

RESIDUAL = 1 / 16
"""Default clipping threshold of algorithms without a rule, for unbounded slopes.

The threshold is in units of the bound on a gradient at w = 0.
"""

EACH = 30.0
"""The value of z at which the fitted shares and noise hold without a power of z."""

OF_COORDINATES = ("greedy_cd", "random_cd")
"""Algorithms whose clipping threshold applies to coordinates, not to the norm."""


def default_clip(algorithm: str, problem: ERM) -> float | None:
    """Return the default clipping threshold for a loss whose slope has no bound.

    The threshold is a share of a bound on gradients at w = 0. At this point the slope
    of the squared loss is at most the bound Y on labels, so a record's gradient has
    norm at most Y R, or entries of at most Y R_j. The result is None if the slope has a
    bound, or if the label, the norm or the columns have no declared bound.
    """
    bounds = problem.dataset.bounds
    if bounds is None or math.isfinite(problem.lipschitz):
        return None
    label = 1.0 if problem.loss.classification else bounds.label
    norm = bounds.norm
    if algorithm in OF_COORDINATES:
        norm = float(norm2(bounds.columns))
    largest = (label or math.inf) * norm
    return three_digits(RESIDUAL * largest) if 0.0 < largest < math.inf else None


def three_digits(value: float) -> float:
    """Return a number rounded to three significant digits, equal on every machine."""
    return float(f"{min(max(value, 1.0 / LARGEST), LARGEST):.3g}")


def share_to_clip(
    public: PublicNumbers,
    given: Given,
    largest: float,
    *,
    share: float,
    growth: float,
    least: float,
    most: float,
) -> float:
    """Return the share c of a gradient's bound at which the gradient is clipped.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name; ``clip`` overrides the rule.
    largest : float
        The bound on a record's gradient.
    share, growth : float
        c is share (z / 30)^growth within its limits, with z = N / sqrt(p).
    least, most : float
        Smallest and largest c.
    """
    if "clip" in given:
        return 1.0 if given["clip"] is None else float(given["clip"]) / largest
    each = public.records() / math.sqrt(public.p)
    if not math.isfinite(each):
        return 1.0
    wanted: float = share * (each / EACH) ** growth
    return min(most, max(least, wanted))


def clip_of(public: PublicNumbers, c: float, largest: float) -> float | None:
    """Return the clipping threshold for a share c of a gradient's bound.

    The result is None (no clipping) if the share is 1 or no bound is declared.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    c : float
        The share of the bound.
    largest : float
        The bound on a record's gradient.
    """
    return three_digits(c * largest) if c < 1.0 and public.bounded else None


def free_of(
    public: PublicNumbers, records: float, noise: float = 1.0, rise: float = 0.0
) -> float:
    """Return the product c t at which the noise on a margin reaches a limit.

    c is the clipping threshold as a share of its bound, and t the length of the flow.
    The limit is a given multiple of nu.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    records : float
        N, the number of records in units of the noise; infinite without noise.
    noise, rise : float
        The multiple is noise (z / 30)^rise, with z = N / sqrt(p).
    """
    if not math.isfinite(records):
        return math.inf
    allowed = noise * (records / math.sqrt(public.p) / EACH) ** rise
    nu: float = allowed * public.margin(records)
    return nu * records * public.curvature / public.lipschitz


def length_of(free: float, c: float, flow: float, forgotten: float) -> float:
    """Return the length t of a flow: ``flow``, or less if noise or a ridge limits it.

    Without noise no flow is too long, and the length is infinite.

    Parameters
    ----------
    free : float
        The product c t that the noise allows; infinite without noise.
    c : float
        The clipping threshold as a share of a gradient's bound.
    flow : float
        Longest flow with noise.
    forgotten : float
        The curvature over l2. A longer flow no longer depends on its start.
    """
    return min(flow, free / c, forgotten) if math.isfinite(free) else math.inf


def descent(
    public: PublicNumbers,
    given: Given,
    *,
    flow: float,
    noise: float,
    rise: float,
    **clip: float,
) -> tuple[float, float]:
    """Return the clipping share c and the flow length t of noisy gradient descent.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    flow : float
        Longest flow t.
    noise, rise : float
        The noise allowed on a margin is nu times noise (z / 30)^rise.
    **clip : float
        Constants of ``share_to_clip``.
    """
    free = free_of(public, public.records(), noise, rise)
    c = share_to_clip(public, given, public.largest, **clip)
    forgotten = safe_ratio(public.beta, public.strength)
    return c, length_of(free, c, flow, forgotten)


def steps_of(t: float, given: Given) -> int:
    """Return the number of steps, of the given or the largest size, for a flow t."""
    step: float = given.get("step", STEP)
    return max(1, min(LONGEST, math.ceil(min(t / step, LONGEST))))


def step_of(t: float, count: float, most: float = STEP) -> float:
    """Return the size of steps that make a flow of length t, or the largest size.

    Parameters
    ----------
    t : float
        Length of the flow.
    count : float
        Number of steps. Too few steps, even of the largest size, fall short of t.
    most : float
        Largest step, in units of 1 over the curvature.
    """
    return three_digits(min(t / count, most) if count else most)


def gd(public: PublicNumbers, given: Given, **fitted: float) -> Numbers:
    """Return the number of steps T, the step size and the clipping threshold for gd.

    The noise of a flow of length t does not depend on T. So T is the smallest number of
    steps of size at most 1.9 / beta that make a flow of length t. Such steps are
    non-expansive.
    """
    c, t = descent(public, given, **fitted)
    T = given.get("n_iter", steps_of(t, given))
    return {
        "n_iter": T,
        "step": step_of(t, T),
        "clip": clip_of(public, c, public.largest),
    }


def sgd(public: PublicNumbers, given: Given, **fitted: float) -> Numbers:
    """Return the parameters of sgd: those of gd, with a share q of records per step.

    At equal noise on the mean, a step over a sample has the multiplier q sqrt(T) / mu.
    The share q is chosen so that this multiplier is `MULTIPLIER`. With a smaller
    multiplier, sampling would need more noise. The sampling error is a record's
    gradient divided by sqrt(q n). It is then at most 1 / (2 sqrt(p)) times the noise.
    If a loss has a kink, steps are in units of 1 / clip.
    """
    c, t = descent(public, given, **fitted)
    T = given.get("n_iter", steps_of(t, {} if not public.curved else given))
    size: Any = given.get("batch_size")
    if size is None:
        q = min(1.0, MULTIPLIER * public.mu / math.sqrt(max(T, 1)))
        size = max(1, min(public.n, math.ceil(q * public.n)))
        size = "full" if size == public.n else size
    q = 1.0 if size == "full" else size / public.n
    if "passes" in given and "n_iter" not in given:
        T = given["passes"] / q
    passes, step = three_digits(T * q), step_of(t, T)
    if not public.curved:
        step = three_digits(step * c * public.largest / public.beta)
    clip = clip_of(public, c, public.largest)
    found = {"batch_size": size, "step": step, "clip": clip}
    return found if "n_iter" in given else {**found, "passes": passes}


def permutation_sgd(
    public: PublicNumbers,
    given: Given,
    *,
    flow: float,
    noise: float,
    rise: float,
    **clip: float,
) -> Numbers:
    """Return passes, batch size, step size and clipping threshold of permutation_sgd.

    Noise is added at the end of the flow, and nothing contracts it. So the noise costs
    an excess of (t G / (H N))^2 H / 2 for c = 1. A solution with margins of nu, spread
    over p directions, has length nu sqrt(p) / R. The excess of a flow of length t is at
    most the square of this length times beta / (2 t). The sum of both excesses is
    smallest at t^3 = nu^2 p (H N / G)^2 / 2. By default there are ten passes of steps
    of about 1 / (2 beta).

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    flow : float
        Longest flow t.
    noise, rise : float
        The noise allowed on a margin is nu times noise (z / 30)^rise.
    **clip : float
        Constants of ``share_to_clip``.
    """
    records = public.records(given.get("noise", "gaussian"))
    free, nu = free_of(public, records, noise, rise), public.margin(records)
    bent = records * public.curvature / public.lipschitz
    if math.isfinite(free):
        free = min(free, math.cbrt(0.5 * public.p * nu * bent * nu * bent))
    c = share_to_clip(public, given, public.largest, **clip)
    t = length_of(free, c, flow, safe_ratio(public.beta, public.strength))
    threshold, n = clip_of(public, c, public.largest), public.n
    if not math.isfinite(free):
        usual = {"passes": LONGEST, "batch_size": "full", "step": STEP}
        return {**usual, "clip": threshold}
    wanted = given.get("step", 0.5)
    passes = given.get("passes", 10)
    size = given.get("batch_size", max(1, min(n, math.floor(passes * n * wanted / t))))
    per_pass = math.ceil(n / (n if size == "full" else size))
    if "passes" not in given:
        passes = max(10, min(LONGEST, math.ceil(min(t / wanted, 1e6) / per_pass)))
    step = step_of(t, passes * per_pass)
    return {"passes": passes, "batch_size": size, "step": step, "clip": threshold}


def random_cd(
    public: PublicNumbers,
    given: Given,
    *,
    flow: float,
    noise: float,
    rise: float,
    **clip: float,
) -> Numbers:
    """Return passes, step size and clipping threshold of random_cd, adapted from gd.

    A pass makes p releases of sensitivities c G R_j. So at equal t the noise on a
    margin is sqrt(p D) times that of gd, with D = p R^2 / sum_j R_j^2. The flow t is
    measured in units of 1 / M_j here, in which it is D times shorter. A step is at most
    1 / M_j, which finds the minimum along a coordinate if all records have that
    coordinate at its bound.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    flow : float
        Longest flow t.
    noise, rise : float
        The noise allowed on a margin is nu times noise (z / 30)^rise.
    **clip : float
        Constants of ``share_to_clip``.
    """
    records = public.records()
    dense = public.p * public.norm**2 / public.squares
    free = free_of(public, records, noise, rise) / math.sqrt(public.p * dense)
    M = public.curvature * public.squares / public.p
    largest = public.lipschitz * math.sqrt(public.squares)
    c = share_to_clip(public, given, largest, **clip)
    t = length_of(free, c, flow / dense, safe_ratio(M, public.strength))
    step = min(1.0, given.get("step", 1.0))
    passes = given.get("passes", max(1, math.ceil(min(t / step, MOST_PASSES))))
    count = given["n_iter"] / public.p if "n_iter" in given else passes
    found = {"step": step_of(t, count, 1.0), "clip": clip_of(public, c, largest)}
    return found if "n_iter" in given else {**found, "passes": float(passes)}


def output_perturbation(public: PublicNumbers, given: Given) -> Numbers:
    """Return the ridge of output_perturbation, from the larger of two moduli.

    The ridge limits the noise on a margin. For a modulus m the minimiser changes by a G
    R / (n m), so the noise on a margin is G R^2 / (m N). The first modulus makes this
    noise nu. For a solution of length nu sqrt(p) / R, a modulus costs m nu^2 p / (2
    R^2). The second modulus minimises the sum of this cost and H / 2 times the squared
    noise: m^3 = 2 H G^2 R^6 / (p nu^2 N^2).
    """
    records = public.records(given.get("noise", "gaussian"))
    if not math.isfinite(records):
        return {"ridge": 0.0}
    nu, curved = public.margin(records), public.largest * public.norm / records
    least = 2.0 * public.beta * curved * (curved / public.p) / nu / nu
    return {"ridge": ridge_of(public, max(curved / nu, math.cbrt(least)))}


def objective_perturbation(
    public: PublicNumbers, given: Given, *, bent: float
) -> Numbers:
    """Return the ridge of objective_perturbation, a share of what limits noise to nu.

    The noise b in the objective's sum has standard deviation a G R / mu in each
    coordinate. It moves a minimum of curvature m by b / (n m), and a margin by G
    R^2 / (m N). The ridge of the papers' bound, norm(b) / (n norm(w)) for w of length
    nu sqrt(p) / R, is the same. The data add a curvature h >= 0, about which nothing is
    public. No guess of h is subtracted. If h were smaller than the guess, as with rare
    positives, no ridge would be left while noise is still large. A larger budget would
    then give worse results. With a fixed share ``bent`` of m, the noise on a margin is
    G R^2 / (N h + N bent m), and N m is constant if nu is constant. So neither this
    noise nor the ridge grows with the budget, whatever h is. The part log(1 + beta / (n
    m)) of epsilon, which no noise reduces, is at most half of epsilon.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    bent : float
        The share of m that is added as a ridge.
    """
    records = public.records(given.get("noise", "gaussian"))
    if not math.isfinite(records):
        return {"ridge": 0.0}
    m = public.largest * public.norm / (public.margin(records) * records)
    least = public.beta / (public.n * math.expm1(min(public.epsilon / 2.0, 200.0)))
    return {"ridge": ridge_of(public, max(bent * m, least))}


def ridge_of(public: PublicNumbers, modulus: float) -> float:
    """Return the ridge that increases the modulus of the penalty to ``modulus``.

    The ridge is 0 if the penalty suffices or no bounds are declared.
    """
    needed = public.bounded and modulus > public.strength
    return three_digits(modulus - public.strength) if needed else 0.0


def feature_covariance(
    public: PublicNumbers,
    given: Given,
    *,
    n_iter: int,
    share_of_mu: float,
    **clip: float,
) -> Numbers:
    """Return fixed parameters for feature_covariance, and its clipping threshold.

    The threshold is for gradients before they are scaled by the covariance. X'X is
    published with a small share of the budget. The noise on X'X is a floor under its
    eigenvalues, whatever the threshold is.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    n_iter : int
        Number of steps with noise.
    share_of_mu : float
        The share of the budget for X'X.
    **clip : float
        Constants of ``share_to_clip``.
    """
    largest = public.largest
    c = share_to_clip(public, given, largest, **clip)
    few = {"n_iter": n_iter, "share": share_of_mu, "floor": 1.0}
    if not math.isfinite(public.records()):
        few["n_iter"] = LONGEST
    return {**few, "clip_in": "euclidean", "clip": clip_of(public, c, largest)}


def newton(
    public: PublicNumbers, given: Given, *, n_iter: int, **clip: float
) -> Numbers:
    """Return a fixed number of Newton steps, the floor and the clipping threshold.

    The floor is half the noise on the Hessian.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    n_iter : int
        Number of steps with noise.
    **clip : float
        Constants of ``share_to_clip``.
    """
    c = share_to_clip(public, given, public.largest, **clip)
    few = {"n_iter": n_iter, "share": 0.4, "floor": 0.5}
    if not math.isfinite(public.records()):
        few["n_iter"] = LONGEST
    return {**few, "clip": clip_of(public, c, public.largest)}


def ssp(public: PublicNumbers, given: Given, **fitted: float) -> Numbers:
    """Return the fitted constants for ssp, whose parameters are in units of noise."""
    return fitted


def greedy_cd(
    public: PublicNumbers, given: Given, *, steps: float, **clip: float
) -> Numbers:
    """Return a number of selections proportional to sqrt(N / ln 2p), and long steps.

    The noise of a selection falls with N and grows with the logarithm of p. With T
    selections the noise is sqrt(T) times as large.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    steps : float
        T at N = 30 ln 2p.
    **clip : float
        Constants of ``share_to_clip``.
    """
    c = share_to_clip(public, given, public.largest, **clip)
    each = public.records() / (EACH * math.log(2 * public.p))
    T = max(1, min(LONGEST, round(min(steps * math.sqrt(each), LONGEST))))
    return {"n_iter": T, "step": 2.0, "clip": clip_of(public, c, public.largest)}


def mirror_descent(
    public: PublicNumbers,
    given: Given,
    *,
    n_iter: int,
    flow: float,
    climb: float,
    **clip: float,
) -> Numbers:
    """Return the number and size of steps for mirror_descent, and a clipping threshold.

    The flow grows with the size of the ball and with N / ln 2p.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    n_iter : int
        Number of steps T, unless the user fixed it.
    flow : float
        Length of the flow at N = 30 ln 2p, for a ball of radius 1 / X.
    climb : float
        The length of the flow is proportional to (N / ln 2p)^climb.
    **clip : float
        Constants of ``share_to_clip``.
    """
    size = public.radius * public.column if math.isfinite(public.radius) else 1.0
    each = public.records() / (EACH * math.log(2 * public.p))
    c = share_to_clip(public, given, public.largest, **clip)
    if not math.isfinite(each):
        n_iter, each = LONGEST, 1.0
    T = given.get("n_iter", n_iter)
    step = three_digits(flow * size * each**climb / max(T, 1))
    return {"n_iter": T, "step": step, "clip": clip_of(public, c, public.largest)}


def frank_wolfe(
    public: PublicNumbers,
    given: Given,
    *,
    steps: float,
    growth: float,
    share: float,
    rise: float,
) -> Numbers:
    """Return the number of steps T and the clipping threshold for frank_wolfe.

    Both depend on q = N / (100 ln 2p), the number of records per selection. A step
    moves margins by at most rho X, the ball's radius times the largest entry of a
    record. A larger ball needs more steps.

    Parameters
    ----------
    public : PublicNumbers
        The public numbers of the problem.
    given : mapping
        Parameters that the user fixed, by name.
    steps, growth : float
        T is steps (q sqrt(rho X))^growth, at most 2000.
    share, rise : float
        The threshold is share q^rise of the bound on an entry, at least 1/64 of it.
    """
    q = public.records() / (100.0 * math.log(2 * public.p))
    largest = public.lipschitz * public.column
    if not math.isfinite(q):
        return {"n_iter": LONGEST, "clip": None}
    T = round(
        min(steps * (q * math.sqrt(public.radius * public.column)) ** growth, 2000)
    )
    c = min(1.0, max(1 / 64, share * q**rise))
    return {"n_iter": max(1, T), "clip": clip_of(public, c, largest)}


@dataclass(frozen=True)
class Rule:
    """The rule of an algorithm.

    Attributes
    ----------
    version : str
        Version of the rule, which changes whenever the rule computes other numbers. It
        is written to the column ``rule``.
    meanings : mapping of str to str
        The meaning of ``auto`` for each parameter that the rule sets.
    numbers : callable
        A function that returns the values of these parameters, given the public numbers
        and the other parameters. A parameter that is not returned has the default of
        its field.
    constants : mapping of str to mapping
        The fitted keyword arguments of ``numbers``, by kind of problem. If the mapping
        is not empty, the rule sets nothing for other kinds.
    """

    version: str
    meanings: Mapping[str, str]
    numbers: Callable[..., Mapping[str, Any]] = field(repr=False)
    constants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def gives(self, public: PublicNumbers) -> bool:
        """Return whether the rule covers the kind of problem."""
        return not self.constants or public.kind in self.constants

    def settings(
        self, public: PublicNumbers, given: Given, **guesses: float
    ) -> Mapping[str, Any]:
        """Return the parameters that the rule sets; ``guesses`` replace constants."""
        if not self.gives(public):
            return {}
        fitted = self.constants.get(public.kind, {})
        return self.numbers(public, given, **{**fitted, **guesses})


SHARE = "a share of the declared bound; the share grows with n epsilon / sqrt(p)"
LONG = "as many as the noise allows, computed from public numbers (n, p, budget, ...)"
SIZE = "the total length that the noise allows / the number of steps, at most"
EIGHTH = "about an eighth of its value at w = 0"
RIDGE = f"large enough that noise raises the objective by at most {EIGHTH}"
BENDS = f"half of the strength at which noise raises the objective by {EIGHTH}"
FITTED = "a constant that was fitted on the problems of the leaderboard"

CLIP = {"share": 0.25, "growth": 0.35, "least": 0.25, "most": 1.0}
DESCENT = {
    "ridge": {"flow": 1600.0, "noise": 2.0, "rise": 0.2, **CLIP},
    "ball": {
        **{"flow": 400.0, "noise": 1.0, "rise": 0.0},
        **{**CLIP, "growth": 0.2, "least": 1 / 16},
    },
    "numbers": {
        **{"flow": 1600.0, "noise": 1.0, "rise": 0.0},
        **{"share": 0.03, "growth": 0.35, "least": 1 / 32, "most": 1 / 4},
    },
}
STEPS = {"step": f"{SIZE} {STEP}", "clip": SHARE}

RULES: Mapping[str, Rule] = {
    "gd": Rule("3", {"n_iter": LONG, **STEPS}, gd, DESCENT),
    "sgd": Rule(
        "3",
        {
            "passes": LONG,
            "batch_size": "the smallest size at which sampling needs at most 1.07 "
            "times the noise of full batches",
            **STEPS,
        },
        sgd,
        DESCENT,
    ),
    "permutation_sgd": Rule(
        "3",
        {
            "passes": "10, or more if steps would otherwise be longer than 1/2",
            "batch_size": "chosen such that the step size is about 1/2",
            "step": "minimises the estimated error due to noise and early stopping",
            "clip": SHARE,
        },
        permutation_sgd,
        DESCENT,
    ),
    "random_cd": Rule(
        "3", {"passes": LONG, "step": f"{SIZE} 1", "clip": SHARE}, random_cd, DESCENT
    ),
    "output_perturbation": Rule("3", {"ridge": RIDGE}, output_perturbation),
    "objective_perturbation": Rule(
        "3",
        {"ridge": BENDS},
        objective_perturbation,
        {kind: {"bent": 0.5} for kind in DESCENT},
    ),
    "approximate_minima_perturbation": Rule(
        "3",
        {"ridge": BENDS},
        objective_perturbation,
        {kind: {"bent": 0.5} for kind in DESCENT},
    ),
    "feature_covariance": Rule(
        "3",
        {
            **dict.fromkeys(("n_iter", "share", "floor"), FITTED),
            "clip_in": "euclidean, because the rule for clip is for this norm",
            "clip": SHARE,
        },
        feature_covariance,
        {
            "ridge": {
                **{"n_iter": 16, "share_of_mu": 0.1, "share": 0.25, "growth": 0.2},
                **{"least": 1 / 64, "most": 1 / 2},
            },
            "numbers": {
                **{"n_iter": 64, "share_of_mu": 0.1, "share": 0.015, "growth": 0.2},
                **{"least": 1 / 32, "most": 1 / 4},
            },
        },
    ),
    "newton": Rule(
        "3",
        {**dict.fromkeys(("n_iter", "share", "floor"), FITTED), "clip": SHARE},
        newton,
        {
            "ridge": {
                **{"n_iter": 8, "share": 0.5, "growth": 0.35},
                **{"least": 1 / 64, "most": 1.0},
            }
        },
    ),
    "ssp": Rule(
        "3",
        dict.fromkeys(("share", "ridge", "parabola"), FITTED),
        ssp,
        {
            "ridge": {"share": 0.5, "ridge": 0.5, "parabola": 0.08},
            "numbers": {"share": 0.5, "ridge": 0.5},
        },
    ),
    "greedy_cd": Rule(
        "3",
        {
            "n_iter": "60 sqrt(N / (30 ln 2p)), where N = n mu / 2 (n mu for "
            "zero_out) for a mu-GDP budget",
            "step": FITTED,
            "clip": SHARE,
        },
        greedy_cd,
        {
            "ridge": {
                **{"steps": 60.0, "share": 0.25, "growth": 0.35},
                **{"least": 1 / 64, "most": 1.0},
            },
        },
    ),
    "mirror_descent": Rule(
        "3",
        {
            "n_iter": FITTED,
            "step": "larger for a larger constraint set and for less noise",
            "clip": SHARE,
        },
        mirror_descent,
        {
            "ball": {
                **{"n_iter": 128, "flow": 100.0, "climb": 0.35, "share": 0.25},
                **{"growth": 0.5, "least": 1 / 64, "most": 1 / 2},
            },
            "numbers": {
                **{"n_iter": 128, "flow": 10_000.0, "climb": 0.7, "share": 0.03},
                **{"growth": 0.05, "least": 1 / 128, "most": 1 / 4},
            },
        },
    ),
    "frank_wolfe": Rule(
        "3",
        {
            "n_iter": "as many as the noise of the selections allows, computed from "
            "public numbers (n, p, budget, ...)",
            "clip": "a share of the declared bound; the share grows with n epsilon / "
            "ln(2p)",
        },
        frank_wolfe,
        {"ball": {"steps": 16.0, "growth": 0.8, "share": 1 / 8, "rise": 0.35}},
    ),
}
"""Rules of the package's algorithms. Other algorithms have ``defaults`` in a class."""


def rule_of(name: str, cls: Any) -> Rule | None:
    """Return the rule of an algorithm; None if it has none."""
    found = RULES.get(name, getattr(cls, "defaults", None))
    return found if isinstance(found, Rule) else None
