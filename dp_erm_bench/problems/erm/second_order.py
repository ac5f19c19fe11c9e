"""Second-order queries: outer products, curvatures and gradients in other metrics.

These queries are not part of the oracle. So this code is not part of the keys of
solvers that make only first-order queries. The noise is added elsewhere. The
sensitivity to a record is bounded in ``solvers.bounds`` (`outer_change`,
`moments_change`).

A symmetric matrix is published as the vector of its entries on and above the diagonal,
with those above it times sqrt 2 (`pack_symmetric`). The norm of the vector is the
matrix' Frobenius norm. Noise of standard deviation s on the vector becomes noise on the
rebuilt matrix (`unpack_symmetric`), of standard deviation s on the diagonal and s /
sqrt 2 off the diagonal.
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from dp_erm_bench.datasets.base import Array, compute_once
from dp_erm_bench.errors import Unsupported
from dp_erm_bench.kernels.dense import clip_lengths
from dp_erm_bench.kernels.lengths import norm2
from dp_erm_bench.kernels.products import upper_weighted_gram
from dp_erm_bench.losses.smooth import Huber, Logistic, SmoothedHinge, Squared
from dp_erm_bench.problems.erm.objective import ERM
from dp_erm_bench.problems.erm.oracle import Oracle

MOST_BYTES = 1 << 27
"""Largest size in bytes of a p x p matrix of one trial; p is at most 4096."""

BLOCK = 1 << 22
"""Number of entries of records that are processed at once (32 MB)."""

NEAR = 1e-5
"""Distance to the centre below which the slope of a tangent replaces a secant's."""

TINY = float(np.finfo(np.float64).tiny)
"""Upper bound on what a norm loses by underflow, for up to 10^6 features."""

SINGULAR = 1e-14
"""Smallest eigenvalue, relative to the largest, that is not due to rounding."""


def matrix_refusal(problem: ERM) -> str | None:
    """Return the reason why a p x p matrix is too large to be made, or None."""
    p, size = problem.p, 8 * problem.p**2
    if size <= MOST_BYTES:
        return None
    return (
        f"p={p}: a p x p matrix takes {size:.3g} bytes in each trial, but the limit is "
        f"{MOST_BYTES:.3g} bytes; use algorithm=gd or fewer features"
    )


