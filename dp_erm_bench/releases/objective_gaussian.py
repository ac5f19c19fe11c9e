"""Accounting of objective perturbation for generalised linear models.

The minimiser w of sum_i phi(x_i.w, y_i) + (ridge/2) norm2(w)^2 + n psi(w) + b.w is
published, while b ~ N(0, sigma^2 I) is secret. Here phi(., y) is convex with
|phi'| <= G, phi'' <= H, norm2(x) <= R (Lambda = G R, beta = H R^2), psi is convex, and
ridge > 0. Derivation, for smooth psi on the whole space:

1. b is a smooth bijective function of w (set the gradient to zero), so the densities
   of w on neighbours D, D' have the log-ratio
   l = (norm2(b')^2 - norm2(b)^2) / (2 sigma^2) + log(det A / det A'),
   where b' = b + v - v' is the noise that gives the same w on D', v and v' are the
   gradients of the two terms at w, and A is the Hessian.
2. A >= ridge I. Adding one term adds phi'' x x' with phi'' norm2(x)^2 <= beta: the
   determinant grows by a factor of at most 1 + beta / ridge. Removing a term only
   lowers it. So log(det A / det A') is at most c = log(1 + beta / ridge), in both
   adjacencies and directions.
3. v = phi'(x.w) x: the direction does not depend on w. So |b.v| <= G |b.x|, where b.x
   is normal, although b and w depend on each other. With m = (largest norm of v - v')
   / sigma = 1/z and standard normal u, u':
   zero_out: l <= c + m^2/2 + m |u|; replace_one: l <= c + m^2/2 + m (|u| + |u'|) / 2.
4. Renyi: E e^(s |u|) = 2 e^(s^2/2) Phi(s). For replace_one, E e^(s (|u| + |u'|) / 2) is
   no larger (Cauchy-Schwarz), whatever the angle between x and x'.
5. Profile: delta(eps) = E (1 - e^(eps - l))_+ grows with l. The mean of |u| and |u'| is
   at most their maximum, so replace_one costs at most twice the delta of one term.
   This holds for every real eps.
6. Gaussian releases together with w, of mu in total and adaptive in either order: their
   loss is at worst g = mu^2/2 + mu v, with v normal and independent of l (Dong, Roth,
   Su 2022). Given g, the delta of w at eps - g is that of step 5. So delta(eps) is at
   most E (1 - e^(eps - g - l))_+, and twice that for replace_one. A half normal |u| has
   at most twice the density of u. Hence, with M^2 = m^2 + mu^2, one term costs at most
   2 H(eps - c), where H is the profile of a Gaussian of mu = M: the noise of the other
   releases adds in quadrature.

A convex psi or a closed convex set is the limit of smooth convex functions whose
minimisers converge for every b (strong convexity). So the laws converge weakly and the
guarantee passes to the limit (Kifer, Smith, Thakurta 2012, section 4). The losses whose
second derivative jumps (Huber, smoothed hinge) are limits of smooth ones likewise.
On a bounded set, where G need hold on that set only, phi may be replaced by its linear
extension beyond the margins that occur: the constrained minimiser is the same.
With density exp(-norm2(b) / sigma) in place of the normal one, l <= c + m.

The computed vector is not w but some w~, for which norm2(w~ - w) <= t is verified. The
low digits of w~ are a function of all records that no step above covers, however small
t is. So the result is published as w~ plus noise of sensitivity 2 t, after w: for every
b that gives this w, in D and in D', the two w~ lie within t of w. (Several b give the
same w if psi has corners; two mixtures of such shifts are no easier to distinguish than
the worst two shifts.) With Gaussian noise, step 6 covers the sum. With noise of density
exp(-norm2 / scale), the pure levels add up (Dwork and Roth 2014, Theorem 3.16).

References
----------
Chaudhuri, Monteleoni, Sarwate, JMLR 2011, Theorem 9; Kifer, Smith, Thakurta, COLT 2012;
Redberg, Koskela, Wang, "Improving the privacy and practicality of objective
perturbation", NeurIPS 2023 (the profile for generalised linear models).
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.base import Array, Mechanism, Release
from dp_erm_bench.releases.gaussian import gdp_delta
from dp_erm_bench.releases.law import Law
from dp_erm_bench.releases.losses import Floats

APART = 8.0


def objective_delta(
    epsilon: float, z: float, curvature: float, terms: int, mu: float = 0.0
) -> float:
    """Return a delta for which steps 5 and 6 prove (epsilon, delta)-DP of one use.

    Let e = eps - c, and let H be the profile of a Gaussian of mu = m. For e >= m^2/2,
    where (1 - e^(e - m^2/2 - m |u|))_+ vanishes for small |u|, delta is 2 H(e). Below
    that, it is 1 - r + r 2 H(m^2/2) with r = e^(e - m^2/2).

    With other Gaussian releases, delta is the smaller of two deltas: that of step 6,
    and that of basic composition, which leaves an epsilon of APART mu to these
    releases. The second one is smaller for large deltas.

    Parameters
    ----------
    epsilon : float
        The epsilon of the guarantee.
    z : float
        Noise multiplier of the objective, 1 / m.
    curvature : float
        c = log(1 + beta / ridge).
    terms : int
        1 under ``zero_out``, 2 under ``replace_one``.
    mu : float
        The mu of all other Gaussian releases in total, 0 for none.
    """
    if mu > 0:
        apart = objective_delta(epsilon - APART * mu, z, curvature, terms)
        apart += gdp_delta(APART * mu, mu)
        left = epsilon - curvature
        if left < 0:
            return min(1.0, apart)
        return min(1.0, apart, terms * 2 * gdp_delta(left, math.hypot(1.0 / z, mu)))
    m = 1.0 / z
    shifted, turn = epsilon - curvature, m * m / 2
    if shifted >= turn:
        one = 2 * gdp_delta(shifted, m)
    else:
        one = -math.expm1(shifted - turn)
        one += math.exp(shifted - turn) * 2 * gdp_delta(turn, m)
    return min(1.0, terms * one)


def check_curvature(curvature: float) -> None:
    """Raise ValueError unless log(1 + beta / ridge) is finite and at least 0."""
    if not 0 <= curvature < float("inf"):
        raise ValueError(f"curvature={curvature}: must not be negative")


@dataclass(frozen=True)
class ObjectiveGaussianLaw(Law):
    """The law of a minimiser with Gaussian noise in its objective.

    Attributes
    ----------
    curvature : float
        log(1 + beta / ridge), the cost of the objective's curvature alone.
    terms : int
        Number of records' terms in which neighbouring objectives differ: 1, or 2 if one
        record is exchanged for another.
    """

    name: ClassVar[str] = "objective"
    profiled: ClassVar[bool] = True
    curvature: float = 0.0
    terms: int = 1

    def __post_init__(self) -> None:
        """Raise ValueError if a parameter is outside its range."""
        super().__post_init__()
        check_curvature(self.curvature)
        if self.terms not in (1, 2):
            raise ValueError(f"terms={self.terms}: must be 1 or 2")

    def least(self) -> float:
        """Return the cost of the curvature, which noise does not reduce."""
        return self.curvature

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve, from the module's steps 3 and 4 with m = 1/z.

        It is c + m^2/2 + log(2 e^(s^2/2) Phi(s)) / (a - 1), s = (a - 1) m, for order a.
        """
        m = 1.0 / self.multiplier(z)
        s = (orders - 1) * m
        mean = math.log(2.0) + s * s / 2 + log_ndtr(s)
        return np.asarray(self.curvature + m * m / 2 + mean / (orders - 1))

    def delta(self, epsilon: float, z: float, mu: float) -> float:
        """Return the delta of steps 5 and 6 of the module's derivation.

        Parameters
        ----------
        epsilon, z, mu : float
            As in ``Law.delta``.
        """
        scale = self.multiplier(z)
        return objective_delta(epsilon, scale, self.curvature, self.terms, mu)


