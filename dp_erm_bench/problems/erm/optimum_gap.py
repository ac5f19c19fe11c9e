"""The certificate of a penalised minimum: a duality gap without cancellation."""

from typing import Any

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.penalties.base import Penalty
from dp_erm_bench.problems.erm.optimum_linear import margins


def duality_gap(X: Any, y: Array, loss: Loss, psi: Penalty, w: Array) -> float:
    """Return an upper bound on F(w) - min F from Fenchel duality.

    F(w) = (1/n) sum_i phi(x_i.w, y_i) + psi(w). For dual variables v_i = phi'(x_i.w)
    and u = -X'v/n the gap is psi(w) + psi*(u) - w.u, since the part of the losses
    vanishes (Fenchel-Young with equality). Where psi*(u) is infinite the dual point is
    scaled by s <= 1 to be feasible, and convexity of phi* with phi*(0) <= 0 gives
    phi(z) + phi*(s v) - s v z <= (1 - s) phi(z). All terms are non-negative: nothing
    large is subtracted from anything large.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
    y : array of shape (n,)
    loss : Loss
        Convex, differentiable and non-negative.
    psi : Penalty
    w : array of shape (p,)

    References
    ----------
    Ndiaye, Fercoq, Gramfort, Salmon. Gap safe screening rules for sparsity
    enforcing penalties. JMLR 2017, section 2.
    """
    z = margins(X, w)
    u = -(X.T @ loss.derivative(y, z)) / y.size
    s, distance = psi.dual_distance(w, u)
    return float((1.0 - s) * loss.value(y, z).mean() + distance)
