"""Rules for parameters that nobody gave: what `auto` stands for.

A rule makes numbers of what is public: n, p, the budget, the declared bounds, constants
of the loss and the strength of the penalty; it never sees a record. The numbers are
filled in before a trial has a key, so that they, and not the rule, are what it is: a
trial that was given them is the same one. Hence rules stand here and not in the classes
of the solvers, whose text enters keys. Whoever changes a number of a rule changes its
version.

Units are those of `rules.public`.

**What was fitted**, on the leaderboard's problems: each rule's ``constants``, by kind
of problem, numbers in the rules of newton, feature_covariance and greedy_cd, and the 5
and the eighth in ``PublicNumbers.margin``. Guesses on record are those of gd and
frank_wolfe (`python -m benchmarks.rules`, results/published/rules.csv); others were
tried by hand. ``growth``, ``rise`` and ``flow`` are powers and lengths of their own in
mirror_descent and frank_wolfe. Elsewhere they use z = N / sqrt(p), the records that a
direction has.

share, growth, least, most
    A record's gradient is clipped to share (z / 30)^growth of its bound, at least
    ``least`` and at most ``most`` of it. A lower share than 1/4 is ruinous for gradient
    descent on the logistic loss where classes are unequal. The squared loss has
    residuals far below the label's bound, and noise is that of the threshold, whatever
    they are.
flow
    Steps do not make a longer one: that gains little where it is not free.
noise, rise
    Noise on a margin may be noise (z / 30)^rise times nu.
bent
    Of the modulus that noise asks for, this share is a ridge of objective_perturbation;
    the data bend the objective, too.
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
"""Largest step, times 1 / beta: from 2 on a step may expand distances."""

LONGEST, MOST_PASSES = 1_000, 300
"""Most steps on all records, most passes of coordinate steps."""

MULTIPLIER = 2.0
"""Least noise multiplier of a sampled step: sampling 1 / q of the records then costs
1.07 times the noise of all, sqrt(z^2 (exp(1 / z^2) - 1)) (Dong, Roth, Su 2022)."""

RESIDUAL = 1 / 16
"""Share of the bound of a gradient at w = 0 that algorithms without a rule clip to
where the loss's slope has no bound."""

EACH = 30.0
"""The z at which shares and noise are as their constants say."""

OF_COORDINATES = ("greedy_cd", "random_cd")
"""Algorithms with a threshold for the coordinates together, not for the norm."""


def default_clip(algorithm: str, problem: ERM) -> float | None:
    """Return the threshold of a loss whose slope has no bound, from declared bounds.

    At w = 0 the squared loss has a slope of at most the label's bound Y, so a record's
    gradient a norm of at most Y R, or entries of at most Y R_j. None where the slope
    has a bound, or the label, the norm or the columns have none.
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
    """Return a number to three digits: the same on every machine, and to be read."""
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
    """Return the share c of ``largest``, a gradient's bound, that is clipped to."""
    if "clip" in given:
        return 1.0 if given["clip"] is None else float(given["clip"]) / largest
    each = public.records() / math.sqrt(public.p)
    if not math.isfinite(each):
        return 1.0
    wanted: float = share * (each / EACH) ** growth
    return min(most, max(least, wanted))


def clip_of(public: PublicNumbers, c: float, largest: float) -> float | None:
    """Return the threshold of a share, null for all of what is declared."""
    return three_digits(c * largest) if c < 1.0 and public.bounded else None


def free_of(
    public: PublicNumbers, records: float, noise: float = 1.0, rise: float = 0.0
) -> float:
    """Return the c t at which noise on a margin is the multiple of nu."""
    if not math.isfinite(records):
        return math.inf
    allowed = noise * (records / math.sqrt(public.p) / EACH) ** rise
    nu: float = allowed * public.margin(records)
    return nu * records * public.curvature / public.lipschitz


