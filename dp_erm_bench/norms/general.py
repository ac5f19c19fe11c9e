"""Norms of any submodular function F, which may be given by a user's object.

The object computes the gains of F along an order: by how much F grows with each
coordinate that is added.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError, typed_text
from dp_erm_bench.norms.base import Array, Indices, SubmodularNorm, dinkelbach
from dp_erm_bench.norms.extreme import LISTED, ROUNDED
from dp_erm_bench.norms.minimum_norm import minimum_norm_point
from dp_erm_bench.paths import digest_of_json

TRIED = 20
"""Number of random orders on which the gains of an object are checked."""

LONGEST = 60


class General(SubmodularNorm):
    """A norm whose prox comes from the minimum-norm point of a base polytope.

    argmin_w tau f(w) + norm2(w - z)^2 / 2 is minus the point of least norm in the base
    polytope of tau F - z; its positive part is the prox. In the order of the computed
    point an isotonic regression gives the exact prox.
    """

    def shrink(self, z: Array, tau: float) -> Array:
        """Return the prox of tau Omega at z >= 0."""

        def vertex(x: Array) -> Array:
            order = np.argsort(x, kind="stable")
            point = np.empty(z.size)
            point[order] = tau * self.gains(order) - z[order]
            return point

        nearest = minimum_norm_point(vertex, np.zeros(z.size))
        return self.in_order(z, tau, np.argsort(nearest, kind="stable"))

    def spread(self, p: int) -> float:
        """Return a bound from F(A) >= |A| / Omega*(1) and F(A) >= min_j F({j})."""
        singles = self.of_masks(np.eye(p, dtype=bool))
        return math.sqrt(self.dual(np.ones(p))[0] / float(singles.min()))


class OwnFunction(str):
    """The name of a user's object in the keys of trials, together with the object.

    The name contains a digest of the gains, so objects with other gains have other
    names.
    """

    function: Any

    def gains(self, order: Indices) -> Any:
        """Return the gains of the object."""
        return self.function.gains(order)


@dataclass(frozen=True, eq=False)
class FromGains(General):
    """The norm of a function F that a user's object computes.

    The author of the object states that F is submodular and nondecreasing. Gains along
    random orders are checked, which finds mistakes but is not a proof.

    Parameters
    ----------
    function : object
        An object with a method ``gains(order)``. For a permutation of the coordinates
        it returns F(A_k) - F(A_{k-1}), k = 1 .. p, shape (p,), where A_k are the first
        k coordinates.
    """

    checked = False
    exact_reach = False

    function: Any

    def __post_init__(self) -> None:
        """Raise UsageError if the object has no method ``gains``."""
        if not callable(getattr(self.function, "gains", None)):
            raise UsageError(
                f"values={first_values(self.function)}: must be the 2^p values of F, "
                "the "
                "path of a .csv or .npy file of them, or an object with gains(order)"
            )

    def check_features(self, p: int) -> None:
        """Raise UsageError if gains on random orders show that F is not submodular."""
        random, says = np.random.default_rng(0), "values: F of the object is not"
        total = float(np.sum(self.gains(np.arange(p))))
        for order in [random.permutation(p) for _ in range(TRIED)]:
            gains, where = self.gains(order), f"along {order.tolist()[:LISTED]}"
            if gains.shape != (p,) or not np.isfinite(gains).all():
                raise UsageError(f"{says} p finite gains {where}")
            if (gains < -ROUNDED * total).any():
                raise UsageError(f"{says} monotone: a gain is {gains.min():g} {where}")
            if not gains[0] > 0.0:
                raise UsageError(f"{says} > 0 on {{{order[0]}}}")
            if abs(gains.sum() - total) > 1e-9 * total:
                raise UsageError(f"{says} a function: F of all differs {where}")
            k = int(random.integers(p))
            # The same coordinate after fewer others.
            sooner = self.gains(np.append(order[k], np.delete(order, k)))[0]
            if gains[k] > sooner + 1e-9 * total:
                raise UsageError(
                    f"{says} submodular: {order[k]} gains {sooner:g} alone and "
                    f"{gains[k]:g} after {order[:k].tolist()[:LISTED]}"
                )

    def name_by_gains(self, p: int) -> OwnFunction:
        """Return a name for the object, with the digest of its gains on some orders."""
        random, kind = np.random.default_rng(1), type(self.function)
        if isinstance(self.function, OwnFunction):
            return self.function
        orders = [random.permutation(p) for _ in range(TRIED)]
        content = digest_of_json([self.gains(order).tolist() for order in orders])
        name = OwnFunction(f"{kind.__module__}.{kind.__qualname__} {content}")
        name.function = self.function
        return name

    def gains(self, order: Indices) -> Array:
        """Return the gains of the object for each order."""
        rows = np.asarray(order).reshape(-1, np.shape(order)[-1])
        found = [np.asarray(self.function.gains(row), dtype=float) for row in rows]
        return np.array(found).reshape(*np.shape(order)[:-1], -1)

    def dual(self, s: Array) -> tuple[float, NDArray[np.bool_]]:
        """Return a bound on the largest |s|(A) / F(A), and the mask of A."""
        rho, mask, left = dinkelbach(self, s)
        over = np.abs(left) / self.of_masks(np.eye(s.size, dtype=bool))
        return rho + float(over.sum()), mask

    def reach(self, p: int) -> float:
        """Return the bound sqrt(F(all) max_j F({j})) on the norm over |P|(F)."""
        singles = self.of_masks(np.eye(p, dtype=bool))
        return math.sqrt(float(self.gains(np.arange(p)).sum()) * float(singles.max()))


def first_values(values: Any) -> str:
    """Return the first of some values as a string, as a user would type them."""
    listed = list(values[:9]) if isinstance(values, Sequence) else values
    text = typed_text(values if isinstance(values, str) else listed)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
