"""Rules for parameters that nobody gave: what `auto` stands for.

A rule makes numbers of what is public: n, p, the budget, the declared bounds, constants
of the loss and the strength of the penalty; it never sees a record. The numbers are
filled in before a trial has a key, so that they, and not the rule, are what it is: a
trial that was given them is the same one. Hence rules stand here and not in the classes
of the solvers, whose text enters keys. Whoever changes a number of a rule changes its
version.

Units are those of `rules.public`.

**What was fitted**, on the leaderboard's l2 problems: each rule's ``constants``, the 5
in ``PublicNumbers.margin`` and the eighth. A flow longer than ``flow`` gains little
where it is not free, a lower share than ``least`` is ruinous where classes are unequal.
The data bend the objective, too: of the modulus that noise asks for, ``bent`` is a
ridge of objective_perturbation.
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
"""Share of the bound of a gradient at w = 0 that is clipped to where the loss's slope
has no bound. The noise is that of the threshold, whatever the residuals are."""

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


def share_and_length(
    given: Given, free: float, most: float, largest: float, flow: float, least: float
) -> tuple[float, float]:
    """Return the share c of clipping and the length t of a flow.

    Its noise is that of c t. Where little is allowed, c gives way first, from a flow of
    length ``flow`` on, and t from c = ``least`` on; where much is, t grows at c = 1. A
    flow longer than beta / l2 has forgotten its start, and needs no more.

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
    flow, least : float
        Fitted.
    """
    if "clip" in given:
        c = 1.0 if given["clip"] is None else given["clip"] / largest
    else:
        c = min(1.0, max(least, free / min(flow, most)))
    return c, min(free / c, most) if math.isfinite(free) else math.inf


def clip_of(public: PublicNumbers, c: float, largest: float) -> float | None:
    """Return the threshold of a share, null for all of what is declared."""
    return three_digits(c * largest) if c < 1.0 and public.bounded else None


def free_of(public: PublicNumbers, records: float) -> float:
    """Return the c t at which noise on a margin is nu."""
    nu = public.margin(records)
    return nu * records * public.curvature / public.lipschitz


def descent(
    public: PublicNumbers, given: Given, flow: float, least: float
) -> tuple[float, float]:
    """Return c and t of steps along noisy gradients of all records."""
    free = free_of(public, public.records())
    most = safe_ratio(public.beta, public.strength)
    return share_and_length(given, free, most, public.largest, flow, least)


def steps_of(t: float, given: Given) -> int:
    """Return how many steps make a flow: the fewest that expand no distance."""
    step: float = given.get("step", STEP)
    return max(1, min(LONGEST, math.ceil(min(t / step, LONGEST))))


def step_of(t: float, count: float, most: float = STEP) -> float:
    """Return the size of so many steps, which fall short of t where they are few."""
    return three_digits(min(t / count, most) if count else most)


def gd(public: PublicNumbers, given: Given, *, flow: float, least: float) -> Numbers:
    """Return T, step and clip: the fewest steps of at most 1.9 / beta that make t.

    Noise does not depend on T, which is as small as no step expands distances.
    """
    c, t = descent(public, given, flow, least)
    T = given.get("n_iter", steps_of(t, given))
    return {
        "n_iter": T,
        "step": step_of(t, T),
        "clip": clip_of(public, c, public.largest),
    }


def sgd(public: PublicNumbers, given: Given, *, flow: float, least: float) -> Numbers:
    """Return those of gd over samples: T steps with a share q of the records each.

    At equal noise on the mean, a step over a sample has the multiplier q sqrt(T) / mu;
    q is so large that it is `MULTIPLIER`, below which sampling costs noise. What the
    sample adds, a record's gradient over sqrt(q n), is then at most 1 / (2 sqrt(p)) of
    the noise. A loss that has a kink has steps in units of 1 / clip.
    """
    c, t = descent(public, given, flow, least)
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
    public: PublicNumbers, given: Given, *, flow: float, least: float
) -> Numbers:
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
    c, t = share_and_length(given, free, most, public.largest, flow, least)
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


def random_cd(
    public: PublicNumbers, given: Given, *, flow: float, least: float
) -> Numbers:
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
    most = safe_ratio(M, public.strength)
    c, t = share_and_length(given, free, most, largest, flow / dense, least)
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
    constants : mapping of str to float
        Keyword arguments of ``numbers``: what was fitted.
    """

    version: str
    meanings: Mapping[str, str]
    numbers: Callable[..., Mapping[str, Any]] = field(repr=False)
    constants: Mapping[str, float] = field(default_factory=dict)

    def settings(
        self, public: PublicNumbers, given: Given, **guesses: float
    ) -> Mapping[str, Any]:
        """Return what ``numbers`` does, with other constants where some are guessed."""
        return self.numbers(public, given, **{**self.constants, **guesses})


SHARE = "a share of declared bounds, 1/4 to all, that falls with n epsilon / sqrt(p)"
LONG = "steps until noise moves a margin by what costs an eighth of F(0)"
SIZE = "what makes that of these steps, at most"
RIDGE = "so that noise moves a margin by what costs an eighth of F(0)"
BENDS = "a quarter of what alone would hold noise on a margin to an eighth of F(0)"

CLIPPED = {"flow": 400.0, "least": 0.25}

RULES: Mapping[str, Rule] = {
    "gd": Rule(
        "1", {"n_iter": LONG, "step": f"{SIZE} {STEP}", "clip": SHARE}, gd, CLIPPED
    ),
    "sgd": Rule(
        "1",
        {
            "passes": LONG,
            "batch_size": "the least at which sampling costs no noise",
            "step": f"{SIZE} {STEP}",
            "clip": SHARE,
        },
        sgd,
        CLIPPED,
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
        CLIPPED,
    ),
    "random_cd": Rule(
        "1", {"passes": LONG, "step": f"{SIZE} 1", "clip": SHARE}, random_cd, CLIPPED
    ),
    "output_perturbation": Rule("1", {"ridge": RIDGE}, output_perturbation),
    "objective_perturbation": Rule(
        "2", {"ridge": BENDS}, objective_perturbation, {"bent": 1 / 4}
    ),
}
"""The rules of the package's algorithms; others have ``defaults`` in their class."""


def rule_of(name: str, cls: Any) -> Rule | None:
    """Return the rule of an algorithm, None if it has none."""
    found = RULES.get(name, getattr(cls, "defaults", None))
    return found if isinstance(found, Rule) else None
