"""Laplace noise on every entry of a vector, a second time."""

from __future__ import annotations

from typing import Any, ClassVar

from dp_erm_bench.trust.twins.base import Answered, Array
from dp_erm_bench.trust.twins.laplace import LaplaceTwin
from dp_erm_bench.trust.twins.pure import PureTwin


class LaplaceVectorTwin(PureTwin):
    """Laplace mechanisms on all entries, ``ratio`` being that of all of them."""

    apart: ClassVar[bool] = True

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of products of Laplace densities."""
        return LaplaceTwin.log_ratio(release, use)
