"""Second implementation (twin) of a vector with noise of density exp(-norm2)."""

from typing import Any

import numpy as np

from dp_erm_bench.trust.twins.base import Answered, Array
from dp_erm_bench.trust.twins.pure import PureTwin


class NormLaplaceTwin(PureTwin):
    """Twin (second implementation) of a vector with norm-Laplace noise."""

    @staticmethod
    def log_ratio(release: Any, use: Answered) -> Array:
        """Return the log-ratio of two densities exp(-norm2)."""
        a, (v, u) = use.values(), use.normalise_queries()
        near, far = np.linalg.norm(a - v, axis=1), np.linalg.norm(a - u, axis=1)
        return np.asarray(far - near)
