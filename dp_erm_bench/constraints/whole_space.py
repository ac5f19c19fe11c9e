"""No constraint."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class WholeSpace:
    """The whole of R^p."""

    name: ClassVar[str] = "none"

    def project(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return w, which is feasible already."""
        return w
