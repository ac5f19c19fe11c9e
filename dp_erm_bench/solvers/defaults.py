"""Rules for parameters that nobody gave: what `auto` stands for.

A rule makes numbers of what is public: n, p, the budget, the declared bounds, constants
of the loss and the strength of the penalty; it never sees a record. The numbers are
filled in before a trial has a key, so that they, and not the rule, are what it is: a
trial that was given them is the same one. Hence rules stand here and not in the classes
of the solvers, whose text enters keys. Whoever changes a number of a rule changes its
version.

**Units.** A margin is x.w, the loss a function of it with slope at most G, curvature at
most H and F(0) its value at 0. Records have norm2 at most R, beta = H R^2. Steps of
sizes eta_t make a flow of length t = beta sum_t eta_t. A record's gradient is clipped
to a share c of its bound G R. One record moves a sum of gradients by a c G R, a being
2 (replace_one) or 1 (zero_out), and N = n mu / a, where releases that are mu-GDP
together spend the budget. So n, epsilon and delta enter by N alone.

**One law for the noise.** T noisy gradients with steps eta move w by noise of standard
deviation sqrt(T) eta c G R sqrt(T) / N in each coordinate, if nothing contracts it: by
t c G / (H R N), whatever T is. A margin moves by R times that,

    noise on a margin = c t G / (H N).

Noise of standard deviation s in each coordinate raises F by at most
(beta + p l2) s^2 / 2 on average, as the trace of the Hessian of the losses is at most
beta. All rules let it reach ``PublicNumbers.margin``, nu: an eighth of F(0) of excess,

    nu^2 = F(0) / (4 H (1 + p l2 / beta)),

less where less can be won: a ridge holds F(0) - F* to norm2(gradient)^2 / (2 l2), about
(G R / 2)^2 / (2 p l2) for gradients of half their bound in p directions, and where N is
small against sqrt(p) noise has the length of the signal. In the settings that searches
of the leaderboard chose for gd, random_cd and output_perturbation at epsilon .1 to 10,
nu is between .16 and 2.2 on five data sets, and as much smaller on madelon, where l2
is 1 and p = 501.

**What was fitted**, on the leaderboard's l2 problems: `FLOW`, `LEAST`, `BENT`, the 5
in ``PublicNumbers.margin`` and the eighth. A flow longer than `FLOW` gains little there
where it is not free, a lower share than `LEAST` is ruinous where classes are unequal.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dp_erm_bench.accounting.bounds import mu_for
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.solvers.terms import ERM

Given = Mapping[str, Any]
Numbers = dict[str, Any]

FLOW = 400.0
"""Length of a flow, below which clipping gives way and not the flow."""

LEAST = 0.25
"""Least share of a gradient's bound that is clipped to."""

STEP = 1.9
"""Largest step, times 1 / beta: from 2 on a step may expand distances."""

LONGEST, MOST_PASSES = 1_000, 300
"""Most steps on all records, most passes of coordinate steps."""

MULTIPLIER = 2.0
"""Least noise multiplier of a sampled step: sampling 1 / q of the records then costs
1.07 times the noise of all, sqrt(z^2 (exp(1 / z^2) - 1)) (Dong, Roth, Su 2022)."""

BENT = 1 / 4
"""Share of the modulus that noise asks for which is a ridge of objective_perturbation:
the data bend the objective, too."""

RESIDUAL = 1 / 16
"""Share of the bound of a gradient at w = 0 that is clipped to where the loss's slope
has no bound. The noise is that of the threshold, whatever the residuals are."""

OF_COORDINATES = ("greedy_cd", "random_cd")
"""Algorithms with a threshold for the coordinates together, not for the norm."""

LARGEST = 1e100
PURE = ("gamma", "l1_laplace")
"""Noise without delta."""


