"""Second-order queries of an oracle: outer products, curvatures, geometries.

They stand beside the oracle, not in it: who asks first-order queries alone has no part
of them in its keys. The noise is not here; which change of a record's is to be hidden
is in ``solvers.bounds`` (`outer_change`, `moments_change`).

A symmetric matrix is published as the vector of its entries on and above the diagonal,
those above it times sqrt 2 (`pack_symmetric`): its length is the matrix' Frobenius
norm, and noise of deviation s on it is, on the matrix that is rebuilt
(`unpack_symmetric`), of deviation s on the diagonal and s / sqrt 2 off it.
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
"""Of a matrix of p x p numbers, of each trial of a batch: p up to 4096."""

BLOCK = 1 << 22
"""Entries of the records that are weighted, or seen in a geometry, at once (32 MB)."""

NEAR = 1e-5
"""Distance to the centre below which a secant's slope is the tangent's."""

TINY = float(np.finfo(np.float64).tiny)
"""More than what underflows in the image of a record of up to 1e6 features."""

SINGULAR = 1e-14
"""Least eigenvalue, as a part of the largest, that is not rounding."""


def matrix_refusal(problem: ERM) -> str | None:
    """Return why no matrix of p x p numbers is made, None if one may be."""
    p, size = problem.p, 8 * problem.p**2
    if size <= MOST_BYTES:
        return None
    return (
        f"p={p}: a matrix of p x p numbers takes {size:.3g} bytes in each trial of a "
        f"batch, at most {MOST_BYTES:.3g} are taken; use gd, or fewer features"
    )


@functools.lru_cache(maxsize=2)
def _packed_places(p: int) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
    """Return rows and columns of a packed matrix' entries, and what they are times."""
    i, j = np.triu_indices(p)
    return i, j, np.where(i == j, 1.0, math.sqrt(2.0))


def pack_symmetric(matrices: Array) -> Array:
    """Return symmetric matrices, (B, p, p), as vectors, (B, p (p + 1) / 2)."""
    i, j, times = _packed_places(matrices.shape[-1])
    return np.asarray(matrices[..., i, j] * times)


def unpack_symmetric(vectors: Array, p: int) -> Array:
    """Return the symmetric matrices, (B, p, p), of vectors, (B, p (p + 1) / 2)."""
    i, j, times = _packed_places(p)
    out = np.empty((*vectors.shape[:-1], p, p))
    out[..., i, j] = out[..., j, i] = vectors / times
    return out


def outer_products(oracle: Oracle, weights: Array | None = None) -> Array:
    """Return sum_i q_i x_i x_i' of each trial, packed, (B, p (p + 1) / 2).

    Dense records are weighted in blocks, sparse ones as they are read: nothing but the
    sums has p x p entries, 8 p^2 bytes a trial.

    Parameters
    ----------
    oracle : Oracle
    weights : array of shape (B, n), optional
        q, of any sign; by default 1: X'X, the same row for all trials.
    """
    data = oracle.problem.dataset
    if weights is None:
        one = pack_symmetric(compute_once(data, _gram_of_columns)[None])
        return np.broadcast_to(one, (oracle.batch, one.shape[1]))
    X = data.rows if data.sparse else data.X
    return np.stack([pack_symmetric(_weighted_gram(X, q)) for q in weights])


def _gram_of_columns(X: Any) -> Array:
    """Return X'X of features by columns; of sparse ones the upper triangle."""
    if isinstance(X, np.ndarray):
        return np.asarray(X.T @ X)
    return _weighted_gram(X.tocsr(), np.ones(X.shape[0]))


