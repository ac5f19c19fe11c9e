"""The public numbers of a problem and a budget, which are all that a rule may use.

**Units.** A margin is x.w. The loss is a function of the margin with slope at most G,
curvature at most H, and value F(0) at 0. Records have norm2 at most R, and
beta = H R^2. Steps of sizes eta_k make a flow of length t = beta sum_k eta_k. A
record's gradient is clipped to a share c of its bound G R. One record changes a sum of
gradients by at most a c G R, where a is 2 (replace_one) or 1 (zero_out). The number of
records in units of the noise is N = n mu / a, if the budget pays for releases that
together are mu-GDP. So n, epsilon and delta enter only through N.

**One law for the noise.** T steps of size eta along noisy gradients add noise to w. If
nothing contracts this noise, its standard deviation in each coordinate is
sqrt(T) eta c G R sqrt(T) / N = t c G / (H R N), whatever T is. The noise on a margin is
R times as large:

    noise on a margin = c t G / (H N).

Noise of standard deviation s in each coordinate raises F by at most
(beta + p l2) s^2 / 2 on average, because the trace of the Hessian of the losses is at
most beta. ``PublicNumbers.margin`` is nu, the noise on a margin at which this increase
is an eighth of F(0):

    nu^2 = F(0) / (4 H (1 + p l2 / beta)).

Rules of methods that follow noisy gradients, or add a ridge, allow noise up to a
multiple of nu. nu is smaller if less can be gained, because a ridge limits F(0) - F* to
norm2(gradient)^2 / (2 l2). This limit is about (G R / 2)^2 / (2 p l2) for gradients of
half their bound in p directions. nu is also smaller if N is small compared with
sqrt(p), because the noise is then as long as the signal. In the settings that searches
of the leaderboard chose for gd, random_cd and output_perturbation at epsilon .1 to 10,
nu is between .16 and 2.2 on five data sets. On madelon, where l2 is 1 and p = 501, nu
is correspondingly smaller.
"""

import math
from dataclasses import dataclass

import numpy as np

from dp_erm_bench.accounting.bounds import mu_for
from dp_erm_bench.accounting.budget import Budget
from dp_erm_bench.solvers.terms import ERM

LARGEST = 1e100
PURE = ("gamma", "l1_laplace")
"""Names of the noise distributions that need no delta."""


@dataclass(frozen=True)
class PublicNumbers:
    """The public numbers of a problem and a budget.

    Attributes
    ----------
    n, p : int
        Number of records, and number of features.
    epsilon : float
        Epsilon of the budget.
    mu : float
        The mu of the Gaussian mechanism that spends the budget; infinite without noise.
    change : float
        The sensitivity a of a sum, in units of the bound on a record's term: 2 or 1.
    strength : float
        The modulus l2 of strong convexity of the penalty.
    lipschitz, curvature : float
        The constants G and H of the loss. For a loss without curvature, H is set to G,
        as if its kink were spread over a margin of 1.
    at_zero : float
        F(0), the loss at margin 0 for a label at its bound, or for the label 1.
    norm : float
        The declared bound R on the norm of a record.
    column, squares : float
        X, the largest declared bound on a column, and the sum of all squared bounds.
    radius : float
        Radius of the constraint set of w; infinite without a constraint.
    curved : bool
        Whether the loss is smooth and not linear.
    bounded : bool
        Whether declared bounds determine G R. If not, no rule sets a clipping
        threshold.
    kind : str
        Kind of problem: ``ball`` if w is in a bounded set; ``numbers`` if the slope of
        the loss has no bound, in which case G is the bound on a label; else ``ridge``.
    signs : bool
        Whether labels are -1 and +1.
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
    column: float
    squares: float
    radius: float
    curved: bool
    bounded: bool
    kind: str
    signs: bool = True

    @property
    def beta(self) -> float:
        """Return the bound H R^2 on the curvature of a record's loss in w."""
        return self.curvature * self.norm * self.norm

    @property
    def largest(self) -> float:
        """Return the bound G R on the norm of a record's gradient."""
        return self.lipschitz * self.norm

    def records(self, noise: str = "gaussian") -> float:
        """Return N = n mu / a, the number of records in units of the noise.

        For pure privacy, mu is replaced by epsilon / sqrt(p), because noise of density
        exp(-norm2) has norm p / epsilon, not sqrt(p).
        """
        pure = noise in PURE or self.mu == 0.0
        mu = self.epsilon / math.sqrt(self.p) if pure else self.mu
        return self.n * mu / self.change

    def margin(self, records: float) -> float:
        """Return nu, the noise on a margin that rules allow for N records."""
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
    """Return the public numbers of a problem; None if a scale is 0 or infinite.

    Without declared bounds, G R is the clipping threshold. If there is no threshold
    either, R is 1, and such a fit is refused or has no noise. If the slope of the loss
    has no bound, G is the bound on a label.

    Parameters
    ----------
    problem : ERM
        The problem; its records are not read.
    budget : Budget
        The budget; delta may depend on n.
    clip : float or None
        The clipping threshold; None if it is not given.
    """
    budget, bounds = budget.resolve_delta(problem.n), problem.dataset.bounds
    loss, G, H = problem.loss, problem.lipschitz, problem.loss.smoothness
    label = 1.0 if loss.classification or bounds is None else bounds.label
    bounded = bounds is not None and bool(label or math.isfinite(G))
    label, kind = label or 1.0, "ridge"
    if not math.isfinite(G):
        G, kind = label, "numbers"
    norm = (clip or G) / G if bounds is None else float(bounds.norm)
    column, squares = norm, norm * norm
    if bounds is not None:
        column = float(bounds.columns.max(initial=0.0))
        with np.errstate(over="ignore"):
            squares = float(np.square(bounds.columns).sum())
    try:
        at_zero = float(loss.value(np.array([label]), np.zeros(1))[0])
    except Exception:
        return None  # a user's loss may fail here; its trials report the error
    epsilon, mu = budget.epsilon, math.inf
    if math.isfinite(epsilon):
        # Beyond this epsilon mu grows like a square root, and noise is negligible.
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
        column=column,
        squares=squares,
        radius=float(problem.constraint.radius),
        curved=0.0 < H < math.inf,
        bounded=bounded,
        kind="ball" if math.isfinite(problem.constraint.radius) else kind,
        signs=bool(loss.classification),
    )
    scales = G, public.curvature, public.at_zero, norm, squares, public.beta
    return public if all(0.0 < one < math.inf for one in scales) else None


def safe_ratio(value: float, over: float) -> float:
    """Return value / over, or infinity if ``over`` is not positive."""
    return value / over if over > 0.0 else math.inf
