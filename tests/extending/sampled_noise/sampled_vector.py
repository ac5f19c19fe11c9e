"""A vector summed over a secret Poisson sample, with noise of density exp(-norm2).

Let S be the sample of the other records, and P0, P1, P1' the laws of the answer given
S: without the record that neighbours differ in, with it in D, with it in D'. Given S
the answer has the law (1 - q) P0 + q P1 in D and (1 - q) P0 + q P1' in D'. The noise
makes laws with means d apart e^(d / scale)-close. Let e = sensitivity / scale = 1 / z.

- ``zero_out``: P1' = P0, and P1 / P0 lies in e^-e .. e^e. The ratio is at most t =
  1 - q + q e^e, and at least 1 - q + q e^-e >= 1 / t (Cauchy and Schwarz).
- ``replace_one``: the sensitivity is twice the bound of a term, so P1 / P0 and P1' / P0
  lie in 1 / r .. r, r = e^(e/2), and the ratio is at most (1 - q + q r) /
  (1 - q + q / r). That is at most t, for t (1 - q + q / r) - (1 - q + q r) =
  q (1 - q) (r - 1) (r - 1 / r) >= 0. The other direction is the same.

Averaging over S keeps both: one use is log t-DP in both adjacencies.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from sampled_vector_twin import SampledVectorTwin

from dp_erm_bench.releases.law import PureLaw
from dp_erm_bench.releases.norm_laplace import NormLaplace
from dp_erm_bench.releases.sampling import SampledRelease


@dataclass(frozen=True)
class SampledVectorLaw(PureLaw):
    """The mechanism, of level log(1 + q (e^(1/z) - 1))."""

    name: ClassVar[str] = "sampled_vector"
    rate: float = 1.0

    def level(self, z):
        whole = 1.0 / self.multiplier(z)
        if whole > 700.0:
            return whole
        return math.log1p(self.rate * math.expm1(whole))


@dataclass(frozen=True, eq=False)
class SampledVector(SampledRelease):
    """A sum over a Poisson sample, plus norm-Laplace noise of scale z * sensitivity."""

    vectors = True
    twin = SampledVectorTwin
    draw = staticmethod(NormLaplace.draw)
    unit = NormLaplace.unit

    def law(self):
        return SampledVectorLaw(self.times, self.weight, self.rate)
