"""No constraint."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dp_erm_bench.constraints.base import Array, Constraint
from dp_erm_bench.errors import Unsupported


@dataclass(frozen=True)
class WholeSpace(Constraint):
    """The whole of R^p."""

    name: ClassVar[str] = "none"
    code: ClassVar[int] = 0
    bounded: ClassVar[bool] = False
    radius = math.inf

    @classmethod
    def example(cls, p: int, size: float = 1.0) -> dict[str, Any]:
        """Return no parameters: it has no size."""
        return {}

    def project(self, w: Array) -> Array:
        """Return w, which is feasible already."""
        return w

    def project_linf(self, w: Array) -> Array:
        """Return w, which is feasible already."""
        return w

    def linear_minimiser(self, g: Array) -> Array:
        """Raise Unsupported: a linear function has no minimum on R^p."""
        raise Unsupported(
            "constraint=none: needs a bounded set, l2_ball, l1_ball or simplex"
        )

    def contains(self, w: Array, tolerance: float = 1e-12) -> Any:
        """Return whether the points are finite."""
        return np.isfinite(w).all(axis=-1)

    def vertex_count(self, p: int) -> int:
        """Return 0."""
        return 0

    def largest_margin(self, columns: Array, norm: float) -> float:
        """Return infinity, or 0 if all records are 0."""
        return math.inf if min(norm, float(columns.max())) > 0.0 else 0.0