@dataclass(frozen=True)
class PublicNumbers:
    """What is public of a problem and a budget.

    Attributes
    ----------
    n, p : int
        Records and features.
    epsilon : float
    mu : float
        The mu of the Gaussian mechanism that spends the budget; infinite without noise.
    change : float
        a, by how many bounds of a record a sum may change: 2 or 1.
    strength : float
        l2, the modulus of strong convexity of the penalty.
    lipschitz, curvature : float
        G, and H; where the loss has no curvature it is G, a kink counting as a bend
        over a margin of 1.
    at_zero : float
        The loss at margin 0, of a label at its bound, or 1.
    norm : float
        R, the declared bound on the norm of a record.
    squares : float
        Sum of the squared bounds of its columns.
    curved : bool
        Whether the loss is smooth and not linear.
    bounded : bool
        Whether G R is declared: without that no rule gives a threshold.
    """

    n: int
    p: int
    epsilon: float
    mu: float
    change: float
    strength: float
    lipschitz: float
    curvature: float
    at_zero: float
    norm: float
    squares: float
    curved: bool
    bounded: bool

    @property
    def beta(self) -> float:
        """Return H R^2."""
        return self.curvature * self.norm * self.norm

    @property
    def largest(self) -> float:
        """Return G R, the bound on a record's gradient."""
        return self.lipschitz * self.norm

    def records(self, noise: str = "gaussian") -> float:
        """Return N; noise of density exp(-norm2) has norm p / epsilon, not sqrt(p)."""
        pure = noise in PURE or self.mu == 0.0
        mu = self.epsilon / math.sqrt(self.p) if pure else self.mu
        return self.n * mu / self.change

    def margin(self, records: float) -> float:
        """Return nu, the noise that a margin may have."""
        small = min(1.0, math.sqrt(records / (5.0 * math.sqrt(self.p))))
        bent = self.p * self.strength / self.beta
        half = 0.5 * self.largest
        most = safe_ratio(half * half, 2.0 * self.p * self.strength * self.at_zero)
        won = min(1.0, most)
        largest = self.at_zero / self.curvature / (1.0 + bent)
        return max(0.5 * math.sqrt(largest) * won * small, 1.0 / LARGEST)


def public_numbers(
    problem: ERM, budget: Budget, clip: float | None
) -> PublicNumbers | None:
    """Return what is public of a problem, None where nothing tells a scale.

    Without declared bounds G R is the clipping threshold; without that a fit is
    refused, or has no noise: then R is 1. A loss without a bound G has that of a label.
    """
    budget, bounds = budget.resolve_delta(problem.n), problem.dataset.bounds
    loss, G, H = problem.loss, problem.lipschitz, problem.loss.smoothness
    label = 1.0
    if bounds is not None and bounds.label and not loss.classification:
        label = bounds.label
    if not math.isfinite(G):
        G = label
    norm = (clip or G) / G if bounds is None else float(bounds.norm)
    squares = norm * norm
    if bounds is not None:
        with np.errstate(over="ignore"):
            squares = float(np.square(bounds.columns).sum())
    try:
        at_zero = float(loss.value(np.array([label]), np.zeros(1))[0])
    except Exception:
        return None  # that a loss of one's own has no value is told by its trials
    epsilon, mu = budget.epsilon, math.inf
    if math.isfinite(epsilon):
        # Beyond, mu grows like a root; noise is next to nothing.
        mu = mu_for(min(epsilon, 1e3), budget.number)
    public = PublicNumbers(
        n=problem.n,
        p=problem.p,
        epsilon=epsilon,
        mu=mu,
        change=budget.adjacency.of_sum(1.0),
        strength=problem.penalty.strong_convexity,
        lipschitz=G,
        curvature=H if 0.0 < H < math.inf else G,
        at_zero=at_zero,
        norm=norm,
        squares=squares,
        curved=0.0 < H < math.inf,
        bounded=bounds is not None and math.isfinite(problem.lipschitz),
    )
    scales = G, public.curvature, public.at_zero, norm, squares, public.beta
    return public if all(0.0 < one < math.inf for one in scales) else None


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


def share_and_length(
    given: Given, free: float, most: float, largest: float, unit: float = 1.0
) -> tuple[float, float]:
    """Return the share c of clipping and the length t of a flow.

    Its noise is that of c t. Where little is allowed, c gives way first, from a flow of
    length `FLOW` on, and t from c = `LEAST` on; where much is, t grows at c = 1. A flow
    longer than beta / l2 has forgotten its start, and needs no more.

    Parameters
    ----------
    given : mapping
        ``clip``, where it is given.
    free : float
        The c t at which noise on a margin is nu.
    most : float
        The curvature that the flow is measured in, over l2; infinite without.
    largest : float
        The bound of which c is a share.
    unit : float
        What `FLOW` is divided by.
    """
    if "clip" in given:
        c = 1.0 if given["clip"] is None else given["clip"] / largest
    else:
        c = min(1.0, max(LEAST, free / min(FLOW / unit, most)))
    return c, min(free / c, most) if math.isfinite(free) else math.inf