def length_of(free: float, c: float, flow: float, forgotten: float) -> float:
    """Return the length t of a flow: ``flow``, less where noise or a ridge end it.

    A flow longer than ``forgotten``, the curvature over l2, has forgotten its start.
    Without noise none is too long.
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
    """Return c and t of steps along noisy gradients of all records."""
    free = free_of(public, public.records(), noise, rise)
    c = share_to_clip(public, given, public.largest, **clip)
    forgotten = safe_ratio(public.beta, public.strength)
    return c, length_of(free, c, flow, forgotten)


def steps_of(t: float, given: Given) -> int:
    """Return how many steps make a flow: the fewest that expand no distance."""
    step: float = given.get("step", STEP)
    return max(1, min(LONGEST, math.ceil(min(t / step, LONGEST))))


def step_of(t: float, count: float, most: float = STEP) -> float:
    """Return the size of so many steps, which fall short of t where they are few."""
    return three_digits(min(t / count, most) if count else most)


def gd(public: PublicNumbers, given: Given, **fitted: float) -> Numbers:
    """Return T, step and clip: the fewest steps of at most 1.9 / beta that make t.

    Noise does not depend on T, which is as small as no step expands distances.
    """
    c, t = descent(public, given, **fitted)
    T = given.get("n_iter", steps_of(t, given))
    return {
        "n_iter": T,
        "step": step_of(t, T),
        "clip": clip_of(public, c, public.largest),
    }


def sgd(public: PublicNumbers, given: Given, **fitted: float) -> Numbers:
    """Return those of gd over samples: T steps with a share q of the records each.

    At equal noise on the mean, a step over a sample has the multiplier q sqrt(T) / mu;
    q is so large that it is `MULTIPLIER`, below which sampling costs noise. What the
    sample adds, a record's gradient over sqrt(q n), is then at most 1 / (2 sqrt(p)) of
    the noise. A loss that has a kink has steps in units of 1 / clip.
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
    """Return passes, batch, step and clip of a flow with noise at its end.

    Nothing contracts that noise, (t G / (H N))^2 H / 2 of excess for c = 1. A solution
    with margins of nu, spread over p directions, is as long as nu sqrt(p) / R, and a
    flow of length t is at most its square times beta / (2 t) from it. Both together are
    least at t^3 = nu^2 p (H N / G)^2 / 2. Ten passes of steps of about 1 / (2 beta).
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
    """Return passes, step and clip: those of gd, in coordinates.

    A pass is p releases, of sensitivities c G R_j, so that the noise on a margin is
    sqrt(p D) times that of gd at equal t, D = p R^2 / sum_j R_j^2; and t, now in units
    of 1 / M_j, is D times shorter. A step is at most 1 / M_j, which finds the minimum
    along a coordinate that all records have at its bound.
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
    """Return the ridge: of noise nu on a margin, or of the least bound.

    The minimiser moves by a G R / (n m) for a modulus m, so that a margin has noise
    G R^2 / (m N). A solution of length nu sqrt(p) / R pays m nu^2 p / (2 R^2) for m;
    with H / 2 times the squared noise it is least at m^3 = 2 H G^2 R^6 / (p nu^2 N^2).
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
    """Return the ridge: a share of what alone holds the noise on a margin to nu.

    The noise b of the objective's sum has a G R / mu in each coordinate and moves a
    minimum of curvature m by b / (n m), a margin by G R^2 / (m N). The ridge of the
    papers' bound, norm(b) / (n norm(w)) for w of length nu sqrt(p) / R, is the same.
    The data have a curvature h >= 0 of their own, of which nothing is public. It is not
    subtracted, as version 1 did with a guess: where h is less, as with rare positives,
    no ridge was left before noise was small, and more budget did worse. With a fixed
    share ``bent`` of m the noise on a margin is G R^2 / (N h + N bent m), and N m is
    constant where nu is: neither it nor the ridge grows with the budget, whatever h is.
    The part log(1 + beta / (n m)) of epsilon that no noise pays is at most a half.
    """
    records = public.records(given.get("noise", "gaussian"))
    if not math.isfinite(records):
        return {"ridge": 0.0}
    m = public.largest * public.norm / (public.margin(records) * records)
    least = public.beta / (public.n * math.expm1(min(public.epsilon / 2.0, 200.0)))
    return {"ridge": ridge_of(public, max(bent * m, least))}


def ridge_of(public: PublicNumbers, modulus: float) -> float:
    """Return what a modulus needs beside the penalty's; 0 where nothing is declared."""
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
    """Return so many full steps, and the threshold of a gradient before the scaling.

    X'X is published with a small share of the budget: its noise is a floor under its
    eigenvalues, whatever the threshold is.
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
    """Return so many steps, with a floor that is half the noise of the Hessian."""
    c = share_to_clip(public, given, public.largest, **clip)
    few = {"n_iter": n_iter, "share": 0.4, "floor": 0.5}
    if not math.isfinite(public.records()):
        few["n_iter"] = LONGEST
    return {**few, "clip": clip_of(public, c, public.largest)}


def ssp(public: PublicNumbers, given: Given, **fitted: float) -> Numbers:
    """Return what was fitted: all that is released has its noise's units."""
    return fitted