class ObjectiveMechanism(Mechanism):
    """Draws the secret linear term of an objective.

    This mechanism has no query, so the replay audit does not apply. The solver must
    publish nothing but the minimiser.
    """

    def publish(self, size: int) -> Array:
        """Return the linear terms of the trials, shape (B, size), and count the use."""
        return self.unit_noise(1, size)[:, 0] * self.scale

    def minimiser(self, w: Array) -> Array:
        """Return the minimiser of the perturbed objective, which is published.

        `dp-erm-bench check` treats every other value of the records as private.
        """
        return w

    def query(self, size: int) -> Array:
        """Raise TypeError, as the noise is not added to a published quantity."""
        raise TypeError(
            f"release {self.release.name} publishes a minimiser, so the replay audit "
            "does not apply to it"
        )


@dataclass(frozen=True, eq=False)
class ObjectiveGaussian(Release):
    """The minimiser of an objective with a secret normal linear term.

    Parameters
    ----------
    sensitivity : float
        Largest norm of the change of the gradient of sum_i phi between neighbours:
        Lambda under ``zero_out``, 2 Lambda under ``replace_one``.
    curvature : float
        The cost log(1 + beta / ridge) of the objective's curvature.
    terms : int
        Number of records' terms in which neighbouring objectives differ: 1 under
        ``zero_out``, 2 under ``replace_one``.
    """

    mechanism = ObjectiveMechanism
    vectors: ClassVar[bool] = True
    secret: ClassVar[bool] = True
    curvature: float = field(kw_only=True)
    terms: int = field(kw_only=True)
    proof = ObjectiveGaussianLaw
    draw = staticmethod(draws.gaussian)