def safe_ratio(value: float, over: float) -> float:
    """Return a quotient, infinite over zero."""
    return value / over if over > 0.0 else math.inf


def clip_of(public: PublicNumbers, c: float, largest: float) -> float | None:
    """Return the threshold of a share, null for all of what is declared."""
    return three_digits(c * largest) if c < 1.0 and public.bounded else None


def free_of(public: PublicNumbers, records: float) -> float:
    """Return the c t at which noise on a margin is nu."""
    nu = public.margin(records)
    return nu * records * public.curvature / public.lipschitz


def descent(public: PublicNumbers, given: Given) -> tuple[float, float]:
    """Return c and t of steps along noisy gradients of all records."""
    free = free_of(public, public.records())
    most = safe_ratio(public.beta, public.strength)
    return share_and_length(given, free, most, public.largest)


def steps_of(t: float, given: Given) -> int:
    """Return how many steps make a flow: the fewest that expand no distance."""
    step: float = given.get("step", STEP)
    return max(1, min(LONGEST, math.ceil(min(t / step, LONGEST))))


def step_of(t: float, count: float, most: float = STEP) -> float:
    """Return the size of so many steps, which fall short of t where they are few."""
    return three_digits(min(t / count, most) if count else most)


def gd(public: PublicNumbers, given: Given) -> Numbers:
    """Return T, step and clip: the fewest steps of at most 1.9 / beta that make t.

    Noise does not depend on T, which is as small as no step expands distances.
    """
    c, t = descent(public, given)
    T = given.get("n_iter", steps_of(t, given))
    return {
        "n_iter": T,
        "step": step_of(t, T),
        "clip": clip_of(public, c, public.largest),
    }


def sgd(public: PublicNumbers, given: Given) -> Numbers:
    """Return those of gd over samples: T steps with a share q of the records each.

    At equal noise on the mean, a step over a sample has the multiplier q sqrt(T) / mu;
    q is so large that it is `MULTIPLIER`, below which sampling costs noise. What the
    sample adds, a record's gradient over sqrt(q n), is then at most 1 / (2 sqrt(p)) of
    the noise. A loss that has a kink has steps in units of 1 / clip.
    """
    c, t = descent(public, given)
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


def permutation_sgd(public: PublicNumbers, given: Given) -> Numbers:
    """Return passes, batch, step and clip of a flow with noise at its end.

    Nothing contracts that noise, (t G / (H N))^2 H / 2 of excess for c = 1. A solution
    with margins of nu, spread over p directions, is as long as nu sqrt(p) / R, and a
    flow of length t is at most its square times beta / (2 t) from it. Both together are
    least at t^3 = nu^2 p (H N / G)^2 / 2. Ten passes of steps of about 1 / (2 beta).
    """
    records = public.records(given.get("noise", "gaussian"))
    free, nu = free_of(public, records), public.margin(records)
    bent = records * public.curvature / public.lipschitz
    if math.isfinite(free):
        free = min(free, math.cbrt(0.5 * public.p * nu * bent * nu * bent))
    most = safe_ratio(public.beta, public.strength)
    c, t = share_and_length(given, free, most, public.largest)
    clip, n = clip_of(public, c, public.largest), public.n
    if not math.isfinite(free):
        usual = {"passes": LONGEST, "batch_size": "full", "step": STEP}
        return {**usual, "clip": clip}
    wanted = given.get("step", 0.5)
    passes = given.get("passes", 10)
    size = given.get("batch_size", max(1, min(n, math.floor(passes * n * wanted / t))))
    per_pass = math.ceil(n / (n if size == "full" else size))
    if "passes" not in given:
        passes = max(10, min(LONGEST, math.ceil(min(t / wanted, 1e6) / per_pass)))
    step = step_of(t, passes * per_pass)
    return {"passes": passes, "batch_size": size, "step": step, "clip": clip}


