"""Laplace noise on every entry of a vector, a second time."""

from typing import ClassVar

from dp_erm_bench.trust.twins.laplace import LaplaceTwin
from dp_erm_bench.trust.twins.pure import PureTwin


class LaplaceVectorTwin(PureTwin):
    """Laplace mechanisms on all entries, ``ratio`` being that of all of them."""

    apart: ClassVar[bool] = True

    log_ratio = staticmethod(LaplaceTwin.log_ratio)
