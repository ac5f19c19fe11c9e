"""The interface of a loss, which is computed elementwise from margins and labels."""

import inspect
import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dp_erm_bench.errors import UsageError, real_number
from dp_erm_bench.plugins.names import entries_of_pin, origin_digest

Array = NDArray[np.float64]


def check_positive(name: str, key: str, value: object) -> float:
    """Return a parameter of a loss as a number, which must be positive and finite.

    Parameters
    ----------
    name : str
        Name of the loss, for messages.
    key : str
        Name of the parameter, for messages.
    value : object
        Value of the parameter, as given by the user.

    Raises
    ------
    UsageError
        If the value is not a finite number > 0.
    """
    real = real_number(value)
    if not 0.0 < real < math.inf:
        raise UsageError(f"loss.{key}={value} of {name}: must be a finite number > 0")
    return real


def check_finite(name: str, y: Array) -> None:
    """Raise UsageError unless every label is finite."""
    if not np.isfinite(y).all():
        raise UsageError(f"loss={name}: labels must be finite numbers")


def check_signs(name: str, y: Array) -> None:
    """Raise UsageError unless every label is -1 or +1."""
    wrong = y[np.abs(y) != 1.0]
    if wrong.size:
        raise UsageError(
            f"loss={name}: label {wrong[0]:g} is not allowed, labels must be -1 or +1, "
            "or name what becomes +1 (positive)"
        )


class Loss(ABC):
    """A loss phi(z, y) of the margin z = x.w and the label y.

    `value` and `derivative` are called with arrays. The kernels also compile both
    methods for single numbers, so write the methods with operators and
    `kernels.elementwise`. From ``self``, the methods may read only the numeric fields
    of the (data)class.

    Attributes
    ----------
    name : str
        Name of the yaml file or of the Python file of the loss.
    pin : str
        Path and content of the file from which the loss was loaded, otherwise empty.
    lipschitz : float
        The supremum G of the absolute derivative in z; infinite if unbounded.
    smoothness : float
        The supremum H of the second derivative in z. H is infinite if the loss has a
        kink, and may be 0.
    convex : bool
        Whether phi(., y) is convex for every label. Certificates of minima, and
        algorithms that publish a minimiser, need this.
    smooth : bool
        Whether H is finite. Steps of length 1 / beta need this, and H > 0.
    classification : bool
        Whether labels are -1 and +1, so that accuracy has a meaning.
    monotone : bool
        Whether phi(., y) is monotone for every label, so that its derivative has one
        sign. Two derivatives of one record then differ by at most G.
    """

    name: ClassVar[str]
    pin: ClassVar[str] = ""
    classification: ClassVar[bool]
    convex: ClassVar[bool] = True
    smooth: ClassVar[bool] = True
    monotone: ClassVar[bool] = False
    lipschitz: float
    smoothness: float

    @property
    def is_curved(self) -> bool:
        """Return whether 0 < H < inf, so that 1 / H can be a step length."""
        return self.smooth and 0.0 < self.smoothness < math.inf

    @cached_property
    def _numba_type_(self) -> Any:
        # This imports numba, which is not needed to name a loss.
        from dp_erm_bench.kernels.losses import loss_type

        return loss_type(type(self))

    @property
    def source(self) -> dict[str, str]:
        """Return the source of a loss from outside the package, or {} if built in."""
        content = origin_digest(type(self))
        return {**entries_of_pin(self.pin), "content": content} if content else {}

    @property
    def reason_not_compiled(self) -> str | None:
        """Return the reason why no kernel can compute this loss; None if one can."""
        if not origin_digest(type(self)):
            return None
        from dp_erm_bench.kernels.losses import reason_not_compiled

        reason = reason_not_compiled(self)
        return reason and f"loss={self.name}: no algorithm runs on it, as {reason}"

    @abstractmethod
    def value(self, y: Array, z: Array) -> Array:
        """Return phi(z, y), elementwise."""

    @abstractmethod
    def derivative(self, y: Array, z: Array) -> Array:
        """Return the derivative of phi(z, y) in z, elementwise."""

    @abstractmethod
    def second_derivative(self, y: Array, z: Array) -> Array:
        """Return the second derivative of phi(z, y) in z, elementwise."""

    def lipschitz_within(self, margin: float, label: float) -> float:
        """Return the supremum of |phi'(z, y)| over |z| <= margin, |y| <= label.

        By default, this is the Lipschitz constant for all margins and labels.
        """
        return self.lipschitz

    def smooth_surrogate(self, width: float) -> "Loss | None":
        """Return a smooth loss from which a minimum is certified, None by default.

        A loss can have such a surrogate if it is the maximum of v (z - y) over an
        interval of slopes v. The surrogate is nowhere below the loss, and the
        derivatives of the surrogate are in the interval. If |z - y| > width, they equal
        those of the loss.
        """
        return None

    @abstractmethod
    def check_labels(self, y: Array) -> None:
        """Raise UsageError if a label is outside the domain of the loss."""


def complaint_of_loss(cls: type[Loss]) -> str | None:
    """Return the first requirement that a loss class does not meet, or None."""
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if missing:
        return f"{cls.__name__} lacks {', '.join(missing)}"
    if not isinstance(inspect.getattr_static(cls, "classification", None), bool):
        return f"{cls.__name__} needs classification = True or False"
    return None
