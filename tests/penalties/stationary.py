"""Compute how far a point is from stationarity, by the subdifferential."""

import numpy as np


def subdifferential_distance(penalty, g, w):
    """Return the distance of -g to the subdifferential of psi_j at w.

    The subdifferential is a point, an interval (at the kink) or a ray (on
    the border of the box); the distance is zero exactly at a minimiser.
    """
    centre = g + penalty.l2 * w + penalty.l1 * np.sign(w)
    slack = np.where(w == 0.0, penalty.l1, 0.0)
    down = np.maximum(centre - slack, 0.0) * (w > penalty.lower)
    up = np.maximum(-centre - slack, 0.0) * (w < penalty.upper)
    return down + up
