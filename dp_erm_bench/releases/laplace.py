"""Laplace noise on a number."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dp_erm_bench.kernels import draws
from dp_erm_bench.releases.additive import AdditiveMechanism
from dp_erm_bench.releases.base import Release
from dp_erm_bench.releases.law import PureLaw, log_mean_exp
from dp_erm_bench.releases.losses import Floats, Losses, exponential_part


@dataclass(frozen=True)
class LaplaceLaw(PureLaw):
    """The law of the Laplace mechanism, of pure level sensitivity / scale."""

    name: ClassVar[str] = "laplace"

    def rdp(self, z: float, orders: Floats) -> Floats:
        """Return the Renyi curve of two Laplace laws (Mironov 2017, Proposition 6).

        log[ a/(2a-1) e^((a-1)/z) + (a-1)/(2a-1) e^(-a/z) ] / (a-1) for order a.
        """
        scale, upper = self.multiplier(z), orders / (2 * orders - 1)
        exponents = ((orders - 1) / scale, -orders / scale)
        return log_mean_exp((upper, 1 - upper), exponents) / (orders - 1)

    def losses(self, level: float, step: float) -> Losses:
        """Return the law of the loss of Lap(0, 1) against Lap(level, 1), level = 1/z.

        The loss l = |x - level| - |x| is level with probability 1/2 (x < 0), and -level
        with probability e^-level / 2 (x > level). In between, where x = (level - l)/2,
        it has density e^((l - level)/2) / 4.
        """
        losses, masses = exponential_part(level, 0.25, step)
        atoms = [0.5, math.exp(-level) / 2]
        return Losses(np.append(losses, [level, -level]), np.append(masses, atoms), 0.0)


class Laplace(Release):
    """A number plus Laplace noise of scale z * sensitivity."""

    mechanism = AdditiveMechanism
    proof = LaplaceLaw
    draw = staticmethod(draws.laplace)