def greedy_cd(
    public: PublicNumbers, given: Given, *, steps: float, **clip: float
) -> Numbers:
    """Return T in proportion to the root of N / ln 2p, and long steps.

    A selection's noise falls with N and grows with the logarithm of p; T of them have
    sqrt(T) times as much.
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
    """Return T steps of a flow that grows with the ball and with N / ln 2p."""
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
    """Return T and the bound of entries, by the records that a selection has.

    q = N / (100 ln 2p). A step moves margins by at most rho X, the ball's radius times
    the largest entry; a larger ball needs more of them.
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
        Another one whenever the rule gives other numbers; column ``rule``.
    meanings : mapping of str to str
        What ``auto`` means, of each parameter that the rule gives.
    numbers : callable
        Returns values of these parameters for what is declared and the parameters that
        are given. One that it leaves out has the default of its field.
    constants : mapping of str to mapping
        By kind of problem, keyword arguments of ``numbers``: what was fitted. Where
        there are some, the rule gives nothing for other kinds.
    """

    version: str
    meanings: Mapping[str, str]
    numbers: Callable[..., Mapping[str, Any]] = field(repr=False)
    constants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def gives(self, public: PublicNumbers) -> bool:
        """Return whether the rule is one for such a problem."""
        return not self.constants or public.kind in self.constants

    def settings(
        self, public: PublicNumbers, given: Given, **guesses: float
    ) -> Mapping[str, Any]:
        """Return what ``numbers`` does, with other constants where some are guessed."""
        if not self.gives(public):
            return {}
        fitted = self.constants.get(public.kind, {})
        return self.numbers(public, given, **{**fitted, **guesses})


SHARE = "a share of declared bounds, larger with n epsilon / sqrt(p)"
LONG = "steps until noise moves a margin by a multiple of what costs an eighth of F(0)"
SIZE = "what makes that of these steps, at most"
RIDGE = "so that noise moves a margin by what costs an eighth of F(0)"
BENDS = "half of what alone would hold noise on a margin to an eighth of F(0)"
FITTED = "one number for all problems, the best of those tried"

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
            "batch_size": "the least at which sampling costs no noise",
            **STEPS,
        },
        sgd,
        DESCENT,
    ),
    "permutation_sgd": Rule(
        "3",
        {
            "passes": "10, more where steps would be longer than 1/2",
            "batch_size": "so that steps are about 1/2",
            "step": "what makes the flow whose noise and bias are least",
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
            "clip_in": "euclidean, as the threshold is",
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
            "n_iter": "60 (N / (30 ln 2p))^1/2 selections",
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
        {"n_iter": FITTED, "step": "in proportion to the ball", "clip": SHARE},
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
        {"n_iter": "steps that a selection's noise allows", "clip": SHARE},
        frank_wolfe,
        {"ball": {"steps": 16.0, "growth": 0.8, "share": 1 / 8, "rise": 0.35}},
    ),
}
"""The rules of the package's algorithms; others have ``defaults`` in their class."""


def rule_of(name: str, cls: Any) -> Rule | None:
    """Return the rule of an algorithm, None if it has none."""
    found = RULES.get(name, getattr(cls, "defaults", None))
    return found if isinstance(found, Rule) else None
