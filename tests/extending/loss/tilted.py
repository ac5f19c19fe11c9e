"""The smoothed quantile loss."""

from dataclasses import dataclass

import numpy as np

from dp_erm_bench.extend import Loss, between, check_finite, check_positive


@dataclass(frozen=True)
class Tilted(Loss):
    """The loss of the quantile tau, with a parabola of half-width h for its kink.

    With r = y - z: tau r for r > h, (tau - 1) r for r < -h.

    References
    ----------
    Koenker, Bassett, "Regression quantiles", Econometrica 1978.
    """

    classification = False
    tau: float = 0.7
    h: float = 0.5

    def __post_init__(self):
        check_positive(self.name, "h", self.h)

    @property
    def lipschitz(self):
        return max(self.tau, 1.0 - self.tau)

    @property
    def smoothness(self):
        return 0.5 / self.h

    def value(self, y, z):
        r = y - z
        inner = between(-self.h, r, self.h)
        bend = 0.25 * (inner * inner / self.h + self.h)
        return (self.tau - 0.5) * r + bend + 0.5 * (abs(r) - abs(inner))

    def derivative(self, y, z):
        return 0.5 - self.tau - 0.5 * between(-self.h, y - z, self.h) / self.h

    def second_derivative(self, y, z):
        return self.smoothness * np.asarray(abs(y - z) <= self.h, dtype=np.float64)

    def check_labels(self, y):
        check_finite(self.name, y)
