"""The point of smallest euclidean norm in a polytope.

The polytope is given by a function that returns a vertex for a direction.
"""

from collections.abc import Callable

import numpy as np

from dp_erm_bench.norms.base import Array

SMALL = 1e-14
"""The gap at which the search ends, relative to the largest vertex's squared norm."""

WEIGHT = 1e-12


def minimum_norm_point(vertex: Callable[[Array], Array], start: Array) -> Array:
    """Return the point x of a polytope with the least norm2, shape (p,).

    Parameters
    ----------
    vertex : callable
        Returns a vertex q with the least q.x for a given x.
    start : array of shape (p,)
        A direction for the first vertex.

    References
    ----------
    Wolfe, "Finding the nearest point in a polytope", Mathematical Programming 1976;
    Fujishige, Isotani, "A submodular function minimization algorithm based on the
    minimum-norm base", Pacific Journal of Optimization 2011.
    """
    points = vertex(start)[None, :]
    weights, x, largest = np.ones(1), points[0], float(points[0] @ points[0])
    for _ in range(100 * x.size + 100):
        q = vertex(x)
        largest = max(largest, float(q @ q))
        known = (np.abs(points - q).max(axis=1) == 0.0).any()
        if x @ x - x @ q <= SMALL * largest or known:
            break
        points, weights = np.vstack([points, q]), np.append(weights, 0.0)
        points, weights = _correct_weights(points, weights)
        x = weights @ points
    return np.asarray(x)


def _correct_weights(points: Array, weights: Array) -> tuple[Array, Array]:
    """Return the points and weights of least norm in a face of the hull of points."""
    while True:
        affine = _affine_weights(points)
        if (affine > WEIGHT).all():
            return points, affine
        falling = affine <= WEIGHT
        steps = weights[falling] / np.maximum(
            weights[falling] - affine[falling], 1e-300
        )
        share = min(1.0, float(steps.min()))
        weights = weights + share * (affine - weights)
        weights[falling & (weights <= WEIGHT)] = 0.0
        gone = weights <= WEIGHT
        if not gone.any():
            gone[np.argmin(weights)] = True
        points, weights = points[~gone], weights[~gone]
        weights = weights / weights.sum()


def _affine_weights(points: Array) -> Array:
    """Return the weights, summing to 1, that minimise norm2(weights @ points)."""
    m = len(points)
    if m == 1:
        return np.ones(1)
    base = points[0]
    rest, *_ = np.linalg.lstsq((points[1:] - base).T, -base, rcond=None)
    return np.append(1.0 - rest.sum(), rest)
