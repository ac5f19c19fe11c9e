"""The certificate of a penalised minimum: a duality gap without cancellation."""

from typing import Any

import numpy as np

from dp_erm_bench.datasets.base import Array
from dp_erm_bench.losses.base import Loss
from dp_erm_bench.problems.erm.optimum_linear import margins


def duality_gap(X: Any, y: Array, loss: Loss, l1: float, l2: float, w: Array) -> float:
    """Return an upper bound on F(w) - min F from Fenchel duality.

    F(w) = (1/n) sum_i phi(x_i.w, y_i) + l1 norm1(w) + (l2/2) norm2(w)^2. For dual
    variables v_i = phi'(x_i.w) and u = -X'v/n the gap is psi(w) + psi*(u) - w.u,
    since the part of the losses vanishes (Fenchel-Young with equality). With
    l2 = 0 the dual point is scaled by s <= 1 to be feasible, and convexity of
    phi* with phi*(0) <= 0 gives phi(z) + phi*(s v) - s v z <= (1 - s) phi(z).
    All terms are non-negative: nothing large is subtracted from anything large.

    Parameters
    ----------
    X : array or csc_array of shape (n, p)
    y : array of shape (n,)
    loss : Loss
        Differentiable and non-negative.
    l1, l2 : float
        At least one of them positive.
    w : array of shape (p,)

    References
    ----------
    Ndiaye, Fercoq, Gramfort, Salmon. Gap safe screening rules for sparsity
    enforcing penalties. JMLR 2017, section 2.
    """
    z = margins(X, w)
    u = -(X.T @ loss.derivative(y, z)) / y.size
    if l2 > 0.0:
        return float(_elastic(w, u, l1, l2).sum())
    largest = float(np.abs(u).max())
    s = min(1.0, l1 / largest) if largest > 0.0 else 1.0
    slack = np.maximum(l1 * np.abs(w) - s * u * w, 0.0).sum()
    return float((1.0 - s) * loss.value(y, z).mean() + slack)


def _elastic(w: Array, u: Array, l1: float, l2: float) -> Array:
    """Return psi_j(w_j) + psi_j*(u_j) - w_j u_j for psi = l1 |.| + (l2/2) (.)^2."""
    size = np.abs(w)
    along = np.where(w == 0.0, np.abs(u), np.sign(w) * u)
    excess = along - l1
    inside = -excess * size + 0.5 * l2 * size**2
    outside = (l2 * size - excess) ** 2 / (2.0 * l2)
    # Against the sign of w the conjugate counts |u|, not its projection on sign(w).
    against = np.maximum(-along - l1, 0.0) ** 2 / (2.0 * l2)
    gap: Array = np.where(excess > 0.0, outside, inside + against)
    return gap