def random_cd(public: PublicNumbers, given: Given) -> Numbers:
    """Return passes, step and clip: those of gd, in coordinates.

    A pass is p releases, of sensitivities c G R_j, so that the noise on a margin is
    sqrt(p D) times that of gd at equal t, D = p R^2 / sum_j R_j^2; and t, now in units
    of 1 / M_j, is D times shorter. A step is at most 1 / M_j, which finds the minimum
    along a coordinate that all records have at its bound.
    """
    records = public.records()
    dense = public.p * public.norm**2 / public.squares
    free = free_of(public, records) / math.sqrt(public.p * dense)
    M = public.curvature * public.squares / public.p
    largest = public.lipschitz * math.sqrt(public.squares)
    c, t = share_and_length(given, free, safe_ratio(M, public.strength), largest, dense)
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


def objective_perturbation(public: PublicNumbers, given: Given) -> Numbers:
    """Return the ridge: a share of what alone holds the noise on a margin to nu.

    The noise b of the objective's sum has a G R / mu in each coordinate and moves a
    minimum of curvature m by b / (n m), a margin by G R^2 / (m N). The ridge of the
    papers' bound, norm(b) / (n norm(w)) for w of length nu sqrt(p) / R, is the same.
    The data have a curvature h >= 0 of their own, of which nothing is public. It is not
    subtracted, as version 1 did with a guess: where h is less, as with rare positives,
    no ridge was left before noise was small, and more budget did worse. With a fixed
    share `BENT` of m the noise on a margin is G R^2 / (N h + N `BENT` m), and N m is
    constant where nu is: neither it nor the ridge grows with the budget, whatever h is.
    The part log(1 + beta / (n m)) of epsilon that no noise pays is at most a half.
    """
    records = public.records(given.get("noise", "gaussian"))
    if not math.isfinite(records):
        return {"ridge": 0.0}
    m = public.largest * public.norm / (public.margin(records) * records)
    least = public.beta / (public.n * math.expm1(min(public.epsilon / 2.0, 200.0)))
    return {"ridge": ridge_of(public, max(BENT * m, least))}


def ridge_of(public: PublicNumbers, modulus: float) -> float:
    """Return what a modulus needs beside the penalty's; 0 where nothing is declared."""
    needed = public.bounded and modulus > public.strength
    return three_digits(modulus - public.strength) if needed else 0.0


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
    """

    version: str
    meanings: Mapping[str, str]
    numbers: Callable[[PublicNumbers, Given], Mapping[str, Any]] = field(repr=False)


SHARE = "a share of declared bounds, 1/4 to all, that falls with n epsilon / sqrt(p)"
LONG = "steps until noise moves a margin by what costs an eighth of F(0)"
SIZE = "what makes that of these steps, at most"
RIDGE = "so that noise moves a margin by what costs an eighth of F(0)"
BENDS = "a quarter of what alone would hold noise on a margin to an eighth of F(0)"

RULES: Mapping[str, Rule] = {
    "gd": Rule("1", {"n_iter": LONG, "step": f"{SIZE} {STEP}", "clip": SHARE}, gd),
    "sgd": Rule(
        "1",
        {
            "passes": LONG,
            "batch_size": "the least at which sampling costs no noise",
            "step": f"{SIZE} {STEP}",
            "clip": SHARE,
        },
        sgd,
    ),
    "permutation_sgd": Rule(
        "1",
        {
            "passes": "10, more where steps would be longer than 1/2",
            "batch_size": "so that steps are about 1/2",
            "step": "what makes the flow whose noise and bias are least",
            "clip": SHARE,
        },
        permutation_sgd,
    ),
    "random_cd": Rule(
        "1", {"passes": LONG, "step": f"{SIZE} 1", "clip": SHARE}, random_cd
    ),
    "output_perturbation": Rule("1", {"ridge": RIDGE}, output_perturbation),
    "objective_perturbation": Rule("2", {"ridge": BENDS}, objective_perturbation),
}
"""The rules of the package's algorithms; others have ``defaults`` in their class."""


def rule_of(name: str, cls: Any) -> Rule | None:
    """Return the rule of an algorithm, None if it has none."""
    found = RULES.get(name, getattr(cls, "defaults", None))
    return found if isinstance(found, Rule) else None