def _weighted_gram(rows: Any, q: Array) -> Array:
    """Return sum_i q_i x_i x_i', (p, p); of sparse rows the upper triangle."""
    n, p = rows.shape
    out = np.zeros((p, p))
    if not isinstance(rows, np.ndarray):
        upper_weighted_gram((rows.data, rows.indices, rows.indptr), q, out)
        return out
    roots = np.sqrt(np.abs(q))[:, None]
    # Each block adds up p x p numbers: no fewer records than some p.
    m = max(BLOCK // p, 4 * p)
    for start in range(0, n, m):
        block = slice(start, start + m)
        Z = rows[block] * roots[block]
        out += Z.T @ Z
        if (q[block] < 0.0).any():
            # What was added once, and ought to be taken away, twice.
            Z *= q[block, None] < 0.0
            out -= 2.0 * (Z.T @ Z)
    return out


def label_products(oracle: Oracle) -> Array:
    """Return X'y = sum_i y_i x_i, (1, p): it is the same for all trials."""
    return oracle.transposed_product(oracle.y[None])


def curvatures(oracle: Oracle) -> Array:
    """Return phi''(x_i.w, y_i) of each trial, (B, n), 0 where a margin is not finite.

    Cut off at [0, H] for a convex loss, else at [-H, H], H its smoothness constant:
    what sensitivities rest on holds whatever the loss computes.
    """
    with np.errstate(all="ignore"):
        q = oracle.loss.second_derivative(oracle.y, oracle.margins)
    return _cut_to_bounds(oracle, np.broadcast_to(q, oracle.margins.shape))


def secants(oracle: Oracle) -> Array:
    """Return q_i = (phi'(z_i) - phi'(c_i)) / (z_i - c_i) at z = x_i.w, (B, n).

    Where phi is an even function of z - c with a concave function of (z - c)^2 in it,
    up to linear terms, the parabola through z with the slope of phi there and the
    curvature q lies nowhere below phi (de Leeuw and Lange, "Sharp quadratic
    majorization in one dimension", 2009). That is so of the logistic loss with c = 0,
    q = tanh(z / 2) / (2 z), and of the squared, the Huber and the smoothed hinge loss
    with c = y. A mean value of phi'', q is in [0, H], and cut off there.
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
    """Return why `secants` bound no loss from above, None if they do."""
    known = (Logistic, Squared, Huber, SmoothedHinge)
    if type(problem.loss) in known:
        return None
    names = ", ".join(kind.name for kind in known)
    return (
        f"loss={problem.loss.name}: a quadratic upper bound is known of {names} only; "
        "use curvature=hessian"
    )


def _cut_to_bounds(oracle: Oracle, q: Array) -> Array:
    most = oracle.loss.smoothness
    least = 0.0 if oracle.loss.convex else -most
    seen = np.isfinite(oracle.margins) & np.isfinite(q)
    return np.where(seen, np.clip(q, least, most), 0.0)


class Geometry:
    """Gradients that are measured by norm2(Q'g), Q of each trial public or published.

    Parameters
    ----------
    oracle : Oracle
    Q : array of shape (B, p, p)
        Not from the data but through what was published.

    Attributes
    ----------
    lengths : array of shape (B, n)
        norm2(Q'x_i), computed once: a record's gradient is a multiple of x_i.
    """

    def __init__(self, oracle: Oracle, Q: Array) -> None:
        self.oracle, self.Q = oracle, Q
        data = oracle.problem.dataset
        rows = data.rows if data.sparse else data.X
        self.lengths = np.stack([_lengths_in_metric(rows, one) for one in Q])

    def clipped_sum(self, clip: Array) -> Array:
        """Return sum_i of Q'g_i, clipped in l2 to clip_b, (B, p); clip: (B, 1).

        A term is Q'g_i min(1, C / norm2(Q'g_i)): of norm C at most, so that the sum
        changes by ``adjacency.of_sum(C)``. Divided by C, as one publishes it where C
        follows from what was published, by ``adjacency.of_sum(1.0)``.
        """
        r = self.oracle.residuals()
        for b, lengths in enumerate(self.lengths):
            clip_lengths(r[b : b + 1], lengths, np.ascontiguousarray(clip[b]))
        total = self.oracle.transposed_product(r)
        return np.stack([Q.T @ one for Q, one in zip(self.Q, total, strict=True)])


def _lengths_in_metric(rows: Any, Q: Array) -> Array:
    """Return norm2(Q'x_i) of records, (n,), block by block."""
    # The images of sparse records are dense.
    n, p = rows.shape
    m = max(1, BLOCK // p)
    parts = (rows[start : start + m] @ Q for start in range(0, n, m))
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.concatenate([norm2(one, axis=-1) for one in parts])
    # Clipping needs no shorter ones than they are: nor 0, nor what is no number.
    return np.where(np.isnan(lengths), np.inf, lengths + TINY)


def eigen_decomposition(matrix: Array) -> tuple[Array, Array]:
    """Return the eigenvalues, increasing, and the eigenvectors of a symmetric matrix.

    Of a published one: all that follows from it costs nothing. nan, if an entry is not
    finite.
    """
    if not np.isfinite(matrix).all():  # LAPACK fails there, or not, by p
        return np.full(len(matrix), np.nan), np.full(matrix.shape, np.nan)
    values, vectors = linalg.eigh(matrix, check_finite=False, driver="evd")
    return np.asarray(values), np.asarray(vectors)


def lift_eigenvalues(values: Array, floor: float, lift: str = "clip") -> Array:
    """Return eigenvalues >= floor: max(l, floor), or max(l, 0) + floor (``add``)."""
    if lift == "add":
        return np.asarray(np.maximum(values, 0.0) + floor)
    return np.asarray(np.maximum(values, floor))


def check_regular(values: Array, what: str) -> None:
    """Raise Unsupported if the eigenvalues are those of a singular matrix.

    With noise a floor keeps them apart from 0; without there is none.
    """
    if not values.min() > SINGULAR * values.max():
        raise Unsupported(
            f"{what} is singular, and without noise nothing lifts its eigenvalues, nor "
            "does with noise a floor that small: use penalty=l2"
        )


def solve_system(
    matrix: Array, g: Array, floor: float, ridge: float, lift: str
) -> Array:
    """Return (lifted matrix + ridge I)^-1 g of a symmetric matrix, (p,).

    Eigenvalues are sought only if there is one that is cut: whether Cholesky's factor
    exists tells, in a tenth of the time.

    Raises
    ------
    Unsupported
        If what is solved is singular.
    """
    cut, added = (0.0, floor + ridge) if lift == "add" else (floor, ridge)
    # As they are: what scipy wraps them in costs more than a small system.
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