@functools.lru_cache(maxsize=2)
def _packed_places(p: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Return the rows, columns and factors of the entries of a packed matrix."""
    i, j = np.triu_indices(p)
    return i, j, np.where(i == j, 1.0, math.sqrt(2.0))


def pack_symmetric(matrices: Array) -> Array:
    """Return symmetric matrices (B, p, p) as vectors of shape (B, p (p + 1) / 2)."""
    i, j, times = _packed_places(matrices.shape[-1])
    return np.asarray(matrices[..., i, j] * times)


def unpack_symmetric(vectors: Array, p: int) -> Array:
    """Return the symmetric matrices (B, p, p) of vectors (B, p (p + 1) / 2)."""
    i, j, times = _packed_places(p)
    out = np.empty((*vectors.shape[:-1], p, p))
    out[..., i, j] = out[..., j, i] = vectors / times
    return out


def outer_products(oracle: Oracle, weights: Array | None = None) -> Array:
    """Return sum_i q_i x_i x_i' of each trial, packed, (B, p (p + 1) / 2).

    Dense records are weighted in blocks, and sparse ones as they are read. Only the
    sums have p x p entries, which take 8 p^2 bytes per trial.

    Parameters
    ----------
    oracle : Oracle
    weights : array of shape (B, n), optional
        The q_i, of any sign. None means weights of 1, so that each row is X'X.
    """
    data = oracle.problem.dataset
    if weights is None:
        one = pack_symmetric(compute_once(data, _gram_of_columns)[None])
        return np.broadcast_to(one, (oracle.batch, one.shape[1]))
    X = data.rows if data.sparse else data.X
    return np.stack([pack_symmetric(_weighted_gram(X, q)) for q in weights])


def _gram_of_columns(X: Any) -> Array:
    """Return X'X of features stored by columns; if sparse, only the upper triangle."""
    if isinstance(X, np.ndarray):
        return np.asarray(X.T @ X)
    return _weighted_gram(X.tocsr(), np.ones(X.shape[0]))


def _weighted_gram(rows: Any, q: Array) -> Array:
    """Return sum_i q_i x_i x_i', shape (p, p); if sparse, only the upper triangle."""
    n, p = rows.shape
    out = np.zeros((p, p))
    if not isinstance(rows, np.ndarray):
        upper_weighted_gram((rows.data, rows.indices, rows.indptr), q, out)
        return out
    roots = np.sqrt(np.abs(q))[:, None]
    # Each block adds p x p numbers, so it has at least a few times p records.
    m = max(BLOCK // p, 4 * p)
    for start in range(0, n, m):
        block = slice(start, start + m)
        Z = rows[block] * roots[block]
        out += Z.T @ Z
        if (q[block] < 0.0).any():
            # Terms of negative weight were added once, so they are subtracted twice.
            Z *= q[block, None] < 0.0
            out -= 2.0 * (Z.T @ Z)
    return out


def label_products(oracle: Oracle) -> Array:
    """Return X'y = sum_i y_i x_i, shape (1, p), the same for all trials."""
    return oracle.transposed_product(oracle.y[None])


def curvatures(oracle: Oracle) -> Array:
    """Return phi''(x_i.w, y_i) of each trial, and 0 where w.x_i is not finite.

    The result has the shape (B, n).

    The curvatures are clipped to [0, H] for a convex loss, else to [-H, H], where H is
    the smoothness constant of the loss. The bounds on which sensitivities depend are
    therefore valid, whatever the loss computes.
    """
    with np.errstate(all="ignore"):
        q = oracle.loss.second_derivative(oracle.y, oracle.margins)
    return _cut_to_bounds(oracle, np.broadcast_to(q, oracle.margins.shape))


def secants(oracle: Oracle) -> Array:
    """Return q_i = (phi'(z_i) - phi'(c_i)) / (z_i - c_i) at z = x_i.w, shape (B, n).

    Suppose that, up to linear terms, phi is an even function of z - c and a concave
    function of (z - c)^2. Then the parabola through z with the slope of phi there and
    the curvature q is nowhere below phi (de Leeuw and Lange, "Sharp quadratic
    majorization in one dimension", 2009). This holds for the logistic loss with c = 0,
    for which q = tanh(z / 2) / (2 z), and for the squared, the Huber and the smoothed
    hinge loss with c = y. As a mean value of phi'', q is in [0, H], and it is clipped
    to this interval.
    """
    loss, y, z = oracle.loss, oracle.y, oracle.margins
    c = np.zeros_like(y) if isinstance(loss, Logistic) else y
    with np.errstate(all="ignore"):
        slopes = loss.derivative(y, z) - loss.derivative(y, c)
        near = np.abs(z - c) < NEAR
        tangent = loss.second_derivative(y, z)
        q = np.where(near, tangent, slopes / np.where(near, 1.0, z - c))
    return _cut_to_bounds(oracle, q)


def secant_refusal(problem: ERM) -> str | None:
    """Return the reason why `secants` give no upper bound on the loss, or None."""
    known = (Logistic, Squared, Huber, SmoothedHinge)
    if type(problem.loss) in known:
        return None
    names = ", ".join(kind.name for kind in known)
    return (
        f"loss={problem.loss.name}: a quadratic upper bound is known only for {names}; "
        "use curvature=hessian"
    )


def _cut_to_bounds(oracle: Oracle, q: Array) -> Array:
    most = oracle.loss.smoothness
    least = 0.0 if oracle.loss.convex else -most
    seen = np.isfinite(oracle.margins) & np.isfinite(q)
    return np.where(seen, np.clip(q, least, most), 0.0)


class Geometry:
    """Gradients measured by norm2(Q'g), where Q is a public or published matrix.

    Parameters
    ----------
    oracle : Oracle
    Q : array of shape (B, p, p)
        The matrix Q of each trial, which depends on the data only through what was
        published.

    Attributes
    ----------
    lengths : array of shape (B, n)
        The norms norm2(Q'x_i). They are computed once, because a record's gradient is a
        multiple of x_i.
    """

    def __init__(self, oracle: Oracle, Q: Array) -> None:
        self.oracle, self.Q = oracle, Q
        data = oracle.problem.dataset
        rows = data.rows if data.sparse else data.X
        self.lengths = np.stack([_lengths_in_metric(rows, one) for one in Q])

    def clipped_sum(self, clip: Array) -> Array:
        """Return sum_i of Q'g_i, each clipped in l2 to clip_b, shape (B, p).

        ``clip`` has shape (B, 1). With C = clip_b, a term is Q'g_i min(1, C /
        norm2(Q'g_i)). Its norm is at most C, so the sum changes by at most
        ``adjacency.of_sum(C)``. The sum divided by C changes by at most
        ``adjacency.of_sum(1.0)``. This quotient is published if C was computed from
        published values.
        """
        r = self.oracle.residuals()
        for b, lengths in enumerate(self.lengths):
            clip_lengths(r[b : b + 1], lengths, np.ascontiguousarray(clip[b]))
        total = self.oracle.transposed_product(r)
        return np.stack([Q.T @ one for Q, one in zip(self.Q, total, strict=True)])


def _lengths_in_metric(rows: Any, Q: Array) -> Array:
    """Return norm2(Q'x_i) of records, shape (n,), block by block."""
    # The images of sparse records are dense.
    n, p = rows.shape
    m = max(1, BLOCK // p)
    parts = (rows[start : start + m] @ Q for start in range(0, n, m))
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.concatenate([norm2(one, axis=-1) for one in parts])
    # For clipping, no length may be too short, nor 0, nor NaN.
    return np.where(np.isnan(lengths), np.inf, lengths + TINY)


def eigen_decomposition(matrix: Array) -> tuple[Array, Array]:
    """Return the eigenvalues, increasing, and the eigenvectors of a symmetric matrix.

    The matrix is a published one, so what follows from it costs no budget. All results
    are nan if an entry is not finite.
    """
    if not np.isfinite(matrix).all():  # whether LAPACK fails there depends on p
        return np.full(len(matrix), np.nan), np.full(matrix.shape, np.nan)
    values, vectors = linalg.eigh(matrix, check_finite=False, driver="evd")
    return np.asarray(values), np.asarray(vectors)


def lift_eigenvalues(values: Array, floor: float, lift: str = "clip") -> Array:
    """Return eigenvalues raised to at least ``floor``.

    With lift ``clip`` they are max(l, floor). With ``add`` they are max(l, 0) + floor.

    Parameters
    ----------
    values : array of shape (p,)
        The eigenvalues l.
    floor : float
        The smallest eigenvalue of the result.
    lift : {'clip', 'add'}
        How eigenvalues are raised.
    """
    if lift == "add":
        return np.asarray(np.maximum(values, 0.0) + floor)
    return np.asarray(np.maximum(values, floor))


def check_regular(values: Array, what: str) -> None:
    """Raise Unsupported if the eigenvalues are those of a singular matrix.

    With noise, a floor keeps the eigenvalues away from 0; without noise there is no
    floor.
    """
    if not values.min() > SINGULAR * values.max():
        raise Unsupported(
            f"{what} is singular, because nothing raises its eigenvalues without noise "
            "or with a very small floor; use penalty=l2"
        )


def solve_system(
    matrix: Array, g: Array, floor: float, ridge: float, lift: str
) -> Array:
    """Return (lifted matrix + ridge I)^-1 g for a symmetric matrix, shape (p,).

    Eigenvalues are computed only if one of them has to be lifted. A Cholesky
    factorisation fails in this case, and takes a tenth of the time.

    Parameters
    ----------
    matrix : array of shape (p, p)
    g : array of shape (p,)
    floor : float
        Least eigenvalue of the lifted matrix.
    ridge : float
        The number that is added to all eigenvalues.
    lift : {'clip', 'add'}
        As for `lift_eigenvalues`.

    Raises
    ------
    Unsupported
        If the matrix of the system is singular.
    """
    cut, added = (0.0, floor + ridge) if lift == "add" else (floor, ridge)
    # LAPACK itself: scipy's wrappers cost more than a small system.
    _, lacking = linalg.lapack.dpotrf(_shift_diagonal(matrix, -cut))
    if not lacking:
        factor, found, lacking = linalg.lapack.dposv(_shift_diagonal(matrix, added), g)
        diagonal = factor.diagonal()
        if not lacking and diagonal.min() > math.sqrt(SINGULAR) * diagonal.max():
            return np.asarray(found).ravel()
    values, vectors = eigen_decomposition(matrix)
    values = lift_eigenvalues(values, floor, lift) + ridge
    check_regular(values, "the matrix of a step")
    return np.asarray(vectors @ ((vectors.T @ g) / values))


def _shift_diagonal(matrix: Array, added: float) -> Array:
    shifted = matrix.copy()
    np.einsum("ii->i", shifted)[:] += added
    return shifted
