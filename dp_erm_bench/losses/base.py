"""The interface of a loss: elementwise in label and margin."""

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Loss(ABC):
    """A convex loss phi(z, y) of the margin z = x.w and the label y.

    Attributes
    ----------
    name : str
        The name of its yaml.
    code : int
        What the compiled kernels know it by (``kernels.residuals``).
    lipschitz : float
        G, the supremum of the absolute derivative in z; infinite if unbounded.
    smoothness : float
        H, the supremum of the second derivative in z.
    classification : bool
        Whether labels are -1 and +1, so that accuracy has a meaning.
    """

    name: ClassVar[str]
    code: ClassVar[int]
    lipschitz: ClassVar[float]
    smoothness: ClassVar[float]
    classification: ClassVar[bool]

    @abstractmethod
    def value(self, y: Array, z: Array) -> Array:
        """Return phi(z, y), elementwise."""

    @abstractmethod
    def derivative(self, y: Array, z: Array) -> Array:
        """Return the derivative in z, elementwise."""

    @abstractmethod
    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return the second derivative in z, elementwise."""

    @abstractmethod
    def check_labels(self, y: Array) -> None:
        """Raise UsageError if a label is outside the domain of the loss."""
