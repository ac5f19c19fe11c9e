"""Derivatives of the losses in the margin, by the code of the loss.

The branch on the code stands outside the loops over records, so that each
branch is vector code. A kernel takes a loss as (code, parameter): ``Loss.kernel``.
A code that is none of ``CODES`` raises ValueError.
"""

import math

from dp_erm_bench.kernels.compiled import kernel
from dp_erm_bench.kernels.elementary import exp, log

LOGISTIC = 0
SQUARED = 1
HUBER = 2
SMOOTHED_HINGE = 3
CODES = (LOGISTIC, SQUARED, HUBER, SMOOTHED_HINGE)
UNKNOWN = "no kernel has this loss's code"


@kernel
def between(low, value, high):  # type: ignore[no-untyped-def]
    """Return the value clipped to [low, high]; unlike min and max, NaN stays."""
    return low if value < low else (high if value > high else value)


@kernel
def derivative(loss, y, z):  # type: ignore[no-untyped-def]
    """Return phi'(z, y) of one record."""
    if loss[0] == LOGISTIC:
        return -y / (1.0 + exp(y * z))
    if loss[0] == SQUARED:
        return z - y
    if loss[0] == HUBER:
        return between(-loss[1], z - y, loss[1])
    if loss[0] == SMOOTHED_HINGE:
        return -y * between(0.0, (1.0 + loss[1] - y * z) / (2.0 * loss[1]), 1.0)
    raise ValueError(UNKNOWN)


@kernel
def residuals(loss, y, z, out):  # type: ignore[no-untyped-def]
    """Write phi'(z, y) of n records into ``out``; y, z, out: (n,)."""
    if loss[0] == LOGISTIC:
        for i in range(y.size):
            out[i] = -y[i] / (1.0 + exp(y[i] * z[i]))
    elif loss[0] == SQUARED:
        for i in range(y.size):
            out[i] = z[i] - y[i]
    elif loss[0] == HUBER:
        kappa = loss[1]
        for i in range(y.size):
            out[i] = between(-kappa, z[i] - y[i], kappa)
    elif loss[0] == SMOOTHED_HINGE:
        top, width = 1.0 + loss[1], 2.0 * loss[1]
        for i in range(y.size):
            out[i] = -y[i] * between(0.0, (top - y[i] * z[i]) / width, 1.0)
    else:
        raise ValueError(UNKNOWN)


@kernel
def loss_sum(loss, y, z):  # type: ignore[no-untyped-def]
    """Return the sum of phi(z, y) over n records; y, z: (n,)."""
    total = 0.0
    if loss[0] == LOGISTIC:
        for i in range(y.size):
            m = -y[i] * z[i]
            total += max(m, 0.0) + log(1.0 + exp(-abs(m)))
    elif loss[0] == SQUARED:
        for i in range(y.size):
            total += 0.5 * (z[i] - y[i]) * (z[i] - y[i])
    elif loss[0] == HUBER:
        for i in range(y.size):
            r = abs(z[i] - y[i])
            inner = between(0.0, r, loss[1])
            total += inner * (r - 0.5 * inner)
    elif loss[0] == SMOOTHED_HINGE:
        h = loss[1]
        for i in range(y.size):
            lack = between(0.0, 1.0 + h - y[i] * z[i], math.inf)
            part = between(0.0, lack / (2.0 * h), 1.0)
            total += part * (lack - h * part)
    else:
        raise ValueError(UNKNOWN)
    return total
