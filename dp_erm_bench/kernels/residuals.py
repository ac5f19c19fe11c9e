"""Derivatives of the losses in the margin, by the code of the loss.

The branch on the code stands outside the loops over records, so that each
branch is vector code. Codes: ``Loss.code``.
"""

import math

from dp_erm_bench.kernels.compiled import kernel
from dp_erm_bench.kernels.elementary import exp, log

LOGISTIC = 0
SQUARED = 1


@kernel
def derivative(code, y, z):  # type: ignore[no-untyped-def]
    """Return phi'(z, y) of one record."""
    if code == LOGISTIC:
        return -y / (1.0 + exp(y * z))
    if code == SQUARED:
        return z - y
    return math.nan


@kernel
def residuals(code, y, z, out):  # type: ignore[no-untyped-def]
    """Write phi'(z, y) of n records into ``out``; y, z, out: (n,)."""
    if code == LOGISTIC:
        for i in range(y.size):
            out[i] = -y[i] / (1.0 + exp(y[i] * z[i]))
    elif code == SQUARED:
        for i in range(y.size):
            out[i] = z[i] - y[i]
    else:
        out[:] = math.nan


@kernel
def loss_sum(code, y, z):  # type: ignore[no-untyped-def]
    """Return the sum of phi(z, y) over n records; y, z: (n,)."""
    total = 0.0
    if code == LOGISTIC:
        for i in range(y.size):
            m = -y[i] * z[i]
            total += max(m, 0.0) + log(1.0 + exp(-abs(m)))
    elif code == SQUARED:
        for i in range(y.size):
            total += 0.5 * (z[i] - y[i]) * (z[i] - y[i])
    else:
        total = math.nan
    return total
